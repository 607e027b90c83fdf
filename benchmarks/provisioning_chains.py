"""Chains of eight segments: each successor becomes the next predecessor in the same world, whose arrivals never stop.

What one transition does changes the queue of the next: a hand-over gives units back early, a late submission lets others in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ischeduler.helper.provisioning.collecting import Laws
from ischeduler.helper.provisioning.evidence import Sight, look_at
from ischeduler.helper.provisioning.methods import Method, baselines
from ischeduler.helper.provisioning.setting import DAY_S, Setting
from ischeduler.helper.provisioning.tuning import RETURN_H, decide, replayed
from ischeduler.plane.provisioners import Prices, Rule
from ischeduler.simulator.chain import succeed

SEGMENTS = 8
CHECKPOINT_S = 180
RATIOS = (0.25, 1.0, 4.0, 9.0)


@dataclass(frozen=True)
class Chain:
    """Hours over all transitions of one chain; ``segment_h`` is the mean length of its segments."""

    interruption_h: float
    overlap_h: float
    transitions: int
    segment_h: float


def chains(
    setting: Setting, laws: Laws, method: Method, units: int, count: int, *, seed: int = 0, rolls: int = 32, quiet: bool = False,
    told: Callable[[str, int, int], None] = lambda what, done, of: None,
) -> dict[str, Any]:
    """Mean hours a transition of ``count`` chains, for the baselines, the deployed method over the price ratio, and hand-over."""
    whole = replace(setting, protocol="corrected", horizon_s=int(1.6 * SEGMENTS * setting.segment_s) + 7 * DAY_S)
    sight = Sight(rolls=rolls, seed=seed)
    starts = _starts(whole, count)
    found: dict[str, list[Chain]] = {}
    cases = _cases(method)
    for number, start in enumerate(starts):
        told(f"chains, {units} units", number, len(starts))
        for name, rule, handed in cases:
            made = walk(whole, laws, method, int(start), units, rule, sight, checkpoint_s=CHECKPOINT_S if handed else None)
            if made is not None:
                found.setdefault(name, []).append(made)
    told(f"chains, {units} units", len(starts), len(starts))
    if not quiet:
        _print(found, units, len(starts))
    return {f"n{units}_chain_{name}": _figures(rows) for name, rows in found.items()}


def walk(
    setting: Setting, laws: Laws, method: Method, start_s: int, units: int, rule: Rule, sight: Sight, *, checkpoint_s: int | None = None
) -> Chain | None:
    """One chain: every transition decided on forecasts made in the world as the chain itself has shaped it."""
    of = setting.episode(start_s, units)
    law = laws.of(start_s, setting.train_until_s)
    interruption, overlap, lengths = 0.0, 0.0, []
    while of is not None and len(lengths) < SEGMENTS - 1:
        seen = look_at(setting, law, of, start_s, sight, outcomes=False)
        table = method.forecaster.forecast(seen) if method.forecaster else None
        levels = method.forecaster.levels if method.forecaster else np.empty(0)
        window = method.tuning.window if method.tuning and checkpoint_s is None else 1
        looks, _, of = replayed(seen, decide(seen, rule, table, levels, window), of)
        made = succeed(of, int(of.looks_s[looks[-1]]), setting.look_s, checkpoint_s)
        if made is None:
            break
        cost, of = made
        interruption += cost.interruption_s / 3600
        overlap += cost.overlap_s / 3600 + RETURN_H * (len(looks) - 1)
        lengths.append(cost.segment_s / 3600)
    return Chain(interruption, overlap, len(lengths), float(np.mean(lengths))) if lengths else None


def _cases(method: Method) -> list[tuple[str, Rule, bool]]:
    plain: list[tuple[str, Rule, bool]] = [(m.name, m.rule, False) for m in baselines() if m.rule is not None]
    assert method.tuning is not None, "the deployed method is tuned"
    ours: list[tuple[str, Rule, bool]] = [(f"price_{r:g}", method.tuning.rule(Prices(r, 1.0)), False) for r in RATIOS]
    return [*plain, *ours, ("hand_over", method.tuning.handover(), True)]


def _starts(setting: Setting, count: int) -> Any:
    """Evenly spaced starts after training whose chain still lies in the trace; a trace too short for it gives chains cut at its end."""
    first, last = setting.train_until_s, int(setting.table.submit_s[-1]) - (SEGMENTS + 1) * setting.segment_s
    if last < first:
        last = int(setting.table.submit_s[-1]) - 3 * setting.segment_s
    return np.linspace(first, max(first, last), count).round().astype(np.int64)


def _figures(rows: Sequence[Chain]) -> dict[str, float]:
    steps = sum(r.transitions for r in rows)
    return {
        "chains": len(rows), "transitions": steps, "interruption_h": sum(r.interruption_h for r in rows) / steps,
        "overlap_h": sum(r.overlap_h for r in rows) / steps, "segment_h": sum(r.segment_h * r.transitions for r in rows) / steps,
    }


def _print(found: dict[str, list[Chain]], units: int, count: int) -> None:
    print(f"\n{count} chains of {SEGMENTS} segments of {units} units, hours a transition (arrivals never stop, the chain shapes its queue)")
    print(f"{'method':<16}{'interr.':>9}{'overlap':>9}{'sum':>8}{'segment':>9}{'steps':>7}")
    for name, rows in found.items():
        f = _figures(rows)
        total = f["interruption_h"] + f["overlap_h"]
        print(f"{name:<16}{f['interruption_h']:>9.2f}{f['overlap_h']:>9.2f}{total:>8.2f}{f['segment_h']:>9.1f}{f['transitions']:>7.0f}")
