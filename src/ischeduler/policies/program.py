"""From a policy's words to the kernel and back: scale, merge identical jobs, solve, and hand back shares that fit to the last digit.

Two questions cover the policies: :func:`raise_level` (make the worst-off as well off as can be) and :func:`most_gain` (make the sum
as large as can be), both with floors that must hold. The kernel is :mod:`ischeduler.policies.compiled` where numba is installed, else its
twin :mod:`ischeduler.policies.interior`: the same steps, the same answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ischeduler.core.errors import BadInput, IschedError
from ischeduler.policies import interior
from ischeduler.policies.interior import Point, Programme
from ischeduler.policies.problem import Floats, Ints

TOLERANCE = 1e-9
ACCEPTED = 1e-5
MERGE_FROM = 96
"""Fewer jobs than this are not worth the search for identical ones."""


class NoShares(IschedError):
    """The programme could not be solved to a usable accuracy; says how far it came."""


@dataclass(frozen=True, slots=True, eq=False)
class Shares:
    """``share`` (J, K) of time; the ``level`` all reach (or the total gain); in units of the objective, the ``price`` (K,) of an accelerator of
    each type, the ``worth`` (J,) of a unit less demand of a job and the ``time_price`` (J,) of its time.
    """

    share: Floats
    level: float
    price: Floats
    worth: Floats
    time_price: Floats
    iterations: int


def raise_level(
    speed: Floats, size: Floats | Ints, count: Floats, *, need: Floats | None = None, floor: Floats | None = None, tolerance: float = TOLERANCE,
    twin: bool = False,
) -> Shares:
    """Maximise t with ``speed[j] . x[j] >= need[j] t + floor[j]`` for every job, x within time and count.

    ``speed`` (J, K); 0 where a job cannot run. ``need`` (J,) is 1 by default; a job with need 0 has its floor alone. NoShares when the
    floors cannot hold. ``twin``: the readable kernel even where numba is installed (the same answers).
    """
    jobs = len(speed)
    return _solve(speed, np.ones(jobs) if need is None else need, np.zeros(jobs) if floor is None else floor, size, count, None, tolerance, twin)


def most_gain(
    gain: Floats, size: Floats | Ints, count: Floats, *, speed: Floats | None = None, floor: Floats | None = None, tolerance: float = TOLERANCE,
    twin: bool = False,
) -> Shares:
    """Maximise sum ``gain * x`` (J, K), with ``speed[j] . x[j] >= floor[j]`` where floors are given. NoShares when they cannot hold."""
    jobs = len(gain)
    pace = gain if speed is None else speed
    return _solve(pace, np.zeros(jobs), np.full(jobs, -1.0) if floor is None else floor, size, count, gain, tolerance, twin)


def _solve(
    speed: Floats, need: Floats, floor: Floats, size: Any, count: Floats, gain: Floats | None, tolerance: float, twin: bool,
) -> Shares:
    jobs, kinds = speed.shape
    open_types = np.flatnonzero(count > 0)
    if jobs == 0 or len(open_types) == 0:
        return Shares(np.zeros((jobs, kinds)), 0.0, np.zeros(kinds), np.zeros(jobs), np.zeros(jobs), 0)
    sizes = np.asarray(size, dtype=np.float64)
    rows = [np.ascontiguousarray(speed[:, open_types]), need[:, None], floor[:, None], sizes[:, None]]
    if gain is not None:
        rows.append(np.ascontiguousarray(gain[:, open_types]))
    first, of, copies = _classes(rows, jobs)
    pick = (lambda a: a) if first is None else (lambda a: a[first])
    fast, wanted, least = pick(rows[0]), pick(need), pick(floor)
    scale = np.maximum(fast.max(axis=1), 1e-300)
    wanted, least = wanted / scale, least / scale
    reward = None if gain is None else pick(rows[4])
    unit = 1.0 if reward is None else max(float(np.mean(reward.max(axis=1))), 1e-300)
    mean_need = float(np.dot(copies, wanted)) / float(copies.sum())
    stretch = 1.0 / mean_need if mean_need > 0 else 1.0
    runs = fast > 0
    if reward is not None:
        runs |= reward > 0
        least = np.where(least < 0, -1.0, least)
    programme = Programme(
        speed=np.ascontiguousarray((fast / scale[:, None]).T), runs=np.ascontiguousarray(runs.T), need=np.ascontiguousarray(wanted * stretch),
        floor=np.ascontiguousarray(least), size=np.ascontiguousarray(pick(sizes)), copies=copies, count=np.ascontiguousarray(count[open_types]),
        gain=np.zeros((len(open_types), len(fast))) if reward is None else np.ascontiguousarray((reward / unit).T),
        level_gain=0.0 if reward is not None else float(copies.sum()))
    point = run(programme, interior.start(programme), tolerance, twin=twin)
    if not (point.gap < ACCEPTED and point.residual < ACCEPTED):
        point = _by_highs(programme)
    x = _fitted(programme, point)
    reached = (programme.speed * x).sum(axis=0)
    if reward is None:
        wanting = wanted > 0
        level = float(np.min((reached[wanting] - least[wanting]) / wanted[wanting])) if wanting.any() else float("inf")
        worth_unit = stretch / programme.level_gain
    else:
        level = float(np.dot((programme.gain * x).sum(axis=0), copies)) * unit
        worth_unit = unit
    share, price = np.zeros((jobs, kinds)), np.zeros(kinds)
    share[:, open_types] = x.T if of is None else x.T[of]
    price[open_types] = point.price * worth_unit
    spread = (lambda a: a) if of is None else (lambda a: a[of])
    return Shares(share, level, price, spread(point.y * worth_unit / scale), spread(point.m * worth_unit), point.iterations)


def run(programme: Programme, at: Point, tolerance: float, *, twin: bool = False) -> Point:
    """The kernel, in whichever form is at hand."""
    compiled = None if twin else machine_code()
    if compiled is None:
        with np.errstate(all="ignore"):
            return interior.solve(programme, at, tolerance)
    p = programme
    x, u, v, w, y, m, price, z = (np.array(a) for a in (at.x, at.u, at.v, at.w, at.y, at.m, at.price, at.z))
    t, iterations, gap, residual = compiled.iterate(
        p.speed, p.runs, p.need, p.floor, p.size, p.copies, p.count, p.gain, p.level_gain,
        x, u, v, w, at.t, y, m, price, z, tolerance, interior.STEPS, interior.SHORT)
    return Point(x, u, v, w, t, y, m, price, z, iterations, gap, residual)


def _by_highs(p: Programme) -> Point:
    """The programme by a general solver: for floors that leave no inside. NoShares when they cannot hold."""
    from ischeduler.policies.linear import Sparse, maximise

    kinds, jobs = p.speed.shape
    kind, job = np.nonzero(p.runs)
    at, n = np.arange(len(kind)), len(kind)
    demand = np.arange(jobs)
    matrix = Sparse(
        np.concatenate([job, demand, jobs + job, 2 * jobs + kind]), np.concatenate([at, np.full(jobs, n), at, at]),
        np.concatenate([-p.speed[kind, job], p.need, np.ones(n), (p.copies * p.size)[job]]), 2 * jobs + kinds, n + 1)
    aim = np.append((p.gain * p.copies)[kind, job], p.level_gain)
    try:
        found, dual, _ = maximise(aim, matrix, np.concatenate([-p.floor, np.ones(jobs), p.count]), free=np.array([n]))
    except BadInput:
        raise NoShares("The shares could not be computed: the floors asked for leave no room, or hardly any; lower them a little.") from None
    x = np.zeros((kinds, jobs))
    x[kind, job] = found[:n]
    nothing = np.zeros(jobs)
    return Point(x, nothing, nothing, np.zeros(kinds), float(found[n]), dual[:jobs] / p.copies, dual[jobs : 2 * jobs] / p.copies,
                 dual[2 * jobs :], np.zeros_like(x), 0, 0.0, 0.0)


@cache
def machine_code() -> Any:
    """The compiled kernel, or None without numba."""
    try:
        from ischeduler.policies import compiled
    except ImportError:
        return None
    return compiled


def _fitted(p: Programme, point: Point) -> Floats:
    """The shares inside every limit: nothing negative, no job above its time, no type above its count."""
    x = np.where(p.runs, np.maximum(point.x, 0.0), 0.0)
    x /= np.maximum(x.sum(axis=0), 1.0)
    used = x @ (p.copies * p.size)
    return x * np.minimum(1.0, p.count / np.maximum(used, 1e-300))[:, None]


def _classes(rows: list[Floats], jobs: int) -> tuple[Ints | None, Ints | None, Floats]:
    """Identical jobs: (row of the first of each class, class of each job, jobs in each class); (None, None, ones) where few are."""
    if jobs >= MERGE_FROM:
        table = np.concatenate(rows, axis=1) if len(rows) > 1 else rows[0]
        bits = np.ascontiguousarray(table).view(np.uint64)
        key = np.zeros(jobs, dtype=np.uint64)
        with np.errstate(over="ignore"):
            for column in bits.T:
                key = (key ^ column) * np.uint64(0x9E3779B97F4A7C15)
                key ^= key >> np.uint64(29)
        _, first, of, number = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
        if 2 * len(first) <= jobs and np.array_equal(table[first][of], table):
            return first, of, number.astype(np.float64)
    return None, None, np.ones(jobs)
