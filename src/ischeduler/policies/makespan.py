"""Makespan: the last job done as early as can be.

    minimise T  subject to  sum_k rate_jk x_jk >= steps_left_j / T  for every job

Source: Gavel (OSDI 2020), section 4.2, which bisects T to 5 %; with t = 1/T it is one linear programme of the max-min form, exact.
``value`` is T in seconds. O(J K^2) per interior-point step.
"""

from __future__ import annotations

import numpy as np

from ischeduler.policies.packing import PackedLevels
from ischeduler.policies.problem import Accelerators, Allocation, Jobs, Objective, Throughputs, allocation, rates
from ischeduler.policies.program import raise_level


def allocate(
    jobs: Jobs, throughputs: Throughputs, accelerators: Accelerators, objective: Objective, now: float, previous: Allocation | None = None,
) -> Allocation:
    """See the module."""
    rate = rates(jobs, throughputs, accelerators, objective)
    left = np.maximum(jobs.steps_left, 1e-9 * np.maximum(jobs.total_steps, 1e-300))
    speed = rate / left[:, None]
    if objective.sharing:
        return _in_seconds(PackedLevels(jobs, throughputs, accelerators, rate, objective).solve(speed)[0])
    found = raise_level(speed, jobs.accelerators, accelerators.count)
    return _in_seconds(allocation(jobs, accelerators, found.share, value=found.level, score=(speed * found.share).sum(axis=1)))


def _in_seconds(found: Allocation) -> Allocation:
    from dataclasses import replace

    return replace(found, value=1.0 / found.value if found.value > 0 else float("inf"))
