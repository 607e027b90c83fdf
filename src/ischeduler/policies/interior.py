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

from dataclasses import dataclass

import numpy as np

from ischeduler.policies.problem import Flags, Floats

STEPS = 80
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


def _largest(values: Floats, change: Floats) -> float:
    """The largest step <= 1 that keeps ``values + step * change`` above zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        worst = float(np.min(change / values))
    return 1.0 if worst >= -1.0 else -1.0 / worst


def solve(p: Programme, at: Point, tolerance: float) -> Point:
    """Iterate from ``at`` until gap and residuals are below ``tolerance`` (relative); the last point, whether or not they are."""
    runs, speed, size, n = p.runs.astype(np.float64), p.speed, p.size, p.copies
    kinds, ns = len(p.count), p.copies * p.size
    x, u, v, w, t, y, m, price, z = at.x, at.u, at.v, at.w, at.t, at.y, at.m, at.price, at.z
    pairs = float(np.dot(runs.sum(axis=0), n)) + 2.0 * float(n.sum()) + kinds
    gap = residual = float("inf")
    step, best = 0, None
    for step in range(STEPS):  # noqa: B007
        xr = x * runs
        r1 = p.floor - (speed * xr).sum(axis=0) + p.need * t + u
        r2 = 1.0 - xr.sum(axis=0) - v
        r3 = p.count - xr @ ns - w
        rx = -(p.gain + speed * y - m - size * price[:, None] + z) * runs
        rt = p.level_gain - float(np.dot(n * p.need, y))
        mu = (float(np.dot((xr * z).sum(axis=0) + u * y + v * m, n)) + float(np.dot(w, price))) / pairs
        worth = p.level_gain * t + float(np.dot((p.gain * xr).sum(axis=0), n))
        gap = mu * pairs / (1e-12 + abs(worth))
        residual = max(
            float(np.abs(r1).max()), float(np.abs(r2).max()), float((np.abs(r3) / p.count).max()),
            float(np.abs(rx).max()) / (1.0 + float(y.max())), abs(rt) / (1.0 + p.level_gain))
        if gap < tolerance and residual < tolerance:
            break
        merit = max(gap, residual)
        here = Point(x, u, v, w, t, y, m, price, z, step, gap, residual)
        if merit < 1e-4 and (best is None or merit < max(best.gap, best.residual)):
            best = here
        elif best is not None and not merit < 1e4 * max(best.gap, best.residual):
            break
        d = xr / z
        # Demands are measured from the speed of the job's main type, or a job that is all on one type would lose its digits; a job with
        # time to spare would lose them by that.
        base = np.take_along_axis(speed, d.argmax(axis=0)[None, :], axis=0)[0]
        free_time, free_need = v / m, u / y
        base = np.where(free_time < d.max(axis=0), base, 0.0)
        off = speed - base
        da = d * off
        big_a = (da * off).sum(axis=0) + free_need + base * base * free_time
        big_b, big_c = da.sum(axis=0) - base * free_time, d.sum(axis=0) + free_time
        # The small system, written so that nothing large cancels when one type carries a job: determinant, off-diagonal entries and row
        # sums of each job's block are sums of terms of one sign, or nearly so.
        det = free_need * free_time + free_need * d.sum(axis=0) + free_time * (d * speed * speed).sum(axis=0)
        for k in range(kinds):
            for other in range(k):
                det += d[k] * d[other] * (speed[k] - speed[other]) ** 2
        inv = 1.0 / det
        weight = ns * size
        small = np.zeros((kinds + 1, kinds + 1))
        for k in range(kinds):
            row = free_need.copy()
            for m_ in range(kinds):
                row += d[m_] * speed[m_] * (speed[m_] - speed[k])
            small[k, k] += float(np.dot(weight, d[k] * free_time * inv * row)) + w[k] / price[k]
            for other in range(k):
                cell = free_need + speed[k] * speed[other] * free_time
                for m_ in range(kinds):
                    if m_ not in (k, other):
                        cell += d[m_] * (speed[m_] - speed[k]) * (speed[m_] - speed[other])
                value = float(np.dot(weight, d[k] * d[other] * inv * cell))
                small[k, other] -= value
                small[other, k] -= value
                small[k, k] += value
                small[other, other] += value
        cross = (big_c * da - big_b * d) * (inv * ns * p.need)
        small[:kinds, kinds] = small[kinds, :kinds] = -cross.sum(axis=1)
        small[kinds, kinds] = -float(np.dot(big_c * inv * p.need * p.need, n))
        small[kinds, kinds] = small[kinds, kinds] * (1.0 + 1e-14) or -1.0
        if not np.isfinite(small).all():
            break
        even = 1.0 / np.sqrt(np.maximum(np.abs(np.diag(small)), 1e-200))
        scaled = small * even[:, None] * even

        def direction(cx: Floats, cu: Floats, cv: Floats, cw: Floats):
            h = (cx / x - rx) * runs  # noqa: B023
            e2 = (d * h).sum(axis=0) - r2 + cv / m  # noqa: B023
            e1 = r1 - base * r2 + cu / y + base * cv / m - (da * h).sum(axis=0)  # noqa: B023
            dy0 = (big_c * e1 + big_b * e2) * inv  # noqa: B023
            dm0 = (big_b * e1 + big_a * e2) * inv  # noqa: B023
            rhs = np.empty(kinds + 1)
            rhs[:kinds] = (da * dy0 - d * dm0 + d * h) @ ns + cw / price - r3  # noqa: B023
            rhs[kinds] = float(np.dot(n * p.need, dy0)) - rt  # noqa: B023
            # The level's column enters with the other sign than the prices'.
            answer = _eliminated(scaled, rhs * even) * even  # noqa: B023
            answer = answer + _eliminated(scaled, (rhs - small @ answer) * even) * even  # noqa: B023
            dp, dt = answer[:kinds], answer[kinds]
            lead_a = size * (dp @ da) + p.need * dt  # noqa: B023
            lead_d = size * (dp @ d)  # noqa: B023
            dy = dy0 + (big_c * lead_a - big_b * lead_d) * inv  # noqa: B023
            dm = dm0 + (big_b * lead_a - big_a * lead_d) * inv  # noqa: B023
            dx = d * (off * dy - dm - size * dp[:, None] + h)  # noqa: B023
            dm += base * dy  # noqa: B023
            dz = (cx - z * dx) / x * runs  # noqa: B023
            return dx, (cu - u * dy) / y, (cv - v * dm) / m, (cw - w * dp) / price, dt, dy, dm, dp, dz  # noqa: B023

        ax, au, av, aw, _, ay, am, ap, az = direction(-xr * z, -u * y, -v * m, -w * price)
        primal = min(_largest(x, ax), _largest(u, au), _largest(v, av), _largest(w, aw))
        dual = min(_largest(y, ay), _largest(m, am), _largest(price, ap), _largest(z, az))
        ahead = (
            float(np.dot(((xr + primal * ax) * (z + dual * az) * runs).sum(axis=0) + (u + primal * au) * (y + dual * ay)
                         + (v + primal * av) * (m + dual * am), n))
            + float(np.dot(w + primal * aw, price + dual * ap))) / pairs
        aim = mu * min(1.0, (ahead / mu)) ** 3
        dx, du, dv, dw, dt, dy, dm, dp, dz = direction(
            (aim - xr * z - ax * az) * runs, aim - u * y - au * ay, aim - v * m - av * am, aim - w * price - aw * ap)
        primal = min(1.0, SHORT * min(_largest(x, dx), _largest(u, du), _largest(v, dv), _largest(w, dw)))
        dual = min(1.0, SHORT * min(_largest(y, dy), _largest(m, dm), _largest(price, dp), _largest(z, dz)))
        x, u, v, w, t = x + primal * dx, u + primal * du, v + primal * dv, w + primal * dw, t + primal * dt
        y, m, price, z = y + dual * dy, m + dual * dm, price + dual * dp, z + dual * dz
    last = Point(x, u, v, w, t, y, m, price, z, step, gap, residual)
    # The best point near the end, should the digits have run out after it.
    return last if best is None or max(gap, residual) <= max(best.gap, best.residual) else best


def _eliminated(matrix: Floats, rhs: Floats) -> Floats:
    try:
        return np.linalg.solve(matrix, rhs)
    except np.linalg.LinAlgError:
        return np.linalg.lstsq(matrix, rhs, rcond=1e-15)[0]
