"""``python -m benchmarks.forecast [--trace FILE --units N] [--limit N] [--json]``: 200 roll-outs of a live queue, how fast and how right.

Speed: a synthetic queue of 5,000 jobs, from the snapshot to the distribution of a new job's start, as ``isched forecast`` does it. Rightness:
at instants of a real trace with recorded starts the queue as it was then
is run forward for the job that was really handed in at that second; the last fifth of the trace's jobs, drawn with a seed.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.report import Bar, finish
from ischeduler.core.errors import BadInput, IschedError

TRACE, UNITS = Path(__file__).resolve().parents[2] / "shared" / "data" / "traces" / "mirage_ls6_a100.parquet", 76
LAW_TRACES = ("mirage_ls6_a100", "kth_sp2_original", "alcf_theta_2022")
JOBS, ROLLS, SECONDS_BAR = 5000, 200, 1.0

def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.forecast", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trace", type=Path, help="a trace with real waits (parquet or csv); default: Lonestar6's A100 nodes")
    parser.add_argument("--units", type=int, help="nodes or processors of that machine")
    parser.add_argument("--limit", type=int, default=200, metavar="N", help="instants to look at")
    parser.add_argument("--rolls", type=int, default=ROLLS, help="roll-outs of each forecast of the trace")
    parser.add_argument("--law", action="store_true", help="print the shipped law of used over requested time as the traces give it")
    parser.add_argument("--json", action="store_true", help="only the closing line")
    args = parser.parse_args(arguments)
    try:
        if args.law:
            print(_law())
            return 0
        if args.limit < 1 or args.rolls < 10:
            raise BadInput("--limit must be at least 1 and --rolls at least 10.")
        if (args.trace is None) != (args.units is None):
            raise BadInput("--trace and --units belong together: a trace does not say how large the machine was.")
        metrics = speed()
        metrics |= rightness(_read(args.trace or TRACE), args.units or UNITS, args.limit, args.rolls)
    except IschedError as error:
        print(f"benchmarks.forecast: {error}", file=sys.stderr)
        return 2
    return finish("forecast", metrics, [Bar("rollouts_200_of_5000_jobs_s", SECONDS_BAR)], as_json=args.json)


def speed() -> dict[str, float]:
    """Seconds for 200 roll-outs of three queues of 5,000 jobs: the slowest of three machines, each the best of three; and the peer's."""
    from ischeduler.helper.forecast import Question, of_partition

    found: dict[str, float] = {}
    for gpus in (400, 2000, 8000):
        snapshot, finished = _synthetic(gpus)
        question = Question(1, 4, 86400.0, rolls=ROLLS)
        of_partition(snapshot, finished, "gpu", Question(1, 4, 86400.0, rolls=10))
        found[f"of_5000_jobs_on_{gpus}_gpus_s"] = min(_timed(lambda s=snapshot, f=finished, q=question: of_partition(s, f, "gpu", q)) for _ in range(3))
    snapshot, finished = _synthetic(2000)
    plain = _timed(lambda: _plain(snapshot)) * ROLLS
    return {
        "rollouts_200_of_5000_jobs_s": max(found.values()), **found, "plain_python_easy_200_rollouts_s": plain,
        "times_faster_than_plain_python": plain / found["of_5000_jobs_on_2000_gpus_s"],
    }


def _timed(what: Any) -> float:
    begin = time.perf_counter()
    what()
    return time.perf_counter() - begin


def _synthetic(gpus: int) -> tuple[Any, list[Any]]:
    """A queue of 5,000 jobs, and 5,000 finished ones."""
    from ischeduler.core.snapshot import FinishedJob, NodeCounts, QueuedJob, QueueSnapshot

    dice, now, free, jobs = random.Random(1), 1e9, gpus, []
    for i in range(JOBS):
        size, limit = dice.choice([1, 1, 1, 2, 4, 4, 8]), dice.choice([1, 4, 12, 24, 48, 72]) * 3600.0
        common: dict[str, Any] = {"gpus": size, "limit_s": limit, "user": f"u{i % 97}", "name": "train"}
        if free >= size:
            free -= size
            since = now - dice.random() * limit * 0.8
            jobs.append(QueuedJob(str(i), "gpu", "RUNNING", submit_s=since - 60, start_s=since, **common))
        else:
            free = 0
            jobs.append(QueuedJob(str(i), "gpu", "PENDING", submit_s=now - i, priority=dice.randrange(1000), **common))
    counts = (NodeCounts("gpu", "a100", allocated=gpus // 4, idle_gpus=free, total_gpus=gpus),)
    past = []
    for k in range(JOBS):
        submit, size = now - dice.random() * 6e5, dice.choice([1, 2, 4])
        past.append(FinishedJob(f"u{k % 97}", "train", "gpu", submit, submit + 60, submit + 60 + dice.random() * 36000, 36000.0, 1, size))
    return QueueSnapshot("bench", now, counts, tuple(jobs)), past


def _plain(snapshot: Any) -> int:
    """One roll-out by EASY as one would write it in plain Python with a heap, all limits used up; how many jobs started."""
    import heapq

    from ischeduler.simulator.live import live_queue, pool_of

    queue = live_queue(snapshot, pool_of(snapshot, "gpu"))
    units, left = queue.units.tolist(), (queue.limit_s - queue.elapsed_s.clip(0)).tolist()
    ends = [(left[i], i) for i in range(queue.running)]
    heapq.heapify(ends)
    waiting, free, now = list(range(queue.running, len(units))), queue.pool.capacity - sum(units[: queue.running]), 0
    while waiting:
        while waiting and units[waiting[0]] <= free:
            job = waiting.pop(0)
            free -= units[job]
            heapq.heappush(ends, (now + left[job], job))
        if not waiting:
            break
        shadow, spare = now, free
        for end, job in sorted(ends):
            spare += units[job]
            if spare >= units[waiting[0]]:
                shadow, spare = end, spare - units[waiting[0]]
                break
        for job in waiting[1:501]:
            if units[job] <= free and (now + left[job] <= shadow or units[job] <= spare):
                spare -= 0 if now + left[job] <= shadow else units[job]
                free -= units[job]
                waiting.remove(job)
                heapq.heappush(ends, (now + left[job], job))
        now, job = heapq.heappop(ends)
        free += units[job]
    return len(units)


def _read(path: Path) -> Any:
    from ischeduler.simulator.readers import read_trace

    trace = read_trace(path)
    trace = trace.take((trace.start_s >= 0).nonzero()[0])
    if len(trace) < 100:
        raise BadInput(f"{path.name} has {len(trace)} jobs with a recorded start; at least 100 are needed.")
    return trace


@dataclass(frozen=True)
class _Told:
    """What was said of a job's wait, and what it was."""

    low: float
    middle: float
    high: float
    soon: float
    actual: float
    usual: float


def rightness(trace: Any, units: int, limit: int, rolls: int) -> dict[str, float]:
    """Coverage, log error and discrimination of the forecasts, beside the mean of the last hundred waits."""
    import numpy as np
    from sklearn.metrics import roc_auc_score

    last = [i for i in range(int(0.8 * len(trace)), len(trace)) if trace.units[i] <= units]
    if not last:
        raise BadInput(f"no job of the trace's last fifth fits on {units} units.")
    chosen = sorted(random.Random(0).sample(last, min(limit, len(last))))
    told = [t for i in chosen if (t := _told(trace, i, units, rolls)) is not None]
    actual = np.array([t.actual for t in told])
    quick = actual <= 600

    def error(values: Sequence[float]) -> float:
        return float(np.mean((np.log10(np.maximum(1, values)) - np.log10(np.maximum(1, actual))) ** 2))

    both = 0 < quick.sum() < len(told)
    return {
        "instants": len(told),
        "inside_p10_p90": float(np.mean([t.low <= t.actual <= t.high for t in told])),
        "under_p90": float(np.mean([t.actual <= t.high for t in told])),
        "log10_mse": error([t.middle for t in told]),
        "log10_mse_mean_of_last_100": error([t.usual for t in told]),
        "starts_within_10_min_auc": float(roc_auc_score(quick, [t.soon for t in told])) if both else float("nan"),
        "starts_within_10_min_auc_mean_of_last_100": float(roc_auc_score(quick, [-t.usual for t in told])) if both else float("nan"),
    }


def _told(trace: Any, index: int, units: int, rolls: int) -> _Told | None:
    """The forecast for one job at the second it was handed in, from what was known then."""
    import numpy as np

    from ischeduler.helper.forecast import Question, of_partition
    from ischeduler.simulator.instant import PARTITION, queue_of

    now = float(trace.submit_s[index])
    shot, past = queue_of(trace, now, units)
    question = Question(int(trace.units[index]), 0, max(60.0, float(trace.limit_s[index])), rolls=rolls)
    wait, chances = (found := of_partition(shot, past, PARTITION, question)).wait, found.chances
    begun = np.flatnonzero(trace.start_s <= now)
    recent = begun[np.argsort(trace.start_s[begun], kind="stable")][-100:]
    usual = float(trace.wait_s[recent].mean()) if len(recent) else 0.0
    return None if wait is None else _Told(wait.p10, wait.p50, wait.p90, chances["600"], float(trace.wait_s[index]), usual)


def _law() -> str:
    import numpy as np

    found = []
    for name in LAW_TRACES:
        trace = _read(TRACE.with_name(f"{name}.parquet"))
        found.append(np.quantile((trace.run_s / np.maximum(1, trace.limit_s)).clip(0, 1), np.linspace(0, 1, 21)))
    return ", ".join(f"{v:.3g}" for v in np.round(np.mean(found, 0), 3))


if __name__ == "__main__":
    sys.exit(main())
