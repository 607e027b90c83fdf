"""Shortest first: 'sjf' by whole length, running jobs kept; 'srpt' by what is left, running jobs moved aside when a shorter one comes.

Length: steps over the rate on the job's fastest type (aware or not: the length is known, which type is fast only when ``aware``). Jobs that
do not fit let smaller ones pass, and with ``sharing`` join a running one where that pays (:mod:`ischeduler.policies.joining`).
The optimal rules for the mean completion time on one machine (W. E. Smith 1956; L. Schrage 1968), greedy here; long jobs can starve (see
'srpt_fair'). O(J log J + J K).
"""

from __future__ import annotations

import numpy as np

from ischeduler.policies.joining import joined
from ischeduler.policies.problem import Accelerators, Allocation, Jobs, Objective, Throughputs, allocation, rates
from ischeduler.policies.serve import held_before, serve


def allocate(
    jobs: Jobs, throughputs: Throughputs, accelerators: Accelerators, objective: Objective, now: float, previous: Allocation | None = None,
) -> Allocation:
    """See the module. ``priority``: shorter is larger."""
    rate = rates(jobs, throughputs, accelerators, objective)
    whole = objective.name == "sjf"
    length = (jobs.total_steps if whole else jobs.steps_left) / rate.max(axis=1)
    order = [int(j) for j in np.lexsort((np.arange(len(jobs)), jobs.arrived_s, length / jobs.weight))]
    held = held_before(jobs, previous) if whole else None
    share, holds = serve(order, jobs, rate, accelerators, held=held, blind=not objective.aware)
    found = allocation(jobs, accelerators, share, score=-length, priority=-length / jobs.weight, memory=holds)
    return joined(found, (j for j in order if not share[j].any()), jobs, throughputs, accelerators, objective)
