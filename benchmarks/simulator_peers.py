"""The simulator's peers: EASY backfill with Python's heapq, as one would write it in an afternoon, and accasim 1.1.3.

accasim (https://pypi.org/project/accasim/1.1.3/) predates Python 3.10; the aliases it misses are put back in its own process. It writes
its results to a folder of its own, so that it is measured end to end: SWF file in, schedule file out.
"""

from __future__ import annotations

import heapq
import json
import os
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from ischeduler.simulator.trace import Trace

CHILD = """
import collections, collections.abc, json, sys, time
for name in ("Mapping", "MutableMapping", "Sequence", "Iterable", "Callable"):
    setattr(collections, name, getattr(collections.abc, name))
import numpy
for name, kind in (("float", float), ("int", int), ("bool", bool), ("object", object)):
    if not hasattr(numpy, name):
        setattr(numpy, name, kind)
from accasim.base.simulator_class import Simulator
from accasim.base.scheduler_class import EASYBackfilling
from accasim.base.allocator_class import FirstFit
began = time.perf_counter()
here = Simulator(sys.argv[1], sys.argv[2], EASYBackfilling(FirstFit()), scheduling_output=True, statistics_output=False,
                 show_statistics=False, RESULTS_FOLDER_PATH=sys.argv[3])
here.start_simulation()
print(json.dumps({"seconds": time.perf_counter() - began}))
"""


def heapq_easy(trace: Trace, capacity: int) -> float:
    """Seconds a plain Python EASY takes."""
    submit, units, limit = trace.submit_s.tolist(), trace.units.tolist(), trace.limit_s.tolist()
    run = [min(r, m) for r, m in zip(trace.run_s.tolist(), limit, strict=True)]
    began = time.perf_counter()
    _easy(submit, units, run, limit, capacity)
    return time.perf_counter() - began


def _easy(submit: list[int], units: list[int], run: list[int], limit: list[int], capacity: int) -> list[int]:
    start = [-1] * len(submit)
    ends: list[tuple[int, int]] = []
    announced: dict[int, int] = {}
    queue: list[int] = []
    free, i = capacity, 0

    def begin(k: int, now: int) -> None:
        nonlocal free
        start[k], announced[k] = now, now + limit[k]
        free -= units[k]
        heapq.heappush(ends, (now + run[k], k))

    while i < len(submit) or ends:
        now = min(submit[i] if i < len(submit) else ends[0][0], ends[0][0] if ends else submit[i])
        while ends and ends[0][0] <= now:
            k = heapq.heappop(ends)[1]
            del announced[k]
            free += units[k]
        while i < len(submit) and submit[i] <= now:
            if units[i] <= capacity:
                queue.append(i)
            i += 1
        while queue and units[queue[0]] <= free:
            begin(queue.pop(0), now)
        if len(queue) > 1 and free:
            have, shadow = free, now
            for end, k in sorted((end, k) for k, end in announced.items()):
                have, shadow = have + units[k], end
                if have >= units[queue[0]]:
                    break
            extra, kept = have - units[queue[0]], queue[:1]
            for k in queue[1:]:
                if units[k] <= free and (now + limit[k] <= shadow or units[k] <= extra):
                    extra -= 0 if now + limit[k] <= shadow else units[k]
                    begin(k, now)
                else:
                    kept.append(k)
            queue = kept
    return start


def accasim_easy(trace: Trace, capacity: int, jobs: int, timeout_s: float = 120.0) -> float | None:
    """Seconds accasim's EASY takes for the first ``jobs`` jobs; None where it is not installed or fails."""
    if find_spec("accasim") is None:
        print("accasim is not installed, so its figure is missing; pip install accasim==1.1.3 to have it.", file=sys.stderr)
        return None
    part = trace.head(jobs)
    with tempfile.TemporaryDirectory() as folder:
        swf, machine, out = Path(folder, "trace.swf"), Path(folder, "machine.json"), Path(folder, "results")
        swf.write_text("".join(_swf_line(part, k) for k in range(len(part))), encoding="ascii")
        machine.write_text(json.dumps({
            "start_time": 0, "equivalence": {"processor": {"core": 1}},
            "groups": {"g": {"core": 1, "mem": 1}}, "resources": {"g": capacity},
        }))  # fmt: skip
        child = Path(folder, "child.py")
        child.write_text(CHILD)
        try:
            done = subprocess.run(
                [sys.executable, str(child), str(swf), str(machine), str(out)], cwd=folder, capture_output=True, text=True, timeout=timeout_s,
                env={**os.environ, "PYTHONWARNINGS": "ignore"}, check=True,
            )  # fmt: skip
            return float(json.loads(done.stdout.splitlines()[-1])["seconds"])
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired, ValueError, IndexError, KeyError) as error:
            words = getattr(error, "stderr", "") or str(error)
            print(f"accasim gave no figure: {str(words).strip().splitlines()[-1][:160]}", file=sys.stderr)
            return None


def _swf_line(trace: Trace, k: int) -> str:
    units, submit = int(trace.units[k]), int(trace.submit_s[k] - trace.submit_s[0])
    limit = max(int(trace.limit_s[k]), 1)
    run = max(min(int(trace.run_s[k]), limit), 1)
    return f"{k + 1} {submit} -1 {run} {units} -1 1 {units} {limit} 1 1 1 1 1 1 1 -1 -1\n"
