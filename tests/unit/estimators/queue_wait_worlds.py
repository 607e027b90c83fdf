"""A cluster whose queue was run by the simulator: waits that follow from sizes, limits and load, as a table of columns."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from ischeduler.estimators.queuewait.jobs import Jobs, from_columns
from ischeduler.simulator.kernel import starts

UNITS = 64
DAY_S = 86400.0


@cache
def trace(seed: int = 0, count: int = 1500, load: float = 0.95, named: bool = True) -> Jobs:
    """``count`` jobs of a dozen users on :data:`UNITS` nodes, EASY backfill; ``named`` False: nobody knows whose they are."""
    rng = np.random.default_rng(seed)
    user = rng.integers(0, 12, count)
    units = 2 ** rng.integers(0, 5, count)
    limit = np.where(user % 3 == 0, 4, np.where(user % 3 == 1, 12, 24)) * 3600
    run = np.maximum(60, limit * np.clip(rng.normal(0.2 + 0.05 * user, 0.1), 0.01, 1.0)).astype(np.int64)
    span = float((units * run).sum()) / UNITS / load
    submit = np.sort(rng.uniform(0, span, count)).astype(np.int64)
    start = starts(submit, units, run, limit, UNITS)
    columns = {"submit_s": submit, "start_s": start, "end_s": start + run, "req_units": units, "req_walltime_s": limit}
    who = {"user": user.astype(str), "name": (user % 4).astype(str)} if named else {}
    return from_columns({**columns, **who})


def shuffled_after(jobs: Jobs, now_s: float, seed: int = 1) -> Jobs:
    """The same past, another future: later submissions are other jobs, and what starts or ends later does so at another time."""
    rng = np.random.default_rng(seed)
    later = jobs.submit_s > now_s
    rows = np.arange(len(jobs))
    rows[later] = rng.permutation(rows[later])
    moved = replace(jobs.take(rows), submit_s=jobs.submit_s)
    start = np.where(moved.start_s >= now_s, np.maximum(now_s, moved.submit_s) + rng.uniform(0, 9 * DAY_S, len(jobs)), moved.start_s)
    end = np.where(moved.end_s >= now_s, np.maximum(start, now_s) + rng.uniform(0, 9 * DAY_S, len(jobs)), moved.end_s)
    return replace(moved, start_s=start, end_s=end)
