"""A policy of policies: the cluster is split between entities by weight, and within an entity its own policy decides.

Entity e gets weight_e / (sum of the weights of entities with jobs) of every type as a cluster of its own, for the policy ``within``
names for it (option: entity -> policy name or Objective; '' for the others, default 'max_min_fairness_perf'). What an entity leaves of a
type goes to the jobs of all that still have time, by the largest sum of normalised rates. Each entity gets at least what it would alone on
its slice; pairs of one entity's jobs stay together. Cost: the inner policies' plus one linear programme. (For one fair objective over all
entities at once: 'hierarchical'.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ischeduler.core.errors import BadInput
from ischeduler.policies.problem import (
    Accelerators,
    Allocation,
    Floats,
    Jobs,
    Objective,
    Throughputs,
    memory_by_name,
    paces,
    rates,
)
from ischeduler.policies.program import most_gain

DEFAULT = "max_min_fairness_perf"


def allocate(
    jobs: Jobs, throughputs: Throughputs, accelerators: Accelerators, objective: Objective, now: float, previous: Allocation | None = None,
) -> Allocation:
    """See the module. ``memory``: entity -> its policy's last allocation."""
    from ischeduler.policies.registry import allocate as by_name
    from ischeduler.policies.registry import objective_of

    within: str | Objective | Mapping[str, str | Objective] = objective.options.get("within", {})
    before: Mapping[str, Allocation] = memory_by_name(previous)
    present = np.unique(jobs.entity)
    total = float(jobs.entity_weight[present].sum())
    share, priority = np.zeros((len(jobs), len(accelerators.types))), np.zeros(len(jobs))
    pairs, pair_share = [np.zeros((0, 2), dtype=np.int64)], [np.zeros((0, len(accelerators.types)))]
    memory: dict[str, Allocation] = {}
    for e in present:
        name = jobs.entities[int(e)]
        asked = within.get(name, within.get("", DEFAULT)) if isinstance(within, Mapping) else within
        inner = objective_of(asked) if isinstance(asked, str) else asked
        if inner.name == "composed":
            raise BadInput(f"Entity '{name}' cannot use the policy 'composed' within a composition; name another policy.")
        rows = np.flatnonzero(jobs.entity == e)
        whole = accelerators.count if accelerators.whole is None else accelerators.whole
        slice_ = replace(accelerators, count=accelerators.count * (jobs.entity_weight[e] / total), whole=whole)
        found = by_name(jobs.take(rows), throughputs, slice_, inner, now, before.get(name))
        share[rows] = found.share
        pairs.append(rows[found.pairs])
        pair_share.append(found.pair_share.reshape(-1, len(accelerators.types)))
        memory[name] = found
        priority[rows] = 0.0 if found.priority is None else found.priority
    rate = rates(jobs, throughputs, accelerators, objective)
    together = Allocation(jobs.ids, accelerators.types, share, np.concatenate(pairs), np.concatenate(pair_share))
    found = replace(together, share=_with_leftovers(together, jobs, rate, accelerators), priority=priority, memory=memory)
    return replace(found, score=paces(found, jobs, throughputs.on(accelerators), rate))


def _with_leftovers(found: Allocation, jobs: Jobs, rate: Floats, accelerators: Accelerators) -> Floats:
    """Add what is left of time and types. The kernel gives each job at most a whole share, so time that is spent already is a smaller one."""
    share, (one, other) = found.share, found.pairs.T
    free = accelerators.count - (share * jobs.accelerators[:, None]).sum(axis=0) - (found.pair_share * jobs.accelerators[one][:, None]).sum(axis=0)
    paired = np.bincount(np.concatenate([one, other]), np.tile(found.pair_share.sum(axis=1), 2), len(jobs))
    time = np.maximum(1.0 - share.sum(axis=1) - paired, 0.0)
    rows = np.flatnonzero(time > 1e-6)
    if len(rows) == 0 or not (free > 1e-6).any():
        return share
    best = rate[rows].max(axis=1, keepdims=True)
    # x = time * x': the size shrinks by the time that is left, the gain with it.
    more_of = most_gain(rate[rows] / best * time[rows][:, None], jobs.accelerators[rows] * time[rows], np.where(free > 1e-6, free, 0.0))
    more = np.zeros_like(share)
    more[rows] = more_of.share * time[rows][:, None]
    return share + more
