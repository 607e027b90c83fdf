"""One sweep over a cluster's jobs: what was known at the second each of them was submitted. Compiled, pure.

A start or an end counts once it lies strictly before that second; pending jobs have no start and no run time, running ones only
what they have run. The same sweep serves a trace of a million jobs and a live queue of a hundred.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ischeduler.estimators.queuewait.jobs import Jobs
from ischeduler.estimators.queuewait.sweep_parts import (
    OWN_NAMES,
    PENDING_NAMES,
    RECENT_NAMES,
    REQUEST_NAMES,
    RUNNING_NAMES,
    own,
    pending,
    recent,
    request,
    running,
)  # fmt: skip

NAMES: tuple[str, ...] = (*REQUEST_NAMES, *PENDING_NAMES, *RUNNING_NAMES, *RECENT_NAMES, *OWN_NAMES)
_A = len(REQUEST_NAMES)
_B = _A + len(PENDING_NAMES)
_C = _B + len(RUNNING_NAMES)
_D = _C + len(RECENT_NAMES)
_E = _D + len(OWN_NAMES)
_USED = 0.5  # of the limit, before any job has ended
_LAWS = 24


def swept(jobs: Jobs, capacity: float = 0.0, wanted: NDArray[Any] | None = None) -> NDArray[Any]:
    """Features (jobs, len(NAMES)) at each job's submission; nan where there is nothing to tell.

    ``capacity`` is the units the cluster has; 0: the most that were seen busy until then. ``wanted`` (a mask) saves the work for
    the others, whose rows are nan beyond what their requests tell.
    """
    mask = np.ones(len(jobs), dtype=np.bool_) if wanted is None else np.asarray(wanted, dtype=np.bool_)
    by_start = np.argsort(jobs.start_s, kind="stable")
    by_end = np.argsort(jobs.end_s, kind="stable")
    user = whose(jobs)
    users = int(user.max(initial=-1)) + 2
    return _swept(
        jobs.submit_s.astype(np.float64), jobs.start_s.astype(np.float64), jobs.end_s.astype(np.float64),
        jobs.units.astype(np.float64), jobs.limit_s.astype(np.float64), user, jobs.queue.astype(np.int64),
        jobs.name.astype(np.int64), by_start, by_end, previous(user), users, float(capacity), mask,
    )  # fmt: skip


def whose(jobs: Jobs) -> NDArray[Any]:
    """Codes of users. Where nobody is named, jobs of one size and limit count as one user's: mostly they are."""
    user = jobs.user.astype(np.int64)
    nameless = user < 0
    if nameless.any():
        shapes = np.column_stack([jobs.units[nameless], jobs.limit_s[nameless]])
        user[nameless] = int(user.max(initial=-1)) + 1 + np.unique(shapes, axis=0, return_inverse=True)[1].ravel()
    return user


def previous(codes: NDArray[Any]) -> NDArray[Any]:
    """The row of the same code before each row, -1 where there is none or the code is unknown."""
    last: dict[int, int] = {}
    found = np.full(len(codes), -1, dtype=np.int64)
    for row, code in enumerate(codes.tolist()):
        if code >= 0:
            found[row] = last.get(code, -1)
            last[code] = row
    return found


@njit(cache=True, nogil=True)
def _swept(
    submit, start, end, units, limit, user, queue, name, by_start, by_end, before, users, capacity, wanted,
):  # fmt: skip
    count = submit.shape[0]
    out = np.full((count, _E), np.nan)
    queued, at_queue, waiting = np.empty(count, np.int64), np.full(count, -1, np.int64), 0
    active, at_active, busy_jobs = np.empty(count, np.int64), np.full(count, -1, np.int64), 0
    ratio, weight = np.full(users, _USED), np.zeros(users)
    by_limit, limit_weight = np.full(_LAWS, _USED), np.zeros(_LAWS)
    busy, most = 0.0, max(1.0, capacity)
    started, ended = 0, 0
    for i in range(count):
        now = submit[i]
        while started < count and start[by_start[started]] < now:
            k = by_start[started]
            waiting = _drop(queued, at_queue, waiting, k)
            busy_jobs = _put(active, at_active, busy_jobs, k)
            busy += units[k]
            started += 1
            while ended < count and end[by_end[ended]] <= start[k] and at_active[by_end[ended]] >= 0:
                busy_jobs, busy = _end(by_end[ended], active, at_active, busy_jobs, busy, units)
                _learn(by_end[ended], start, end, limit, user, ratio, weight, by_limit, limit_weight)
                ended += 1
            if capacity <= 0 and busy > most:
                most = busy
        while ended < count and end[by_end[ended]] < now and at_active[by_end[ended]] >= 0:
            busy_jobs, busy = _end(by_end[ended], active, at_active, busy_jobs, busy, units)
            _learn(by_end[ended], start, end, limit, user, ratio, weight, by_limit, limit_weight)
            ended += 1
        row = out[i]
        mine = _law(i, limit, user, ratio, weight, by_limit, limit_weight)
        request(row[:_A], i, now, units, limit, most, mine)
        if wanted[i]:
            expected = _expected(active, busy_jobs, now, start, limit, user, ratio, weight, by_limit, limit_weight)
            queue_run = _expected(queued, waiting, -1.0, start, limit, user, ratio, weight, by_limit, limit_weight)
            pending(row[_A:_B], i, now, queued, waiting, submit, units, limit, user, queue_run, most, busy)
            running(row[_B:_C], i, now, queued, waiting, active, busy_jobs, submit, start, units, limit, expected, queue_run, most, busy)
            recent(row[_C:_D], i, now, submit, start, units, limit, user, queue, by_start, started)
            own(row[_D:_E], i, now, submit, start, end, units, limit, name, before, most)
        waiting = _put(queued, at_queue, waiting, i)
    return out


@njit(cache=True, nogil=True)
def _put(members, places, many, k):
    members[many] = k
    places[k] = many
    return many + 1


@njit(cache=True, nogil=True)
def _drop(members, places, many, k):
    """Taken out in its place, the order of the others kept: the queue stays sorted by submission."""
    place = places[k]
    for j in range(place, many - 1):
        members[j] = members[j + 1]
        places[members[j]] = j
    places[k] = -1
    return many - 1


@njit(cache=True, nogil=True)
def _end(k, active, places, many, busy, units):
    place = places[k]
    last = active[many - 1]
    active[place] = last
    places[last] = place
    places[k] = -1
    return many - 1, busy - units[k]


@njit(cache=True, nogil=True)
def _bucket(limit_s):
    return min(_LAWS - 1, max(0, int(np.log2(max(1.0, limit_s)))))


@njit(cache=True, nogil=True)
def _learn(k, start, end, limit, user, ratio, weight, by_limit, limit_weight):
    """A job has ended: the share of its limit it used, the last ones counting most."""
    share = min(1.0, (end[k] - start[k]) / max(1.0, limit[k]))
    b = _bucket(limit[k])
    limit_weight[b] = min(100.0, limit_weight[b] + 1.0)
    by_limit[b] += (share - by_limit[b]) / limit_weight[b]
    u = user[k]
    if u >= 0:
        weight[u] = min(10.0, weight[u] + 1.0)
        ratio[u] += (share - ratio[u]) / weight[u]


@njit(cache=True, nogil=True)
def _law(k, limit, user, ratio, weight, by_limit, limit_weight):
    """The share of its limit a job is expected to use: its user's, drawn towards that of jobs with such limits."""
    common = by_limit[_bucket(limit[k])]
    u = user[k]
    return common if u < 0 else (weight[u] * ratio[u] + 3.0 * common) / (weight[u] + 3.0)


@njit(cache=True, nogil=True)
def _expected(members, many, now, start, limit, user, ratio, weight, by_limit, limit_weight):
    """Expected run times of pending jobs (``now`` < 0), or what running ones are expected to run on, seconds."""
    found = np.empty(many)
    for j in range(many):
        k = members[j]
        whole = _law(k, limit, user, ratio, weight, by_limit, limit_weight) * limit[k]
        if now >= 0:
            gone = now - start[k]
            left = limit[k] - gone
            whole = max(1.0, min(left, max(whole - gone, 0.3 * min(gone, max(0.0, left)))))
        found[j] = whole
    return found
