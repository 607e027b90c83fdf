"""A number with its interval, unit, source and age: what every estimator answers and every table shows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

BASES = ("given", "history", "profile", "trace", "live", "analytic")
"""How an estimate came about, in the order of trust."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """p10 <= p50 <= p90 in ``unit`` ('s', 'bytes', 'usd', 'probability', a charge unit).

    ``source`` names estimator and version (``trace@1``), ``basis`` is one of :data:`BASES`, ``as_of`` is when its newest
    evidence was gathered (epoch seconds, None when it has no date), ``reason`` says in words why this source and how sure.
    """

    p10: float
    p50: float
    p90: float
    unit: str
    source: str
    basis: str = "analytic"
    as_of: float | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        if any(math.isnan(v) for v in (self.p10, self.p50, self.p90)):
            raise ValueError(f"an estimate from {self.source} is not a number")
        if not self.p10 <= self.p50 <= self.p90:
            raise ValueError(f"quantiles out of order from {self.source}: {self.p10}, {self.p50}, {self.p90}")

    @classmethod
    def exact(cls, value: float, unit: str, source: str, *, basis: str = "given", reason: str = "") -> Estimate:
        """A known figure: all three quantiles are the same."""
        return cls(value, value, value, unit, source, basis=basis, reason=reason)

    @classmethod
    def spread(
        cls, value: float, relative: float, unit: str, source: str, *, basis: str = "analytic",
        as_of: float | None = None, reason: str = "",
    ) -> Estimate:
        """``value`` within a factor ``1 + relative`` either way (log-symmetric, so it never turns negative)."""
        factor = 1.0 + relative
        return cls(value / factor, value, value * factor, unit, source, basis=basis, as_of=as_of, reason=reason)

    def scaled(self, factor: float, *, unit: str | None = None) -> Estimate:
        """Every quantile times a non-negative factor; nothing of something unbounded is nothing."""
        low, middle, high = (q * factor if factor else 0.0 for q in (self.p10, self.p50, self.p90))
        return replace(self, p10=low, p50=middle, p90=high, unit=unit or self.unit)

    def age_s(self, now: float) -> float | None:
        """Seconds since the newest evidence, or None when it carries no date."""
        return None if self.as_of is None else max(0.0, now - self.as_of)


def total(parts: Iterable[Estimate], source: str = "", *, independent: bool = False, reason: str = "") -> Estimate:
    """The sum of estimates of one unit.

    Dependent parts (default) add quantile by quantile, which is the widest interval; independent ones add medians and
    combine their half-widths by root sum of squares (exact for Gaussians, fair for a handful of similar terms).
    """
    items = list(parts)
    if not items:
        raise ValueError("nothing to add")
    if len({e.unit for e in items}) > 1:
        raise ValueError(f"units differ: {sorted({e.unit for e in items})}")
    p50 = sum(e.p50 for e in items)
    if independent and math.isfinite(p50):
        low = p50 - math.sqrt(sum((e.p50 - e.p10) ** 2 for e in items))
        high = p50 + math.sqrt(sum((e.p90 - e.p50) ** 2 for e in items))
    else:
        low, high = sum(e.p10 for e in items), sum(e.p90 for e in items)
    dates = [e.as_of for e in items if e.as_of is not None]
    weakest = max(items, key=lambda e: BASES.index(e.basis) if e.basis in BASES else len(BASES))
    names = source or "+".join(dict.fromkeys(e.source for e in items))
    return Estimate(
        min(low, p50), p50, max(high, p50), items[0].unit, names,
        basis=weakest.basis, as_of=min(dates) if dates else None, reason=reason,
    )
