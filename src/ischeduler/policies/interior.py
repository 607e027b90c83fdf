"""The readable twin of the kernel: a primal-dual interior point for programmes whose jobs meet only in a few capacities and one level.

The programme (K types, J jobs, job j standing for ``copies[j]`` identical ones; x is (K, J), t one number)::

    maximise    level_gain * t + sum_jk copies[j] gain[k,j] x[k,j]
    subject to  sum_k speed[k,j] x[k,j] >= need[j] * t + floor[j]      (multiplier y[j]: what a little less demand of j would be worth)
                sum_k x[k,j] <= 1                                     (multiplier m[j])
                sum_j copies[j] size[j] x[k,j] <= count[k]            (multiplier price[k] of an accelerator of type k)
                x >= 0, and x[k,j] = 0 where ``runs[k,j]`` is False

After the diagonal of x is gone, each job leaves a 2x2 block (its demand and its time), and all of them meet in a dense system of K + 1
unknowns (the prices and t): O(J K^2) per iteration, 10 to 25 iterations whatever J is. Mehrotra's predictor and corrector
(S. Mehrotra, SIAM J. Optimization 2(4), 1992). The limit is the analytic centre of all optimal solutions, so no job is at zero by accident.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ischeduler.policies.problem import Flags, Floats

STEPS = 80
NEAR = 1e-4
"""A gap and residual from which on the best point is kept."""
SHORT = 0.9995
"""How much of the way to the boundary a step may go at most."""


@dataclass(frozen=True, slots=True, eq=False)
class Programme:
    """The numbers of the programme above; see the module."""

    speed: Floats
    runs: Flags
    need: Floats
    floor: Floats
    size: Floats
    copies: Floats
    count: Floats
    gain: Floats
    level_gain: float


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """A primal and dual point: shares ``x`` (K, J), level ``t``, the slacks u, v, w and the multipliers y, m, price, z."""

    x: Floats
    u: Floats
    v: Floats
    w: Floats
    t: float
    y: Floats
    m: Floats
    price: Floats
    z: Floats
    iterations: int = 0
    gap: float = float("inf")
    residual: float = float("inf")


def start(p: Programme) -> Point:
    """Well inside: every job spread over the types it runs on, in proportion to what is there."""
    load = (p.runs * (p.copies * p.size)).sum(axis=1)
    room = np.minimum(1.0, p.count / np.maximum(load, 1e-300))
    kinds = np.maximum(p.runs.sum(axis=0), 1)
    x = np.where(p.runs, 0.8 * np.minimum(room[:, None], 1.0 / kinds), 1.0)
    inside = np.where(p.runs, x, 0.0)
    v = 1.0 - inside.sum(axis=0)
    w = p.count - inside @ (p.copies * p.size)
    reached = (p.speed * inside).sum(axis=0)
    wanting = p.need > 0
    t = 0.5 * float(np.min((reached[wanting] - p.floor[wanting]) / p.need[wanting])) if wanting.any() else 0.0
    t = max(t, 0.0)
    u = np.maximum(reached - p.need * t - p.floor, 0.1 * np.maximum(reached, 1e-3))
    inverse = float(np.dot(p.copies * p.need, 1.0 / u))
    mu = p.level_gain / inverse if inverse > 0 else float(np.mean(p.gain[p.runs] * x[p.runs])) if p.gain.any() else 1.0
    return Point(x, u, v, w, t, mu / u, mu / v, mu / w, np.where(p.runs, mu / x, 1.0))


@dataclass(frozen=True, slots=True, eq=False)
class _Residuals:
    """What the equations of demand, time, capacity, shares and level lack, the mean complementarity ``mu``, and both measures of how far."""

    demand: Floats
    time: Floats
    room: Floats
    shares: Floats
    level: float
    mu: float
    gap: float
    residual: float


@dataclass(frozen=True, slots=True, eq=False)
class _Blocks:
    """Each job's 2x2 block, with demands measured from the speed ``base``, and the small system they meet in (also ``scaled`` by ``even``)."""

    d: Floats
    base: Floats
    off: Floats
    da: Floats
    a: Floats
    b: Floats
    c: Floats
    inverse: Floats
    small: Floats
    even: Floats
    scaled: Floats


@dataclass(frozen=True, slots=True, eq=False)
class _Move:
    """A change of every part of a point."""

    x: Floats
    u: Floats
    v: Floats
    w: Floats
    t: float
    y: Floats
    m: Floats
    price: Floats
    z: Floats


def solve(p: Programme, at: Point, tolerance: float) -> Point:
    """Iterate from ``at`` until gap and residuals are below ``tolerance`` (relative); the best point near the end, should the digits run out."""
    here, best = at, at
    for iteration in range(STEPS):
        lacks = _residuals(p, here)
        here = replace(here, iterations=iteration, gap=lacks.gap, residual=lacks.residual)
        merit, reached = max(here.gap, here.residual), max(best.gap, best.residual)
        if merit < tolerance:
            return here
        if merit < min(NEAR, reached):
            best = here
        elif reached < NEAR and not merit < 1e4 * reached:
            break
        blocks = _blocks(p, here)
        if blocks is None:
            break
        here = _advanced(p, here, lacks, blocks)
    return best if max(best.gap, best.residual) < NEAR else here


def _pairs(p: Programme) -> float:
    return float(np.dot(p.runs.sum(axis=0), p.copies)) + 2.0 * float(p.copies.sum()) + len(p.count)


def _residuals(p: Programme, at: Point) -> _Residuals:
    n, inside = p.copies, at.x * p.runs
    demand = p.floor - (p.speed * inside).sum(axis=0) + p.need * at.t + at.u
    time = 1.0 - inside.sum(axis=0) - at.v
    room = p.count - inside @ (n * p.size) - at.w
    shares = -(p.gain + p.speed * at.y - at.m - p.size * at.price[:, None] + at.z) * p.runs
    level = p.level_gain - float(np.dot(n * p.need, at.y))
    total = float(np.dot((inside * at.z).sum(axis=0) + at.u * at.y + at.v * at.m, n)) + float(np.dot(at.w, at.price))
    worth = p.level_gain * at.t + float(np.dot((p.gain * inside).sum(axis=0), n))
    residual = max(
        float(np.abs(demand).max()), float(np.abs(time).max()), float((np.abs(room) / p.count).max()),
        float(np.abs(shares).max()) / (1.0 + float(at.y.max())), abs(level) / (1.0 + p.level_gain))
    return _Residuals(demand, time, room, shares, level, total / _pairs(p), total / (1e-12 + abs(worth)), residual)


def _blocks(p: Programme, at: Point) -> _Blocks | None:
    """None when the digits have run out."""
    d = at.x / at.z * p.runs
    free_time, free_need = at.v / at.m, at.u / at.y
    # Demands are measured from the speed of the job's main type, or a job that is all on one type would lose its digits; a job with
    # time to spare would lose them by that.
    main = np.take_along_axis(p.speed, d.argmax(axis=0)[None, :], axis=0)[0]
    base = np.where(free_time < d.max(axis=0), main, 0.0)
    off = p.speed - base
    da = d * off
    a = (da * off).sum(axis=0) + free_need + base * base * free_time
    b, c = da.sum(axis=0) - base * free_time, d.sum(axis=0) + free_time
    inverse = 1.0 / _determinant(p.speed, d, free_time, free_need)
    small = _small_system(p, at, d, free_time, free_need, inverse)
    kinds = len(p.count)
    cross = (c * da - b * d) * (inverse * p.copies * p.size * p.need)
    small[:kinds, kinds] = small[kinds, :kinds] = -cross.sum(axis=1)
    # Without a level its unknown is alone, and 0.
    small[kinds, kinds] = -float(np.dot(c * inverse * p.need * p.need, p.copies)) * (1.0 + 1e-14) or -1.0
    if not np.isfinite(small).all():
        return None
    even = 1.0 / np.sqrt(np.maximum(np.abs(np.diag(small)), 1e-200))
    return _Blocks(d, base, off, da, a, b, c, inverse, small, even, small * even[:, None] * even)


def _determinant(speed: Floats, d: Floats, free_time: Floats, free_need: Floats) -> Floats:
    """Of every job's block: a sum of terms of one sign, so that nothing large cancels when one type carries a job."""
    total = free_need * free_time + free_need * d.sum(axis=0) + free_time * (d * speed * speed).sum(axis=0)
    for k in range(len(d)):
        for other in range(k):
            total += d[k] * d[other] * (speed[k] - speed[other]) ** 2
    return total


def _small_system(p: Programme, at: Point, d: Floats, free_time: Floats, free_need: Floats, inverse: Floats) -> Floats:
    """The prices' part of the system, from off-diagonal entries and row sums of each job's part: of one sign, or nearly so."""
    kinds, speed, weight = len(p.count), p.speed, p.copies * p.size * p.size
    small = np.zeros((kinds + 1, kinds + 1))
    for k in range(kinds):
        row = free_need + (d * speed * (speed - speed[k])).sum(axis=0)
        small[k, k] += float(np.dot(weight, d[k] * free_time * inverse * row)) + at.w[k] / at.price[k]
        for other in range(k):
            rest = (d * (speed - speed[k]) * (speed - speed[other])).sum(axis=0)
            value = float(np.dot(weight, d[k] * d[other] * inverse * (free_need + speed[k] * speed[other] * free_time + rest)))
            small[k, other] -= value
            small[other, k] -= value
            small[k, k] += value
            small[other, other] += value
    return small


def _direction(p: Programme, at: Point, lacks: _Residuals, g: _Blocks, cx: Floats, cu: Floats, cv: Floats, cw: Floats) -> _Move:
    """Newton's step to these products of the complementary pairs."""
    kinds, ns = len(p.count), p.copies * p.size
    h = (cx / at.x - lacks.shares) * p.runs
    e2 = (g.d * h).sum(axis=0) - lacks.time + cv / at.m
    e1 = lacks.demand - g.base * lacks.time + cu / at.y + g.base * cv / at.m - (g.da * h).sum(axis=0)
    dy0, dm0 = (g.c * e1 + g.b * e2) * g.inverse, (g.b * e1 + g.a * e2) * g.inverse
    rhs = np.empty(kinds + 1)
    rhs[:kinds] = (g.da * dy0 - g.d * dm0 + g.d * h) @ ns + cw / at.price - lacks.room
    rhs[kinds] = float(np.dot(p.copies * p.need, dy0)) - lacks.level
    answer = _eliminated(g.scaled, rhs * g.even) * g.even
    answer = answer + _eliminated(g.scaled, (rhs - g.small @ answer) * g.even) * g.even
    dp, dt = answer[:kinds], float(answer[kinds])
    lead_a, lead_d = p.size * (dp @ g.da) + p.need * dt, p.size * (dp @ g.d)
    dy = dy0 + (g.c * lead_a - g.b * lead_d) * g.inverse
    dm = dm0 + (g.b * lead_a - g.a * lead_d) * g.inverse
    dx = g.d * (g.off * dy - dm - p.size * dp[:, None] + h)
    dm = dm + g.base * dy
    dz = (cx - at.z * dx) / at.x * p.runs
    return _Move(dx, (cu - at.u * dy) / at.y, (cv - at.v * dm) / at.m, (cw - at.w * dp) / at.price, dt, dy, dm, dp, dz)


def _eliminated(matrix: Floats, rhs: Floats) -> Floats:
    try:
        return np.asarray(np.linalg.solve(matrix, rhs), dtype=np.float64)
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.lstsq(matrix, rhs, rcond=1e-15)[0], dtype=np.float64)


def _largest(*moves: tuple[Floats, Floats]) -> float:
    """The largest step <= 1 that keeps every value above zero."""
    worst = min(float(np.min(change / value)) for value, change in moves)
    return 1.0 if worst >= -1.0 else -1.0 / worst


def _reaches(at: Point, go: _Move) -> tuple[float, float]:
    """The largest primal and dual steps."""
    return (_largest((at.x, go.x), (at.u, go.u), (at.v, go.v), (at.w, go.w)),
            _largest((at.y, go.y), (at.m, go.m), (at.price, go.price), (at.z, go.z)))


def _advanced(p: Programme, at: Point, lacks: _Residuals, blocks: _Blocks) -> Point:
    """One predictor, which sees how far the optimum can be approached at once, and one corrector towards a centre chosen by that."""
    inside = at.x * p.runs
    look = _direction(p, at, lacks, blocks, -inside * at.z, -at.u * at.y, -at.v * at.m, -at.w * at.price)
    primal, dual = _reaches(at, look)
    ahead = float(np.dot(
        ((inside + primal * look.x) * (at.z + dual * look.z) * p.runs).sum(axis=0) + (at.u + primal * look.u) * (at.y + dual * look.y)
        + (at.v + primal * look.v) * (at.m + dual * look.m), p.copies)) + float(np.dot(at.w + primal * look.w, at.price + dual * look.price))
    aim = lacks.mu * min(1.0, ahead / _pairs(p) / lacks.mu) ** 3
    go = _direction(
        p, at, lacks, blocks, (aim - inside * at.z - look.x * look.z) * p.runs, aim - at.u * at.y - look.u * look.y,
        aim - at.v * at.m - look.v * look.m, aim - at.w * at.price - look.w * look.price)
    primal, dual = (min(1.0, SHORT * step) for step in _reaches(at, go))
    return Point(
        at.x + primal * go.x, at.u + primal * go.u, at.v + primal * go.v, at.w + primal * go.w, at.t + primal * go.t,
        at.y + dual * go.y, at.m + dual * go.m, at.price + dual * go.price, at.z + dual * go.z)
