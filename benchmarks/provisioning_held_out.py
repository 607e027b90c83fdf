"""What the training episodes alone say about the methods: each week judged by what was fitted and tuned on the others.

Forecasts are by models fitted on other, scattered weeks. Their levels are tuned on the other weeks too ("scattered"), or only on what lies
before the week judged ("forward"). No validation episode is read for that. The last table reads them: the level that would have been best,
known only afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ischeduler.helper.provisioning.evidence import Evidence
from ischeduler.helper.provisioning.forecasters import BOOSTED_LEVELS, BoostedForecaster, held_out, mean_table
from ischeduler.helper.provisioning.judge import HEAVY_H
from ischeduler.helper.provisioning.methods import BLENDED
from ischeduler.helper.provisioning.tuning import (
    BLOCK_S,
    KEEPS,
    RETURN_H,
    WINDOWS,
    Quantiles,
    at_level,
    crossing,
    folds,
    outcomes_of,
    rolling,
)

GRID = np.linspace(BOOSTED_LEVELS[0], BOOSTED_LEVELS[-1], 37)
SLACKS = (0.01, 0.02)
"""Shares of the least cost within which the lowest level is taken instead."""
FIRST_BLOCKS, FEWEST = 3, 30
Parts = list[tuple[NDArray[np.int64], NDArray[np.int64]]]


def held_out_costs(
    train: Sequence[Evidence], test: Sequence[Evidence], units: int, *, seed: int, probes: int, told: Callable[[str], None]
) -> dict[str, Any]:
    """Costs in hours a transition by way of holding out, ``[interruption, overlap]`` of heavy starts, and the best levels in hindsight."""
    makers = {n: _maker(seed, probes, twin) for n, twin in (("newsvendor", False), ("newsvendor_twin", True))}
    tables = _tables(train, {n: held_out(make, train) for n, make in makers.items()})
    gaps = {n: gap_table(train, t) for n, t in tables.items()}
    kept = kept_table(train, tables["blend"])
    starts = np.array([e.start_s for e in train])
    heavy = np.array([e.gap[-1] > HEAVY_H for e in train])
    found: dict[str, Any] = {"training_episodes": len(train), "training_heavy_episodes": int(heavy.sum())}
    found |= {f"pinball_{n}_h": pinball_h(train, t) for n, t in tables.items()}
    told(f"\n{units} units: pinball loss of the forecasts, hours: " + ", ".join(f"{n} {found[f'pinball_{n}_h']:.3f}" for n in tables))
    for way, parts in (("scattered", folds(starts.tolist())), ("forward", forward(starts))):
        told(f"\n{units} units, {len(train)} training episodes ({heavy.sum()} heavy), {way} weeks held out; hours, 90 % of a bootstrap over weeks")
        judged = np.concatenate([out for _, out in parts])
        rows = {name: signed_gaps(parts, lambda rest, g=g: (g, *cheapest(g[:, :, rest]))) for name, g in gaps.items()}
        rows["blend_giving_back"] = signed_gaps(parts, lambda rest: _with_keep(kept, rest))
        rows["cheaper_of_blend_and_twin"] = signed_gaps(parts, lambda rest: cheaper_of(gaps["blend"], gaps["twin"], rest))
        for slack in SLACKS:
            rows[f"blend_within_{100 * slack:g}_percent"] = signed_gaps(parts, lambda rest, s=slack: (gaps["blend"], *cheapest(gaps["blend"][:, :, rest], s)))
        for name, gap in rows.items():
            low, high = _interval(np.abs(gap) - np.abs(rows["blend"]), starts[judged], seed)
            more, pair = float((np.abs(gap) - np.abs(rows["blend"])).mean()), _pair(gap[heavy[judged]])
            found |= {f"{way}_{name}_h": float(np.abs(gap).mean()), f"{way}_{name}_heavy_h": pair, f"{way}_{name}_more_h": [more, low, high]}
            told(f"  {name:<26}{np.abs(gap).mean():>6.2f}  than blend {more:+.2f} [{low:.2f}, {high:.2f}]  heavy {pair[0]:.2f} + {pair[1]:.2f}")
    return {f"n{units}_{k}": v for k, v in (found | _hindsight(train, test, makers, gaps, told)).items()}


def _hindsight(train: Sequence[Evidence], test: Sequence[Evidence], makers: Mapping[str, Any], gaps: Mapping[str, Quantiles], told: Any) -> dict[str, Any]:
    made = {n: make() for n, make in makers.items()}
    for one in made.values():
        one.fit(train)
    after = {n: gap_table(test, t) for n, t in _tables(test, {n: [m.forecast(e) for e in test] for n, m in made.items()}).items()}
    heavy = np.array([e.gap[-1] > HEAVY_H for e in test])
    found: dict[str, Any] = {}
    told("validation: level tuned on training, and the best in hindsight (window, level, sum, heavy interruption + overlap)")
    for name, gap in after.items():
        costs = np.abs(gap).mean(axis=2)
        best = np.unravel_index(costs.argmin(), costs.shape)
        for kind, (w, q) in (("tuned", cheapest(gaps[name])), ("hindsight", (int(best[0]), int(best[1])))):
            pair = _pair(gap[w, q, heavy])
            found |= {f"{kind}_{name}_h": float(costs[w, q]), f"{kind}_{name}_level": float(GRID[q]), f"{kind}_{name}_heavy_h": pair}
            told(f"  {name:<18}{kind:<10}{WINDOWS[w]:>3}{GRID[q]:>6.2f}{costs[w, q]:>7.2f}  {pair[0]:.2f} + {pair[1]:.2f}")
    told("validation: blend, level by level (sum, heavy interruption + overlap)")
    window = cheapest(gaps["blend"])[0]
    for q in range(0, len(GRID), 3):
        gap = after["blend"][window, q]
        found[f"blend_level_{GRID[q]:.2f}_h"] = [float(np.abs(gap).mean()), *_pair(gap[heavy])]
        told("  {:.2f}{:>8.2f}  {:.2f} + {:.2f}".format(GRID[q], *found[f"blend_level_{GRID[q]:.2f}_h"]))
    return found


def _pair(gaps: NDArray[np.float64]) -> list[float]:
    """Mean interruption and overlap, nothing where there are none."""
    return [float(np.maximum(gaps, 0).mean()), float(np.maximum(-gaps, 0).mean())] if len(gaps) else [0.0, 0.0]


def gap_table(episodes: Sequence[Evidence], tables: Sequence[Quantiles]) -> Quantiles:
    """The signed gap (hours) of every window and level: shape (windows, levels, episodes)."""
    rolled = [[rolling(t, w) for t in tables] for w in WINDOWS]
    return np.array([
        [[e.gap[crossing(e, at_level(t, BOOSTED_LEVELS, q))] for e, t in zip(episodes, of, strict=True)] for q in GRID] for of in rolled
    ])  # fmt: skip


def kept_table(episodes: Sequence[Evidence], tables: Sequence[Quantiles]) -> Quantiles:
    """As :func:`gap_table`, of every keep too: shape (windows, levels, keeps, episodes). A start given back makes the gap longer by what it held."""
    found = []
    for window in WINDOWS:
        made = [outcomes_of(of, rolling(t, window), BOOSTED_LEVELS, GRID, KEEPS) for of, t in zip(episodes, tables, strict=True)]
        found.append(np.stack([gap + np.copysign(RETURN_H * back, gap) for gap, back in made], axis=2))
    return np.array(found)


def _with_keep(kept: Quantiles, rest: NDArray[np.int64]) -> tuple[Quantiles, int, int]:
    chosen = [(kept[:, :, k], *cheapest(kept[:, :, k, rest])) for k in range(len(KEEPS))]
    return min(chosen, key=lambda c: float(np.abs(c[0][c[1], c[2], rest]).mean()))


def cheapest(gaps: Quantiles, slack: float = 0.0) -> tuple[int, int]:
    """Places of the window and level of least cost (neighbours averaged as in the tuning); with ``slack`` of the lowest level as good but for it."""
    costs = np.abs(gaps).mean(axis=2)
    smooth = np.array([np.convolve(np.pad(c, 2, mode="edge"), np.ones(5) / 5, mode="valid") for c in costs])
    window, level = (int(i) for i in np.unravel_index(smooth.argmin(), smooth.shape))
    while level and smooth[window, level - 1] <= (1 + slack) * smooth[window].min():
        level -= 1
    return window, level


def signed_gaps(parts: Parts, choose: Callable[[NDArray[np.int64]], tuple[Quantiles, int, int]]) -> NDArray[np.float64]:
    """The gaps of what is held out, by what ``choose`` says of the rest, in the parts' order."""
    found = []
    for rest, out in parts:
        gaps, window, level = choose(rest)
        found.append(gaps[window, level, out])
    return np.concatenate(found)


def forward(starts_s: NDArray[np.int64]) -> Parts:
    """(what lies more than three days before, block of six days) of all blocks but the first three."""
    block = (starts_s - starts_s[0]) // BLOCK_S
    parts = [(np.flatnonzero(starts_s < starts_s[block == b].min() - BLOCK_S // 2), np.flatnonzero(block == b)) for b in np.unique(block)[FIRST_BLOCKS:]]
    return [p for p in parts if len(p[0]) >= FEWEST]


def _tables(episodes: Sequence[Evidence], boosted: Mapping[str, Sequence[Quantiles]]) -> dict[str, list[Quantiles]]:
    """Forecasts of all methods at the boosted levels."""
    from ischeduler.helper.provisioning.evidence import LEVELS

    twin = [np.stack([at_level(e.twin, LEVELS, q) for q in BOOSTED_LEVELS], axis=1) for e in episodes]
    parts = {"newsvendor": list(boosted["newsvendor"]), "twin": twin, "newsvendor_twin": list(boosted["newsvendor_twin"])}
    def mean(names: Sequence[str]) -> list[Quantiles]:
        return [mean_table([(parts[n][i], BOOSTED_LEVELS) for n in names]) for i in range(len(episodes))]

    return {**parts, "mean_of_all_three": mean(list(parts)), "blend": mean(BLENDED)}


def pinball_h(episodes: Sequence[Evidence], tables: Sequence[Quantiles]) -> float:
    """The mean pinball loss over all forecasts and levels, hours."""
    waits = np.concatenate([of.wait[of.asked] for of in episodes])[:, None]
    over = waits - np.concatenate(tables)
    return float(np.maximum(BOOSTED_LEVELS * over, (BOOSTED_LEVELS - 1) * over).mean())


def cheaper_of(one: Quantiles, other: Quantiles, rest: NDArray[np.int64]) -> tuple[Quantiles, int, int]:
    """Whichever gap table was cheaper on ``rest``, with its window and level."""
    chosen = [(g, *cheapest(g[:, :, rest])) for g in (one, other)]
    return min(chosen, key=lambda c: float(np.abs(c[0][c[1], c[2], rest]).mean()))


def _interval(more: NDArray[np.float64], starts_s: NDArray[np.int64], seed: int) -> tuple[float, float]:
    """90 % of a bootstrap over blocks of six days."""
    rng, block = np.random.default_rng(seed), starts_s // BLOCK_S
    sums = np.array([[more[block == b].sum(), (block == b).sum()] for b in np.unique(block)])
    drawn = sums[rng.integers(0, len(sums), (2000, len(sums)))].sum(axis=1)
    low, high = np.quantile(drawn[:, 0] / drawn[:, 1], [0.05, 0.95])
    return float(low), float(high)


def _maker(seed: int, probes: int, twin: bool) -> Callable[[], BoostedForecaster]:
    return lambda: BoostedForecaster(with_twin=twin, seed=seed, probes=probes)
