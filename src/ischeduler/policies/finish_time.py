"""Finish-time fairness: nobody much later than alone on their slice.

    minimise rho = max_j (elapsed_j + steps_left_j / sum_k rate_jk x_jk) / (done alone_j + steps_left_j / isolated rate_j)

Source: Themis (Mahajan et al., NSDI 2020) as Gavel (OSDI 2020) solves it over types. For a given rho, job j needs the rate
steps_left_j / (rho D_j - elapsed_j): a max-min programme whose level t(rho) must be 1. Its derivative is in the duals
(dt/drho = -t sum_j y_j need_j'), so Newton's method on rho ends after a few solves of O(J K^2) steps each.

``memory`` holds, by job, the isolated time of the work done so far and what is needed to prolong it; give the allocation back.
"""

from __future__ import annotations

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
    known: dict[str, tuple[float, float, float]] = previous.memory if previous is not None and isinstance(previous.memory, dict) else {}
    done = jobs.isolated_s.copy()
    for row, job in enumerate(jobs.ids):
        if job in known:
            before, left, pace = known[job]
            done[row] = before + max(0.0, left - jobs.steps_left[row]) / pace
    memory = {job: (float(a), float(b), float(c)) for job, a, b, c in zip(jobs.ids, done, jobs.steps_left, alone, strict=True)}
    left = np.maximum(jobs.steps_left, 1e-9 * np.maximum(jobs.total_steps, 1e-300))
    elapsed = np.maximum(now - jobs.arrived_s, 0.0)
    fair = done + left / alone
    if objective.sharing:
        packed = PackedLevels(jobs, throughputs, accelerators, rate)
        return _smallest_ratio(jobs, rate, left, elapsed, fair, packed.solve, memory, accelerators)

    def plain(speed: Floats) -> tuple[Allocation, Floats]:
        found = raise_level(speed, jobs.accelerators, accelerators.count)
        return allocation(jobs, accelerators, found.share, value=found.level, score=(speed * found.share).sum(axis=1)), found.worth

    return _smallest_ratio(jobs, rate, left, elapsed, fair, plain, memory, accelerators)


def _smallest_ratio(jobs: Jobs, rate: Floats, left: Floats, elapsed: Floats, fair: Floats, solve, memory, accelerators) -> Allocation:  # type: ignore[no-untyped-def]
    from dataclasses import replace

    low = float(np.max(elapsed / fair))
    rho = max(float(np.max((elapsed + left / rate.max(axis=1)) / fair)), low * (1 + 1e-9))
    best = None
    high = np.inf
    for _ in range(NEWTON_STEPS):
        room = rho * fair - elapsed
        speed = rate * (room / left)[:, None]
        found, worth = solve(speed)
        best = found
        if abs(found.value - 1.0) < CLOSE:
            break
        if found.value > 1.0:
            high = min(high, rho)
        else:
            low = max(low, rho)
        slope = float(np.dot(worth, found.score * fair / room))
        step = (1.0 - found.value) / slope if slope > 0 else np.inf
        following = rho + step
        if not low < following < high:
            following = 0.5 * (low + high) if np.isfinite(high) else 2.0 * rho
        if abs(following - rho) <= 1e-12 * rho:
            break
        rho = following
    assert best is not None
    reached = best.score * left / np.maximum(rho * fair - elapsed, 1e-300)
    ratio = (elapsed + left / np.maximum(reached, 1e-300)) / fair
    return replace(best, value=float(np.max(ratio)), score=-ratio, memory=memory)
