"""Tiresias: least attained service in steps, so that nobody's remaining time need be known.

Service is accelerators times time held. Jobs below the first of ``thresholds_s`` (option, accelerator-seconds, default 3,600 * 8) come
first, then those below the next, and so on; within a queue first come, first served. A job that has waited ``promote`` (option, default
8) times as long as it has ever run goes back to the first queue. Running jobs give way. With ``sharing`` who finds no room joins a running
job (:mod:`ischeduler.policies.joining`). Source: Gu et al., NSDI 2019 (discretised 2D-LAS).
O(J log J + J K).
"""

from __future__ import annotations

import numpy as np

from ischeduler.policies.joining import joined
from ischeduler.policies.problem import Accelerators, Allocation, Floats, Jobs, Objective, Throughputs, allocation, rates
from ischeduler.policies.serve import serve


def allocate(
    jobs: Jobs, throughputs: Throughputs, accelerators: Accelerators, objective: Objective, now: float, previous: Allocation | None = None,
) -> Allocation:
    """See the module."""
    rate = rates(jobs, throughputs, accelerators, objective)
    service = jobs.accelerators * jobs.attained_s / jobs.weight
    limits = np.sort(np.asarray(objective.options.get("thresholds_s", (3600.0 * 8,)), dtype=np.float64))
    queue = np.searchsorted(limits, service, side="right")
    promote = float(objective.options.get("promote", 8.0))
    waited = np.maximum(now - jobs.arrived_s - jobs.attained_s, 0.0)
    queue = np.where((jobs.attained_s > 0) & (waited > promote * jobs.attained_s), 0, queue)
    order = [int(j) for j in np.lexsort((np.arange(len(jobs)), jobs.arrived_s, queue))]
    held = {job: int(k) for job, k in zip(jobs.ids, jobs.on, strict=True) if k >= 0}
    share = _in_order(order, jobs, rate, accelerators, held, not objective.aware)
    rank = np.empty(len(jobs))
    rank[order] = -np.arange(len(jobs), dtype=np.float64)
    found = allocation(jobs, accelerators, share, score=-service, priority=rank)
    return joined(found, (j for j in order if not share[j].any()), jobs, throughputs, accelerators, objective)


def _in_order(order: list[int], jobs: Jobs, rate: Floats, accelerators: Accelerators, held: dict[str, int], blind: bool) -> Floats:
    """Who is served is decided by the order alone; those who are served and ran before keep their type where it has room."""
    share, _ = serve(order, jobs, rate, accelerators, blind=blind)
    chosen = [j for j in order if share[j].sum() > 0]
    stay, _ = serve(chosen, jobs, rate, accelerators, held=held, blind=blind)
    return stay if int((stay > 0).sum()) == int((share > 0).sum()) else share
