"""Gavel's rounds in machine code; :mod:`~ischeduler.simulator.pools.gavel.reference` says the same in plain Python, and tests hold them equal.

The order of every floating-point sum is Gavel's, because equal priorities are told apart by their last digits.
Source: Narayanan et al., OSDI 2020, section 5; its simulator's behaviour on the published runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from ischeduler.simulator.pools.gavel.state import (
    ACTIVE,
    ACTIVE_ROUNDS,
    DONE,
    FAILED,
    LAST_RESET,
    LEFT,
    LIVE,
    MOST_FAILURES,
    NEEDS,
    NEXT,
    NOW,
    RESETS,
    ROUND_END,
    ROUND_START,
    ROUNDS,
    RUNNING,
    SKIPS,
    TIMELINE,
    USED_S,
)  # fmt: skip

FINISHED, ALLOCATE, ENTRIES_FULL, TIMELINE_FULL, STUCK = range(5)
UNSEEN = 1e9  # the priority of a share that nothing has been received of yet is the share times this
_RUN = 24
Int = Any


@njit(cache=True, inline="always")
def _before(key: Any, a: Int, b: Int) -> bool:
    """Whether entry a is served before b: priority, deficit, share, larger first; then the one known longer."""
    for c in range(3):
        if key[a, c] != key[b, c]:
            return key[a, c] > key[b, c]
    return a < b


@njit(cache=True)
def sort_entries(key: Any, order: Any, count: Int, room: Any) -> None:
    """Sort the first ``count`` of ``order`` by :func:`_before`: insertion in runs, then merges."""
    for low in range(0, count, _RUN):
        high = min(low + _RUN, count)
        for i in range(low + 1, high):
            entry = order[i]
            j = i - 1
            while j >= low and _before(key, entry, order[j]):
                order[j + 1] = order[j]
                j -= 1
            order[j + 1] = entry
    width = _RUN
    while width < count:
        for low in range(0, count, 2 * width):
            middle, high = min(low + width, count), min(low + 2 * width, count)
            if middle >= high or _before(key, order[middle - 1], order[middle]):
                continue
            i, j = low, middle
            for k in range(low, high):
                if i < middle and (j >= high or _before(key, order[i], order[j])):
                    room[k] = order[i]
                    i += 1
                else:
                    room[k] = order[j]
                    j += 1
            for k in range(low, high):
                order[k] = room[k]
        width *= 2


@njit(cache=True)
def _finish(s: Any, m: Any, job: Int, failed: bool) -> None:
    """A job leaves, with all its entries; the others keep their order."""
    s.jobs.fate[job] = FAILED if failed else DONE
    if not failed:
        s.jobs.jct[job] = s.jobs.latest[job] - s.jobs.arrival[job]
    if s.jobs.wanted[job]:
        s.count[LEFT] -= 1
    e = s.entries
    kept = 0
    for i in range(s.count[LIVE]):
        if e.first[i] == job or e.second[i] == job:
            continue
        if kept != i:
            e.first[kept], e.second[kept], e.known[kept] = e.first[i], e.second[i], e.known[i]
            for k in range(len(m.capacity)):
                e.rate[kept, k], e.other[kept, k] = e.rate[i, k], e.other[i, k]
                e.received[kept, k], e.deficit[kept, k] = e.received[i, k], e.deficit[i, k]
                e.share[kept, k], e.priority[kept, k] = e.share[i, k], e.priority[i, k]
        kept += 1
    s.count[LIVE] = kept
    s.count[NEEDS] = 1


@njit(cache=True, inline="always")
def _entry_of(s: Any, r: Int) -> Int:
    """Where the entry that ran stands now: it can only have moved up, when others left."""
    first, second = s.running.first[r], s.running.second[r]
    for i in range(min(s.running.entry[r], s.count[LIVE] - 1), -1, -1):
        if s.entries.first[i] == first and s.entries.second[i] == second:
            return i
    return -1


@njit(cache=True, inline="always")
def _credit(s: Any, job: Int, steps: float, leaves: Any, count: Int) -> Int:
    """Steps of one job of an entry that ran; a job whose steps are done joins those that leave."""
    jobs = s.jobs
    jobs.failures[job] = 0
    jobs.run[job] += steps
    if jobs.total[job] - jobs.run[job] <= 0:
        leaves[count] = job
        return count + 1
    return count


@njit(cache=True, inline="always")
def _done(s: Any, m: Any, r: Int) -> None:
    """An entry's round is over: steps, time and failures are booked, finished jobs leave."""
    running, jobs = s.running, s.jobs
    first, second, k = running.first[r], running.second[r], running.on[r]
    spent = running.finish[r] - s.real[ROUND_START]
    size = jobs.size[first]
    leaves = np.empty(2, np.int64)
    count = 0
    jobs.latest[first] = running.finish[r]
    if second >= 0:
        jobs.latest[second] = running.finish[r]
    works = spent > 0 and _counts(running.steps[r], size) and (second < 0 or _counts(running.others[r], size))
    if not works:
        if second < 0:
            jobs.failures[first] += 1
            if jobs.failures[first] >= MOST_FAILURES:
                _finish(s, m, first, True)
        s.count[NEEDS] = 1
        return
    count = _credit(s, first, running.steps[r], leaves, count)
    if second >= 0:
        count = _credit(s, second, running.others[r], leaves, count)
    entry = _entry_of(s, r)
    if entry >= 0:
        s.entries.received[entry, k] += spent
        s.type_time[k] += spent
    s.real[USED_S] += spent * size
    for i in range(count):
        _finish(s, m, leaves[i], False)


@njit(cache=True, inline="always")
def _counts(steps: float, size: Int) -> bool:
    """Whether every worker of an entry had a step to make; Gavel calls the round failed otherwise."""
    share = steps // size
    last = steps - share * (size - 1)
    return last > 0 and (size == 1 or share > 0)


@njit(cache=True)
def _end_round(s: Any, m: Any) -> None:
    """Everything that ran has finished by now: the latest first, equal ones by job, as Gavel's heap gives them out."""
    count = s.count[RUNNING]
    r = s.running
    order = np.arange(count)
    for i in range(1, count):
        row = order[i]
        j = i - 1
        while j >= 0 and _leaves_before(r, row, order[j]):
            order[j + 1] = order[j]
            j -= 1
        order[j + 1] = row
    for i in range(count):
        _done(s, m, order[i])
    s.count[RUNNING] = 0


@njit(cache=True, inline="always")
def _leaves_before(r: Any, a: Int, b: Int) -> bool:
    if r.finish[a] != r.finish[b]:
        return r.finish[a] > r.finish[b]
    if (r.second[a] < 0) != (r.second[b] < 0):
        return r.second[a] < 0
    return r.first[a] < r.first[b] or (r.first[a] == r.first[b] and r.second[a] < r.second[b])


@njit(cache=True)
def _arrive(s: Any, m: Any, job: Int) -> bool:
    """A job comes to be known, and with it its pairs; False when there is no room."""
    e, jobs = s.entries, s.jobs
    live = s.count[LIVE]
    if live + (live if m.sharing else 0) + 1 > len(e.first):
        return False
    types = len(m.capacity)
    jobs.fate[job] = ACTIVE
    e.first[live], e.second[live], e.known[live] = job, -1, False
    for k in range(types):
        e.rate[live, k], e.other[live, k] = m.rate[jobs.kind[job], k], 0.0
        e.received[live, k], e.deficit[live, k], e.share[live, k], e.priority[live, k] = m.round_s / 2.0, 0.0, 0.0, 0.0
    added = live + 1
    if m.sharing:
        for i in range(live):
            other = e.first[i]
            if e.second[i] >= 0 or jobs.size[other] != jobs.size[job]:
                continue
            e.first[added], e.second[added], e.known[added] = other, job, False
            for k in range(types):
                e.rate[added, k] = m.shared[jobs.kind[other], jobs.kind[job], k]
                e.other[added, k] = m.shared[jobs.kind[job], jobs.kind[other], k]
                e.received[added, k], e.deficit[added, k], e.share[added, k], e.priority[added, k] = 0.0, 0.0, 0.0, 0.0
            added += 1
    s.count[LIVE] = added
    s.count[NEEDS] = 1
    return True


@njit(cache=True)
def _reset(s: Any, m: Any) -> None:
    """Time received starts anew; what was owed and not received stays as a deficit."""
    e = s.entries
    elapsed = s.real[NOW] - s.real[LAST_RESET]
    for k in range(len(m.capacity)):
        s.type_time[k] = 0.0
        for i in range(s.count[LIVE]):
            received = e.received[i, k] - m.round_s / 2.0
            owed = e.share[i, k] * elapsed if e.known[i] else 0.0
            e.deficit[i, k] += owed - received
            e.received[i, k] = m.round_s / 2.0
            s.type_time[k] += e.received[i, k]
    s.real[LAST_RESET] = s.real[NOW]


@njit(cache=True)
def _prioritise(s: Any, m: Any) -> None:
    """Share over the fraction of the type's time received; nothing where there is no share or no throughput."""
    e = s.entries
    for i in range(s.count[LIVE]):
        for k in range(len(m.capacity)):
            share = e.share[i, k] if e.known[i] else 0.0
            runs = e.rate[i, k] > 0 and (e.second[i] < 0 or e.other[i, k] > 0)
            if share == 0.0 or not runs:
                e.priority[i, k] = 0.0
                continue
            fraction = e.received[i, k] / s.type_time[k] if s.type_time[k] != 0.0 else 0.0
            e.priority[i, k] = share / fraction if fraction > 0.0 else share * UNSEEN


@njit(cache=True)
def _serve(s: Any, m: Any, types: Any, taken: Any, key: Any, order: Any, room: Any) -> None:
    """One pass over the types in their order: entries by priority while they fit. An entry without a share takes room all the same
    when room is left, and one that the last allocation does not know takes it and then does not run: Gavel does so."""
    e, jobs, _running = s.entries, s.jobs, s.running
    live = s.count[LIVE]
    for job in range(live):
        taken[e.first[job]] = False
    started = 0
    for k in types:
        left = m.capacity[k]
        for positive in range(2):
            if left == 0 or (positive == 1 and m.fifo):
                break
            count = 0
            for i in range(live):
                runs = e.rate[i, k] > 0 and (e.second[i] < 0 or e.other[i, k] > 0)
                free = not taken[e.first[i]] and (e.second[i] < 0 or not taken[e.second[i]])
                if not runs or not free or (e.priority[i, k] > 0) != (positive == 0):
                    continue
                key[i, 0], key[i, 1], key[i, 2] = e.priority[i, k], e.deficit[i, k], e.share[i, k] if e.known[i] else 0.0
                order[count] = i
                count += 1
            sort_entries(key, order, count, room)
            for c in range(count):
                i = order[c]
                first, second = e.first[i], e.second[i]
                size = jobs.size[first]
                if left == 0:
                    break
                if taken[first] or (second >= 0 and taken[second]) or size > left:
                    continue
                left -= size
                taken[first] = True
                if second >= 0:
                    taken[second] = True
                if e.known[i]:
                    _start(s, m, i, k, started)
                    started += 1
    s.count[RUNNING] = started
    s.count[ROUNDS] += 1


@njit(cache=True, inline="always")
def _start(s: Any, m: Any, entry: Int, k: Int, row: Int) -> None:
    """An entry runs: whole steps for a round, or the steps it has left."""
    e, jobs, r = s.entries, s.jobs, s.running
    first, second = e.first[entry], e.second[entry]
    now = s.real[NOW]
    r.entry[row], r.first[row], r.second[row], r.on[row] = entry, first, second, k
    steps = min(np.floor(e.rate[entry, k] * m.round_s), jobs.total[first] - jobs.run[first])
    finish = max(now, now + steps / e.rate[entry, k])
    r.steps[row], r.others[row] = steps, 0.0
    if second >= 0:
        others = min(np.floor(e.other[entry, k] * m.round_s), jobs.total[second] - jobs.run[second])
        finish = max(finish, now + others / e.other[entry, k])
        r.others[row] = others
    r.finish[row] = finish


@njit(cache=True)
def _record(s: Any, m: Any) -> None:
    """What the accelerators do in this round, for the curves."""
    row = s.timeline[s.count[TIMELINE]]
    row[0] = s.real[NOW]
    active = 0
    for i in range(s.count[LIVE]):
        if s.entries.second[i] < 0:
            active += 1
    row[1] = active
    s.count[ACTIVE_ROUNDS] += active
    for k in range(len(m.capacity)):
        row[2 + k] = 0
    for r in range(s.count[RUNNING]):
        row[2 + s.running.on[r]] += s.jobs.size[s.running.first[r]]
    s.count[TIMELINE] += 1


@njit(cache=True)
def advance(s: Any, m: Any, allocated: bool, orders: Any, at: Any, work: Any) -> int:
    """Run until the run is over, an allocation is due, or room runs out; ``at[0]`` counts rounds into ``orders`` (the types' order in
    each), ``at[1]`` says where to go on. ``work``: taken (n,), key (E, 3), order (E,), room (E,)."""
    taken, key, order, room = work
    n = len(s.jobs.arrival)
    while True:
        if at[1] == 0:
            if s.count[LEFT] == 0:
                return FINISHED
            latest = 0.0
            for r in range(s.count[RUNNING]):
                latest = max(latest, s.running.finish[r])
            if s.count[RUNNING] == 0 and s.count[NEXT] >= n:
                s.real[LAST_RESET] = 0.0
                s.count[SKIPS] += 1
                if s.count[SKIPS] > 10_000:
                    return STUCK
            if latest > 0.0:
                s.count[SKIPS] = 0
                if s.real[ROUND_END] >= 0.0:
                    s.real[ROUND_START] = s.real[ROUND_END]
                s.real[ROUND_END] = latest
                s.real[NOW] = latest
            elif s.count[NEXT] < n:
                s.real[NOW] = s.jobs.arrival[s.count[NEXT]]
            _end_round(s, m)
            at[1] = 1
        if at[1] == 1:
            while s.count[NEXT] < n and s.jobs.arrival[s.count[NEXT]] <= s.real[NOW]:
                if not _arrive(s, m, s.count[NEXT]):
                    return ENTRIES_FULL
                s.count[NEXT] += 1
            at[1] = 2
        if at[1] == 2:
            if at[0] >= len(orders) or s.count[TIMELINE] >= len(s.timeline):
                return TIMELINE_FULL
            due = s.real[NOW] - s.real[LAST_RESET] >= m.reset_s or s.real[LAST_RESET] == 0.0
            at[1] = 3
            if s.count[NEEDS] == 1 and due:
                _reset(s, m)
                s.count[NEEDS] = 0
                s.count[RESETS] += 1
                return ALLOCATE
        _prioritise(s, m)
        _serve(s, m, orders[at[0]], taken, key, order, room)
        _record(s, m)
        at[0] += 1
        at[1] = 0
