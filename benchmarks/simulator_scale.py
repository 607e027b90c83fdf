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

REPEATS = 5


def measure(jobs: int, nodes: int, load: float, seed: int = 1) -> dict[str, Any]:
    """The best of some runs in seconds by the clock and of this process's own time, its peak memory in MiB, and how busy the machine was.

    Growth is judged by the process's own time: what else the host does must not count as a cost of the jobs.
    """
    from ischeduler.simulator.kernel import starts
    from ischeduler.simulator.summary import summarise
    from ischeduler.simulator.synthetic import synthetic_trace

    starts([0], [1], [1], [1], 1)
    trace = synthetic_trace(jobs, nodes, seed=seed, load=load)
    taken, own = list[float](), list[float]()
    start = np.empty(0, np.int64)
    for _ in range(REPEATS):
        began, own_began = time.perf_counter(), time.process_time()
        start = starts(trace.submit_s, trace.units, trace.run_s, trace.limit_s, nodes)
        taken.append(time.perf_counter() - began)
        own.append(time.process_time() - own_began)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    summary, _ = summarise(trace, start, nodes, "easy")
    return {
        "jobs": jobs, "seconds": min(taken), "own_s": min(own), "peak_mib": peak, "utilisation": summary.utilisation, "queue_depth": summary.queue_depth_mean,
    }  # fmt: skip


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
