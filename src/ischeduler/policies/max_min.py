"""Max-min fairness (least attained service as a share): the worst-off job as well off as can be.

    maximise  min_j  size_j / (weight_j even_j) * sum_k rate_jk x_jk,   even_j: the rate with time spread over types by their counts

Source: Gavel (Narayanan et al., OSDI 2020), section 4.1; with ``aware`` off, plain least attained service over any type. One linear
programme, O(J K^2) per interior-point step; shared pairs by job class (:mod:`ischeduler.policies.packing`). Promises: the level is at least
that of 'isolated' for jobs of equal weight (sharing incentive), and shares that do not depend on units or on the order of jobs.
"""

from __future__ import annotations

from ischeduler.policies.packing import PackedLevels
from ischeduler.policies.problem import (
    Accelerators,
    Allocation,
    Floats,
    Jobs,
    Objective,
    Throughputs,
    allocation,
    even_rates,
    rates,
)
from ischeduler.policies.program import raise_level


def normalised(jobs: Jobs, rate: Floats, accelerators: Accelerators) -> Floats:
    """Rates (J, K) in units of what fairness compares: size / (weight * even rate)."""
    return rate * (jobs.accelerators / (jobs.weight * even_rates(rate, accelerators)))[:, None]


def allocate(
    jobs: Jobs, throughputs: Throughputs, accelerators: Accelerators, objective: Objective, now: float, previous: Allocation | None = None,
) -> Allocation:
    """See the module. ``value``: the level all reach; ``score``: each job's own."""
    rate = rates(jobs, throughputs, accelerators, objective)
    speed = normalised(jobs, rate, accelerators)
    if objective.sharing:
        return PackedLevels(jobs, throughputs, accelerators, rate, objective).solve(speed)[0]
    found = raise_level(speed, jobs.accelerators, accelerators.count)
    return allocation(jobs, accelerators, found.share, value=found.level, score=(speed * found.share).sum(axis=1))
