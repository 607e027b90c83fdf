"""``python -m benchmarks.simulator_scale JOBS NODES LOAD``: one synthetic trace under EASY; seconds and peak memory as one JSON line.

In a process of its own, so that the peak is that of this trace alone.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np


def measure(jobs: int, nodes: int, load: float, seed: int = 1) -> dict[str, Any]:
    """The best of three runs in seconds, the process's peak memory in MiB, and how busy the machine was."""
    from ischeduler.simulator.kernel import starts
    from ischeduler.simulator.summary import summarise
    from ischeduler.simulator.synthetic import synthetic_trace

    starts([0], [1], [1], [1], 1)
    trace = synthetic_trace(jobs, nodes, seed=seed, load=load)
    taken = []
    start = np.empty(0, np.int64)
    for _ in range(3):
        began = time.perf_counter()
        start = starts(trace.submit_s, trace.units, trace.run_s, trace.limit_s, nodes)
        taken.append(time.perf_counter() - began)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    summary, _ = summarise(trace, start, nodes, "easy")
    return {"jobs": jobs, "seconds": min(taken), "peak_mib": peak, "utilisation": summary.utilisation, "queue_depth": summary.queue_depth_mean}


def in_a_child(jobs: int, nodes: int, load: float) -> dict[str, Any]:
    """:func:`measure` in a fresh process."""
    argv = [sys.executable, "-m", "benchmarks.simulator_scale", str(jobs), str(nodes), str(load)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def growth(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """The exponent of time over jobs: 1 is linear."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))))
