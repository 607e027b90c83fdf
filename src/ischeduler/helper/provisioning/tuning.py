"""Which level of a forecast, smoothed over how many looks, would have cost least on training episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ischeduler.helper.provisioning.evidence import Evidence
from ischeduler.plane.provisioners import Forecast, HandOver, Newsvendor, Prices, Rule, first_look, smoothed

Quantiles = NDArray[np.float64]
"""Predicted quantiles of the wait in hours at the looks with a forecast, shape (M, levels)."""
WINDOWS = (1, 2, 4, 8)
PRICE_LEVELS = (0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95)
MARGINS_H = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
BLOCK_S, APART_S = 6 * 86400, 3 * 86400
KEPT_SHARE = 0.9
"""Of a segment's limit, at least so much is to be run on average before a hand-over."""


@dataclass(frozen=True)
class Tuning:
    """``tuned``: price level -> forecast level; ``window``: forecasts averaged; ``margin_h``: added to the lead for a
    hand-over; ``cost_h``: the training episodes' cost at equal prices."""

    window: int = 1
    tuned: tuple[tuple[float, float], ...] = ()
    handover_level: float = 0.95
    handover_margin_h: float = 0.0
    cost_h: float = float("inf")

    def rule(self, prices: Prices) -> Newsvendor:
        """The newsvendor of these prices."""
        return Newsvendor(prices, self.tuned)

    def handover(self) -> HandOver:
        """The rule for runs that hand over."""
        level = self.handover_level
        return HandOver(Newsvendor(Prices(level, 1 - level), margin_s=3600 * self.handover_margin_h))


def rolling(table: Quantiles, window: int) -> Quantiles:
    """Each row the mean of itself and the ``window - 1`` before it."""
    total = np.cumsum(table, axis=0)
    total[window:] = total[window:] - total[:-window]
    return total / np.minimum(np.arange(1, len(table) + 1), window)[:, None]


def at_level(table: Quantiles, levels: NDArray[np.float64], level: float) -> NDArray[np.float64]:
    """The wait at a level, shape (M,): straight between the table's levels, flat beyond."""
    place = float(np.interp(level, levels, np.arange(len(levels))))
    low = int(place)
    high = min(low + 1, len(levels) - 1)
    return table[:, low] + (place - low) * (table[:, high] - table[:, low])


def crossing(of: Evidence, lead_h: NDArray[np.float64]) -> int:
    """The look at which a rule with these leads (M,) submits; the last if never. The vectorised twin of the rules' first_look."""
    reached = of.remaining <= of.held(lead_h)
    return int(np.argmax(reached)) if reached.any() else len(of.remaining) - 1


def decide(of: Evidence, rule: Rule, table: Quantiles | None, levels: NDArray[np.float64], window: int = 1) -> int:
    """The look at which a deployed rule would submit, told the forecasts of ``table`` (the mean of recent waits without one)."""
    shown = np.empty((len(of.asked), 0)) if table is None else np.maximum.accumulate(table, axis=1) * 3600.0
    named = tuple(float(x) for x in levels) if table is not None else ()
    made = [
        Forecast(float(of.looks_s[k]), named, tuple(row.tolist()), float(mean) * 3600.0)
        for k, row, mean in zip(of.asked, shown, of.mean, strict=True)
    ]
    told = [smoothed(made[max(0, i + 1 - window) : i + 1]) for i in range(len(made))]
    newest = np.searchsorted(of.asked, np.arange(len(of.remaining)), "right") - 1
    return first_look(rule, of.looks_s.tolist(), float(of.looks_s[-1]), [told[i] for i in newest])


def tune(episodes: Sequence[Evidence], tables: Sequence[Quantiles], levels: NDArray[np.float64]) -> Tuning:
    """The cheapest window (at equal prices) and, with it, the cheapest level for each price, never falling as the price grows.

    ``tables[i]`` must be forecasts of episode i by something that was not fitted on it.
    """
    if not episodes:
        return Tuning()
    grid = np.linspace(levels[0], levels[-1], 37)
    gaps = {w: _gaps(episodes, [rolling(t, w) for t in tables], levels, grid) for w in WINDOWS}
    window = min(WINDOWS, key=lambda w: _smooth(_costs(gaps[w], 0.5)).min())
    tuned, floor = [], 0.0
    for price in PRICE_LEVELS:
        floor = max(floor, float(grid[int(np.argmin(_smooth(_costs(gaps[window], price))))]))
        tuned.append((price, floor))
    level, margin = _handover(episodes, tables, levels)
    return Tuning(window, tuple(tuned), level, margin, float(_smooth(_costs(gaps[window], 0.5)).min()))


def _gaps(episodes: Sequence[Evidence], tables: Sequence[Quantiles], levels: NDArray[np.float64], grid: NDArray[np.float64]) -> Quantiles:
    """Signed gaps in hours, shape (levels of the grid, episodes)."""
    return np.array([[e.gap[crossing(e, at_level(t, levels, q))] for e, t in zip(episodes, tables, strict=True)] for q in grid])


def _costs(gaps: Quantiles, price: float) -> NDArray[np.float64]:
    return 2 * (price * np.maximum(gaps, 0) + (1 - price) * np.maximum(-gaps, 0)).mean(axis=1)


def _smooth(costs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Neighbouring levels speak for each other: a single lucky one is not chosen."""
    return np.convolve(np.pad(costs, 2, mode="edge"), np.ones(5) / 5, mode="valid")


def _handover(episodes: Sequence[Evidence], tables: Sequence[Quantiles], levels: NDArray[np.float64]) -> tuple[float, float]:
    """Level and margin with the least interruption that leave segments :data:`KEPT_SHARE` of their limit on training episodes.

    Not smoothed: crossing early costs a hand-over one checkpoint, crossing late an interruption.
    """
    best, found = (float("inf"), 0.0), (0.5, 0.0)
    for level in np.linspace(0.5, levels[-1], 7):
        for margin in MARGINS_H:
            leads = [at_level(t, levels, level) + margin for t in tables]
            gaps = np.array([e.gap[crossing(e, lead)] for e, lead in zip(episodes, leads, strict=True)])
            kept = 1 + np.mean([min(g, 0.0) / e.remaining[0] for g, e in zip(gaps, episodes, strict=True)])
            score = (float(np.maximum(gaps, 0).mean()), -float(kept))
            if kept >= KEPT_SHARE and score < best:
                best, found = score, (float(level), margin)
    return found


def folds(starts_s: Sequence[int], parts: int = 7) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """(training, held out) indices of episodes with these starts: each part holds out every seventh block of six days.

    Blocks are scattered over the time, since a queue is busy for weeks on end: a part that held out one long stretch would judge
    forecasts made without ever having seen such a queue, which what is deployed (fitted on everything) has. Episodes within
    :data:`APART_S` of a held-out block share its queue and are left out of both. A short history is cut into ``parts`` blocks.
    """
    start = np.asarray(starts_s, np.int64)
    size = max(1, min(BLOCK_S, int(start[-1] - start[0]) // parts + 1))
    block = (start - start[0]) // size
    apart = min(APART_S, size // 2)
    found = []
    for part in range(min(parts, int(block[-1]) + 1)):
        out = block % parts == part
        spans = [(start[block == b].min(), start[block == b].max()) for b in np.unique(block[out])]
        near = np.any([(start > low - apart) & (start < high + apart) for low, high in spans] or [out], axis=0)
        if out.any() and not near.all():
            found.append((np.flatnonzero(~near), np.flatnonzero(out)))
    return found


__all__ = ["PRICE_LEVELS", "Quantiles", "Tuning", "at_level", "crossing", "decide", "folds", "rolling", "tune"]
