"""Quantiles of past waits, the recent ones counting more. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ischeduler.core.history import HistoryRecord

HALF_LIFE_S = 14 * 86400.0
SHORTEST_S = 1.0
_HALVED_BY_SIZE = 1.0  # a job of twice or half the nodes counts half


@dataclass(frozen=True, slots=True)
class Waits:
    """p10, p50, p90 of waits in seconds; ``weight`` is the effective number of fresh, equal-sized jobs behind them."""

    p10: float
    p50: float
    p90: float
    n: int
    weight: float
    newest: float | None = None


def past_waits(records: Iterable[HistoryRecord], partition: str, nodes: int, now: float) -> Waits | None:
    """Weighted quantiles of a partition's waits; None when there were none.

    Few jobs bound little: with weight w the tails go to the quantiles 0.1/(1 + 3/w) and its mirror.
    """
    found = [r for r in records if r.partition == partition and r.wait_s is not None]
    if not found:
        return None
    pairs = sorted((max(SHORTEST_S, r.wait_s or 0.0), _weight(r, nodes, now)) for r in found)
    weight = sum(w for _, w in pairs)
    tail = 0.1 / (1 + 3 / max(weight, 1e-6))
    low, middle, high = (weighted_quantile(pairs, q) for q in (tail, 0.5, 1 - tail))
    stretch = 1 + 2 / (1 + weight)  # the sample's own extremes are not the world's
    return Waits(low / stretch, middle, high * stretch, len(found), weight, max(r.finished_at for r in found))


def weighted_quantile(pairs: Sequence[tuple[float, float]], quantile: float) -> float:
    """The value at which the sorted pairs' (value, weight) cumulated weight, taken at its middle, passes the quantile."""
    whole = sum(w for _, w in pairs)
    before, last = 0.0, None
    for value, weight in pairs:
        middle = (before + weight / 2) / whole
        if middle >= quantile:
            if last is None:
                return value
            share = (quantile - last[1]) / (middle - last[1])
            return last[0] + share * (value - last[0])
        before, last = before + weight, (value, middle)
    return pairs[-1][0]


def _weight(record: HistoryRecord, nodes: int, now: float) -> float:
    import math

    age = 0.5 ** (max(0.0, now - record.finished_at) / HALF_LIFE_S)
    return max(1e-3, age * 0.5 ** (_HALVED_BY_SIZE * abs(math.log2(max(1, record.nodes) / max(1, nodes)))))
