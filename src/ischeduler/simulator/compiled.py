"""The kernel's machine code for FCFS and EASY: one pass over a trace, nothing allocated once it runs.

The rules are those of :mod:`ischeduler.simulator.reference`, which says them in plain Python; property tests hold the two equal.
What makes it quick: the running jobs stand sorted by the end they announced, so that the queue's head gets its reservation from a
walk that stops early; the reservation is kept until a job ends; and a job that arrives behind a blocked head is the only one looked
at, since nothing that did not fit before fits now.

Source of the policy: Mu'alem and Feitelson, IEEE TPDS 12(6), 2001.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

NEVER = np.int64(1) << 60
Int = Any  # an int64 in machine code, an int where the functions are called plainly
_FIRST, _LAST, _COUNT, _SERIAL, _FREE = range(5)
_BLOCK = 6
_BLOCK_SIZE = 1 << _BLOCK
_CLASSES = 20


class Running(NamedTuple):
    """The jobs on the machine: a heap by true end (``end``, ``serial``, ``job``), and a row sorted by announced end, with gaps (-1).

    ``at`` holds the row's bounds (first, last), the heap's size, a serial number and the units that are free.
    """

    end: Any
    serial: Any
    job: Any
    announced: Any
    row: Any
    at: Any


class Queue(NamedTuple):
    """The waiting jobs in their order: number, units and limit of each; ``at`` holds the bounds (first, last)."""

    job: Any
    units: Any
    limit: Any
    at: Any


class Blocks(NamedTuple):
    """For each stretch of the queue, bounds from below: the fewest units, and the shortest limit among jobs up to each width class."""

    narrowest: Any
    shortest: Any


@njit(cache=True, nogil=True)
def running_set(most: Int, capacity: Int) -> Running:
    """Room for ``most`` jobs at once."""
    at = np.zeros(5, np.int64)
    at[_FREE] = capacity
    room = 2 * most + 2
    return Running(
        np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64),
        np.empty(room, np.int64), np.empty(room, np.int64), at,
    )  # fmt: skip


@njit(cache=True, nogil=True)
def push_end(r: Running, end: Int, job: Int) -> None:
    """Put a job's true end on the heap; equal ends leave it in the order of their starts."""
    at = r.at
    serial = at[_SERIAL]
    at[_SERIAL] = serial + 1
    child = at[_COUNT]
    at[_COUNT] = child + 1
    while child > 0:
        parent = (child - 1) >> 1
        if r.end[parent] <= end:
            break
        r.end[child], r.serial[child], r.job[child] = r.end[parent], r.serial[parent], r.job[parent]
        child = parent
    r.end[child], r.serial[child], r.job[child] = end, serial, job


@njit(cache=True, nogil=True)
def pop_end(r: Running) -> Int:
    """The job that ends first."""
    at = r.at
    job = r.job[0]
    size = at[_COUNT] - 1
    at[_COUNT] = size
    end, serial, moved = r.end[size], r.serial[size], r.job[size]
    hole = np.int64(0)
    while True:
        child = 2 * hole + 1
        if child >= size:
            break
        other = child + 1
        if other < size and (r.end[other] < r.end[child] or (r.end[other] == r.end[child] and r.serial[other] < r.serial[child])):
            child = other
        if end < r.end[child] or (end == r.end[child] and serial < r.serial[child]):
            break
        r.end[hole], r.serial[hole], r.job[hole] = r.end[child], r.serial[child], r.job[child]
        hole = child
    r.end[hole], r.serial[hole], r.job[hole] = end, serial, moved
    return job


@njit(cache=True, nogil=True)
def announce(r: Running, end: int, job: int) -> None:
    """Put a job into the row of announced ends; who stands behind moves up to the next gap."""
    at = r.at
    if at[_LAST] == r.row.size:
        size = 0
        for j in range(at[_FIRST], at[_LAST]):
            if r.row[j] >= 0:
                r.announced[size], r.row[size] = r.announced[j], r.row[j]
                size += 1
        at[_FIRST], at[_LAST] = 0, size
    low, high = at[_FIRST], at[_LAST]
    while low < high:
        middle = (low + high) >> 1
        if r.announced[middle] <= end:
            low = middle + 1
        else:
            high = middle
    while low < at[_LAST] and job >= 0:
        other, its = r.row[low], r.announced[low]
        r.announced[low], r.row[low] = end, job
        end, job = its, other
        low += 1
    if job >= 0:
        r.announced[low], r.row[low] = end, job
        at[_LAST] = low + 1


@njit(cache=True, nogil=True)
def withdraw(r: Running, end: int, job: int) -> None:
    """Take a job that ended early out of the row of announced ends: its place becomes a gap."""
    at = r.at
    low, high = at[_FIRST], at[_LAST]
    while low < high:
        middle = (low + high) >> 1
        if r.announced[middle] < end:
            low = middle + 1
        else:
            high = middle
    while r.row[low] != job:
        low += 1
    r.row[low] = -1
    while at[_FIRST] < at[_LAST] and r.row[at[_FIRST]] < 0:
        at[_FIRST] += 1
    while at[_FIRST] < at[_LAST] and r.row[at[_LAST] - 1] < 0:
        at[_LAST] -= 1


@njit(cache=True, nogil=True)
def begin(r: Running, job: Int, now: Int, units: Any, run: Any, limit: Any, start: Any) -> None:
    """Start a job."""
    start[job] = now
    r.at[_FREE] -= units[job]
    push_end(r, now + run[job], job)
    announce(r, now + limit[job], job)


@njit(cache=True, nogil=True)
def expire(r: Running, now: Int, units: Any) -> bool:
    """Free what the jobs at their limit held; whether there were any."""
    at = r.at
    before = at[_FIRST]
    while at[_FIRST] < at[_LAST] and r.announced[at[_FIRST]] <= now:
        if r.row[at[_FIRST]] >= 0:
            at[_FREE] += units[r.row[at[_FIRST]]]
        at[_FIRST] += 1
    return at[_FIRST] > before


@njit(cache=True, nogil=True)
def reservation(r: Running, need: Int, units: Any) -> tuple[Int, Int]:
    """When the queue's head can start by the announced ends, and the units that it leaves free then."""
    at = r.at
    have = at[_FREE]
    j = at[_FIRST]
    while j < at[_LAST]:
        end = r.announced[j]
        while j < at[_LAST] and r.announced[j] == end:
            if r.row[j] >= 0:
                have += units[r.row[j]]
            j += 1
        if have >= need:
            return end, have - need
    return NEVER, np.int64(0)


@njit(cache=True, nogil=True)
def enqueue(q: Queue, job: Int, units: Int, limit: Int, rank: Any) -> Int:
    """Put a job in the queue; its place."""
    place, first = q.at[1], q.at[0]
    q.at[1] = place + 1
    while place > first and rank[q.job[place - 1]] > rank[job]:
        q.job[place], q.units[place], q.limit[place] = q.job[place - 1], q.units[place - 1], q.limit[place - 1]
        place -= 1
    q.job[place], q.units[place], q.limit[place] = job, units, limit
    return place


@njit(cache=True, nogil=True)
def width_class(units: Int) -> Int:
    """The power of two at or below ``units``, as an exponent."""
    width = 0
    while units > 1 and width < _CLASSES - 1:
        units >>= 1
        width += 1
    return width


@njit(cache=True, nogil=True)
def enter(b: Blocks, block: Int, units: Int, limit: Int) -> None:
    """Let a block know of a job in it."""
    b.narrowest[block] = min(b.narrowest[block], units)
    for c in range(width_class(units), _CLASSES):
        if b.shortest[block, c] <= limit:
            break
        b.shortest[block, c] = limit


@njit(cache=True, nogil=True)
def index(b: Blocks, q: Queue, place: Int) -> None:
    """Bring the blocks up to date after a job was put at ``place``: all jobs behind it have moved."""
    last = q.at[1]
    if place == last - 1:
        block = place >> _BLOCK
        if place & (_BLOCK_SIZE - 1) == 0:
            b.narrowest[block] = NEVER
            b.shortest[block, :] = NEVER
        enter(b, block, q.units[place], q.limit[place])
        return
    for block in range(place >> _BLOCK, ((last - 1) >> _BLOCK) + 1):
        count_anew(b, q, block)


@njit(cache=True, nogil=True)
def count_anew(b: Blocks, q: Queue, block: Int) -> None:
    """What a block holds, from its jobs."""
    b.narrowest[block] = NEVER
    b.shortest[block, :] = NEVER
    for p in range(max(block << _BLOCK, q.at[0]), min((block + 1) << _BLOCK, q.at[1])):
        if q.units[p] != NEVER:
            enter(b, block, q.units[p], q.limit[p])


@njit(cache=True, nogil=True)
def sweep(
    r: Running, q: Queue, b: Blocks, now: Int, units: Any, run: Any, limit: Any, start: Any, backfill: bool, depth: Int,
) -> tuple[Int, Int]:  # fmt: skip
    """Start what may start: heads that fit, then (EASY) of the ``depth`` jobs behind those that do not delay the head. The head's
    reservation, -1 without one. A started job leaves a gap (units :data:`NEVER`) in the queue; whole blocks in which nobody can
    start are passed over."""
    head, last = q.at[0], q.at[1]
    while head < last and (q.units[head] <= r.at[_FREE] or q.units[head] == NEVER):
        if q.units[head] != NEVER:
            begin(r, q.job[head], now, units, run, limit, start)
        head += 1
    q.at[0] = head
    free = r.at[_FREE]
    if not backfill or last - head < 2 or free <= 0:
        return np.int64(-1), np.int64(0)
    shadow, extra = reservation(r, q.units[head], units)
    window = shadow - now
    skipping = depth >= last
    p, seen = head + 1, np.int64(0)
    while p < last and free > 0 and seen < depth:
        whole = skipping and p & (_BLOCK_SIZE - 1) == 0
        block = p >> _BLOCK
        if whole and b.narrowest[block] > min(extra, free) and b.shortest[block, width_class(free)] > window:
            p += _BLOCK_SIZE
            continue
        stop = min(last, (block + 1) << _BLOCK)
        while p < stop and free > 0 and seen < depth:
            u = q.units[p]
            if u <= free and (q.limit[p] <= window or u <= extra):
                if q.limit[p] > window:
                    extra -= u
                begin(r, q.job[p], now, units, run, limit, start)
                free -= u
                q.units[p] = NEVER
                seen += 1
            elif u != NEVER:
                seen += 1
            p += 1
        if whole and p == (block + 1) << _BLOCK:
            count_anew(b, q, block)
    return shadow, extra


@njit(cache=True, nogil=True)
def fixed_order(fixed: Any) -> Any:
    """The jobs whose start is given, by that start."""
    chosen = np.flatnonzero(fixed >= 0)
    return chosen[np.argsort(fixed[chosen], kind="mergesort")]


@njit(cache=True, nogil=True)
def queue_starts(
    submit: Any, units: Any, run: Any, limit: Any, fixed: Any, rank: Any, capacity: Int, until: Int, target: Int, backfill: bool, depth: Int,
    start: Any,
) -> Int:  # fmt: skip
    """Fill ``start`` (all -1 before); how many jobs were started or ended in time. Ends early once job ``target`` >= 0 has started."""
    n = submit.size
    given = fixed_order(fixed)
    most = min(n, capacity + given.size) + 1
    r = running_set(most, capacity)
    q = Queue(np.empty(n + 1, np.int64), np.empty(n + 1, np.int64), np.empty(n + 1, np.int64), np.zeros(2, np.int64))
    b = Blocks(np.empty((n >> _BLOCK) + 2, np.int64), np.empty(((n >> _BLOCK) + 2, _CLASSES), np.int64))
    ending = np.empty(most + 1, np.int64)
    for k in given:
        start[k] = fixed[k]
    i, g, shadow, extra, events = np.int64(0), np.int64(0), np.int64(-1), np.int64(0), np.int64(0)
    while target < 0 or start[target] < 0:
        while i < n and (fixed[i] >= 0 or units[i] > capacity):
            i += 1
        now = submit[i] if i < n else NEVER
        if g < given.size and fixed[given[g]] < now:
            now = fixed[given[g]]
        if r.at[_COUNT] > 0 and r.end[0] < now:
            now = r.end[0]
        if now > until or now == NEVER:
            break
        changed = expire(r, now, units)
        ends = 0
        while r.at[_COUNT] > 0 and r.end[0] <= now:
            ending[ends] = pop_end(r)
            ends += 1
        events += ends
        surprised = False
        while g < given.size and fixed[given[g]] <= now:
            begin(r, given[g], now, units, run, limit, start)
            g += 1
            surprised = True
        if surprised:
            shadow, extra = sweep(r, q, b, now, units, run, limit, start, backfill, depth)
            changed = False
        while i < n and submit[i] <= now:
            k = i
            i += 1
            if fixed[k] >= 0 or units[k] > capacity:
                continue
            events += 1
            empty = q.at[0] == q.at[1]
            if empty and units[k] <= r.at[_FREE]:
                begin(r, k, now, units, run, limit, start)
                shadow = np.int64(-1)
                continue
            place = enqueue(q, k, units[k], limit[k], rank)
            if backfill:
                index(b, q, place)
            leads, inside = place == q.at[0], place < q.at[1] - 1
            if leads:
                shadow = np.int64(-1)
            if changed or (leads and not empty) or (backfill and (inside or depth < n)):
                shadow, extra = sweep(r, q, b, now, units, run, limit, start, backfill, depth)
                changed = False
            elif backfill and not leads and units[k] <= r.at[_FREE]:
                if shadow < 0:
                    shadow, extra = reservation(r, q.units[q.at[0]], units)
                soon = now + limit[k] <= shadow
                if soon or units[k] <= extra:
                    if not soon:
                        extra -= units[k]
                    q.at[1] -= 1
                    begin(r, k, now, units, run, limit, start)
        for e in range(ends):
            k = ending[e]
            if start[k] + limit[k] > now:
                withdraw(r, start[k] + limit[k], k)
                r.at[_FREE] += units[k]
                changed = True
            if changed or depth < n:
                shadow, extra = sweep(r, q, b, now, units, run, limit, start, backfill, depth)
                changed = False
    return events


@njit(cache=True, nogil=True)
def queue_rollouts(
    submit: Any, units: Any, run: Any, limit: Any, fixed: Any, rank: Any, capacity: Int, until: Int, target: Int, backfill: bool, depth: Int,
    start: Any,
) -> None:  # fmt: skip
    """:func:`queue_starts` for every row; arrays with one row serve all."""
    for row in range(start.shape[0]):
        queue_starts(
            submit[row % submit.shape[0]], units[row % units.shape[0]], run[row % run.shape[0]], limit[row % limit.shape[0]],
            fixed[row % fixed.shape[0]], rank[row % rank.shape[0]], capacity, until, target, backfill, depth, start[row],
        )  # fmt: skip
