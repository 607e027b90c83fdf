"""Split-conformal margins: intervals whose coverage was measured on runs that took no part in the fit. Pure.

Scores are ``log(actual / predicted)`` divided by the spread that belongs to each prediction, so that a steady configuration
gets a narrow interval and a restless one a wide one. With n exchangeable scores the quantile at rank ``ceil((n + 1) q)`` is
exceeded by a new one with a chance of at most ``1 - q`` (Vovk, Gammerman and Shafer, Algorithmic Learning in a Random World,
2005; Lei et al., J. Am. Stat. Assoc. 113, 2018, section 2.3 for the normalised scores).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

FEWEST = 20
"""Below 19 scores the 90 % rank of 10-and-90 % margins falls on the outermost ones, which say little."""
PRIOR_RUNS = 3.0
"""How many runs' worth of the common spread is mixed into a configuration's own."""


@dataclass(frozen=True, slots=True)
class Margins:
    """Quantiles of the scores at 10 and 90 %, and how many scores they rest on."""

    low: float
    high: float
    n: int

    def interval(self, value: float, spread: float = 1.0) -> tuple[float, float, float]:
        """(p10, p50, p90) about a prediction; the median stays where it was predicted."""
        return value * math.exp(min(0.0, self.low * spread)), value, value * math.exp(max(0.0, self.high * spread))


def margins(scores: Sequence[float], below: float = 0.10, above: float = 0.90) -> Margins | None:
    """Margins of at least :data:`FEWEST` scores; None of fewer."""
    if len(scores) < FEWEST:
        return None
    return Margins(lower_quantile(scores, below), upper_quantile(scores, above), len(scores))


def upper_quantile(scores: Sequence[float], q: float) -> float:
    """The smallest score whose rank is at least ``(n + 1) q``."""
    ordered = sorted(scores)
    return ordered[min(len(ordered), math.ceil((len(ordered) + 1) * q)) - 1]


def lower_quantile(scores: Sequence[float], q: float) -> float:
    """The mirror image of :func:`upper_quantile`."""
    return -upper_quantile([-s for s in scores], 1 - q)


def shrunk(own: float, runs: int, common: float) -> float:
    """A configuration's own spread drawn towards the common one, more so the fewer runs it has."""
    return (runs * own + PRIOR_RUNS * common) / (runs + PRIOR_RUNS)
