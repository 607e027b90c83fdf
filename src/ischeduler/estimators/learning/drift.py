"""Noticing that an estimator has gone wrong: Page-Hinkley's test on log(actual / predicted), both ways. Pure.

Page, Biometrika 41 (1954); Hinkley, Biometrika 58 (1971). The sum of deviations from the running mean, less what is tolerated,
is compared with its extreme so far; beyond a threshold the level has moved since that extreme.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

TOLERATED = 0.05
"""A shift of about 5 % is no drift."""
THRESHOLD = 0.8
"""After ten steady runs, two that take twice as long raise the alarm, or about eight that take 25 % longer."""
STEADY = 0.10
"""Noise of about 10 % from run to run is usual; figures that jump more are scaled down to it."""
FEWEST = 3
"""As many are looked at before any alarm, so that the mean means something."""
_CLIP = math.log(4.0)


@dataclass(frozen=True, slots=True)
class Drift:
    """The level moved at ``index`` (0-based, the first figure of the new level) from ``before`` to ``after`` (mean logs)."""

    index: int
    before: float
    after: float

    @property
    def factor(self) -> float:
        """Actual over predicted now, relative to before: 1.3 means 30 % longer or more."""
        return math.exp(self.after - self.before)


def last_drift(logs: Sequence[float]) -> Drift | None:
    """The last shift in figures ordered by time, None where there was none. Single figures count for a factor of four at most."""
    values = [min(_CLIP, max(-_CLIP, x)) for x in logs]
    noise = max(1.0, _noise(values) / STEADY)
    starts = [0]
    while (moved := _first([v / noise for v in values[starts[-1]:]])) is not None:
        starts.append(starts[-1] + moved)
    if len(starts) == 1:
        return None
    before, after = values[starts[-2]:starts[-1]], values[starts[-1]:]
    return Drift(starts[-1], sum(before) / len(before), sum(after) / len(after))


def _noise(values: Sequence[float]) -> float:
    """Standard deviation from run to run, by the differences of neighbours: a shift of the level hardly counts."""
    if len(values) < 2:
        return 0.0
    return 1.4826 * median(abs(b - a) for a, b in pairwise(values)) / math.sqrt(2)


def _first(values: Sequence[float]) -> int | None:
    """Where the first shift began, once it is beyond doubt."""
    found = [b for b in (_rise(values), _rise([-x for x in values])) if b is not None]
    return min(found) if found else None


def _rise(values: Sequence[float]) -> int | None:
    total, least, since, mean = 0.0, 0.0, 0, 0.0
    for number, value in enumerate(values, 1):
        mean += (value - mean) / number
        total += value - mean - TOLERATED
        if total < least:
            least, since = total, number
        if number > FEWEST and since and total - least > THRESHOLD:
            return since
    return None
