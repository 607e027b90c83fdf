"""What the three quantiles of a wait say of a start within a time, and within a time of a job that has waited already."""

from __future__ import annotations

import math

from ischeduler.core.estimate import Estimate

QUICK_S = 600.0
HOUR_S = 3600.0
_NARROWEST = 0.01  # equal quantiles still need a slope


def probability_within(wait: Estimate, seconds: float = QUICK_S) -> float:
    """The chance that a wait is at most that long: log-linear between the quantiles, tails of the same slope."""
    low, middle, high = (math.log(max(1.0, q)) for q in (wait.p10, wait.p50, wait.p90))
    middle = max(middle, low + _NARROWEST)
    high = max(high, middle + _NARROWEST)
    x = math.log(max(1.0, seconds))
    left, right, floor = (low, middle, 0.1) if x <= middle else (middle, high, 0.5)
    return min(0.98, max(0.02, floor + 0.4 * (x - left) / (right - left)))


def probability_left(wait: Estimate, seconds: float, waited_s: float) -> float:
    """The same of a job that has waited ``waited_s`` already: the chance of its start within ``seconds`` from now."""
    if waited_s <= 0:
        return probability_within(wait, seconds)
    before = probability_within(wait, waited_s)
    return (max(before, probability_within(wait, waited_s + seconds)) - before) / (1 - before)
