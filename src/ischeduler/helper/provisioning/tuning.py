"""Which level of a forecast, smoothed over how many looks, would have cost least on training episodes, and which early starts to keep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ischeduler.helper.provisioning.evidence import FAR_H, Evidence
from ischeduler.plane.provisioners import RETURNS_MAX, Forecast, HandOver, Informed, Newsvendor, Prices, Rule, smoothed
from ischeduler.plane.provisioners.rules import KEPT_LEAST_S
from ischeduler.simulator.chain import Episode, given_back, successor_start_s

Quantiles = NDArray[np.float64]
"""Predicted quantiles of the wait in hours at the looks with a forecast, shape (M, levels)."""
WINDOWS = (1, 2, 4, 8)
PRICE_LEVELS = (0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95)
MARGINS_H = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
HANDOVER_MARGINS_H = tuple(0.25 * quarters for quarters in range(17))
KEEPS = (0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 1.0)
"""Levels of the forecast up to which the remaining time may be for a start to stay; the last one: always."""
RETURN_H = 1 / 60
"""What a start costs that is given back: so long two allocations are held."""
BLOCK_S, APART_S = 6 * 86400, 3 * 86400
KEPT_SHARE = 0.91
"""Of a segment's limit, at least so much is to be run on average before a hand-over."""


@dataclass(frozen=True)
class Tuning:
    """``tuned``: price level -> forecast level; ``kept``: price level -> forecast level up to which the remaining time may be for a
    start to stay (empty: all stay); ``window``: forecasts averaged; ``handover_margin_h``: added to the lead for a hand-over; ``cost_h``: the
    training episodes' cost at equal prices."""

    window: int = 1
    tuned: tuple[tuple[float, float], ...] = ()
    handover_level: float = 0.95
    handover_margin_h: float = 0.0
    cost_h: float = float("inf")
    kept: tuple[tuple[float, float], ...] = ()

    def rule(self, prices: Prices) -> Newsvendor:
        """The newsvendor of these prices."""
        return Newsvendor(prices, self.tuned, kept=self.kept)

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
    """The first look at which a rule with these leads (M,) submits; the last if never."""
    return int(dues(of, lead_h)[0])


def dues(of: Evidence, lead_h: NDArray[np.float64]) -> NDArray[np.int64]:
    """All looks at which a rule with these leads (M,) would submit; the last one (forced, at the segment's end) is always among them."""
    found = np.flatnonzero(of.remaining <= of.held(lead_h))
    last = len(of.remaining) - 1
    return found if len(found) and found[-1] == last else np.append(found, last)


@dataclass(frozen=True)
class Decisions:
    """What a rule says at all looks of an episode: where it would submit (see :func:`dues`), and how long before the segment's end a start
    at each look may be and stay (hours, shape (K,), infinite where it stays anyway)."""

    due: NDArray[np.int64]
    keep: NDArray[np.float64]


def decide(of: Evidence, rule: Rule, table: Quantiles | None, levels: NDArray[np.float64], window: int = 1) -> Decisions:
    """The decisions of a deployed rule, told the forecasts of ``table`` (the mean of recent waits without one)."""
    shown = np.empty((len(of.asked), 0)) if table is None else np.maximum.accumulate(table, axis=1) * 3600.0
    named = tuple(float(x) for x in levels) if table is not None else ()
    made = [
        Forecast(float(of.looks_s[k]), named, tuple(row.tolist()), float(mean) * 3600.0)
        for k, row, mean in zip(of.asked, shown, of.mean, strict=True)
    ]
    told = [smoothed(made[max(0, i + 1 - window) : i + 1]) for i in range(len(made))]
    leads, keeps = [rule.lead_s(f) for f in told], [Informed(rule, f).keep_s for f in told]
    return Decisions(
        dues(of, np.array([-1.0 if lead is None else lead / 3600.0 for lead in leads])),
        of.held(np.array([np.inf if keep is None else keep / 3600.0 for keep in keeps])),
    )


def submissions(
    asked: Decisions, gap_h: Callable[[int], float], after: Callable[[float], int], back: Callable[[int], None] = lambda look: None
) -> tuple[list[int], float]:
    """The looks at which successors are queued, of which all but the last give their start back; and the last one's gap in hours.

    ``gap_h(look)`` is what a submission leads to, ``after(gap)`` the first look after such a start; ``back(look)`` is told of each that is
    given back, at most :data:`RETURNS_MAX`.
    """
    due, made = asked.due, [int(asked.due[0])]
    while True:
        gap = gap_h(made[-1])
        if made[-1] == due[-1] or gap >= 0 or len(made) > RETURNS_MAX:
            return made, gap
        next_look = after(gap)
        if -gap <= asked.keep[next_look - 1]:
            return made, gap
        back(made[-1])
        made.append(int(due[np.searchsorted(due, min(next_look, int(due[-1])))]))


def replayed(of: Evidence, asked: Decisions, episode: Episode) -> tuple[list[int], float, Episode]:
    """The same in ``episode``'s world, which sees every successor that gives its start back; and the episode with them in it."""
    now = episode

    def gap_h(look: int) -> float:
        start = successor_start_s(now.world, int(of.looks_s[look]), now.units, now.segment_s)
        return FAR_H if start < 0 else min((start - now.end_s) / 3600, FAR_H)

    def back(look: int) -> None:
        nonlocal now
        now = given_back(now, int(of.looks_s[look]), round(3600 * RETURN_H))

    made, gap = submissions(asked, gap_h, lambda gap: after_start(of, gap), back)
    return made, gap, now


def after_start(of: Evidence, gap_h: float) -> int:
    """The first look after a start that many hours after the segment's end (before it, when negative)."""
    return int(np.searchsorted(of.looks_s, of.looks_s[-1] + 3600.0 * gap_h, "right"))


def tune(
    episodes: Sequence[Evidence], tables: Sequence[Quantiles], levels: NDArray[np.float64], keeps: Sequence[float] = KEEPS[-1:]
) -> Tuning:
    """The cheapest window (at equal prices) and, with it, the cheapest level and keep of each price, neither falling as the price grows.

    ``tables[i]`` must be forecasts of episode i by something that was not fitted on it. ``keeps``: levels that may be chosen from.
    """
    if not episodes:
        return Tuning()
    grid = np.linspace(levels[0], levels[-1], 37)
    gaps = {w: _gaps(episodes, [rolling(t, w) for t in tables], levels, grid, keeps) for w in WINDOWS}
    window = min(WINDOWS, key=lambda w: _smooth(_costs(*gaps[w], 0.5)).min())
    tuned, kept, level, keep = [], [], 0, 0
    for price in PRICE_LEVELS:
        costs = _smooth(_costs(*gaps[window], price))
        best = np.unravel_index(int(np.argmin(costs)), costs.shape)
        level, keep = max(level, int(best[0])), max(keep, int(best[1]))
        tuned.append((price, float(grid[level])))
        kept.append((price, float(keeps[keep])))
    handover_level, margin = _handover(episodes, tables, levels)
    cost = float(_smooth(_costs(*gaps[window], 0.5)).min())
    return Tuning(window, tuple(tuned), handover_level, margin, cost, tuple(kept) if len(keeps) > 1 else ())


def _gaps(
    episodes: Sequence[Evidence], tables: Sequence[Quantiles], levels: NDArray[np.float64], grid: NDArray[np.float64], keeps: Sequence[float]
) -> tuple[Quantiles, NDArray[np.int64]]:
    """Signed gaps in hours and starts given back, both of shape (levels of the grid, keeps, episodes)."""
    found = [outcomes_of(of, t, levels, grid, keeps) for of, t in zip(episodes, tables, strict=True)]
    return np.stack([gaps for gaps, _ in found], axis=2), np.stack([back for _, back in found], axis=2)


def outcomes_of(
    of: Evidence, table: Quantiles, levels: NDArray[np.float64], grid: Sequence[float] | NDArray[np.float64], keeps: Sequence[float]
) -> tuple[Quantiles, NDArray[np.int64]]:
    """An episode's signed gap in hours and starts given back with every level and keep, both of shape (levels of the grid, keeps).

    As if what is given back had changed nothing for the others: the waits are those of a queue that never saw it.
    """
    gaps, back = np.empty((len(grid), len(keeps))), np.zeros((len(grid), len(keeps)), np.int64)
    stays = [of.held(np.maximum(KEPT_LEAST_S / 3600, at_level(table, levels, k)) if k < 1 else np.full(len(table), np.inf)) for k in keeps]
    for g, level in enumerate(grid):
        due = dues(of, at_level(table, levels, level))
        for k, keep in enumerate(stays):
            made, gaps[g, k] = submissions(Decisions(due, keep), of.gap.__getitem__, lambda gap: after_start(of, gap))
            back[g, k] = len(made) - 1
    return gaps, back


def _costs(gaps: Quantiles, back: NDArray[np.int64], price: float) -> NDArray[np.float64]:
    """Shape (levels, keeps)."""
    return 2 * (price * np.maximum(gaps, 0) + (1 - price) * (np.maximum(-gaps, 0) + RETURN_H * back)).mean(axis=2)


def _smooth(costs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Neighbouring levels speak for each other: a single lucky one is not chosen."""
    padded = np.pad(costs, ((2, 2), (0, 0)), mode="edge")
    return np.mean([padded[i : i + len(costs)] for i in range(5)], axis=0)


def _handover(episodes: Sequence[Evidence], tables: Sequence[Quantiles], levels: NDArray[np.float64]) -> tuple[float, float]:
    """The highest level, and with it the widest margin, that leave segments :data:`KEPT_SHARE` of their limit on training episodes.

    Not smoothed: crossing early costs a hand-over one checkpoint, crossing late an interruption.
    """
    for level in np.linspace(levels[-1], 0.5, 7):
        for margin in reversed(HANDOVER_MARGINS_H):
            leads = [at_level(t, levels, level) + margin for t in tables]
            gaps = [e.gap[crossing(e, lead)] for e, lead in zip(episodes, leads, strict=True)]
            if 1 + np.mean([min(g, 0.0) / e.remaining[0] for g, e in zip(gaps, episodes, strict=True)]) >= KEPT_SHARE:
                return float(level), margin
    return 0.5, 0.0


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


__all__ = [
    "KEEPS", "MARGINS_H", "PRICE_LEVELS", "RETURN_H", "Decisions", "Quantiles", "Tuning", "after_start", "at_level", "crossing", "decide", "dues", "folds",
    "outcomes_of", "replayed", "rolling", "submissions", "tune",
]  # fmt: skip
