"""What the past says about a job alive at an instant: conditional laws of its user's, its kind's and everybody's ended jobs.

A row is a pair (job, instant). Only jobs that ended by the instant are looked at for run times; of jobs still running only their
elapsed time. Nothing here reads the row's own run time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numba
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ischeduler.estimators.jobruntime.table import JobTable

RECENT = 100
"""Ended jobs looked back at per group: people change, and a hundred runs say enough."""
LEVELS = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
GROUPS = ("user", "user_limit", "user_kind", "user_name", "limit", "queue", "all")
PER_GROUP = ("alive", "seen", *(f"q{int(100 * q)}" for q in LEVELS), "last", "last3", "full", "age")
OWN = (
    "limit", "elapsed", "elapsed_share", "left", "units", "waited", "pending", "hour", "weekday", "twins_running", "twins_oldest",
    "burst_ended", "burst_run", "user_running", "user_pending", "later_ended", "later_run", "since_submit", "since_end", "day_ended",
    "day_full", "day_submitted",
)
FEATURES = (*OWN, *(f"{g}_{f}" for g in GROUPS for f in PER_GROUP))


def group_codes(table: JobTable) -> dict[str, NDArray[np.int64]]:
    """For each of :data:`GROUPS`, a code per job."""
    limit = _dense(table.limit_s)
    user_limit = _dense(table.user * (limit.max(initial=0) + 1) + limit)
    units = _dense(table.units)
    return {
        "user": _dense(table.user),
        "user_limit": user_limit,
        "user_kind": _dense(user_limit * (units.max(initial=0) + 1) + units),
        "user_name": _dense(table.user * (table.name.max(initial=0) + 1) + table.name),
        "limit": limit,
        "queue": _dense(table.queue),
        "all": np.zeros(len(table), np.int64),
    }


def features(table: JobTable, rows: NDArray[np.int64], at_s: NDArray[np.int64]) -> NDArray[np.float32]:
    """One line of :data:`FEATURES` per row; shape (rows, features)."""
    rows = np.asarray(rows, np.int64)
    at_s = np.asarray(at_s, np.int64)
    out = np.full((len(rows), len(FEATURES)), np.nan, np.float32)
    elapsed = np.maximum(at_s - table.start_s[rows], 0)
    end = table.end_s
    codes = group_codes(table)
    _own(table, rows, at_s, elapsed, out)
    by_user = listing(codes["user"], table.submit_s)
    _company(
        rows, at_s, codes["user"], codes["user_kind"], *by_user, table.submit_s, table.start_s, end, table.run_s, table.limit_s,
        out, OWN.index("twins_running"),
    )
    for number, group in enumerate(GROUPS):
        pointer, members = listing(codes[group], end)
        column = len(OWN) + number * len(PER_GROUP)
        _conditional(rows, at_s, elapsed, codes[group], pointer, members, end, table.run_s, table.limit_s, LEVELS, out, column)
    return out


def elapsed_s(table: JobTable, rows: NDArray[np.int64], at_s: NDArray[np.int64]) -> NDArray[np.int64]:
    """How long each row's job has run at its instant; 0 while it waits."""
    return np.maximum(at_s - table.start_s[rows], 0)


def _dense(values: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def listing(code: NDArray[np.int64], key: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Members of every group sorted by ``key``: group g is ``members[pointer[g]:pointer[g + 1]]``."""
    members = np.lexsort((key, code)).astype(np.int64)
    count = np.bincount(code, minlength=int(code.max(initial=-1)) + 1)
    return np.concatenate([[0], np.cumsum(count)]).astype(np.int64), members


def _own(
    table: JobTable, rows: NDArray[np.int64], at_s: NDArray[np.int64], elapsed: NDArray[np.int64], out: NDArray[np.float32]
) -> None:
    limit = table.limit_s[rows]
    waiting = table.start_s[rows] > at_s
    day = at_s / 86400.0
    waited = np.where(waiting, at_s, table.start_s[rows]) - table.submit_s[rows]
    columns = (
        np.log1p(limit), np.log1p(elapsed), elapsed / limit, np.log1p(limit - elapsed), np.log2(table.units[rows]),
        np.log1p(np.maximum(waited, 0)), waiting, 24.0 * (day % 1.0), np.floor(day) % 7,
    )
    for column, values in enumerate(columns):
        out[:, column] = values


@numba.njit(cache=True, nogil=True)
def position_after(members, low, high, key, at):  # type: ignore[no-untyped-def]
    """The first position in members[low:high] (sorted by key) whose key is later than ``at``."""
    while low < high:
        middle = (low + high) // 2
        if key[members[middle]] <= at:
            low = middle + 1
        else:
            high = middle
    return low


@numba.njit(cache=True, nogil=True)
def _company(rows, at_s, user, kind, pointer, members, submit, start, end, run, limit, out, column):  # type: ignore[no-untyped-def]
    """The same user's jobs beside the row's, latest submitted first: alike ones still running, its burst, the last day's doings."""
    for r in range(len(rows)):
        j, at = rows[r], at_s[r]
        low = pointer[user[j]]
        high = position_after(members, low, pointer[user[j] + 1], submit, at)
        twins, oldest, running, pending = 0, 0.0, 0, 0
        burst, burst_run, later, later_run, day, full, submitted = 0, 0.0, 0, 0.0, 0, 0, 0
        last_end = -1
        for p in range(high - 1, max(low, high - 3 * RECENT) - 1, -1):
            k = members[p]
            submitted += submit[k] > at - 86400
            if k == j:
                continue
            if start[k] > at:
                pending += 1
            elif end[k] > at:
                running += 1
                if kind[k] == kind[j]:
                    twins += 1
                    oldest = max(oldest, (at - start[k]) / limit[j])
            else:
                last_end = max(last_end, end[k])
                if end[k] > at - 86400:
                    day += 1
                    full += run[k] >= 0.98 * limit[k]
                if kind[k] == kind[j]:
                    if abs(submit[k] - submit[j]) <= 600:
                        burst += 1
                        burst_run += run[k] / limit[j]
                    if start[k] >= start[j]:
                        later += 1
                        later_run += run[k] / limit[j]
        out[r, column] = twins
        out[r, column + 1] = oldest
        out[r, column + 2] = burst
        out[r, column + 3] = burst_run / burst if burst else np.nan
        out[r, column + 4] = running
        out[r, column + 5] = pending
        out[r, column + 6] = later
        out[r, column + 7] = later_run / later if later else np.nan
        if high > low:
            out[r, column + 8] = np.log1p(at - submit[members[high - 1]])
        out[r, column + 9] = np.log1p(at - last_end) if last_end >= 0 else np.nan
        out[r, column + 10] = day
        out[r, column + 11] = full / day if day else np.nan
        out[r, column + 12] = submitted


@numba.njit(cache=True, nogil=True)
def _conditional(rows, at_s, elapsed, code, pointer, members, end, run, limit, levels, out, column):  # type: ignore[no-untyped-def]
    """Shares used of the limit by the group's recent ended jobs, as the share of what is left to the row's job."""
    kept = np.empty(RECENT)
    for r in range(len(rows)):
        j, at, gone = rows[r], at_s[r], elapsed[r]
        low = pointer[code[j]]
        high = position_after(members, low, pointer[code[j] + 1], end, at)
        left = max(limit[j] - gone, 1)
        alive, seen, full, last, last3 = 0, 0, 0, np.nan, 0.0
        for p in range(high - 1, max(low, high - RECENT) - 1, -1):
            k = members[p]
            share = run[k] / limit[k]
            seen += 1
            if seen == 1:
                last = share
                out[r, column + len(levels) + 5] = np.log1p(at - end[k])
            if seen <= 3:
                last3 += share
            if share >= 0.98:
                full += 1
            if share * limit[j] > gone:
                kept[alive] = (share * limit[j] - gone) / left
                alive += 1
        out[r, column] = alive
        out[r, column + 1] = seen
        if alive:
            kept[:alive].sort()
            for q in range(len(levels)):
                out[r, column + 2 + q] = kept[int(levels[q] * (alive - 1) + 0.5)]
        after = column + 2 + len(levels)
        if seen:
            out[r, after] = last
            out[r, after + 1] = last3 / min(seen, 3)
            out[r, after + 2] = full / seen
