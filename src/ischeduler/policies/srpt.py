"""Shortest remaining time over types, with a guard: short jobs first, but nobody below a share of the fair level.

    maximise  sum_jk weight_j (rate_jk / steps_left_j)^power x_jk
    subject to  norm_j(x) >= guard * t*,   t*: the max-min level (:mod:`ischeduler.policies.max_min`), norm_j as there

``guard`` (option, default 0.3, in [0, 1]): 0 is heterogeneous shortest-remaining-time, which starves long jobs under high load; 1 is
max-min fairness. With ``sharing`` pairs count in both programmes. ``power`` (option, default 1): how much more a nearly
finished job counts. Two linear programmes, O(J K^2) per step. The programme with guard 0 is the mean-completion-time heuristic of AlloX's
cost in fractional form; the guard is ours.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ischeduler.core.errors import BadInput
from ischeduler.policies.max_min import normalised
from ischeduler.policies.packing import PackedLevels, best_level
from ischeduler.policies.problem import Accelerators, Allocation, Jobs, Objective, Throughputs, allocation, rates
from ischeduler.policies.program import most_gain

INSIDE = 1.0 - 1e-6


def allocate(
    jobs: Jobs, throughputs: Throughputs, accelerators: Accelerators, objective: Objective, now: float, previous: Allocation | None = None,
) -> Allocation:
    """See the module. ``priority``: less time left is larger."""
    guard, power = float(objective.options.get("guard", 0.3)), float(objective.options.get("power", 1.0))
    if not 0.0 <= guard <= 1.0:
        raise BadInput(f"The option guard={guard:g} is a share of the fair level; give a number from 0 to 1.")
    rate = rates(jobs, throughputs, accelerators, objective)
    left = np.maximum(jobs.steps_left, 1e-9 * np.maximum(jobs.total_steps, 1e-300))
    pace = rate / left[:, None]
    norm = normalised(jobs, rate, accelerators)
    floor = None
    if guard > 0:
        level, _ = best_level(jobs, throughputs, accelerators, rate, norm, objective)
        floor = np.full(len(jobs), guard * level * INSIDE)
    # Paces differ by orders of magnitude; only their ratios count.
    gain = jobs.weight[:, None] * (pace / pace.max()) ** power
    if objective.sharing:
        packed = PackedLevels(jobs, throughputs, accelerators, rate, objective)
        return replace(packed.gain(gain, floor, speed=norm), priority=-1.0 / pace.max(axis=1))
    found = most_gain(gain, jobs.accelerators, accelerators.count, speed=norm, floor=floor)
    return allocation(jobs, accelerators, found.share, value=found.level, score=(norm * found.share).sum(axis=1), priority=-1.0 / pace.max(axis=1))
