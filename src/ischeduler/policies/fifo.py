"""First in, first out: whoever came first holds a type until done; nobody passes a job that must wait.

With ``aware`` off a new job draws its type by lot among those with room (``seed``), on it takes its fastest; running jobs then are placed
anew each time, in the order of arrival. With ``sharing`` jobs that find no room join a running one (:mod:`ischeduler.policies.joining`).
Source: Gavel's baselines (OSDI 2020). O(J K), pairs O(J^2).
Option ``gavel``: a finished job's type goes to the head of the queue before later jobs' claims are counted, as in Gavel's code, which
may promise more accelerators than there are to jobs on several of them; needed only to replay its runs exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ischeduler.policies.joining import joined
from ischeduler.policies.lots import Lots
from ischeduler.policies.problem import Accelerators, Allocation, Floats, Jobs, Objective, Throughputs, allocation, rates


@dataclass(frozen=True, slots=True)
class _Memory:
    """``turn``: each job's place in the order of arrival; ``holds``: job -> type's column; ``lots``: what is left to draw."""

    turn: dict[str, int]
    holds: dict[str, int]
    lots: Lots


def allocate(
    jobs: Jobs, throughputs: Throughputs, accelerators: Accelerators, objective: Objective, now: float, previous: Allocation | None = None,
) -> Allocation:
    """See the module. ``priority``: earlier is larger."""
    rate = rates(jobs, throughputs, accelerators, objective)
    memory = previous.memory if previous is not None and isinstance(previous.memory, _Memory) else None
    if memory is None:
        memory = _Memory({}, {job: int(k) for job, k in zip(jobs.ids, jobs.on, strict=True) if k >= 0}, Lots(objective.seed))
    order = np.lexsort((np.arange(len(jobs)), jobs.arrived_s))
    turn = dict(memory.turn)
    following = max(turn.values(), default=-1) + 1
    for j in order:
        if jobs.ids[j] not in turn:
            turn[jobs.ids[j]] = following
            following += 1
    at = {job: j for j, job in enumerate(jobs.ids)}
    if objective.aware:
        holds, lots = _fastest([int(j) for j in order], jobs, rate, accelerators), memory.lots
    else:
        holds, lots = _by_lot(memory, turn, at, jobs, rate, accelerators, bool(objective.options.get("gavel", False)))
    waiting = [int(j) for j in order if jobs.ids[j] not in holds]
    share = np.zeros_like(rate)
    for job, k in holds.items():
        share[at[job], k] = 1.0
    priority = -np.array([turn[job] for job in jobs.ids], dtype=np.float64)
    kept = _Memory({job: turn[job] for job in turn if job in at or job in holds}, holds, lots)
    found = allocation(jobs, accelerators, share, priority=priority, memory=kept)
    return joined(found, waiting, jobs, throughputs, accelerators, objective, strict=True)


def _by_name(accelerators: Accelerators) -> list[int]:
    return sorted(range(len(accelerators.types)), key=accelerators.types.__getitem__)


def _fastest(order: list[int], jobs: Jobs, rate: Floats, accelerators: Accelerators) -> dict[str, int]:
    free, names, holds = accelerators.count.copy(), _by_name(accelerators), dict[str, int]()
    for j in order:
        if not (free > 0).any():
            break
        fits = [k for k in names if free[k] >= jobs.accelerators[j]]
        if not fits:
            break
        k = max(fits, key=lambda k: rate[j, k])
        if rate[j, k] > 0:
            holds[jobs.ids[j]] = k
            free[k] -= jobs.accelerators[j]
    return holds


def _by_lot(
    memory: _Memory, turn: dict[str, int], at: dict[str, int], jobs: Jobs, rate: Floats, accelerators: Accelerators, gavel: bool,
) -> tuple[dict[str, int], Lots]:
    free, names, lots, size = accelerators.count.copy(), _by_name(accelerators), memory.lots, jobs.accelerators
    holds = dict(memory.holds)
    queue = sorted((job for job in jobs.ids if job not in holds), key=turn.__getitem__)
    for job in sorted(holds, key=lambda job: turn.get(job, -1)):
        k = holds[job]
        if job in at:
            free[k] -= size[at[job]]
            continue
        del holds[job]
        if gavel and queue and size[at[queue[0]]] <= free[k] and rate[at[queue[0]], k] > 0:
            head = queue.pop(0)
            holds[head] = k
            free[k] -= size[at[head]]
    while queue and (free > 0).any():
        j = at[queue[0]]
        fits = [k for k in names if free[k] >= size[j]]
        if not fits:
            break
        place, lots = lots.below(len(fits))
        job = queue.pop(0)
        if rate[j, fits[place]] > 0:
            holds[job] = fits[place]
            free[fits[place]] -= size[j]
    return holds, lots
