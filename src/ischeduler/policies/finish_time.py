"""Finish-time fairness: nobody much later than alone on their slice.

    minimise rho = max_j (elapsed_j + steps_left_j / sum_k rate_jk x_jk) / (done alone_j + steps_left_j / isolated rate_j)

Source: Themis (Mahajan et al., NSDI 2020) as Gavel (OSDI 2020) solves it over types. For a given rho, job j needs the rate
steps_left_j / (rho D_j - elapsed_j): a max-min programme whose level t(rho) must be 1. Its derivative is in the duals
(dt/drho = -t sum_j y_j need_j'), so Newton's method on rho ends after a few solves of O(J K^2) steps each.

``memory`` holds, by job, the isolated time of the work done so far and what is needed to prolong it; give the allocation back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ischeduler.policies.packing import PackedLevels
from ischeduler.policies.problem import (
    Accelerators,
    Allocation,
    Floats,
    Jobs,
    Objective,
    Throughputs,
    allocation,
    isolated_shares,
    memory_by_name,
    rates,
)
from ischeduler.policies.program import raise_level

NEWTON_STEPS = 25
CLOSE = 1e-7


def allocate(
    jobs: Jobs, throughputs: Throughputs, accelerators: Accelerators, objective: Objective, now: float, previous: Allocation | None = None,
) -> Allocation:
    """See the module. ``value``: rho; ``score``: minus each job's own rho."""
    rate = rates(jobs, throughputs, accelerators, objective)
    alone = (rate * isolated_shares(jobs, accelerators)).sum(axis=1)
    known: Mapping[str, tuple[float, float, float]] = memory_by_name(previous)
    done = jobs.isolated_s.copy()
    for row, job in enumerate(jobs.ids):
        if job in known:
            before, left, pace = known[job]
            done[row] = before + max(0.0, left - jobs.steps_left[row]) / pace
    memory = {job: (float(a), float(b), float(c)) for job, a, b, c in zip(jobs.ids, done, jobs.steps_left, alone, strict=True)}
    left = np.maximum(jobs.steps_left, 1e-9 * np.maximum(jobs.total_steps, 1e-300))
    elapsed = np.maximum(now - jobs.arrived_s, 0.0)
    fair = done + left / alone
    found = _smallest_ratio(_Ages(rate, left, elapsed, fair), _levels(jobs, throughputs, accelerators, rate, objective))
    return replace(found, memory=memory)


Levels = Callable[[Floats], tuple[Allocation, Floats]]
"""Max-min with these speeds (J, K): the allocation and the duals (J,)."""


@dataclass(frozen=True, slots=True, eq=False)
class _Ages:
    """Rates (J, K); steps left, time since arrival, and the time all of it would take alone (J,)."""

    rate: Floats
    left: Floats
    elapsed: Floats
    fair: Floats


def _levels(jobs: Jobs, throughputs: Throughputs, accelerators: Accelerators, rate: Floats, objective: Objective) -> Levels:
    if objective.sharing:
        return PackedLevels(jobs, throughputs, accelerators, rate, objective).solve

    def plain(speed: Floats) -> tuple[Allocation, Floats]:
        found = raise_level(speed, jobs.accelerators, accelerators.count)
        return allocation(jobs, accelerators, found.share, value=found.level, score=(speed * found.share).sum(axis=1)), found.worth

    return plain


def _smallest_ratio(a: _Ages, levels: Levels) -> Allocation:
    """Newton on rho until the level is 1, kept between what is known to be too small and too large."""
    low, high = float(np.max(a.elapsed / a.fair)), float("inf")
    rho = max(float(np.max((a.elapsed + a.left / a.rate.max(axis=1)) / a.fair)), low * (1 + 1e-9))
    for step in range(NEWTON_STEPS):
        room = rho * a.fair - a.elapsed
        found, worth = levels(a.rate * (room / a.left)[:, None])
        paces = np.asarray(found.score)
        if abs(found.value - 1.0) < CLOSE or step == NEWTON_STEPS - 1:
            break
        low, high = (low, min(high, rho)) if found.value > 1.0 else (max(low, rho), high)
        slope = float(np.dot(worth, paces * a.fair / room))
        following = rho + (1.0 - found.value) / slope if slope > 0 else float("inf")
        if not low < following < high:
            following = 0.5 * (low + high) if np.isfinite(high) else 2.0 * rho
        if abs(following - rho) <= 1e-12 * rho:
            break
        rho = following
    reached = paces * a.left / np.maximum(rho * a.fair - a.elapsed, 1e-300)  # pyright: ignore[reportPossiblyUnboundVariable]
    ratio = (a.elapsed + a.left / np.maximum(reached, 1e-300)) / a.fair
    return replace(found, value=float(np.max(ratio)), score=-ratio)  # pyright: ignore[reportPossiblyUnboundVariable]
