"""Data sizes that are off by a common factor in most configurations: an oddity of the campaign, not of the law. Pure.

In HARP's runs, for one, those labelled 5,000 images took a fifth less time than every other size says, on all hardware.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

from ischeduler.estimators.walltime.law import Law, fit_law
from ischeduler.estimators.walltime.timed import MIN_SIZES, Config, TimedRun, by_config, sizes_of

LEAST_SHIFT = 0.10
"""A common shift of less than about 10 % is left to the interval."""
_MIN_CONFIGS = 3
_TIMES_OTHERS = 3.0


def laws_of(runs: Sequence[TimedRun]) -> dict[Config, Law]:
    """One law a configuration."""
    return {config: fit_law(found) for config, found in by_config(runs).items()}


def odd_sizes(runs: Sequence[TimedRun]) -> dict[int, float]:
    """Size -> log of (actual / what all other sizes say), for the sizes to be set aside; often none.

    Odd is a shift that most configurations share (its spread is less than half of it) and that is three times any usual one.
    The largest size is set aside only when it was *faster*: to believe it would under-predict, and a slow-down at the largest
    size may be how things go on from there. Three sizes always stay.
    """
    aside: dict[int, float] = {}
    kept = list(runs)
    while len(sizes_of(kept)) > MIN_SIZES:
        shifts = _shifts(kept)
        worst = _worst(shifts, sizes_of(runs)[-1])
        if worst is None:
            break
        aside[worst] = shifts[worst][0]
        kept = [r for r in kept if r.samples != worst]
    return aside


def _shifts(runs: Sequence[TimedRun]) -> dict[int, tuple[float, float]]:
    """(median, median absolute deviation) of each size's log-residuals against laws fitted without it."""
    found: dict[int, tuple[float, float]] = {}
    for size in sizes_of(runs):
        laws = laws_of([r for r in runs if r.samples != size])
        tested = [r for r in runs if r.samples == size and r.config in laws]
        if len({r.config for r in tested}) >= _MIN_CONFIGS:
            logs = [math.log(r.seconds / laws[r.config].seconds(r.samples, r.epochs)) for r in tested]
            centre = median(logs)
            found[size] = (centre, median(abs(x - centre) for x in logs))
    return found


def _worst(shifts: Mapping[int, tuple[float, float]], largest: int) -> int | None:
    for size, (shift, spread) in sorted(shifts.items(), key=lambda item: -abs(item[1][0])):
        if size == largest and shift > 0:
            continue
        others = median(abs(s) for other, (s, _) in shifts.items() if other != size) if len(shifts) > 1 else 0.0
        common = spread < abs(shift) / 2
        return size if common and abs(shift) > max(LEAST_SHIFT, _TIMES_OTHERS * others) else None
    return None
