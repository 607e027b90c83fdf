"""The kernel's machine code for conservative backfill; rules in :mod:`ischeduler.simulator.reference`.

What is free from when on is kept as a staircase: sorted seconds and the units free from each until the next. A reservation is a
notch in it. Each early end costs a walk over the queue and the stairs, so this is slower than EASY where queues are long.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from ischeduler.simulator.compiled import NEVER, Int, Queue, enqueue, fixed_order, pop_end, push_end, running_set


class Stairs(NamedTuple):
    """Free units from each second on; ``size`` holds how many steps there are."""

    second: Any
    free: Any
    size: Any


@njit(cache=True, nogil=True)
def forget(s: Stairs, now: Int) -> None:
    """Drop the steps that are over."""
    size = s.size[0]
    gone = 0
    while gone + 1 < size and s.second[gone + 1] <= now:
        gone += 1
    if gone > 0:
        for j in range(gone, size):
            s.second[j - gone], s.free[j - gone] = s.second[j], s.free[j]
        s.size[0] = size - gone


@njit(cache=True, nogil=True)
def step_at(s: Stairs, second: Int) -> Int:
    """The index of the step that begins at ``second``, made where there is none."""
    low, high = np.int64(0), s.size[0]
    while low < high:
        middle = (low + high) >> 1
        if s.second[middle] < second:
            low = middle + 1
        else:
            high = middle
    if low < s.size[0] and s.second[low] == second:
        return low
    for j in range(s.size[0], low, -1):
        s.second[j], s.free[j] = s.second[j - 1], s.free[j - 1]
    s.second[low] = second
    s.free[low] = s.free[low - 1]
    s.size[0] += 1
    return low


@njit(cache=True, nogil=True)
def level(s: Stairs, step: Int) -> None:
    """Remove a step that is none."""
    if 0 < step < s.size[0] and s.free[step] == s.free[step - 1]:
        for j in range(step + 1, s.size[0]):
            s.second[j - 1], s.free[j - 1] = s.second[j], s.free[j]
        s.size[0] -= 1


@njit(cache=True, nogil=True)
def change(s: Stairs, begin: Int, end: Int, units: Int) -> None:
    """Add ``units`` to what is free from ``begin`` to ``end``; ``begin`` is not before the first step."""
    if begin >= end:
        return
    first = step_at(s, begin)
    last = step_at(s, end)
    for j in range(first, last):
        s.free[j] += units
    level(s, last)
    level(s, first)


@njit(cache=True, nogil=True)
def earliest(s: Stairs, now: Int, units: Int, limit: Int) -> Int:
    """The first second from ``now`` at which ``units`` are free for ``limit`` seconds."""
    size = s.size[0]
    at = now
    for j in range(size):
        if j + 1 < size and s.second[j + 1] <= at:
            continue
        if s.free[j] < units:
            at = s.second[j + 1] if j + 1 < size else NEVER
        elif j + 1 == size or s.second[j + 1] >= at + limit:
            return at
    return at


@njit(cache=True, nogil=True)
def compress(s: Stairs, q: Queue, now: Int, reserved: Any) -> None:
    """Move every reservation forward as far as it goes, in the queue's order."""
    for p in range(q.at[0], q.at[1]):
        k = q.job[p]
        change(s, reserved[k], reserved[k] + q.limit[p], q.units[p])
        reserved[k] = min(reserved[k], earliest(s, now, q.units[p], q.limit[p]))
        change(s, reserved[k], reserved[k] + q.limit[p], -q.units[p])


@njit(cache=True, nogil=True)
def anew(s: Stairs, q: Queue, now: Int, reserved: Any) -> None:
    """Make all reservations again, in the queue's order."""
    for p in range(q.at[0], q.at[1]):
        k = q.job[p]
        change(s, reserved[k], reserved[k] + q.limit[p], q.units[p])
    for p in range(q.at[0], q.at[1]):
        k = q.job[p]
        reserved[k] = earliest(s, now, q.units[p], q.limit[p])
        change(s, reserved[k], reserved[k] + q.limit[p], -q.units[p])


@njit(cache=True, nogil=True)
def start_due(r: Any, q: Queue, now: Int, run: Any, reserved: Any, start: Any) -> Int:
    """Start the jobs whose reservation has come; the next reservation."""
    kept, upcoming = q.at[0], NEVER
    for p in range(q.at[0], q.at[1]):
        k = q.job[p]
        if reserved[k] <= now:
            start[k] = now
            push_end(r, now + run[k], k)
            continue
        upcoming = min(upcoming, reserved[k])
        q.job[kept], q.units[kept], q.limit[kept] = k, q.units[p], q.limit[p]
        kept += 1
    q.at[1] = kept
    return upcoming


@njit(cache=True, nogil=True)
def reserved_starts(
    submit: Any, units: Any, run: Any, limit: Any, fixed: Any, rank: Any, capacity: Int, until: Int, target: Int, start: Any,
) -> None:  # fmt: skip
    """Fill ``start`` (all -1 before). Ends early once job ``target`` >= 0 has started."""
    n = submit.size
    given = fixed_order(fixed)
    most = min(n, capacity + given.size) + 1
    r = running_set(most, capacity)
    q = Queue(np.empty(n + 1, np.int64), np.empty(n + 1, np.int64), np.empty(n + 1, np.int64), np.zeros(2, np.int64))
    s = Stairs(np.empty(2 * n + 8, np.int64), np.empty(2 * n + 8, np.int64), np.ones(1, np.int64))
    s.second[0], s.free[0] = np.int64(-1), np.int64(capacity)
    reserved = np.empty(n, np.int64)
    ending = np.empty(most + 1, np.int64)
    for k in given:
        start[k] = fixed[k]
    i, g, upcoming = np.int64(0), np.int64(0), NEVER
    while target < 0 or start[target] < 0:
        while i < n and (fixed[i] >= 0 or units[i] > capacity):
            i += 1
        now = min(upcoming, submit[i] if i < n else NEVER)
        if g < given.size:
            now = min(now, fixed[given[g]])
        if r.at[2] > 0:
            now = min(now, r.end[0])
        if now > until or now == NEVER:
            break
        forget(s, now)
        ends = 0
        while r.at[2] > 0 and r.end[0] <= now:
            ending[ends] = pop_end(r)
            ends += 1
        surprised = False
        while g < given.size and fixed[given[g]] <= now:
            k = given[g]
            g += 1
            push_end(r, now + run[k], k)
            change(s, now, now + limit[k], -units[k])
            surprised = True
        if surprised:
            anew(s, q, now, reserved)
        upcoming = start_due(r, q, now, run, reserved, start)
        while i < n and submit[i] <= now:
            k = i
            i += 1
            if fixed[k] >= 0 or units[k] > capacity:
                continue
            enqueue(q, k, units[k], limit[k], rank)
            reserved[k] = earliest(s, now, units[k], limit[k])
            change(s, reserved[k], reserved[k] + limit[k], -units[k])
            upcoming = start_due(r, q, now, run, reserved, start) if reserved[k] <= now else min(upcoming, reserved[k])
        for e in range(ends):
            k = ending[e]
            if start[k] + limit[k] > now:
                change(s, now, start[k] + limit[k], units[k])
                compress(s, q, now, reserved)
                upcoming = start_due(r, q, now, run, reserved, start)


@njit(cache=True, nogil=True)
def reserved_rollouts(
    submit: Any, units: Any, run: Any, limit: Any, fixed: Any, rank: Any, capacity: Int, until: Int, target: Int, start: Any,
) -> None:  # fmt: skip
    """:func:`reserved_starts` for every row; arrays with one row serve all."""
    for row in range(start.shape[0]):
        reserved_starts(
            submit[row % submit.shape[0]], units[row % units.shape[0]], run[row % run.shape[0]], limit[row % limit.shape[0]],
            fixed[row % fixed.shape[0]], rank[row % rank.shape[0]], capacity, until, target, start[row],
        )  # fmt: skip
