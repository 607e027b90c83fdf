# pyright: basic
"""The interior point whose solutions Gavel's published figures rest on, for its programmes' structure, in machine code.

Gavel's programmes have many optimal solutions, and which one comes out decides who runs. So this follows, step for step, the method of
the solver it was run with: a homogeneous self-dual embedding with Mehrotra's corrector, after three rounds of equilibration
(A. Domahidi, E. Chu, S. Boyd: ECOS: An SOCP solver for embedded systems, ECC 2013). The programme, shares x (J, K) and a level t::

    maximise    level * t + sum_jk gain[j,k] x[j,k]
    subject to  need[j] t - sum_k speed[j,k] x[j,k] + a[j] = -floor[j]        (demands; none when ``demands`` is False)
                -x[j,k] + b[j,k] = 0
                sum_j size[j] x[j,k] + c[k] = count[k]
                sum_k x[j,k] + d[j] = 1                                       with slacks a, b, c, d >= 0

Jobs meet only in the K capacities and t: each iteration costs O(J K^2).
"""

from __future__ import annotations

import numpy as np
from numba import njit

TOLERANCE = 1e-8
MOST_STEPS = 100
SHORTENED, LONGEST, SHORTEST, LEAST_CENTRING = 0.99, 0.999, 1e-6, 1e-4
OPTIMAL, INFEASIBLE, UNFINISHED = range(3)


@njit(cache=True, nogil=True)
def _root(value):
    return 1.0 if value < 1e-6 else np.sqrt(value)


@njit(cache=True, nogil=True)
def _equilibrate(a, at, b, c, d, has_t, demands):
    """Scale rows and columns of the constraints towards 1; the scales of x, t and of the four kinds of rows."""
    jobs, kinds = a.shape
    sx, st = np.ones((jobs, kinds)), 1.0
    sa, sb, sc, sd = np.ones(jobs), np.ones((jobs, kinds)), np.ones(kinds), np.ones(jobs)
    for _ in range(3):
        ra, rc, rd = np.zeros(jobs), np.zeros(kinds), np.zeros(jobs)
        qx, qt = np.zeros((jobs, kinds)), 0.0
        for j in range(jobs):
            if demands:
                ra[j] = abs(at[j]) if has_t else 0.0
                qt = max(qt, abs(at[j]))
            for k in range(kinds):
                if demands:
                    ra[j] = max(ra[j], abs(a[j, k]))
                rc[k], rd[j] = max(rc[k], abs(c[j, k])), max(rd[j], abs(d[j, k]))
                qx[j, k] = max(abs(a[j, k]) if demands else 0.0, abs(b[j, k]), abs(c[j, k]), abs(d[j, k]))
        qt = _root(qt)
        for k in range(kinds):
            rc[k] = _root(rc[k])
            sc[k] *= rc[k]
        for j in range(jobs):
            ra[j], rd[j] = _root(ra[j]), _root(rd[j])
            sa[j], sd[j] = sa[j] * ra[j], sd[j] * rd[j]
            at[j] /= ra[j] * qt
            for k in range(kinds):
                q, rb = _root(qx[j, k]), _root(abs(b[j, k]))
                a[j, k] /= ra[j] * q
                b[j, k] /= rb * q
                c[j, k] /= rc[k] * q
                d[j, k] /= rd[j] * q
                sx[j, k] *= q
                sb[j, k] *= rb
        st *= qt
    return sx, st, sa, sb, sc, sd


@njit(cache=True, nogil=True)
def _factor(a, at, b, c, d, wa, wb, wc, wd, has_t, demands, open_, off, block, small):
    """Eliminate the shares (``open_`` = 1 / their weight), then each job's two multipliers; what is left is the system of prices and level.

    ``block`` (J, 4): the ratio of demand to time on the job's main type, and the 2 x 2 system (A, B, C) of its two multipliers; demands
    are measured from that ratio (``off``), or a job on one type alone would lose all its digits.
    """
    jobs, kinds = b.shape
    left, right = np.empty(kinds), np.empty(kinds)
    small[:, :] = 0.0
    for j in range(jobs):
        main = 0
        for k in range(kinds):
            open_[j, k] = wb[j, k] / (b[j, k] * b[j, k])
            if open_[j, k] * d[j, k] * d[j, k] > open_[j, main] * d[j, main] * d[j, main]:
                main = k
        ratio = a[j, main] / d[j, main] if demands else 0.0
        one = wa[j] + ratio * ratio * wd[j] if demands else 1.0
        two, three = -ratio * wd[j], wd[j]
        for k in range(kinds):
            off[j, k] = a[j, k] - ratio * d[j, k] if demands else 0.0
            one += off[j, k] * open_[j, k] * off[j, k]
            two += off[j, k] * open_[j, k] * d[j, k]
            three += d[j, k] * open_[j, k] * d[j, k]
        block[j, 0], block[j, 1], block[j, 2], block[j, 3] = ratio, one, two, three
        inv = 1.0 / (one * three - two * two)
        for k in range(kinds):
            x, y = off[j, k] * open_[j, k] * c[j, k], d[j, k] * open_[j, k] * c[j, k]
            left[k], right[k] = (three * x - two * y) * inv, (one * y - two * x) * inv
            small[k, k] -= c[j, k] * c[j, k] * open_[j, k]
        for i in range(kinds):
            reach = c[j, i] * open_[j, i]
            for k in range(kinds):
                small[i, k] += reach * (off[j, i] * left[k] + d[j, i] * right[k])
            if has_t:
                small[i, kinds] -= at[j] * left[i]
        if has_t:
            small[kinds, kinds] += at[j] * at[j] * inv * three
    for k in range(kinds):
        small[k, k] -= wc[k]
        small[kinds, k] = small[k, kinds]
    if not has_t:
        small[kinds, kinds] = 1.0


@njit(cache=True, nogil=True)
def eliminated(small, side):
    """The answer of the small system, by elimination here: LAPACK's last digits are each processor's own, and shares rest on them.

    Plain, as the solver followed here does it: :func:`ischeduler.policies.compiled.eliminate` scales first, which gives other digits.
    """
    a, v = small.copy(), side.copy()
    n = len(v)
    for i in range(n):
        top = i
        for r in range(i + 1, n):
            if abs(a[r, i]) > abs(a[top, i]):
                top = r
        for k in range(n):
            a[i, k], a[top, k] = a[top, k], a[i, k]
        v[i], v[top] = v[top], v[i]
        for r in range(i + 1, n):
            factor = a[r, i] / a[i, i]
            for k in range(i, n):
                a[r, k] -= factor * a[i, k]
            v[r] -= factor * v[i]
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            v[i] -= a[i, k] * v[k]
        v[i] /= a[i, i]
    return v


@njit(cache=True, nogil=True)
def _solve(a, at, b, c, d, wa, wb, wc, wd, has_t, demands, open_, off, block, small, rx, rt, ra, rb, rc, rd, x, za, zb, zc, zd):
    """Solve for (x, t) and the four multipliers; gives t. The right sides are those of the optimality system, row by row."""
    jobs, kinds = b.shape
    side = np.zeros(kinds + 1)
    for k in range(kinds):
        side[k] = rc[k]
    side[kinds] = rt if has_t else 0.0
    for j in range(jobs):
        ratio, one, two, three = block[j, 0], block[j, 1], block[j, 2], block[j, 3]
        inv = 1.0 / (one * three - two * two)
        e1, e2 = ratio * rd[j] - ra[j] if demands else 0.0, -rd[j]
        for k in range(kinds):
            x[j, k] = rx[j, k] + b[j, k] * rb[j, k] / wb[j, k]
            e1 += off[j, k] * open_[j, k] * x[j, k]
            e2 += d[j, k] * open_[j, k] * x[j, k]
        za[j], zd[j] = (three * e1 - two * e2) * inv, (one * e2 - two * e1) * inv
        for k in range(kinds):
            side[k] -= c[j, k] * open_[j, k] * (x[j, k] - off[j, k] * za[j] - d[j, k] * zd[j])
        if has_t:
            side[kinds] -= at[j] * za[j]
    answer = eliminated(small, side)
    t = answer[kinds] if has_t else 0.0
    for k in range(kinds):
        zc[k] = answer[k]
    for j in range(jobs):
        ratio, one, two, three = block[j, 0], block[j, 1], block[j, 2], block[j, 3]
        inv = 1.0 / (one * three - two * two)
        e1, e2 = at[j] * t if has_t else 0.0, 0.0
        for k in range(kinds):
            e1 -= off[j, k] * open_[j, k] * c[j, k] * answer[k]
            e2 -= d[j, k] * open_[j, k] * c[j, k] * answer[k]
        za[j] += (three * e1 - two * e2) * inv
        zd[j] += (one * e2 - two * e1) * inv
        for k in range(kinds):
            x[j, k] = open_[j, k] * (x[j, k] - off[j, k] * za[j] - d[j, k] * zd[j] - c[j, k] * answer[k])
            zb[j, k] = (b[j, k] * x[j, k] - rb[j, k]) / wb[j, k]
        zd[j] -= ratio * za[j]
        if not demands:
            za[j] = 0.0
    return t


@njit(cache=True, nogil=True)
def _length(least, tau, dtau, kappa, dkappa):
    step = 1.0 / -least if least < 0 else 10.0
    if dtau < 0:
        step = min(step, -tau / dtau)
    if dkappa < 0:
        step = min(step, -kappa / dkappa)
    return min(max(step, SHORTEST), LONGEST)


@njit(cache=True, nogil=True)
def follow(speed, need, floor, size, count, gain, level, demands):
    """Shares (J, K), the level and how it ended. ``level`` 0: there is no level."""
    jobs, kinds = speed.shape
    has_t = demands and level > 0.0
    a, at, b = -speed.copy(), need.copy(), -np.ones((jobs, kinds))
    c, d = np.empty((jobs, kinds)), np.ones((jobs, kinds))
    for j in range(jobs):
        for k in range(kinds):
            c[j, k] = size[j]
    sx, st, sa, _sb, sc, sd = _equilibrate(a, at, b, c, d, has_t, demands)
    # Costs are minimised; hx are the right sides.
    px, pt = -gain / sx, -level / st
    ha, hc, hd = -floor / sa, count / sc, 1.0 / sd
    rows = jobs * kinds + kinds + jobs + (jobs if demands else 0)
    wa, wb, wc, wd = np.ones(jobs), np.ones((jobs, kinds)), np.ones(kinds), np.ones(jobs)
    open_, off, block = np.empty((jobs, kinds)), np.empty((jobs, kinds)), np.empty((jobs, 4))
    small = np.empty((kinds + 1, kinds + 1))
    x, za, zb, zc, zd = np.empty((jobs, kinds)), np.zeros(jobs), np.empty((jobs, kinds)), np.empty(kinds), np.empty(jobs)
    aa, ab, ac, ad = np.ones(jobs), np.empty((jobs, kinds)), np.empty(kinds), np.empty(jobs)
    no_x, no_a, no_c = np.zeros((jobs, kinds)), np.zeros(jobs), np.zeros(kinds)
    _factor(a, at, b, c, d, wa, wb, wc, wd, has_t, demands, open_, off, block, small)
    t = _solve(a, at, b, c, d, wa, wb, wc, wd, has_t, demands, open_, off, block, small, no_x, 0.0, ha, no_x, hc, hd, x, aa, ab, ac, ad)
    lowest = max(np.max(ab), np.max(ac), np.max(ad))
    if demands:
        lowest = max(lowest, np.max(aa))
    lift = 0.0 if lowest < 0 else 1.0 + lowest
    aa, ab, ac, ad = lift - aa, lift - ab, lift - ac, lift - ad
    kept = np.empty((jobs, kinds))
    _solve(a, at, b, c, d, wa, wb, wc, wd, has_t, demands, open_, off, block, small, -px, -pt, no_a, no_x, no_c, no_a, kept, za, zb, zc, zd)
    lowest = max(-np.min(zb), -np.min(zc), -np.min(zd))
    if demands:
        lowest = max(lowest, -np.min(za))
    lift = 0.0 if lowest < 0 else 1.0 + lowest
    za, zb, zc, zd = za + lift, zb + lift, zc + lift, zd + lift
    tau, kappa = 1.0, 1.0
    size_x = max(1.0, np.sqrt(np.sum(px * px) + (pt * pt if has_t else 0.0)))
    size_h = max(1.0, np.sqrt((np.sum(ha * ha) if demands else 0.0) + np.sum(hc * hc) + np.sum(hd * hd)))
    rx, ra, rb, rc, rd = np.empty((jobs, kinds)), np.zeros(jobs), np.empty((jobs, kinds)), np.empty(kinds), np.empty(jobs)
    x1, a1, b1, c1, d1 = np.empty((jobs, kinds)), np.zeros(jobs), np.empty((jobs, kinds)), np.empty(kinds), np.empty(jobs)
    x2, a2, b2, c2, d2 = np.empty((jobs, kinds)), np.zeros(jobs), np.empty((jobs, kinds)), np.empty(kinds), np.empty(jobs)
    fa, fb, fc, fd = np.zeros(jobs), np.empty((jobs, kinds)), np.empty(kinds), np.empty(jobs)
    ended = UNFINISHED
    for _ in range(MOST_STEPS):
        # Residuals.
        for k in range(kinds):
            rc[k] = ac[k] - hc[k] * tau
        rt, value, side, gap = 0.0, pt * t if has_t else 0.0, 0.0, 0.0
        norm_x, norm_s, norm_z = t * t if has_t else 0.0, 0.0, 0.0
        for j in range(jobs):
            rd[j] = ad[j] - hd[j] * tau
            if demands:
                ra[j] = aa[j] - ha[j] * tau
                gap += aa[j] * za[j]
                side += ha[j] * za[j]
                norm_s += aa[j] * aa[j]
                norm_z += za[j] * za[j]
                if has_t:
                    ra[j] += at[j] * t
                    rt -= at[j] * za[j]
            gap += ad[j] * zd[j]
            side += hd[j] * zd[j]
            norm_s += ad[j] * ad[j]
            norm_z += zd[j] * zd[j]
            for k in range(kinds):
                rx[j, k] = -px[j, k] * tau - b[j, k] * zb[j, k] - c[j, k] * zc[k] - d[j, k] * zd[j]
                if demands:
                    rx[j, k] -= a[j, k] * za[j]
                    ra[j] += a[j, k] * x[j, k]
                rb[j, k] = ab[j, k] + b[j, k] * x[j, k]
                rc[k] += c[j, k] * x[j, k]
                rd[j] += d[j, k] * x[j, k]
                gap += ab[j, k] * zb[j, k]
                value += px[j, k] * x[j, k]
                norm_x += x[j, k] * x[j, k]
                norm_s += ab[j, k] * ab[j, k]
                norm_z += zb[j, k] * zb[j, k]
        if has_t:
            rt -= pt * tau
        for k in range(kinds):
            gap += ac[k] * zc[k]
            side += hc[k] * zc[k]
            norm_s += ac[k] * ac[k]
            norm_z += zc[k] * zc[k]
        slack = kappa + value + side
        mu = (gap + kappa * tau) / (rows + 1)
        wrong_z = np.sqrt((np.sum(ra * ra) if demands else 0.0) + np.sum(rb * rb) + np.sum(rc * rc) + np.sum(rd * rd))
        wrong_x = np.sqrt(np.sum(rx * rx) + (rt * rt if has_t else 0.0))
        relative = np.inf
        if value < 0:
            relative = gap / (-value / tau)
        elif side < 0:
            relative = gap / (-side / tau)
        primal = wrong_z / max(size_h + np.sqrt(norm_x) + np.sqrt(norm_s), 1.0) / tau
        dual = wrong_x / max(size_x + np.sqrt(norm_z), 1.0) / tau
        if primal < TOLERANCE and dual < TOLERANCE and (gap < TOLERANCE or relative < TOLERANCE):
            ended = OPTIMAL
            break
        if side < 0 and tau < kappa:
            # Towards a certificate that nothing satisfies the constraints: how far the multipliers' columns are from zero.
            loose = 0.0
            for j in range(jobs):
                for k in range(kinds):
                    own = rx[j, k] + px[j, k] * tau
                    loose += own * own
            if has_t:
                loose += (rt + pt * tau) ** 2
            if np.sqrt(loose) / max(size_x, 1.0) / -side * max(size_h, 1.0) < TOLERANCE:
                ended = INFEASIBLE
                break
        # Scaling: weights s / z, factor, the two directions.
        wa, wb, wc, wd = aa / np.where(za > 0, za, 1.0), ab / zb, ac / zc, ad / zd
        _factor(a, at, b, c, d, wa, wb, wc, wd, has_t, demands, open_, off, block, small)
        t1 = _solve(a, at, b, c, d, wa, wb, wc, wd, has_t, demands, open_, off, block, small, -px, -pt, ha, no_x, hc, hd, x1, a1, b1, c1, d1)
        bend = kappa / tau - np.sum(px * x1) - np.sum(hc * c1) - np.sum(hd * d1)
        if demands:
            bend -= np.sum(ha * a1)
        if has_t:
            bend -= pt * t1
        t2, dtau, dkappa, step, centring = 0.0, 0.0, 0.0, 0.0, 0.0
        for attempt in range(2):
            # First straight ahead, then centred and corrected; f holds w times the change of the slacks that is asked for.
            keep = 1.0 - centring
            least = np.inf
            if attempt == 0:
                fa, fb, fc, fd = aa.copy(), ab.copy(), ac.copy(), ad.copy()
            t2 = _solve(
                a, at, b, c, d, wa, wb, wc, wd, has_t, demands, open_, off, block, small, keep * rx, keep * rt,
                fa - keep * ra, fb - keep * rb, fc - keep * rc, fd - keep * rd, x2, a2, b2, c2, d2)
            pulled = np.sum(px * x2) + np.sum(hc * c2) + np.sum(hd * d2)
            if demands:
                pulled += np.sum(ha * a2)
            if has_t:
                pulled += pt * t2
            asked = kappa * tau if attempt == 0 else kappa * tau + dkappa * dtau - centring * mu
            dtau = (keep * slack - asked / tau + pulled) / bend
            dkappa = -(asked + kappa * dtau) / tau
            a2, b2, c2, d2 = a2 + dtau * a1, b2 + dtau * b1, c2 + dtau * c1, d2 + dtau * d1
            # The slacks' change is -(f + (s / z) dz); relative to the slack and to the multiplier it says how far one may go.
            for j in range(jobs):
                if demands:
                    least = min(least, a2[j] / za[j], -(fa[j] + wa[j] * a2[j]) / aa[j])
                least = min(least, d2[j] / zd[j], -(fd[j] + wd[j] * d2[j]) / ad[j])
                for k in range(kinds):
                    least = min(least, b2[j, k] / zb[j, k], -(fb[j, k] + wb[j, k] * b2[j, k]) / ab[j, k])
            for k in range(kinds):
                least = min(least, c2[k] / zc[k], -(fc[k] + wc[k] * c2[k]) / ac[k])
            step = _length(least, tau, dtau, kappa, dkappa)
            if attempt == 0:
                centring = min(max((1.0 - step) ** 3, LEAST_CENTRING), 1.0)
                fb = ab + (-(ab + wb * b2) * b2 - centring * mu) / zb
                fc = ac + (-(ac + wc * c2) * c2 - centring * mu) / zc
                fd = ad + (-(ad + wd * d2) * d2 - centring * mu) / zd
                if demands:
                    fa = aa + (-(aa + wa * a2) * a2 - centring * mu) / za
        step *= SHORTENED
        x += step * (x2 + dtau * x1)
        t += step * (t2 + dtau * t1)
        ab, ac, ad = ab - step * (fb + wb * b2), ac - step * (fc + wc * c2), ad - step * (fd + wd * d2)
        zb, zc, zd = zb + step * b2, zc + step * c2, zd + step * d2
        if demands:
            aa, za = aa - step * (fa + wa * a2), za + step * a2
        tau += step * dtau
        kappa += step * dkappa
    return x / sx / tau, t / st / tau, ended
