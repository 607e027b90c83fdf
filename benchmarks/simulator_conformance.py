"""How far the kernel's EASY agrees, job by job, with starts that another EASY simulator recorded (pyss), and what the rest comes from."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.report import AtLeast, Bar
from ischeduler.simulator.kernel import starts
from ischeduler.simulator.trace import Trace

CAUSES = ("tied_submission", "several_events_in_that_second", "follows_an_earlier_difference", "unexplained")


def conformance(trace: Trace, capacity: int, stem: str, limit: int | None = None) -> tuple[dict[str, Any], list[Bar]]:
    """Mean wait's relative error (percent), the share of jobs that start in the recorded second, and the causes of the others.

    All jobs are replayed, since a later one may be backfilled before an earlier one; the first ``limit`` are compared.
    """
    start = starts(trace.submit_s, trace.units, trace.run_s, trace.limit_s, capacity)[:limit]
    trace = trace if limit is None else trace.head(limit)
    theirs = trace.start_s
    off = start != theirs
    error = 100 * abs(float((start - trace.submit_s).mean()) / max(float(trace.wait_s.mean()), 1e-9) - 1)
    metrics: dict[str, Any] = {
        f"{stem}_jobs": len(trace), f"{stem}_mean_wait_s": float((start - trace.submit_s).mean()), f"{stem}_mean_wait_error_percent": error,
        f"{stem}_same_second_share": float(1 - off.mean()), f"{stem}_differing_jobs": int(off.sum()),
    }  # fmt: skip
    for cause, count in zip(CAUSES, causes(trace, start, off), strict=True):
        if count:
            metrics[f"{stem}_differing_{cause}"] = count
    return metrics, [Bar(f"{stem}_mean_wait_error_percent", 0.1), AtLeast(f"{stem}_same_second_share", 0.99)]


def causes(trace: Trace, start: Any, off: Any) -> list[int]:
    """How many differing jobs there are by cause, each job under the first that fits, in the order of :data:`CAUSES`.

    A job follows an earlier difference when an earlier job that differs was submitted before it starts and ended after it was
    submitted, in either schedule: then the machine it met was another one.
    """
    which = np.flatnonzero(off)
    if not len(which):
        return [0] * len(CAUSES)
    theirs = trace.start_s
    submits, counts = np.unique(trace.submit_s, return_counts=True)
    tied = counts[np.searchsorted(submits, trace.submit_s[which])] > 1
    seconds, events = np.unique(np.concatenate([submits, theirs + np.minimum(trace.run_s, trace.limit_s)]), return_counts=True)
    place = np.searchsorted(seconds, np.minimum(start, theirs)[which]).clip(max=len(seconds) - 1)
    crowded = events[place] > 1
    end = np.maximum(start, theirs)[which] + trace.run_s[which]
    reach = np.concatenate([[-1], np.maximum.accumulate(end)[:-1]])
    follows = reach >= trace.submit_s[which]
    found = np.select([tied, crowded, follows], [0, 1, 2], 3)
    return np.bincount(found, minlength=len(CAUSES)).tolist()
