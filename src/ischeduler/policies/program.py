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
from ischeduler.policies.problem import Flags, Floats, Ints

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


@dataclass(frozen=True, slots=True, eq=False)
class _Classes:
    """Which jobs are identical: ``first`` job of each class, class ``of`` each job, ``copies`` in it; None, None and ones where few are."""

    first: Ints | None
    of: Ints | None
    copies: Floats

    def pick(self, by_job: Floats) -> Floats:
        return by_job if self.first is None else by_job[self.first]

    def spread(self, by_class: Floats) -> Floats:
        return by_class if self.of is None else by_class[self.of]


@dataclass(frozen=True, slots=True, eq=False)
class _Scales:
    """What the kernel's numbers are times: a job's demand by ``scale``, the level by ``stretch``, gains by ``unit``."""

    scale: Floats
    stretch: float
    unit: float


def _solve(
    speed: Floats, need: Floats, floor: Floats, size: Any, count: Floats, gain: Floats | None, tolerance: float, twin: bool,
) -> Shares:
    jobs, kinds = len(speed), len(count)
    there = np.flatnonzero(count > 0)
    if jobs == 0 or len(there) == 0:
        return Shares(np.zeros((jobs, kinds)), 0.0, np.zeros(kinds), np.zeros(jobs), np.zeros(jobs), 0)
    sizes = np.asarray(size, dtype=np.float64)
    fast = np.ascontiguousarray(speed[:, there])
    reward = None if gain is None else np.ascontiguousarray(gain[:, there])
    rows = [fast, need[:, None], floor[:, None], sizes[:, None]]
    same = _classes(rows if reward is None else [*rows, reward], jobs)
    programme, scales = _scaled(
        same.pick(fast), same.pick(need), same.pick(floor), same.pick(sizes), same.copies, count[there],
        None if reward is None else same.pick(reward))
    point = run(programme, interior.start(programme), tolerance, twin=twin)
    if not (point.gap < ACCEPTED and point.residual < ACCEPTED):
        point = _by_highs(programme)
    x = _fitted(programme, point)
    level, unit = _reached(programme, x, scales)
    share, price = np.zeros((jobs, kinds)), np.zeros(kinds)
    share[:, there] = same.spread(np.ascontiguousarray(x.T))
    price[there] = point.price * unit
    return Shares(share, level, price, same.spread(point.y * unit / scales.scale), same.spread(point.m * unit), point.iterations)


def _scaled(
    fast: Floats, need: Floats, floor: Floats, size: Floats, copies: Floats, count: Floats, reward: Floats | None,
) -> tuple[Programme, _Scales]:
    """The kernel's programme, all its numbers near one; types first."""
    scale = np.maximum(fast.max(axis=1), 1e-300)
    wanted, least, runs = need / scale, floor / scale, fast > 0
    unit = 1.0
    gain = np.zeros(fast.shape)
    if reward is not None:
        best: Floats = reward.max(axis=1)
        unit = max(float(np.mean(best)), 1e-300)
        gain, runs = reward / unit, runs | (reward > 0)
        least = np.where(least < 0, -1.0, least)
    mean = float(np.dot(copies, wanted)) / float(copies.sum())
    stretch = 1.0 / mean if mean > 0 else 1.0
    programme = Programme(
        speed=_turned(fast / scale[:, None]), runs=np.ascontiguousarray(np.transpose(runs)), need=wanted * stretch, floor=least,
        size=np.ascontiguousarray(size), copies=copies, count=np.ascontiguousarray(count), gain=_turned(gain),
        level_gain=float(copies.sum()) if reward is None else 0.0)
    return programme, _Scales(scale, stretch, unit)


def _turned(table: Floats) -> Floats:
    return np.ascontiguousarray(np.transpose(table))


def _reached(p: Programme, x: Floats, scales: _Scales) -> tuple[float, float]:
    """(the level or the gain of the shares as they are, what a multiplier of the kernel is worth in the objective's unit)."""
    if p.level_gain == 0.0:
        return float(np.dot((p.gain * x).sum(axis=0), p.copies)) * scales.unit, scales.unit
    wanting: Flags = p.need > 0
    unit = scales.stretch / p.level_gain
    if not wanting.any():
        return float("inf"), unit
    slack: Floats = ((p.speed * x).sum(axis=0) - p.floor)[wanting] / p.need[wanting]
    return float(np.min(slack)) * scales.stretch, unit


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

    kinds, jobs = int(p.speed.shape[0]), int(p.speed.shape[1])
    kind, job = np.nonzero(p.runs)
    at, n = np.arange(len(kind)), len(kind)
    demand = np.arange(jobs, dtype=np.int64)
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
    nothing: Floats = np.zeros(jobs)
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


def _classes(rows: list[Floats], jobs: int) -> _Classes:
    """Find identical jobs by a hash of their numbers, which is then checked."""
    if jobs >= MERGE_FROM:
        table = np.concatenate(rows, axis=1)
        bits = np.ascontiguousarray(table).view(np.uint64)
        key = np.zeros(jobs, dtype=np.uint64)
        with np.errstate(over="ignore"):
            for k in range(bits.shape[1]):
                key = (key ^ bits[:, k]) * np.uint64(0x9E3779B97F4A7C15)
                key ^= key >> np.uint64(29)
        _, first, of, number = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
        if 2 * len(first) <= jobs and np.array_equal(table[first][of], table):
            return _Classes(first.astype(np.int64), of.astype(np.int64), number.astype(np.float64))
    return _Classes(None, None, np.ones(jobs))
