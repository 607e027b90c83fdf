"""Gandiva: when jobs ask for more than there is, random pairs share accelerators, and a pair that does not pay is parted.

Jobs fit: every job its even slice. They do not: jobs without a partner are paired by lot (``seed``), same size only; every pair, or
job without partner, gets an even slice; a pair whose normalised rates sum below 1 over the types is parted next time. Blind to speeds
otherwise; with ``aware`` the slices are traded between types where the sum of normalised rates gains and nobody has less than on the even slice
(one linear programme). Without ``sharing`` nobody has a partner.
Sources: Xiao et al., Gandiva, OSDI 2018, as in Gavel (OSDI 2020); trading: Chaudhary et al., EuroSys 2020. O(J K).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ischeduler.policies.lots import Lots
from ischeduler.policies.problem import Accelerators, Allocation, Floats, Ints, Jobs, Objective, Throughputs, rates
from ischeduler.policies.program import most_gain

INSIDE = 1.0 - 1e-6
"""The floors of a trade leave this much room."""


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
    kept = throughputs.on(accelerators).kept() if objective.sharing else np.zeros(0)
    memory = previous.memory if previous is not None and isinstance(previous.memory, _Memory) else _Memory({}, Lots(objective.seed))
    at = {job: j for j, job in enumerate(jobs.ids)}
    order = [int(j) for j in np.lexsort((np.arange(len(jobs)), jobs.arrived_s))]
    mate = {
        job: other for job, other in memory.mate.items()
        if objective.sharing and job in at and other and other in at and _sum_of_parts(jobs, kept, at[job], at[other]) >= 1.0
    }
    lots = memory.lots
    if float(jobs.accelerators.sum()) <= float(accelerators.count.sum()):
        share = np.where(rate > 0, _even(np.arange(len(jobs)), len(jobs), jobs, accelerators, rate.shape), 0.0)
        if objective.aware:
            share = _traded(share, rate / rate.max(axis=1, keepdims=True), jobs.accelerators, accelerators)
        return Allocation(jobs.ids, accelerators.types, share, pair_share=np.zeros((0, rate.shape[1])), memory=_Memory(mate, lots))
    single = [j for j in order if jobs.ids[j] not in mate]
    for _ in range(len(single) if objective.sharing else 0):
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
    share = np.where(rate > 0, share, 0.0)
    if objective.aware:
        share, both = _traded_units(share, both, rows, np.array(single, dtype=np.int64), rate, kept, jobs, accelerators)
    memory = _Memory({**mate, **{jobs.ids[j]: "" for j in single}}, lots)
    return Allocation(jobs.ids, accelerators.types, share, rows, both, memory=memory)


def _traded_units(
    share: Floats, both: Floats, pairs: Ints, single: Ints, rate: Floats, kept: Floats, jobs: Jobs, accelerators: Accelerators,
) -> tuple[Floats, Floats]:
    """Slices (J, K) and pairs' slices (P, K) after trading; a pair trades as one."""
    norm = rate / rate.max(axis=1, keepdims=True)
    one, other = pairs[:, 0], pairs[:, 1]
    worth = np.zeros_like(both)
    if len(pairs):
        a, b = jobs.job_class[one], jobs.job_class[other]
        worth = norm[one] * kept[a, b] + norm[other] * kept[b, a]
    found = _traded(np.concatenate([share[single], both]), np.concatenate([norm[single], worth]),
                    jobs.accelerators[np.concatenate([single, one])], accelerators)  # fmt: skip
    after = share.copy()
    after[single] = found[: len(single)]
    return after, found[len(single) :]


def _traded(share: Floats, worth: Floats, size: Ints, accelerators: Accelerators) -> Floats:
    """Slices (U, K) of the same or more worth to everybody, and the most in all; a unit that makes nothing on its slice keeps it."""
    has = (worth * share).sum(axis=1)
    rows = np.flatnonzero(has > 0)
    after = share.copy()
    if len(rows):
        idle = np.delete(np.arange(len(share)), rows)
        room = accelerators.count - (share[idle] * size[idle][:, None]).sum(axis=0)
        after[rows] = most_gain(worth[rows], size[rows], np.maximum(room, 0.0), speed=worth[rows], floor=has[rows] * INSIDE).share
    return after


def _even(rows: Ints, parts: int, jobs: Jobs, accelerators: Accelerators, shape: tuple[int, ...]) -> Floats:
    share = np.zeros(shape)
    share[rows] = accelerators.count[None, :] / max(parts, 1) / jobs.accelerators[rows][:, None]
    return share / np.maximum(share.sum(axis=1, keepdims=True), 1.0)


def _sum_of_parts(jobs: Jobs, kept: Floats, i: int, j: int) -> float:
    """Rates together over rates alone, summed over both jobs and all types; 0 where they cannot run together on some type."""
    a, b = kept[jobs.job_class[i], jobs.job_class[j]], kept[jobs.job_class[j], jobs.job_class[i]]
    return 0.0 if (a <= 0).any() else float(a.sum() + b.sum())
