"""Water filling and hierarchies: max-min again and again, until nobody can have more without taking it from someone as badly off.

Each round solves  maximise t  with  norm_j(x) >= reached_j + t weight_j / size_j  for jobs that can still rise and norm_j(x) >= reached_j for
the others (norm: rate over even rate), then freezes the jobs whose demand has a positive dual: in the interior solution a positive dual means
that no optimal solution gives the job more, so no integer programme is needed to find the bottleneck. Within an entity, 'fairness' splits
its weight over its jobs that still rise, 'fifo' gives it all to the first of them (option ``within``: entity -> rule, or one rule for all).
'max_min_fairness_water_filling' is the same with every job its own entity. The result is Pareto efficient.

Source: Gavel (OSDI 2020), section 4.3, and Radunovic and Le Boudec, IEEE/ACM ToN 15(5), 2007. At most J rounds of one linear
programme; a handful in practice. ``levels`` (option) stops after that many.
"""

from __future__ import annotations

import numpy as np

from ischeduler.core.errors import BadInput
from ischeduler.policies.packing import PackedLevels
from ischeduler.policies.problem import (
    Accelerators,
    Allocation,
    Flags,
    Floats,
    Jobs,
    Objective,
    Throughputs,
    allocation,
    even_rates,
    rates,
)
from ischeduler.policies.program import raise_level

SLACK = 1e-7
"""Floors are lowered by this much (relative), so that the next programme has an inside."""


def allocate(
    jobs: Jobs, throughputs: Throughputs, accelerators: Accelerators, objective: Objective, now: float, previous: Allocation | None = None,
) -> Allocation:
    """See the module. ``value``: the first level; ``score``: norm_j size_j / weight_j."""
    rate = rates(jobs, throughputs, accelerators, objective)
    norm = rate / even_rates(rate, accelerators)[:, None]
    rules = _rules(jobs, objective)
    reached = np.zeros(len(jobs))
    rising = np.ones(len(jobs), dtype=np.bool_)
    first, levels = float("nan"), int(objective.options.get("levels", len(jobs)))
    packed = PackedLevels(jobs, throughputs, accelerators, rate, objective) if objective.sharing else None
    best = allocation(jobs, accelerators, np.zeros_like(rate))
    for level in range(max(1, levels)):
        weight = _weights(jobs, rules, rising)
        need = np.where(weight > 0, weight / jobs.accelerators, 0.0)
        if not need.any():
            break
        floor = reached * (1.0 - SLACK)
        if packed is None:
            found = raise_level(norm, jobs.accelerators, accelerators.count, need=need, floor=floor)
            best, value, worth = allocation(jobs, accelerators, found.share), found.level, found.worth
            got = (norm * found.share).sum(axis=1)
        else:
            best, worth = packed.solve(norm, need=need, floor=floor)
            value, got = best.value, np.asarray(best.score)
        if level == 0:
            first = value
        aim = floor + value * need
        # Never more than this very solution gives, so that the next programme has one.
        reached = np.minimum(np.where(need > 0, np.maximum(reached, aim), reached), got)
        # Strict complementarity: a bottleneck has a dual that counts, or no slack that does.
        pull = worth * need
        tight = (need > 0) & (pull > 1e-6 * max(float(pull.max()), 1e-300))
        tight |= (need > 0) & (best.share.sum(axis=1) >= 1.0 - 1e-9) & (norm.max(axis=1) <= got * (1.0 + 1e-7))
        if not tight.any():
            tight = need > 0
        rising &= ~tight
        if not rising.any():
            break
    score = np.maximum(reached, 0.0) * jobs.accelerators / jobs.weight
    return allocation(jobs, accelerators, best.share, value=first, score=score) if packed is None else best


def _rules(jobs: Jobs, objective: Objective) -> list[str] | None:
    """The rule of every entity, or None: every job for itself."""
    if objective.name == "max_min_fairness_water_filling":
        return None
    within = objective.options.get("within", "fairness")
    rules = [within if isinstance(within, str) else within.get(e, "fairness") for e in jobs.entities]
    for rule in rules:
        if rule not in ("fairness", "fifo"):
            raise BadInput(f"An entity's rule is 'fairness' or 'fifo', not '{rule}'; correct the option within.")
    return rules


def _weights(jobs: Jobs, rules: list[str] | None, rising: Flags) -> Floats:
    """The weight (J,) with which each job rises now; 0 for those that do not."""
    if rules is None:
        return np.where(rising, jobs.weight, 0.0)
    weight = np.zeros(len(jobs))
    order = np.lexsort((np.arange(len(jobs)), jobs.arrived_s))
    for entity, rule in enumerate(rules):
        rows = order[(jobs.entity[order] == entity) & rising[order]]
        if len(rows) == 0:
            continue
        if rule == "fifo":
            weight[rows[0]] = jobs.entity_weight[entity]
        else:
            weight[rows] = jobs.entity_weight[entity] * jobs.weight[rows] / jobs.weight[rows].sum()
    return weight
