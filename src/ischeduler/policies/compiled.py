# pyright: basic
"""The kernel in machine code: :func:`ischeduler.policies.interior.solve` step for step, one loop over jobs instead of arrays. Needs numba."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True, error_model="numpy")
def eliminate(matrix, rhs):
    """Gauss with pivots on the matrix scaled to ones on its diagonal; an unknown nothing is said about is 0."""
    n = len(rhs)
    scale = np.empty(n)
    for i in range(n):
        scale[i] = 1.0 / np.sqrt(max(abs(matrix[i, i]), 1e-200))
    a, b = np.empty((n, n)), np.empty(n)
    for i in range(n):
        b[i] = rhs[i] * scale[i]
        for k in range(n):
            a[i, k] = matrix[i, k] * scale[i] * scale[k]
    for i in range(n):
        top = i
        for k in range(i + 1, n):
            if abs(a[k, i]) > abs(a[top, i]):
                top = k
        for k in range(n):
            a[i, k], a[top, k] = a[top, k], a[i, k]
        b[i], b[top] = b[top], b[i]
        if abs(a[i, i]) < 1e-15:
            continue
        for k in range(i + 1, n):
            f = a[k, i] / a[i, i]
            for other in range(i, n):
                a[k, other] -= f * a[i, other]
            b[k] -= f * b[i]
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            b[i] -= a[i, k] * b[k]
        b[i] = b[i] / a[i, i] if abs(a[i, i]) >= 1e-15 else 0.0
    return b * scale


@njit(cache=True, nogil=True, error_model="numpy")
def iterate(speed, runs, need, floor, size, copies, count, gain, level_gain, x, u, v, w, t, y, m, price, z, tolerance, steps, short):
    """The arrays of the point are changed in place. Gives (t, iterations, gap, residual)."""
    kinds, jobs = speed.shape
    d = np.zeros((kinds, jobs))
    base, big_a, big_b, big_c, inv = np.empty(jobs), np.empty(jobs), np.empty(jobs), np.empty(jobs), np.empty(jobs)
    r1, r2, rx, r3 = np.empty(jobs), np.empty(jobs), np.zeros((kinds, jobs)), np.empty(kinds)
    dx, dz, du, dv, dy, dm = np.zeros((kinds, jobs)), np.zeros((kinds, jobs)), np.zeros(jobs), np.zeros(jobs), np.zeros(jobs), np.zeros(jobs)
    dy0, dm0, h = np.empty(jobs), np.empty(jobs), np.zeros((kinds, jobs))
    dw, dp, da = np.zeros(kinds), np.zeros(kinds), np.empty(kinds)
    small, rhs = np.empty((kinds + 1, kinds + 1)), np.empty(kinds + 1)
    pairs = float(kinds)
    for j in range(jobs):
        open_ = 0
        for k in range(kinds):
            if runs[k, j]:
                open_ += 1
        pairs += copies[j] * (open_ + 2.0)
    gap, residual, step = np.inf, np.inf, 0
    # The best point near the end, should the digits run out after it.
    best, best_t, best_gap, best_residual = np.inf, t, np.inf, np.inf
    bx, bu, bv, bw = np.empty_like(x), np.empty_like(u), np.empty_like(v), np.empty_like(w)
    by, bm, bp, bz = np.empty_like(y), np.empty_like(m), np.empty_like(price), np.empty_like(z)
    for step in range(steps):  # noqa: B007
        # Where we are.
        rt, mu, worth, worst, tallest, tallest_y = level_gain, 0.0, level_gain * t, 0.0, 0.0, 0.0
        for k in range(kinds):
            r3[k] = count[k] - w[k]
            mu += w[k] * price[k]
        for j in range(jobs):
            n = copies[j]
            reached, spent, made = 0.0, 0.0, u[j] * y[j] + v[j] * m[j]
            for k in range(kinds):
                if runs[k, j]:
                    xj = x[k, j]
                    reached += speed[k, j] * xj
                    spent += xj
                    made += xj * z[k, j]
                    worth += n * gain[k, j] * xj
                    r3[k] -= n * size[j] * xj
                    rx[k, j] = -(gain[k, j] + speed[k, j] * y[j] - m[j] - size[j] * price[k] + z[k, j])
                    tallest = max(tallest, abs(rx[k, j]))
            mu += n * made
            rt -= n * need[j] * y[j]
            r1[j] = floor[j] - reached + need[j] * t + u[j]
            r2[j] = 1.0 - spent - v[j]
            worst = max(worst, abs(r1[j]), abs(r2[j]))
            tallest_y = max(tallest_y, y[j])
        for k in range(kinds):
            worst = max(worst, abs(r3[k]) / count[k])
        gap = mu / (1e-12 + abs(worth))
        residual = max(worst, tallest / (1.0 + tallest_y), abs(rt) / (1.0 + level_gain))
        mu /= pairs
        if gap < tolerance and residual < tolerance:
            break
        merit = max(gap, residual)
        if merit < best and merit < 1e-4:
            best, best_t, best_gap, best_residual = merit, t, gap, residual
            bx[:], bu[:], bv[:], bw[:], by[:], bm[:], bp[:], bz[:] = x, u, v, w, y, m, price, z
        elif best < np.inf and not merit < 1e4 * best:
            break
        # The jobs' 2x2 blocks, and the small system where they meet.
        small[:, :] = 0.0
        for k in range(kinds):
            small[k, k] = w[k] / price[k]
        for j in range(jobs):
            main, most = 0, -1.0
            for k in range(kinds):
                if runs[k, j]:
                    d[k, j] = x[k, j] / z[k, j]
                    if d[k, j] > most:
                        main, most = k, d[k, j]
            free_time, free_need = v[j] / m[j], u[j] / y[j]
            root = speed[main, j] if free_time < most else 0.0
            a, b, c = free_need + root * root * free_time, -root * free_time, free_time
            for k in range(kinds):
                off = speed[k, j] - root
                da[k] = d[k, j] * off
                a += da[k] * off
                b += da[k]
                c += d[k, j]
            # Determinant, off-diagonal entries and row sums of the block: terms of one sign, or nearly so, nothing large cancels.
            det = free_need * free_time
            for k in range(kinds):
                det += d[k, j] * (free_need + free_time * speed[k, j] * speed[k, j])
                for other in range(k):
                    det += d[k, j] * d[other, j] * (speed[k, j] - speed[other, j]) ** 2
            f = 1.0 / det
            base[j], big_a[j], big_b[j], big_c[j], inv[j] = root, a, b, c, f
            n = copies[j]
            weight = n * size[j] * size[j]
            for k in range(kinds):
                row = free_need
                for i in range(kinds):
                    row += d[i, j] * speed[i, j] * (speed[i, j] - speed[k, j])
                small[k, k] += weight * d[k, j] * free_time * f * row
                small[k, kinds] -= n * size[j] * need[j] * (c * da[k] - b * d[k, j]) * f
                for other in range(k):
                    cell = free_need + speed[k, j] * speed[other, j] * free_time
                    for i in range(kinds):
                        if i != k and i != other:
                            cell += d[i, j] * (speed[i, j] - speed[k, j]) * (speed[i, j] - speed[other, j])
                    value = weight * d[k, j] * d[other, j] * f * cell
                    small[k, other] -= value
                    small[k, k] += value
                    small[other, other] += value
            small[kinds, kinds] -= n * c * f * need[j] * need[j]
        for k in range(kinds):
            small[kinds, k] = small[k, kinds]
            for other in range(k):
                small[other, k] = small[k, other]
        if small[kinds, kinds] == 0.0:
            small[kinds, kinds] = -1.0
        small[kinds, kinds] *= 1.0 + 1e-14
        if not np.isfinite(small).all():
            break
        aim, primal, dual = 0.0, 1.0, 1.0
        for attempt in range(2):
            # Attempt 0 looks straight at the optimum; attempt 1 aims at a centre and corrects for what 0 found.
            for k in range(kinds):
                cw = aim - w[k] * price[k] - (dw[k] * dp[k] if attempt else 0.0)
                rhs[k] = cw / price[k] - r3[k]
            rhs[kinds] = -rt
            for j in range(jobs):
                n = copies[j]
                cu, cv = aim - u[j] * y[j], aim - v[j] * m[j]
                if attempt:
                    cu -= du[j] * dy[j]
                    cv -= dv[j] * dm[j]
                root = base[j]
                e2 = cv / m[j] - r2[j]
                e1 = r1[j] - root * r2[j] + cu / y[j] + root * cv / m[j]
                for k in range(kinds):
                    if runs[k, j]:
                        cx = aim - x[k, j] * z[k, j]
                        if attempt:
                            cx -= dx[k, j] * dz[k, j]
                        h[k, j] = cx / x[k, j] - rx[k, j]
                        dh = d[k, j] * h[k, j]
                        e2 += dh
                        e1 -= (speed[k, j] - root) * dh
                dy0[j] = (big_c[j] * e1 + big_b[j] * e2) * inv[j]
                dm0[j] = (big_b[j] * e1 + big_a[j] * e2) * inv[j]
                for k in range(kinds):
                    rhs[k] += n * size[j] * d[k, j] * ((speed[k, j] - root) * dy0[j] - dm0[j] + h[k, j])
                rhs[kinds] += n * need[j] * dy0[j]
            answer = eliminate(small, rhs)
            answer = answer + eliminate(small, rhs - small @ answer)
            dt = answer[kinds]
            primal, dual = 1.0, 1.0
            for k in range(kinds):
                cw = aim - w[k] * price[k] - (dw[k] * dp[k] if attempt else 0.0)
                dp[k] = answer[k]
                dw[k] = (cw - w[k] * dp[k]) / price[k]
                if dw[k] * primal < -w[k]:
                    primal = w[k] / -dw[k]
                if dp[k] * dual < -price[k]:
                    dual = price[k] / -dp[k]
            for j in range(jobs):
                cu, cv = aim - u[j] * y[j], aim - v[j] * m[j]
                if attempt:
                    cu -= du[j] * dy[j]
                    cv -= dv[j] * dm[j]
                root, lead_a, lead_d = base[j], need[j] * dt, 0.0
                for k in range(kinds):
                    lead_a += size[j] * dp[k] * d[k, j] * (speed[k, j] - root)
                    lead_d += size[j] * dp[k] * d[k, j]
                dyj = dy0[j] + (big_c[j] * lead_a - big_b[j] * lead_d) * inv[j]
                dmj = dm0[j] + (big_b[j] * lead_a - big_a[j] * lead_d) * inv[j]
                for k in range(kinds):
                    if runs[k, j]:
                        cx = aim - x[k, j] * z[k, j]
                        if attempt:
                            cx -= dx[k, j] * dz[k, j]
                        dxj = d[k, j] * ((speed[k, j] - root) * dyj - dmj - size[j] * dp[k] + h[k, j])
                        dzj = (cx - z[k, j] * dxj) / x[k, j]
                        dx[k, j], dz[k, j] = dxj, dzj
                        if dxj * primal < -x[k, j]:
                            primal = x[k, j] / -dxj
                        if dzj * dual < -z[k, j]:
                            dual = z[k, j] / -dzj
                dmj += root * dyj
                duj, dvj = (cu - u[j] * dyj) / y[j], (cv - v[j] * dmj) / m[j]
                dy[j], dm[j], du[j], dv[j] = dyj, dmj, duj, dvj
                if duj * primal < -u[j]:
                    primal = u[j] / -duj
                if dvj * primal < -v[j]:
                    primal = v[j] / -dvj
                if dyj * dual < -y[j]:
                    dual = y[j] / -dyj
                if dmj * dual < -m[j]:
                    dual = m[j] / -dmj
            if attempt == 0:
                ahead = 0.0
                for k in range(kinds):
                    ahead += (w[k] + primal * dw[k]) * (price[k] + dual * dp[k])
                for j in range(jobs):
                    made = (u[j] + primal * du[j]) * (y[j] + dual * dy[j]) + (v[j] + primal * dv[j]) * (m[j] + dual * dm[j])
                    for k in range(kinds):
                        if runs[k, j]:
                            made += (x[k, j] + primal * dx[k, j]) * (z[k, j] + dual * dz[k, j])
                    ahead += copies[j] * made
                aim = mu * min(1.0, ahead / pairs / mu) ** 3
        primal, dual = min(1.0, short * primal), min(1.0, short * dual)
        t += primal * dt
        for k in range(kinds):
            w[k] += primal * dw[k]
            price[k] += dual * dp[k]
        for j in range(jobs):
            u[j] += primal * du[j]
            v[j] += primal * dv[j]
            y[j] += dual * dy[j]
            m[j] += dual * dm[j]
            for k in range(kinds):
                if runs[k, j]:
                    x[k, j] += primal * dx[k, j]
                    z[k, j] += dual * dz[k, j]
    if best < np.inf and not max(gap, residual) <= best:
        x[:], u[:], v[:], w[:], y[:], m[:], price[:], z[:] = bx, bu, bv, bw, by, bm, bp, bz
        t, gap, residual = best_t, best_gap, best_residual
    return t, step, gap, residual
