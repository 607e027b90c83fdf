# pyright: basic
"""The interior point of Gavel's finish-time programme, which has a second-order cone for every job, in machine code.

The least ratio is nearly always that of one job alone, so that most shares are whatever the solver leaves them at; as
:mod:`~ischeduler.simulator.pools.gavel.embedding` does, this follows the method of the solver that Gavel was run with (A. Domahidi,
E. Chu, S. Boyd: ECOS: An SOCP solver for embedded systems, ECC 2013). The programme, shares x (J, K), a level t, inverse speeds v (J,)::

    minimise    t
    subject to  left[j] v[j] - ratio[j] t <= -since[j]           (divided by the isolated time, ``ratio`` is 1)
                x >= 0,  sum_k x[j,k] <= 1,  sum_j size[j] x[j,k] <= count[k]
                (u + v, u - v, 2) in the cone |(b, c)| <= a      with u = sum_k rate[j,k] x[j,k]: u v >= 1

Each job has a block of K + 1 unknowns and K + 5 rows; blocks meet in the capacities and t: an iteration costs O(J K^3).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ischeduler.simulator.pools.gavel.cones import CONE, SHORTENED, corrected, longest_step, move_inside, scaled_by, weigh, within
from ischeduler.simulator.pools.gavel.embedding import eliminated

TOLERANCE, ROUGHLY = 1e-8, 5e-5
MOST_STEPS = 100
LEAST_CENTRING = 1e-4
REFINEMENTS, ACCURACY, WORTH_WHILE = 9, 1e-14, 6.0
LEAST_PIVOT = 1e-14


@njit(cache=True, nogil=True)
def _root(value):
    return 1.0 if value < 1e-6 else np.sqrt(value)


@njit(cache=True, nogil=True)
def _equilibrate(g, gt, c):
    """Scale rows and columns towards 1, a cone's rows alike; the scales of the unknowns, of t, of the jobs' rows and of the capacities."""
    jobs, rows, width = g.shape
    kinds = width - 1
    first = rows - CONE
    sx, st, sr, sc = np.ones((jobs, width)), 1.0, np.ones((jobs, rows)), np.ones(kinds)
    for _ in range(3):
        cap, top = np.zeros(kinds), 0.0
        row, column = np.zeros((jobs, rows)), np.zeros((jobs, width))
        for j in range(jobs):
            top = max(top, abs(gt[j]))
            for i in range(rows):
                for k in range(width):
                    row[j, i] = max(row[j, i], abs(g[j, i, k]))
                    column[j, k] = max(column[j, k], abs(g[j, i, k]))
            row[j, 0] = max(row[j, 0], abs(gt[j]))
            row[j, first:] = np.sum(row[j, first:])
            for k in range(kinds):
                cap[k] = max(cap[k], abs(c[j, k]))
                column[j, k] = max(column[j, k], abs(c[j, k]))
        top = _root(top)
        st *= top
        for k in range(kinds):
            cap[k] = _root(cap[k])
            sc[k] *= cap[k]
        for j in range(jobs):
            for k in range(width):
                column[j, k] = _root(column[j, k])
                sx[j, k] *= column[j, k]
                if k < kinds:
                    c[j, k] /= cap[k] * column[j, k]
            for i in range(rows):
                row[j, i] = _root(row[j, i])
                sr[j, i] *= row[j, i]
                for k in range(width):
                    g[j, i, k] /= row[j, i] * column[j, k]
            gt[j] /= row[j, 0] * top
    return sx, st, sr, sc


@njit(cache=True, nogil=True)
def _factor(g, gt, c, w, bar, eta, wc, lower, touch, small):
    """Cholesky factors of the jobs' blocks, ``touch`` (J, N): how t acts on them, and the system of the prices and t."""
    jobs, rows, width = g.shape
    kinds = width - 1
    heavy, column = np.empty((rows, width)), np.empty(rows)
    small[:, :] = 0.0
    acts = np.empty((kinds + 1, width))
    for j in range(jobs):
        for k in range(width):
            scaled_by(w[j], bar[j], eta[j], g[j, :, k], -2, column)
            heavy[:, k] = column
        for i in range(width):
            for k in range(i + 1):
                value = 0.0
                for r in range(rows):
                    value += g[j, r, i] * heavy[r, k]
                least = LEAST_PIVOT * value
                for r in range(k):
                    value -= lower[j, i, r] * lower[j, k, r]
                lower[j, i, k] = np.sqrt(max(value, least)) if i == k else value / lower[j, k, k]
            touch[j, i] = g[j, 0, i] * gt[j] / w[j, 0]
        for i in range(kinds):
            acts[i, :] = 0.0
            acts[i, i] = c[j, i]
        acts[kinds] = touch[j]
        for i in range(kinds + 1):
            _forward(lower[j], acts[i])
        for i in range(kinds + 1):
            for k in range(kinds + 1):
                for r in range(width):
                    small[i, k] += acts[i, r] * acts[k, r]
        small[kinds, kinds] -= gt[j] * gt[j] / w[j, 0]
    for k in range(kinds):
        small[k, k] += wc[k]


@njit(cache=True, nogil=True)
def _forward(lower, v):
    for i in range(len(v)):
        for r in range(i):
            v[i] -= lower[i, r] * v[r]
        v[i] /= lower[i, i]


@njit(cache=True, nogil=True)
def _backward(lower, v):
    for i in range(len(v) - 1, -1, -1):
        for r in range(i + 1, len(v)):
            v[i] -= lower[r, i] * v[r]
        v[i] /= lower[i, i]


@njit(cache=True, nogil=True)
def _once(g, gt, c, w, bar, eta, wc, lower, touch, small, rx, rt, rz, rc, y, z, zc):
    """Solve G'z = rx, G y - W^2 z = rz for the unknowns ``y`` (J, N) and t (returned) and the multipliers."""
    jobs, rows, width = g.shape
    kinds = width - 1
    side, pull = np.zeros(kinds + 1), np.empty(rows)
    side[:kinds] = -rc
    side[kinds] = -rt
    for j in range(jobs):
        scaled_by(w[j], bar[j], eta[j], rz[j], -2, pull)
        for k in range(width):
            value = rx[j, k]
            for r in range(rows):
                value += g[j, r, k] * pull[r]
            y[j, k] = value
        _forward(lower[j], y[j])
        _backward(lower[j], y[j])
        for k in range(kinds):
            side[k] += c[j, k] * y[j, k]
        for k in range(width):
            side[kinds] += touch[j, k] * y[j, k]
        side[kinds] -= gt[j] * pull[0]
    answer = eliminated(small, side)
    t = answer[kinds]
    zc[:] = answer[:kinds]
    change, reach = np.empty(width), np.empty(rows)
    for j in range(jobs):
        for k in range(width):
            change[k] = touch[j, k] * t + (c[j, k] * zc[k] if k < kinds else 0.0)
        _forward(lower[j], change)
        _backward(lower[j], change)
        y[j] -= change
        for r in range(rows):
            reach[r] = -rz[j, r] + (gt[j] * t if r == 0 else 0.0)
            for k in range(width):
                reach[r] += g[j, r, k] * y[j, k]
        scaled_by(w[j], bar[j], eta[j], reach, -2, z[j])
    return t


@njit(cache=True, nogil=True)
def _solve(g, gt, c, w, bar, eta, wc, lower, touch, small, rx, rt, rz, rc, y, z, zc):
    """The same, refined: the residuals are solved for again while that makes them much smaller, and a step that makes them larger is undone."""
    jobs, rows, width = g.shape
    kinds = width - 1
    t = _once(g, gt, c, w, bar, eta, wc, lower, touch, small, rx, rt, rz, rc, y, z, zc)
    ex, ez, weighed = np.empty((jobs, width)), np.empty((jobs, rows)), np.empty(rows)
    dy, dz, dc = np.empty((jobs, width)), np.empty((jobs, rows)), np.empty(kinds)
    enough = ACCURACY * (1.0 + max(np.max(np.abs(rx)), abs(rt), np.max(np.abs(rz)), np.max(np.abs(rc))))
    before, dt = np.inf, 0.0
    for turn in range(REFINEMENTS + 1):
        et, ec = rt, rc + wc * zc
        for j in range(jobs):
            scaled_by(w[j], bar[j], eta[j], z[j], 2, weighed)
            et -= gt[j] * z[j, 0]
            for k in range(width):
                ex[j, k] = rx[j, k]
                if k < kinds:
                    ex[j, k] -= c[j, k] * zc[k]
                    ec[k] -= c[j, k] * y[j, k]
                for r in range(rows):
                    ex[j, k] -= g[j, r, k] * z[j, r]
            for r in range(rows):
                ez[j, r] = rz[j, r] + weighed[r] - (gt[j] * t if r == 0 else 0.0)
                for k in range(width):
                    ez[j, r] -= g[j, r, k] * y[j, k]
        off = max(np.max(np.abs(ex)), abs(et), np.max(np.abs(ez)), np.max(np.abs(ec)))
        if off > before:
            t -= dt
            y -= dy
            z -= dz
            zc -= dc
            break
        if turn == REFINEMENTS or off < enough or before < WORTH_WHILE * off:
            break
        before = off
        dt = _once(g, gt, c, w, bar, eta, wc, lower, touch, small, ex, et, ez, ec, dy, dz, dc)
        t += dt
        y += dy
        z += dz
        zc += dc
    return t


@njit(cache=True, nogil=True)
def nearest(rate, since, left, isolated, size, count):
    """Shares (J, K), the least ratio and whether it was found; ``rate`` steps/s, ``left`` steps, the others seconds and accelerators."""
    jobs, kinds = rate.shape
    width, rows = kinds + 1, kinds + 5
    f = rows - CONE
    g, gt, c = np.zeros((jobs, rows, width)), -np.ones(jobs), np.empty((jobs, kinds))
    h, hc = np.zeros((jobs, rows)), count.copy()
    for j in range(jobs):
        g[j, 0, kinds] = left[j] / isolated[j]
        h[j, 0] = -since[j] / isolated[j]
        for k in range(kinds):
            g[j, 1 + k, k] = -1.0
            g[j, 1 + kinds, k] = 1.0
            g[j, f, k] = g[j, f + 1, k] = -rate[j, k]
            c[j, k] = size[j]
        g[j, f, kinds], g[j, f + 1, kinds] = -1.0, 1.0
        h[j, 1 + kinds], h[j, f + 2] = 1.0, 2.0
    sx, st, sr, sc = _equilibrate(g, gt, c)
    h, hc, cost = h / sr, hc / sc, 1.0 / st
    w, bar, eta, wc = np.ones((jobs, rows)), np.zeros((jobs, CONE)), np.ones(jobs), np.ones(kinds)
    bar[:, 0] = 1.0
    lower, touch, small = np.zeros((jobs, width, width)), np.empty((jobs, width)), np.empty((kinds + 1, kinds + 1))
    no_x, no_z, no_c = np.zeros((jobs, width)), np.zeros((jobs, rows)), np.zeros(kinds)
    y, s, ac, kept = np.empty((jobs, width)), np.empty((jobs, rows)), np.empty(kinds), np.empty((jobs, width))
    z, zc = np.empty((jobs, rows)), np.empty(kinds)
    _factor(g, gt, c, w, bar, eta, wc, lower, touch, small)
    t = _solve(g, gt, c, w, bar, eta, wc, lower, touch, small, no_x, 0.0, h, hc, y, s, ac)
    s, ac = -s, -ac
    move_inside(s, ac)
    _solve(g, gt, c, w, bar, eta, wc, lower, touch, small, no_x, -cost, no_z, no_c, kept, z, zc)
    move_inside(z, zc)
    tau = kappa = 1.0
    size_h = max(1.0, np.sqrt(np.sum(h * h) + np.sum(hc * hc)))
    degree = jobs * (rows - CONE + 1) + kinds
    rx, rz = np.empty((jobs, width)), np.empty((jobs, rows))
    y1, z1, c1 = np.empty((jobs, width)), np.empty((jobs, rows)), np.empty(kinds)
    y2, z2, c2 = np.empty((jobs, width)), np.empty((jobs, rows)), np.empty(kinds)
    scaled, ds, dz, turned = np.empty((jobs, rows)), np.empty((jobs, rows)), np.empty((jobs, rows)), np.empty((jobs, rows))
    found = False
    last = (y, t, tau)
    for _ in range(MOST_STEPS):
        if not (within(s) and within(z)):
            y, t, tau = last
            break
        rt, rc = -cost * tau, ac - hc * tau
        for j in range(jobs):
            rt -= gt[j] * z[j, 0]
            for k in range(width):
                rx[j, k] = 0.0
                if k < kinds:
                    rx[j, k] -= c[j, k] * zc[k]
                    rc[k] += c[j, k] * y[j, k]
                for r in range(rows):
                    rx[j, k] -= g[j, r, k] * z[j, r]
            for r in range(rows):
                rz[j, r] = s[j, r] - h[j, r] * tau + (gt[j] * t if r == 0 else 0.0)
                for k in range(width):
                    rz[j, r] += g[j, r, k] * y[j, k]
        gap = np.sum(s * z) + np.sum(ac * zc)
        side = np.sum(h * z) + np.sum(hc * zc)
        slack = kappa + cost * t + side
        mu = (gap + kappa * tau) / (degree + 1)
        relative = np.inf
        if cost * t < 0:
            relative = gap / (-cost * t / tau)
        elif side < 0:
            relative = gap / (-side / tau)
        norm_x, norm_s, norm_z = np.sqrt(np.sum(y * y) + t * t), np.sqrt(np.sum(s * s) + np.sum(ac * ac)), np.sqrt(np.sum(z * z) + np.sum(zc * zc))
        primal = np.sqrt(np.sum(rz * rz) + np.sum(rc * rc)) / max(size_h + norm_x + norm_s, 1.0) / tau
        dual = np.sqrt(np.sum(rx * rx) + rt * rt) / max(max(1.0, cost) + norm_z, 1.0) / tau
        accuracy = max(primal, dual, min(gap, relative))
        found = accuracy < ROUGHLY
        if accuracy < TOLERANCE:
            break
        last = (y.copy(), t, tau)
        weigh(s, z, w, bar, eta, scaled)
        wc = ac / zc
        _factor(g, gt, c, w, bar, eta, wc, lower, touch, small)
        t1 = _solve(g, gt, c, w, bar, eta, wc, lower, touch, small, no_x, -cost, h, hc, y1, z1, c1)
        bend = kappa / tau - cost * t1 - np.sum(h * z1) - np.sum(hc * c1)
        fs, fc = s.copy(), ac.copy()
        t2 = dtau = dkappa = step = centring = 0.0
        for attempt in range(2):
            # First straight ahead, then centred and corrected; f holds what is asked of the slacks.
            keep = 1.0 - centring
            t2 = _solve(g, gt, c, w, bar, eta, wc, lower, touch, small, keep * rx, keep * rt, fs - keep * rz, fc - keep * rc, y2, z2, c2)
            pulled = cost * t2 + np.sum(h * z2) + np.sum(hc * c2)
            asked = kappa * tau if attempt == 0 else kappa * tau + dkappa * dtau - centring * mu
            dtau = (keep * slack - asked / tau + pulled) / bend
            dkappa = -(asked + kappa * dtau) / tau
            z2, c2 = z2 + dtau * z1, c2 + dtau * c1
            for j in range(jobs):
                scaled_by(w[j], bar[j], eta[j], z2[j], 1, dz[j])
                scaled_by(w[j], bar[j], eta[j], fs[j], -1, turned[j])
            ds = -turned - dz
            step = longest_step(scaled, ds, dz, ac, zc, -(fc + wc * c2), c2, tau, dtau, kappa, dkappa)
            if attempt == 0:
                centring = min(max((1.0 - step) ** 3, LEAST_CENTRING), 1.0)
                corrected(scaled, ds, dz, centring * mu, w, bar, eta, fs)
                fc = ac + (-(ac + wc * c2) * c2 - centring * mu) / zc
        step *= SHORTENED
        y += step * (y2 + dtau * y1)
        t += step * (t2 + dtau * t1)
        for j in range(jobs):
            scaled_by(w[j], bar[j], eta[j], z2[j], 2, turned[j])
        s -= step * (fs + turned)
        z += step * z2
        ac, zc = ac - step * (fc + wc * c2), zc + step * c2
        tau += step * dtau
        kappa += step * dkappa
    return (y / sx)[:, :kinds] / tau, t / st / tau, found
