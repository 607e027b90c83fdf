# pyright: basic
"""Second-order cones among the rows of jobs' blocks: scaling points, steps that stay inside, Mehrotra's correction; in machine code.

A job's rows are linear ones (slack and multiplier at least 0) and then three of the cone |(b, c)| <= a. After L. Vandenberghe: The CVXOPT
linear and quadratic cone program solvers (2010), section 4, and the method of A. Domahidi, E. Chu, S. Boyd (ECC 2013).
"""

from __future__ import annotations

import numpy as np
from numba import njit

LONGEST, SHORTEST = 0.999, 1e-6
SHORTENED = 0.99
CONE = 3


@njit(cache=True, nogil=True)
def scaled_by(w, bar, eta, v, power, out):
    """W^power v for one job's rows: ``w`` = s / z of the linear ones, the cone's Nesterov-Todd point ``bar`` and factor ``eta``."""
    rows = len(v)
    f = rows - CONE
    for i in range(f):
        out[i] = v[i] * (w[i] if power == 2 else 1.0 / w[i] if power == -2 else np.sqrt(w[i]) if power == 1 else 1.0 / np.sqrt(w[i]))
    sign = 1.0 if power > 0 else -1.0
    a, p, q = bar[0], sign * bar[1], sign * bar[2]
    x, y, z = v[f], v[f + 1], v[f + 2]
    if power == 2 or power == -2:
        factor = eta * eta if power == 2 else 1.0 / (eta * eta)
        dot = 2.0 * (a * x + p * y + q * z)
        out[f], out[f + 1], out[f + 2] = factor * (a * dot - x), factor * (p * dot + y), factor * (q * dot + z)
        return
    factor = eta if power == 1 else 1.0 / eta
    dot = p * y + q * z
    more = x + dot / (1.0 + a)
    out[f], out[f + 1], out[f + 2] = factor * (a * x + dot), factor * (y + more * p), factor * (z + more * q)


@njit(cache=True, nogil=True)
def move_inside(v, vc):
    """Move the slacks (or multipliers) into their cones, as far as the worst is outside and one more."""
    f = v.shape[1] - CONE
    worst = -SHORTENED
    for j in range(len(v)):
        for r in range(f):
            if v[j, r] <= 0:
                worst = max(worst, -v[j, r])
        inner = v[j, f] - np.hypot(v[j, f + 1], v[j, f + 2])
        if inner <= 0:
            worst = max(worst, -inner)
    for k in range(len(vc)):
        if vc[k] <= 0:
            worst = max(worst, -vc[k])
    v[:, : f + 1] += 1.0 + worst
    vc += 1.0 + worst


@njit(cache=True, nogil=True)
def within(v):
    """Whether all jobs' rows are inside their cones, in spite of rounding."""
    f = v.shape[1] - CONE
    for j in range(len(v)):  # noqa: SIM110 - the compiler has no generators
        if not (np.min(v[j, :f]) > 0 and v[j, f] - np.hypot(v[j, f + 1], v[j, f + 2]) > 0):
            return False
    return True


@njit(cache=True, nogil=True)
def weigh(s, z, w, bar, eta, scaled):
    """The scaling point between slacks and multipliers, and ``scaled`` = W z."""
    f = s.shape[1] - CONE
    for j in range(len(s)):
        for r in range(f):
            w[j, r] = s[j, r] / z[j, r]
        norm_s = np.sqrt(max((s[j, f] - np.hypot(s[j, f + 1], s[j, f + 2])) * (s[j, f] + np.hypot(s[j, f + 1], s[j, f + 2])), 1e-300))
        norm_z = np.sqrt(max((z[j, f] - np.hypot(z[j, f + 1], z[j, f + 2])) * (z[j, f] + np.hypot(z[j, f + 1], z[j, f + 2])), 1e-300))
        eta[j] = np.sqrt(norm_s / norm_z)
        dot = 1.0
        for r in range(CONE):
            dot += s[j, f + r] * z[j, f + r] / (norm_s * norm_z)
        gamma = np.sqrt(0.5 * dot)
        bar[j, 1] = 0.5 * (s[j, f + 1] / norm_s - z[j, f + 1] / norm_z) / gamma
        bar[j, 2] = 0.5 * (s[j, f + 2] / norm_s - z[j, f + 2] / norm_z) / gamma
        bar[j, 0] = np.sqrt(1.0 + bar[j, 1] ** 2 + bar[j, 2] ** 2)
        scaled_by(w[j], bar[j], eta[j], z[j], 1, scaled[j])


@njit(cache=True, nogil=True)
def _furthest(point, step):
    """1 / the longest step from a ``point`` in the cone along ``step``; at most 0 where there is no end."""
    inner = point[0] ** 2 - point[1] ** 2 - point[2] ** 2
    if inner <= 0:
        return 0.0
    norm = np.sqrt(inner)
    a, p, q = point[0] / norm, point[1] / norm, point[2] / norm
    along = a * step[0] - p * step[1] - q * step[2]
    factor = (along + step[0]) / (a + 1.0)
    return (np.hypot(step[1] - factor * p, step[2] - factor * q) - along) / norm


@njit(cache=True, nogil=True)
def longest_step(scaled, ds, dz, sc, zc, dsc, dzc, tau, dtau, kappa, dkappa):
    """How far one may go along the scaled changes; ``dsc``, ``dzc`` are those of the capacities, not scaled."""
    f = scaled.shape[1] - CONE
    worst = 0.1
    for j in range(len(scaled)):
        for r in range(f):
            worst = max(worst, -ds[j, r] / scaled[j, r], -dz[j, r] / scaled[j, r])
        worst = max(worst, _furthest(scaled[j, f:], ds[j, f:]), _furthest(scaled[j, f:], dz[j, f:]))
    for k in range(len(sc)):
        worst = max(worst, -dsc[k] / sc[k], -dzc[k] / zc[k])
    worst = max(worst, -dtau / tau, -dkappa / kappa)
    return min(max(1.0 / worst, SHORTEST), LONGEST)


@njit(cache=True, nogil=True)
def corrected(scaled, ds, dz, centre, w, bar, eta, out):
    """W (lambda \\ (lambda o lambda + ds o dz - centre e)) for every job."""
    jobs, rows = scaled.shape
    f = rows - CONE
    asked = np.empty(rows)
    for j in range(jobs):
        for r in range(f):
            asked[r] = (scaled[j, r] ** 2 + ds[j, r] * dz[j, r] - centre) / scaled[j, r]
        l0, l1, l2 = scaled[j, f], scaled[j, f + 1], scaled[j, f + 2]
        a0, a1, a2 = ds[j, f], ds[j, f + 1], ds[j, f + 2]
        b0, b1, b2 = dz[j, f], dz[j, f + 1], dz[j, f + 2]
        d0 = l0 * l0 + l1 * l1 + l2 * l2 + a0 * b0 + a1 * b1 + a2 * b2 - centre
        d1 = 2.0 * l0 * l1 + a0 * b1 + b0 * a1
        d2 = 2.0 * l0 * l2 + a0 * b2 + b0 * a2
        rest = l1 * d1 + l2 * d2
        inner = max(l0 * l0 - l1 * l1 - l2 * l2, 1e-300)
        factor = (rest / l0 - d0) / inner
        asked[f] = (l0 * d0 - rest) / inner
        asked[f + 1], asked[f + 2] = factor * l1 + d1 / l0, factor * l2 + d2 / l0
        scaled_by(w[j], bar[j], eta[j], asked, 1, out[j])
