"""The parts of one row of features: request, pending jobs, running jobs, recent submissions and starts, one's own jobs. Compiled, pure.

Each part fills its slice of the row in the order of its names. Sizes are shares of the cluster's units, times are seconds or
natural logarithms of ``1 + s``, work is in hours of the whole cluster, so that one site's model says something at another.
"""

from __future__ import annotations

import numpy as np
from numba import njit

QUICK_S = 600.0
_NEAR_SUBMISSIONS = 200
_NEAR_STARTS = 200
_OWN = 64
_MOST_AHEAD = 4000  # pending jobs looked at in one queue, the oldest first; beyond it the counts tell enough

REQUEST_NAMES = (
    "log_units", "units_share", "log_limit", "log_work_h", "log_expected_run", "hour", "weekday", "log_units_per_run",
)  # fmt: skip
PENDING_NAMES = (
    "pending", "pending_units", "pending_work", "pending_expected", "free_share", "fits_free", "free_after", "no_wider",
    "no_wider_work", "within", "within_oldest", "within_youngest", "fitting", "fitting_oldest", "fitting_youngest", "oldest", "mean_age",
    "youngest", "head_units", "narrowest", "older_1h", "older_1d", "young_units", "young_expected", "expected_before", "shorter_units",
)  # fmt: skip
RUNNING_NAMES = (
    "running", "busy_share", "mean_elapsed", "work_left", "expected_left", "fit_at_limits", "fit_expected", "clear_at_limits",
    "clear_expected", "shadow", "hole", "hole_margin", "spare", "ends_10min", "ends_1h", "ends_6h", "expected_10min", "expected_1h",
    "expected_6h", "started_1h", "started_1h_units", "drain", "overdue_units",
)  # fmt: skip
RECENT_NAMES = (
    "since_start", "last_wait", "wait_5", "wait_20", "wait_100", "wait_sd_20", "quick_20", "quick_100", "starts_1h", "starts_6h",
    "starts_1d", "submitted_10min", "submitted_1h", "submitted_1d", "near_bound", "near_quick", "near_slow", "near_pending",
    "near_weight", "near_wait", "last_5_quick", "last_5_slow", "last_started", "wider_1h", "wider_6h", "like_wait", "since_wider",
    "run_quick", "fresh_bound", "fresh_quick",
)  # fmt: skip
OWN_NAMES = (
    "own_known", "own_since_submit", "own_last_bound", "own_last_started", "own_bound_5", "own_bound", "own_quick", "own_slow",
    "own_pending", "own_pending_units", "own_running", "own_running_units", "own_hour", "own_oldest", "same_bound", "same_pending",
    "same_known", "same_since", "name_quick", "name_known", "own_since_start", "own_last_wait",
)  # fmt: skip


@njit(cache=True, nogil=True)
def request(row, i, now, units, limit, most, used):
    row[0] = np.log2(units[i])
    row[1] = units[i] / most
    row[2] = np.log1p(limit[i])
    row[3] = np.log(units[i] * limit[i] / 3600.0 / most + 1e-6)
    row[4] = np.log1p(used * limit[i])
    row[5] = (now % 86400.0) / 3600.0
    row[6] = (now // 86400.0) % 7.0
    row[7] = np.log2(units[i]) - np.log2(1.0 + limit[i])


@njit(cache=True, nogil=True)
def pending(row, i, now, queued, waiting, submit, units, limit, user, queue_run, most, busy):
    free = max(0.0, most - busy)
    row[:] = 0.0
    row[0] = waiting
    row[4] = free / most
    row[5] = 1.0 if units[i] <= free else 0.0
    row[6] = (free - units[i]) / most
    row[10:12] = -1.0
    row[13:15] = -1.0
    narrowest, ages = 1e18, 0.0
    for j in range(min(waiting, _MOST_AHEAD)):
        k = queued[j]
        age = now - submit[k]
        ages += age
        work = units[k] * limit[k] / 3600.0 / most
        awaited = units[k] * queue_run[j] / 3600.0 / most
        row[1] += units[k] / most
        row[2] += work
        row[3] += awaited
        narrowest = min(narrowest, units[k])
        if units[k] <= units[i]:
            row[7] += 1.0
            row[8] += work
            if limit[k] <= limit[i]:
                row[9] += 1.0
                if row[10] < 0:
                    row[10] = np.log1p(age)
                row[11] = np.log1p(age)
        if units[k] <= free:
            row[12] += 1.0
            if row[13] < 0:
                row[13] = np.log1p(age)
            row[14] = np.log1p(age)
        row[20] += age > 3600.0
        if age > 86400.0:
            row[21] += 1.0
        else:
            row[22] += units[k] / most
            row[23] += awaited
        if queue_run[j] * units[k] < units[i] * limit[i]:
            row[24] += awaited
        if limit[k] <= limit[i]:
            row[25] += units[k] / most
    if waiting > 0:
        row[15] = np.log1p(now - submit[queued[0]])
        row[16] = np.log1p(ages / min(waiting, _MOST_AHEAD))
        row[17] = np.log1p(now - submit[queued[waiting - 1]])
        row[18] = units[queued[0]] / most
        row[19] = narrowest / most
        row[20] /= waiting
    else:
        row[15:20] = -1.0


@njit(cache=True, nogil=True)
def _free_at(order, left, sizes, free, need):
    """Seconds until ``need`` units are free when the active jobs end after ``left``; a month when never."""
    if free >= need:
        return 0.0
    for j in order:
        free += sizes[j]
        if free >= need:
            return left[j]
    return 30 * 86400.0


@njit(cache=True, nogil=True)
def running(row, i, now, queued, waiting, active, many, submit, start, units, limit, expected, queue_run, most, busy):
    left, sizes = np.empty(many), np.empty(many)
    row[:] = 0.0
    row[0] = many
    row[1] = busy / most
    elapsed = 0.0
    for j in range(many):
        k = active[j]
        gone = now - start[k]
        left[j] = max(1.0, limit[k] - gone)
        sizes[j] = units[k]
        elapsed += gone
        share = units[k] / most
        row[3] += share * left[j] / 3600.0
        row[4] += share * expected[j] / 3600.0
        row[13] += share * (left[j] <= 600.0)
        row[14] += share * (left[j] <= 3600.0)
        row[15] += share * (left[j] <= 21600.0)
        row[16] += share * (expected[j] <= 600.0)
        row[17] += share * (expected[j] <= 3600.0)
        row[18] += share * (expected[j] <= 21600.0)
        if gone <= 3600.0:
            row[19] += 1.0
            row[20] += share
        row[22] += share * (gone > limit[k])
    row[2] = np.log1p(elapsed / max(1, many))
    free = max(0.0, most - busy)
    by_left, by_expected = np.argsort(left), np.argsort(expected)
    demand, area = 0.0, row[4] * most
    for j in range(min(waiting, _MOST_AHEAD)):
        demand += units[queued[j]]
        area += units[queued[j]] * queue_run[j] / 3600.0
    row[5] = np.log1p(_free_at(by_left, left, sizes, free, units[i]))
    row[6] = np.log1p(_free_at(by_expected, expected, sizes, free, units[i]))
    row[7] = np.log1p(_free_at(by_left, left, sizes, free, min(most, demand + units[i])))
    row[8] = np.log1p(_free_at(by_expected, expected, sizes, free, min(most, demand + units[i])))
    row[21] = area / most
    _hole(row, i, queued, waiting, by_left, left, sizes, units, limit, most, free)


@njit(cache=True, nogil=True)
def _hole(row, i, queued, waiting, order, left, sizes, units, limit, most, free):
    """The hole that backfill sees: the oldest pending job that does not fit is promised a start, others may not delay it."""
    head = -1
    for j in range(min(waiting, _MOST_AHEAD)):
        if units[queued[j]] > free:
            head = queued[j]
            break
    if head < 0:
        row[9], row[10], row[11], row[12] = -1.0, 1.0 if units[i] <= free else 0.0, 0.0, (free - units[i]) / most
        return
    shadow = _free_at(order, left, sizes, free, units[head])
    spare = free - units[head]
    for j in order:
        if left[j] <= shadow:
            spare += sizes[j]
    spare = max(0.0, spare)
    row[9] = np.log1p(shadow)
    row[10] = 1.0 if units[i] <= free and (limit[i] <= shadow or units[i] <= spare) else 0.0
    row[11] = np.log1p(shadow) - np.log1p(limit[i])
    row[12] = (spare - units[i]) / most


@njit(cache=True, nogil=True)
def _bound(k, now, submit, start):
    """(log of the wait as far as it is known, whether it has ended)."""
    if start[k] < now:
        return np.log1p(start[k] - submit[k]), True
    return np.log1p(now - submit[k]), False


@njit(cache=True, nogil=True)
def recent(row, i, now, submit, start, units, limit, user, queue, by_start, started):
    row[:] = np.nan
    _recent_starts(row, i, now, submit, start, units, limit, queue, by_start, started)
    _recent_submissions(row, i, now, submit, start, units, limit, user, queue)


@njit(cache=True, nogil=True)
def _recent_starts(row, i, now, submit, start, units, limit, queue, by_start, started):
    total, squares, quick, seen = 0.0, 0.0, 0.0, 0
    like, like_weight = 0.0, 0.0
    row[8:11] = 0.0
    row[23:25] = 0.0
    for j in range(min(started, 500)):
        k = by_start[started - 1 - j]
        ago = now - start[k]
        if j >= _NEAR_STARTS and ago > 86400.0:
            break
        row[8] += ago <= 3600.0
        row[9] += ago <= 21600.0
        row[10] += ago <= 86400.0
        wider = units[k] >= units[i] and limit[k] >= limit[i]
        if wider:
            row[23] += ago <= 3600.0
            row[24] += ago <= 21600.0
            if np.isnan(row[26]):
                row[26] = np.log1p(ago)
        wait = np.log1p(start[k] - submit[k])
        if j == 0:
            row[0], row[1] = np.log1p(ago), wait
        if j < 100:
            total += wait
            quick += start[k] - submit[k] <= QUICK_S
            seen += 1
            if j < 20:
                squares += wait * wait
            if j < 5:
                row[2] = total / seen
            if j < 20:
                row[3], row[5], row[6] = total / seen, np.sqrt(max(0.0, squares / seen - (total / seen) ** 2)), quick / seen
            row[4], row[7] = total / seen, quick / seen
        if j < _NEAR_STARTS:
            w = _alike(k, i, units, limit, queue) * np.exp(-ago / 172800.0) + 1e-12
            like += w * wait
            like_weight += w
    if like_weight > 0:
        row[25] = like / like_weight


@njit(cache=True, nogil=True)
def _alike(k, i, units, limit, queue):
    a = np.log2(units[k]) - np.log2(units[i])
    b = np.log2(1.0 + limit[k]) - np.log2(1.0 + limit[i])
    return np.exp(-0.5 * a * a - 0.3 * b * b) * (1.0 if queue[k] == queue[i] else 0.2)


@njit(cache=True, nogil=True)
def _recent_submissions(row, i, now, submit, start, units, limit, user, queue):
    bound_sum, quick_sum, slow_sum, open_sum, weights = 0.0, 0.0, 0.0, 0.0, 0.0
    wait_sum, wait_weight, fresh_sum, fresh_quick, fresh = 0.0, 0.0, 0.0, 0.0, 0.0
    row[11:14] = 0.0
    run, unbroken = 0.0, True
    five_quick, five_slow, five = 0.0, 0.0, 0.0
    for j in range(min(i, 500)):
        k = i - 1 - j
        ago = now - submit[k]
        if j >= _NEAR_SUBMISSIONS and ago > 86400.0:
            break
        row[11] += ago <= 600.0
        row[12] += ago <= 3600.0
        row[13] += ago <= 86400.0
        if j >= _NEAR_SUBMISSIONS:
            continue
        bound, done = _bound(k, now, submit, start)
        quick = done and start[k] - submit[k] <= QUICK_S
        slow = (not quick) and (done or ago > QUICK_S)
        if j == 0:
            row[22] = 1.0 if done else 0.0
        if j < 5:
            five_quick += quick
            five_slow += slow
            five += 1.0
        if unbroken and quick:
            run += 1.0
        elif slow:
            unbroken = False
        w = _alike(k, i, units, limit, queue) * np.exp(-ago / 86400.0) + 1e-12
        bound_sum += w * bound
        quick_sum += w * quick
        slow_sum += w * slow
        open_sum += w * (not done)
        weights += w
        if done:
            wait_sum += w * bound
            wait_weight += w
        w *= np.exp(-ago / 7200.0)
        fresh_sum += w * bound
        fresh_quick += w * (1.0 if quick else (0.0 if slow else 0.5))
        fresh += w
    row[27] = run
    if five > 0:
        row[20], row[21] = five_quick / five, five_slow / five
    if weights > 0:
        row[14], row[15], row[16], row[17] = bound_sum / weights, quick_sum / weights, slow_sum / weights, open_sum / weights
        row[18] = np.log(weights)
        row[28], row[29] = fresh_sum / max(fresh, 1e-300), fresh_quick / max(fresh, 1e-300)
    if wait_weight > 0:
        row[19] = wait_sum / wait_weight


@njit(cache=True, nogil=True)
def own(row, i, now, submit, start, end, units, limit, name, before, most):
    row[:] = np.nan
    row[8:13] = 0.0
    quick, slow, bounds, weights, seen = 0.0, 0.0, 0.0, 0.0, 0
    bounds_5, name_quick, name_seen, same = 0.0, 0.0, 0.0, 0.0
    k = before[i]
    while k >= 0 and seen < _OWN:
        ago = now - submit[k]
        bound, done = _bound(k, now, submit, start)
        fast = done and start[k] - submit[k] <= QUICK_S
        late = (not fast) and (done or ago > QUICK_S)
        if seen == 0:
            row[1], row[2], row[3] = np.log1p(ago), bound, 1.0 if done else 0.0
        if seen < 5:
            bounds_5 += bound
            row[4] = bounds_5 / (seen + 1)
        w = np.exp(-ago / 259200.0 - abs(np.log2(units[k]) - np.log2(units[i]))) + 1e-12
        bounds += w * bound
        quick += w * fast
        slow += w * late
        weights += w
        if not done:
            row[8] += 1.0
            row[9] += units[k] / most
            row[13] = np.log1p(ago)
        elif end[k] >= now:
            row[10] += 1.0
            row[11] += units[k] / most
        if done and np.isnan(row[21]):
            row[20], row[21] = np.log1p(now - start[k]), bound
        row[12] += ago <= 3600.0
        if units[k] == units[i] and limit[k] == limit[i]:
            same += 1.0
            if np.isnan(row[14]):
                row[14], row[15], row[17] = bound, 0.0 if done else 1.0, np.log1p(ago)
        if name[i] >= 0 and name[k] == name[i]:
            name_seen += 1.0
            name_quick += fast
        seen += 1
        k = before[k]
    row[0] = seen
    row[16] = same
    row[19] = name_seen
    if weights > 0:
        row[5], row[6], row[7] = bounds / weights, quick / weights, slow / weights
    if name_seen > 0:
        row[18] = name_quick / name_seen
