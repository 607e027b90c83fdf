"""The rolling calibration of :mod:`ischeduler.estimators.queuewait.conformal`, compiled: one pass over jobs in order of submission."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def rolled(quantiles, deviates, submit, start, sizes, levels, asked, constants):
    """Calibrated log waits (jobs, levels). ``constants``: window, half-life in jobs, width, floor, fewest, least tail, most."""
    count, many = submit.shape[0], levels.shape[0]
    window, fewest = int(constants[0]), int(constants[4])
    out, scores = np.empty((count, many)), np.zeros(count)
    closed = np.zeros(count, np.bool_)
    for i in range(count):
        now = submit[i]
        first = max(0, i - window)
        for k in range(first, i):
            if not closed[k]:
                closed[k] = start[k] < now
                waited = (start[k] if closed[k] else now) - submit[k]
                scores[k] = _score(quantiles[k], deviates, np.log1p(waited), constants[5], constants[6])
        found = asked.copy()
        if i >= fewest:
            found = _quantiles(scores[first:i], closed[first:i], _weights(sizes, first, i, constants), levels, asked)
        for j in range(many):
            out[i, j] = _value(quantiles[i], deviates, found[j], constants[5])
    return out


@njit(cache=True, nogil=True)
def _weights(sizes, first, i, constants):
    weights = np.empty(i - first)
    for k in range(first, i):
        a = (sizes[k, 0] - sizes[i, 0]) / constants[2]
        b = (sizes[k, 1] - sizes[i, 1]) / constants[2]
        weights[k - first] = (constants[3] + np.exp(-0.5 * (a * a + b * b))) * 0.5 ** ((i - k) / constants[1])
    return weights


@njit(cache=True, nogil=True)
def _quantiles(scores, ended, weights, levels, asked):
    """Weighted Kaplan-Meier quantiles; where they stay open, the largest score or the level's own."""
    order = np.argsort(scores)
    found = np.empty(levels.shape[0])
    at_risk, surviving, j = weights.sum(), 1.0, 0
    for place in order:
        if ended[place]:
            surviving *= max(0.0, 1.0 - weights[place] / max(at_risk, 1e-12))
        at_risk -= weights[place]
        while j < levels.shape[0] and surviving <= 1.0 - levels[j] + 1e-12:
            found[j] = scores[place]
            j += 1
    for rest in range(j, levels.shape[0]):
        found[rest] = max(scores[order[-1]], asked[rest])
    return found


@njit(cache=True, nogil=True)
def _score(quantiles, deviates, value, tail, most):
    k = 0
    while k < deviates.shape[0] - 2 and quantiles[k + 1] <= value:
        k += 1
    step = quantiles[k + 1] - quantiles[k]
    slope = deviates[k + 1] - deviates[k]
    found = deviates[k] + (value - quantiles[k]) * slope / step
    if value > quantiles[-1]:
        found = deviates[-1] + (value - quantiles[-1]) * slope / max(step, tail)
    return min(most, max(-most, found))


@njit(cache=True, nogil=True)
def _value(quantiles, deviates, deviate, tail):
    k = 0
    while k < deviates.shape[0] - 2 and deviates[k + 1] <= deviate:
        k += 1
    step = quantiles[k + 1] - quantiles[k]
    slope = deviates[k + 1] - deviates[k]
    if deviate > deviates[-1]:
        return quantiles[-1] + (deviate - deviates[-1]) * max(step, tail) / slope
    return quantiles[k] + (deviate - deviates[k]) * step / slope
