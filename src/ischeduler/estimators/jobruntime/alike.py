"""The law of alike jobs: Kaplan and Meier's estimate of the share of the limit used, each past job weighing as it resembles the one asked about.

Jobs that still run count, too: they have used at least so much. Without them the newest jobs would look short, because only the short
ones of the newest have ended (length bias). How much limit, size, name, burst and age tell (:class:`Likeness`) was chosen on the training
spans of five public traces together; chosen for each of them alone it did no better on what came after.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

import numba
import numpy as np

from ischeduler.estimators.jobruntime.history import elapsed_s, listing, position_after

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ischeduler.estimators.jobruntime.table import JobTable

LEVELS = np.arange(1, 10) / 10.0
OWN, OTHERS, SAME_LIMIT = 600, 400, 300
"""Newest started jobs looked back at: of the user, of everybody, of everybody with the same limit."""
BURST_S = 600
FULL = 0.98
"""Who used this share of the limit ran into it."""
DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class Likeness:
    """Weight of a past job of the same user: 1 for an alike one that has just started, less by each factor that applies.

    ``other_limit``, ``other_units``: for a limit or size that is far away; one at a log ratio of ``width`` has lost two thirds of the
    way there. ``other_name``: for another name (digits aside). ``other_time``: for one not submitted within ten minutes of the job.
    ``user_rank``, ``kind_rank``: the user's newest so many jobs, and alike ones, weigh more than half. ``days``: decay by age.
    ``others``: what those of everybody's newest jobs that lasted as long weigh together, ``others_limit`` their factor for another limit.
    """

    other_limit: float = 0.06
    other_units: float = 0.12
    width: float = 0.01
    other_name: float = 0.5
    other_time: float = 0.25
    user_rank: float = 10.0
    kind_rank: float = 30.0
    days: float = 300.0
    others: float = 0.1
    others_limit: float = 0.03


LIKENESS = Likeness()


def remaining_deciles(
    table: JobTable, rows: NDArray[np.int64], at_s: NDArray[np.int64], likeness: Likeness = LIKENESS
) -> NDArray[np.float64]:
    """Deciles of the remaining run time in seconds, shape (rows, 9); the limit where nothing like it was ever seen.

    Where users are not named, jobs of one limit and size count as one user's.
    """
    rows, at_s = np.asarray(rows, np.int64), np.asarray(at_s, np.int64)
    gone = elapsed_s(table, rows, at_s)
    out = np.repeat((table.limit_s[rows] - gone).astype(float)[:, None], len(LEVELS), axis=1)
    _deciles(rows, at_s, gone, columns(table), np.array(astuple(likeness)), out)
    return out


def columns(table: JobTable) -> tuple[NDArray[np.int64], ...]:
    """What :func:`past` reads of a history: codes of users and limits, their jobs in order of their starts, and the jobs' columns."""
    user, limit = (np.unique(column, return_inverse=True)[1].astype(np.int64) for column in (table.user, table.limit_s))
    if len(table) and user.max() == 0:
        user = np.unique(np.stack([table.limit_s, table.units]), axis=1, return_inverse=True)[1].astype(np.int64)
    groups = [listing(code, table.start_s) for code in (user, limit, np.zeros(len(table), np.int64))]
    return (
        user, *groups[0], limit, *groups[1], groups[2][1], table.submit_s, table.start_s, table.run_s, table.limit_s, table.units, table.name, table.queue,
    )  # fmt: skip


@numba.njit(cache=True, nogil=True)
def _deciles(rows, at_s, gone, jobs, like, out):  # type: ignore[no-untyped-def]
    limit = jobs[10]
    who, rank, over, values = room()
    for r in range(len(rows)):
        beyond = gone[r] / limit[rows[r]]
        _, count = past(rows[r], at_s[r], beyond, jobs, like, who, rank, over, values)
        kaplan_meier(values[0, :count], values[1, :count], over[:count], beyond, limit[rows[r]], out[r])


@numba.njit(cache=True, nogil=True)
def room():  # type: ignore[no-untyped-def]
    """Arrays for :func:`past` to write to."""
    most = OWN + OTHERS + SAME_LIMIT
    return np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.bool_), np.empty((3, most))


@numba.njit(cache=True, nogil=True)
def past(j, at, beyond, jobs, like, who, rank, over, values):  # type: ignore[no-untyped-def]
    """The past jobs that used more than ``beyond`` of their limit, the user's first: (how many of the user, how many in all).

    Written are their row (``who``), ``rank`` by start, whether they are ``over`` (what still runs at ``at`` has used at least its share),
    and in ``values`` the share of the limit used, the weight, and how many alike ones of the user are newer.
    """
    user, of_user, mine, kind, of_kind, same, everybody, submit, start, run, limit, units, name, _ = jobs
    share, weight, newer = values
    count, ranked = 0, 0.0
    low = of_user[user[j]]
    high = position_after(mine, low, of_user[user[j] + 1], start, at)
    for p in range(high - 1, max(low, high - OWN) - 1, -1):
        k = mine[p]
        if k == j:
            continue
        near = _near(limit[k], limit[j], like[0], like[2]) * _near(units[k], units[j], like[1], like[2])
        worth = near * np.exp((start[k] - at) / DAY_S / like[7]) / (1.0 + (high - p) / like[5]) / (1.0 + ranked / like[6])
        worth *= 1.0 if name[k] == name[j] else like[3]
        worth *= 1.0 if abs(submit[k] - submit[j]) <= BURST_S else like[4]
        ranked += near
        who[count], rank[count], weight[count], newer[count] = k, high - p, worth, ranked
        count = _seen(share, over, count, beyond, start[k], run[k], limit[k], at)
    first = count
    for newest, members, low, end in (
        (OTHERS, everybody, 0, len(everybody)), (SAME_LIMIT, same, of_kind[kind[j]], of_kind[kind[j] + 1]),
    ):  # fmt: skip
        high = position_after(members, low, end, start, at)
        for p in range(high - 1, max(low, high - newest) - 1, -1):
            k = members[p]
            if k != j:
                worth = _near(limit[k], limit[j], like[9], 0.5) * _near(units[k], units[j], like[1], like[2])
                who[count], rank[count], weight[count], newer[count] = k, high - p, worth, 0.0
                count = _seen(share, over, count, beyond, start[k], run[k], limit[k], at)
    weight[first:count] *= like[8] / max(weight[first:count].sum(), 1e-12)
    return first, count


@numba.njit(cache=True, nogil=True)
def _near(a, b, floor, width):  # type: ignore[no-untyped-def]
    return 1.0 if a == b else floor + (1.0 - floor) * np.exp(-abs(np.log(a / b)) / width)


@numba.njit(cache=True, nogil=True)
def _seen(share, over, count, beyond, start, run, limit, at):  # type: ignore[no-untyped-def]
    """Keep a past job that used more than ``beyond`` of its limit: ended, or (a lower bound) still running at ``at``."""
    ended = start + run <= at
    used = (run if ended else at - start) / limit
    if used <= beyond:
        return count
    share[count], over[count] = 1.0 if ended and used >= FULL else used, ended
    return count + 1


@numba.njit(cache=True, nogil=True)
def kaplan_meier(share, weight, over, beyond, limit, out):  # type: ignore[no-untyped-def]
    """Deciles of the remaining time: straight between the middles of the steps; what is left in the end runs to the limit."""
    risk, survival, before_f, before_s, level = weight.sum(), 1.0, 0.0, -1.0, 0
    for i in np.argsort(share):
        if over[i] and weight[i] > 0.0 and risk > 1e-12:
            step = survival * min(1.0, weight[i] / risk)
            level = _passed(out, level, before_f, before_s, 1.0 - survival + 0.5 * step, share[i], beyond, limit)
            before_f, before_s = 1.0 - survival + 0.5 * step, share[i]
            survival -= step
        risk -= weight[i]
    if survival > 1e-9:
        level = _passed(out, level, before_f, before_s, 1.0 - 0.5 * survival, 1.0, beyond, limit)
        before_s = 1.0
    for q in range(level, len(out)):
        out[q] = max((before_s - beyond) * limit, 1.0)


@numba.njit(cache=True, nogil=True)
def _passed(out, level, before_f, before_s, f, s, beyond, limit):  # type: ignore[no-untyped-def]
    """Set the deciles between the step before (``before_s`` is -1 for none) and this one; the first decile that is not reached."""
    while level < len(out) and LEVELS[level] <= f:
        at = s if before_s < 0 or f <= before_f else before_s + (s - before_s) * (LEVELS[level] - before_f) / (f - before_f)
        out[level] = max((at - beyond) * limit, 1.0)
        level += 1
    return level
