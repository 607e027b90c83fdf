"""Elastic members: on how many accelerators they may run, how fast they are there, and what their plan becomes. Pure.

An elastic policy (``sia``) chooses a configuration, a type and a number of accelerators of one node, for every member in every round. Goodput is in
steps on the declared number: steps/s times what a step is worth. With the batch kept a step is a step; with a batch that grows, its
owner says by the learning rate's rule what it is worth (linear: as many as it has more samples; sqrt: the root of that; none: one).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean

from ischeduler.core.elastic import Elastic, share_of
from ischeduler.core.errors import BadInput
from ischeduler.core.plan import Plan
from ischeduler.core.pool import Member, Pool
from ischeduler.core.workload import Workload
from ischeduler.plane.reschedule import resized_plan

LINEAR = 1.0
"""How speed grows with the number of accelerators while only one number was seen: in proportion, so that more are tried (as in Sia, 3.2)."""


def declared_size(workload: Workload) -> int:
    """The accelerators that a workload was declared with, whatever it runs on now."""
    base = workload.elastic.base if workload.elastic is not None else None
    return max(1, base[0] if base is not None else workload.devices)


def sizes_of(workload: Workload) -> dict[int, float]:
    """What a step is worth on each number of accelerators that its owner and arithmetic allow; empty for a training that is not elastic."""
    elastic = workload.elastic or Elastic()
    if not elastic.world_sizes or workload.nodes > 1:
        return {}
    found: dict[int, float] = {}
    for size in sorted({declared_size(workload), *elastic.world_sizes}):
        try:
            found[size] = share_of(workload, size).lr_scale
        except BadInput:
            continue
    return found if len(found) > 1 else {}


def scaled_key(type_: str, gpus: int) -> str:
    """How :attr:`ischeduler.core.pool.Member.scaled` names a type and a number of accelerators."""
    return f"{type_}|{gpus}"


def growth(member: Member, base: Mapping[str, float], declared: int) -> float:
    """The power of the number of accelerators with which the member's speed grew where that was seen, from 0 to 1."""
    seen: list[float] = []
    for key, estimate in member.scaled.items():
        kind, _, number = key.rpartition("|")
        if base.get(kind, 0.0) > 0 and int(number) != declared:
            seen.append(math.log(estimate.p50 / base[kind]) / math.log(int(number) / declared))
    return min(1.0, max(0.0, fmean(seen))) if seen else LINEAR


def steps_at(member: Member, base: Mapping[str, float], declared: int, gpus: int) -> dict[str, float]:
    """Steps/s by type on ``gpus`` accelerators: as seen there, else from the declared number's ``base`` by what growth was seen."""
    factor = (gpus / declared) ** growth(member, base, declared)
    return {t: member.scaled[k].p50 if (k := scaled_key(t, gpus)) in member.scaled else rate * factor for t, rate in base.items()}


def plan_of_size(plan: Plan, gpus: int, pool: Pool) -> Plan:
    """The plan of a member of a pool with pilots on another number of accelerators, with cores and memory to match. BadInput in one sentence."""
    workload, declared = plan.workload, declared_size(plan.workload)
    fits = [p for p in pool.places if p.gpus_per_node >= gpus]
    if not fits:
        raise BadInput(f"no pilot of {pool.name} has {gpus} accelerators on one node.")
    share = min(max(1, p.cpus_per_node * gpus // p.gpus_per_node) for p in fits)
    most = max(p.cpus_per_node for p in fits)
    cores = share if workload.cpus is None else min(most, math.ceil(workload.cpus * gpus / declared))
    memory = None if workload.memory_bytes is None else math.ceil(workload.memory_bytes * gpus / declared)
    sized = resized_plan(plan, gpus)
    return replace(sized, resources=replace(sized.resources, cpus_per_node=cores, memory_bytes=memory))
