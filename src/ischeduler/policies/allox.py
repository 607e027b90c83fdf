"""AlloX: jobs to types and places in line by one assignment, for the least mean completion time.

Job j as the i-th from last on an accelerator of type k adds i * steps_left_j / rate_jk to the sum of completion times: a minimum-cost
bipartite assignment of the jobs that hold nothing to (free accelerator, place) pairs (Le et al., AlloX, EuroSys 2020, as in Gavel). The
first in each line gets the accelerator and keeps it until done; the others are assigned anew next time. Jobs on one accelerator only. Only the
oldest max(alpha * waiting, free) jobs are considered (option ``alpha``, default 1). With ``sharing`` those that get none join a running job,
the shortest rest first (:mod:`ischeduler.policies.joining`). O(J^3) (Hungarian, SciPy's linear_sum_assignment).
"""

from __future__ import annotations

from typing import cast

import numpy as np

from ischeduler.core.errors import BadInput
from ischeduler.policies.joining import joined
from ischeduler.policies.problem import Accelerators, Allocation, Floats, Ints, Jobs, Objective, Throughputs, allocation, rates
from ischeduler.policies.serve import held_before

NEVER = 1e-10
"""The rate that stands for 'does not run there' (so that the cost is finite), as in Gavel."""


def allocate(
    jobs: Jobs, throughputs: Throughputs, accelerators: Accelerators, objective: Objective, now: float, previous: Allocation | None = None,
) -> Allocation:
    """See the module. BadInput for a job on several accelerators."""
    rate = rates(jobs, throughputs, accelerators, objective)
    if (jobs.accelerators > 1).any():
        row = int(np.argmax(jobs.accelerators > 1))
        raise BadInput(
            f"AlloX places jobs on one accelerator each, and job '{jobs.ids[row]}' uses {int(jobs.accelerators[row])}; choose another policy.")
    holds = {job: k for job, k in held_before(jobs, previous).items() if job in set(jobs.ids)}
    share, free = np.zeros_like(rate), accelerators.count.astype(np.int64)
    waiting: list[int] = []
    for j, job in enumerate(jobs.ids):
        k = holds.get(job, -1)
        if k >= 0 and free[k] > 0:
            share[j, k] = 1.0
            free[k] -= 1
        else:
            holds.pop(job, None)
            waiting.append(j)
    waiting.sort(key=lambda j: -(now - jobs.arrived_s[j]))
    total = int(free.sum())
    waiting = waiting[: max(int(float(objective.options.get("alpha", 1.0)) * len(waiting)), total)]
    if waiting and total > 0:
        for j, k in _assigned(np.array(waiting), rate, free, jobs, now, accelerators):
            share[j, k] = 1.0
            holds[jobs.ids[j]] = k
    found = allocation(jobs, accelerators, share, memory=holds)
    rest = np.lexsort((jobs.arrived_s, jobs.steps_left / rate.max(axis=1)))
    return joined(found, (int(j) for j in rest if not share[j].any()), jobs, throughputs, accelerators, objective)


def _assigned(waiting: Ints, rate: Floats, free: Ints, jobs: Jobs, now: float, accelerators: Accelerators) -> list[tuple[int, int]]:
    """(job, type) of the first in every line."""
    from scipy.optimize import linear_sum_assignment  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]

    names = sorted(range(len(free)), key=accelerators.types.__getitem__)
    kind = np.repeat(names, free[names])
    m, n = len(waiting), len(kind)
    alone = jobs.steps_left[waiting][:, None] / np.where(rate > 0, rate, NEVER)[waiting][:, kind]
    # Columns: place 1 (last) on every accelerator, place 2 on every accelerator, ... The waiting so far is the same in all of a row.
    cost = (np.arange(1, m + 1)[None, :, None] * alone[:, None, :]).reshape(m, m * n) + (now - jobs.arrived_s[waiting])[:, None]
    row, column = cast("tuple[Ints, Ints]", linear_sum_assignment(cost))
    first: dict[int, tuple[int, int]] = {}
    for i, at in zip(row, column, strict=True):
        accelerator, place = int(at) % n, int(at) // n
        if accelerator not in first or place > first[accelerator][1]:
            first[accelerator] = (int(waiting[i]), place)
    return [(j, int(kind[accelerator])) for accelerator, (j, _) in first.items() if rate[j, kind[accelerator]] > 0]
