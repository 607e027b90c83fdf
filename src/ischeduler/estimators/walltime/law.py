"""How one configuration's time grows with its data: a fixed part for each number of epochs, and seconds a sample. Pure.

Why a fixed part for each number of epochs: the first epoch warms up (graphs, autotuning, caches), later ones hardly, and a
run of one epoch shows another warm-up than one of two. Why absolute and relative deviations (a Huber-like fit): a single odd
size or a run on a busy node must not bend the line, and a run of seconds counts as much as one of hours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median

from ischeduler.estimators.walltime.timed import TimedRun

STEADY = 0.01
"""Runs repeat within about a hundredth: deviations below it are noise and are averaged away."""
_ROUNDS = 60
_LEAST_SIZES = 2
_NEAR = 8


@dataclass(frozen=True, slots=True)
class Law:
    """``fixed`` holds (epochs, seconds of the whole fixed part) ascending; ``rate_s`` seconds a sample and epoch.

    ``scatter`` is the mean absolute log-residual of the ``n`` runs behind it.
    """

    fixed: tuple[tuple[int, float], ...]
    rate_s: float
    scatter: float
    n: int

    def seconds(self, samples: int, epochs: int) -> float:
        """The run time of that much data."""
        return self.fixed_s(epochs) + self.rate_s * samples * epochs

    def fixed_s(self, epochs: int) -> float:
        """The fixed part for any number of epochs: seen ones as seen, between and beyond them in proportion to the epochs."""
        if not self.fixed:
            return 0.0
        below = [f for f in self.fixed if f[0] <= epochs]
        above = [f for f in self.fixed if f[0] >= epochs]
        if not below:
            return above[0][1]  # a part of it is one warm-up, which fewer epochs do not spare
        if above:
            return _between(below[-1], above[0], epochs)
        return below[-1][1] + self._per_epoch() * (epochs - below[-1][0])

    def _per_epoch(self) -> float:
        """What one more epoch adds: the difference of the two largest, never more than an average epoch's share."""
        last, most = self.fixed[-1]
        if len(self.fixed) == 1:
            return most / last
        before, less = self.fixed[-2]
        return min(max(0.0, (most - less) / (last - before)), most / last)


def fit_law(runs: Sequence[TimedRun]) -> Law:
    """The law of runs of one configuration; a plain rate where no number of epochs was seen with two sizes."""
    return _fit_law(tuple(runs))


@lru_cache(maxsize=4096)
def _fit_law(runs: tuple[TimedRun, ...]) -> Law:
    """Choosing among methods and sizes asks for the same fits again and again."""
    levels = sorted({r.epochs for r in runs})
    sizes = {level: len({r.samples for r in runs if r.epochs == level}) for level in levels}
    if max(sizes.values(), default=0) < _LEAST_SIZES:
        return fit_rate(runs)
    rate, fixed = _lines(runs, levels)
    return _with_scatter(Law(tuple(sorted(fixed.items())), rate, 0.0, len(runs)), runs)


def fit_rate(runs: Sequence[TimedRun]) -> Law:
    """Seconds a sample and epoch alone, their median: what one has with few sizes."""
    return _with_scatter(Law((), median(r.seconds / r.seen for r in runs), 0.0, len(runs)), runs)


def fit_near_rate(runs: Sequence[TimedRun]) -> Law:
    """The same from the runs within a factor of eight of the largest: much shorter ones are mostly warm-up."""
    largest = max(r.samples for r in runs)
    return fit_rate([r for r in runs if r.samples * _NEAR >= largest])


def _with_scatter(law: Law, runs: Sequence[TimedRun]) -> Law:
    residuals = [abs(math.log(r.seconds / law.seconds(r.samples, r.epochs))) for r in runs]
    return Law(law.fixed, law.rate_s, sum(residuals) / len(residuals), law.n)


def _lines(runs: Sequence[TimedRun], levels: Sequence[int]) -> tuple[float, dict[int, float]]:
    """(seconds a sample and epoch, fixed seconds of each level): iteratively reweighted least squares.

    Deviations are relative to the run's own time; beyond :data:`STEADY` they count by their size, not by its square.
    """
    weights = [1.0] * len(runs)
    rate, fixed = 0.0, dict.fromkeys(levels, 0.0)
    for _ in range(_ROUNDS):
        before, (rate, fixed) = rate, _weighted(runs, weights, levels)
        if abs(rate - before) <= 1e-7 * rate:
            break
        off = (abs(1 - (fixed[r.epochs] + rate * r.seen) / r.seconds) for r in runs)
        weights = [1 / max(x, STEADY) for x in off]
    return rate, fixed


def _weighted(runs: Sequence[TimedRun], weights: Sequence[float], levels: Sequence[int]) -> tuple[float, dict[int, float]]:
    """Least squares with one slope and an intercept a level; an intercept that would be negative is nothing."""
    sums = {level: _Sums() for level in levels}
    for run, weight in zip(runs, weights, strict=True):
        sums[run.epochs].add(run.seen, run.seconds, weight / run.seconds**2)
    free = set(levels)
    while True:
        across = sum(sums[level].across(level in free) for level in levels)
        along = sum(sums[level].along(level in free) for level in levels)
        rate = max(0.0, across / along) if along > 0 else 0.0
        fixed = {level: sums[level].intercept(rate) if level in free else 0.0 for level in levels}
        below = {level for level, value in fixed.items() if value < 0}
        if not below:
            return rate, fixed
        free -= below


class _Sums:
    """Weighted sums of one level's points (x samples seen, y seconds)."""

    def __init__(self) -> None:
        self.w = self.x = self.y = self.xx = self.xy = 0.0

    def add(self, x: float, y: float, w: float) -> None:
        self.w, self.x, self.y = self.w + w, self.x + w * x, self.y + w * y
        self.xx, self.xy = self.xx + w * x * x, self.xy + w * x * y

    def across(self, free: bool) -> float:
        """Covariance of x and y, about their means where the intercept is free."""
        return self.xy - (self.x * self.y / self.w if free else 0.0)

    def along(self, free: bool) -> float:
        """Variance of x, likewise."""
        return self.xx - (self.x * self.x / self.w if free else 0.0)

    def intercept(self, rate: float) -> float:
        return (self.y - rate * self.x) / self.w


def _between(below: tuple[int, float], above: tuple[int, float], epochs: int) -> float:
    if below[0] == above[0]:
        return below[1]
    share = (epochs - below[0]) / (above[0] - below[0])
    return below[1] + share * (above[1] - below[1])
