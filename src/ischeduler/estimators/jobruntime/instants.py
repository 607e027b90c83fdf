"""Which jobs are looked at, and when: the rows a run-time law is fitted and judged on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ischeduler.estimators.jobruntime.table import JobTable

Rows = tuple["NDArray[np.int64]", "NDArray[np.int64]"]


def running_rows(table: JobTable, instants_s: NDArray[np.int64]) -> Rows:
    """(job, instant) for every job running at each instant."""
    rows, at = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    end = table.end_s
    for instant in instants_s:
        alive = np.flatnonzero((table.start_s <= instant) & (end > instant))
        rows.append(alive)
        at.append(np.full(len(alive), instant, np.int64))
    return np.concatenate(rows), np.concatenate(at)


def submitted_rows(table: JobTable, low_s: float, high_s: float, count: int, rng: np.random.Generator) -> Rows:
    """(job, its submission) for ``count`` random jobs of a span: what is known of a job that still waits."""
    candidates = np.flatnonzero((table.submit_s >= low_s) & (table.submit_s < high_s) & (table.start_s > table.submit_s))
    rows = np.sort(rng.choice(candidates, min(count, len(candidates)), replace=False)) if len(candidates) else candidates
    return rows, table.submit_s[rows]


def instants(low_s: float, high_s: float, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Random instants of a span, sorted."""
    return np.sort(rng.uniform(low_s, high_s, count)).astype(np.int64)


def settled(table: JobTable, rows: Rows, until_s: float) -> Rows:
    """Rows whose outcome is known by ``until_s`` whatever it is: no job is left out because it runs long."""
    job, at = rows
    latest = np.maximum(at, table.start_s[job]) + table.limit_s[job] - np.maximum(at - table.start_s[job], 0)
    keep = latest <= until_s
    return job[keep], at[keep]
