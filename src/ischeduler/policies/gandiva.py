"""Gandiva: when jobs ask for more than there is, random pairs share accelerators, and a pair that does not pay is parted.

Jobs fit: every job its even slice. They do not: jobs without a partner are paired by lot (``seed``), same size only; every pair, or
job without partner, gets an even slice; a pair whose normalised rates sum below 1 over the types is parted next time. Blind to speeds otherwise.
Source: Xiao et al., Gandiva, OSDI 2018, as in Gavel (OSDI 2020). O(J K).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ischeduler.core.errors import BadInput
from ischeduler.policies.lots import Lots
from ischeduler.policies.problem import Accelerators, Allocation, Floats, Ints, Jobs, Objective, Throughputs, rates


@dataclass(frozen=True, slots=True)
class _Memory:
    """``mate``: job -> its partner, '' for none."""

    mate: dict[str, str]
    lots: Lots


def allocate(
    jobs: Jobs, throughputs: Throughputs, accelerators: Accelerators, objective: Objective, now: float, previous: Allocation | None = None,
) -> Allocation:
    """See the module."""
    rate = rates(jobs, throughputs, accelerators, objective)
    table = throughputs.on(accelerators)
    if table.shared is None:
        raise BadInput("Gandiva shares accelerators between jobs, but no throughput of a pair is known; measure pairs or choose another policy.")
    memory = previous.memory if previous is not None and isinstance(previous.memory, _Memory) else _Memory({}, Lots(objective.seed))
    at = {job: j for j, job in enumerate(jobs.ids)}
    order = [int(j) for j in np.lexsort((np.arange(len(jobs)), jobs.arrived_s))]
    mate = {
        job: other for job, other in memory.mate.items()
        if job in at and other and other in at and _normalised(jobs, table, rate, at[job], at[other]) >= 1.0
    }
    lots = memory.lots
    if float(jobs.accelerators.sum()) <= float(accelerators.count.sum()):
        share = _even(np.arange(len(jobs)), len(jobs), jobs, accelerators, rate.shape)
        return Allocation(jobs.ids, accelerators.types, np.where(rate > 0, share, 0.0), pair_share=np.zeros((0, rate.shape[1])), memory=_Memory(mate, lots))
    single = [j for j in order if jobs.ids[j] not in mate]
    for _ in range(len(single)):
        if len(single) < 2:
            break
        a, b, lots = lots.two(len(single))
        one, other = single[a], single[b]
        if jobs.accelerators[one] == jobs.accelerators[other]:
            mate[jobs.ids[one]], mate[jobs.ids[other]] = jobs.ids[other], jobs.ids[one]
            single.remove(one)
            single.remove(other)
    pairs = [(j, at[mate[jobs.ids[j]]]) for j in order if jobs.ids[j] in mate and j < at[mate[jobs.ids[j]]]]
    parts = len(single) + len(pairs)
    share = _even(np.array(single, dtype=np.int64), parts, jobs, accelerators, rate.shape)
    rows = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    both = _even(rows[:, 0], parts, jobs, accelerators, rate.shape)[rows[:, 0]]
    both = np.where((rate[rows[:, 0]] > 0) & (rate[rows[:, 1]] > 0), both, 0.0)
    kept = _Memory({**mate, **{jobs.ids[j]: "" for j in single}}, lots)
    return Allocation(jobs.ids, accelerators.types, np.where(rate > 0, share, 0.0), rows, both, memory=kept)


def _even(rows: Ints, parts: int, jobs: Jobs, accelerators: Accelerators, shape: tuple[int, ...]) -> Floats:
    share = np.zeros(shape)
    share[rows] = accelerators.count[None, :] / max(parts, 1) / jobs.accelerators[rows][:, None]
    return share / np.maximum(share.sum(axis=1, keepdims=True), 1.0)


def _normalised(jobs: Jobs, table: Throughputs, rate: Floats, i: int, j: int) -> float:
    """Rates together over rates alone, summed over both jobs and all types; 0 where they cannot run together on some type."""
    assert table.shared is not None
    a, b = table.shared[jobs.job_class[i], jobs.job_class[j]], table.shared[jobs.job_class[j], jobs.job_class[i]]
    if (a <= 0).any() or (b <= 0).any():
        return 0.0
    return float((a / rate[i]).sum() + (b / rate[j]).sum())
