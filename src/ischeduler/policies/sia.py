"""Sia: elastic jobs; every round each gets one configuration (type, nodes, accelerators) or none, by one integer programme.

    minimise  sum_jc X[j,c] (r[j,c] G[j,c])^p + lambda_n sum_j (1 - sum_c X[j,c]),   at most one c a job, accelerators within count

G: goodput over the job's slowest configuration's; r: 1 for the configuration it has, else (age - restarts * cost) / (age + cost), what is
left of its time when it restarts once more; p = -0.5, lambda_n = 1.1; (r G)^p rounded to 2 decimals. Source: Sia (Jayaram Subramanya
et al., SOSP 2023). Solved by :mod:`ischeduler.policies.choice`: O(J C) per interior-point step and a small exact core.

``allocate`` takes from the options: ``goodput`` (J, C) with ``configurations``; without them the throughputs of the classes NAME|n at other n
stand in (their own steps/s, efficiency 1). Also ``restarts`` (J,), ``restart_cost_s`` (a number or (J,)), ``held`` (J,; column or -1),
``power``, ``unserved``, ``decimals``, ``gap`` (relative, 1e-4), ``time_limit_s``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ischeduler.core.errors import BadInput
from ischeduler.policies.choice import FORBIDDEN, Choice, choose
from ischeduler.policies.problem import (
    Accelerators,
    Allocation,
    Flags,
    Floats,
    Ints,
    Jobs,
    Objective,
    Throughputs,
    allocation,
    memory_by_name,
)


@dataclass(frozen=True, slots=True, eq=False)
class Configurations:
    """C ways to run a job: type's column, nodes, accelerators in all."""

    kind: Ints
    nodes: Ints
    accelerators: Ints

    def __len__(self) -> int:
        return len(self.kind)


def configurations(accelerators: Accelerators) -> Configurations:
    """Sia's: within a node the powers of two up to its size, beyond it whole nodes; by type, smallest first."""
    rows: list[tuple[int, int, int]] = []
    for k, (count, node) in enumerate(zip(accelerators.count, accelerators.per_node, strict=True)):
        sizes = {1 << i for i in range(int(node).bit_length()) if 1 << i <= node} | {int(node)}
        rows += [(k, 1, n) for n in sorted(sizes) if n <= count]
        rows += [(k, n, n * int(node)) for n in range(2, int(count // node) + 1)]
    kind, nodes, number = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    return Configurations(kind, nodes, number)


def costs(
    goodput: Floats, held: Ints, age_s: Floats, restarts: Floats, restart_cost_s: Floats, *, power: float = -0.5, decimals: int | None = 2,
    smallest: Ints | None = None,
) -> Floats:
    """(r G)^p (J, C); inf where goodput is 0. ``smallest`` (C,): accelerators of each configuration; where given, a job whose slowest one has
    several counts as several (Sia's scale unit).
    """
    possible = goodput > 0
    least: Floats = np.where(possible, goodput, np.inf).min(axis=1)
    if not np.isfinite(least).all():
        raise BadInput(f"Job number {int(np.argmax(~np.isfinite(least)))} makes no progress in any configuration; leave it out or measure it.")
    relative = goodput / least[:, None]
    if smallest is not None:
        relative = relative * smallest[np.where(possible, goodput, np.inf).argmin(axis=1)][:, None]
    left = np.maximum(age_s - restarts * restart_cost_s, 0.0) / (age_s + restart_cost_s)
    left = np.where((age_s < restart_cost_s) | (held < 0), 1.0, left)
    stays: Flags = np.arange(len(goodput[0]), dtype=np.int64)[None, :] == held[:, None]
    with np.errstate(divide="ignore"):
        cost: Floats = np.where(possible, np.where(stays, relative, relative * left[:, None]) ** power, np.inf)
    return cost if decimals is None else np.asarray(np.round(cost, decimals), dtype=np.float64)


def assign(
    cost: Floats, configs: Configurations, count: Floats, *, weight: Floats | None = None, unserved: float = 1.1, gap: float = 1e-4,
    time_limit_s: float = 2.0, exact: bool = True,
) -> Choice:
    """The programme with these costs. ``value`` and ``bound`` of the answer are gains over serving nobody (lambda_n J - objective)."""
    load: Floats = np.ones(len(cost)) if weight is None else weight
    worth: Floats = (unserved - cost) * load[:, None]
    gain: Floats = np.where(np.isfinite(cost), worth, FORBIDDEN)
    nobody = unserved * float(load.sum())
    first = choose(gain, configs.accelerators, configs.kind, count, exact=False)
    allowed = gap * abs(nobody - first.bound)
    if not exact or first.bound - first.value <= allowed:
        return first
    return choose(gain, configs.accelerators, configs.kind, count, gap=allowed, time_limit_s=time_limit_s)


def allocate(
    jobs: Jobs, throughputs: Throughputs, accelerators: Accelerators, objective: Objective, now: float, previous: Allocation | None = None,
) -> Allocation:
    """See the module. ``value``: Sia's objective; ``accelerators``: what each job gets; ``memory``: job -> its configuration's column."""
    options = objective.options
    if "goodput" in options:
        configs: Configurations = options.get("configurations") or configurations(accelerators)
        goodput = np.asarray(options["goodput"], dtype=np.float64)
    else:
        configs = configurations(accelerators)
        goodput = _measured(jobs, throughputs.on(accelerators), configs)
    if goodput.shape != (len(jobs), len(configs)):
        raise BadInput(
            f"The goodputs have the shape {goodput.shape}; expected {len(jobs)} rows (jobs) and {len(configs)} columns (configurations).")
    asked = configs.accelerators[None, :]
    goodput = np.where((asked >= jobs.min_accelerators[:, None]) & (asked <= jobs.max_accelerators[:, None]), goodput, 0.0)
    before = memory_by_name(previous)
    held = np.asarray(options.get("held", [before.get(job, -1) for job in jobs.ids]), dtype=np.int64)
    restarts = np.asarray(options.get("restarts", np.zeros(len(jobs))), dtype=np.float64)
    restart_s = np.broadcast_to(np.asarray(options.get("restart_cost_s", 30.0), dtype=np.float64), (len(jobs),))
    stuck = ~(goodput > 0).any(axis=1)
    if stuck.any():
        raise BadInput(f"Job '{jobs.ids[int(np.argmax(stuck))]}' makes no progress in any configuration of this cluster; measure it or leave it out.")
    cost = costs(goodput, held, np.maximum(now - jobs.arrived_s, 0.0), restarts, restart_s,
                 power=float(options.get("power", -0.5)), decimals=options.get("decimals", 2))
    unserved = float(options.get("unserved", 1.1))
    found = assign(cost, configs, accelerators.count, weight=jobs.weight, unserved=unserved, gap=float(options.get("gap", 1e-4)),
                   time_limit_s=float(options.get("time_limit_s", 2.0)), exact=bool(options.get("exact", True)))
    share, number = np.zeros((len(jobs), len(accelerators.types))), np.zeros(len(jobs), dtype=np.int64)
    rows = np.flatnonzero(found.chosen >= 0)
    share[rows, configs.kind[found.chosen[rows]]] = 1.0
    number[rows] = configs.accelerators[found.chosen[rows]]
    score = np.zeros(len(jobs))
    score[rows] = goodput[rows, found.chosen[rows]]
    memory = {jobs.ids[int(j)]: int(found.chosen[j]) for j in rows}
    return allocation(jobs, accelerators, share, value=unserved * float(jobs.weight.sum()) - found.value, score=score, accelerators=number, memory=memory)


def _measured(jobs: Jobs, table: Throughputs, configs: Configurations) -> Floats:
    """Steps/s (J, C) of each job's type where its class NAME|n was measured at the configuration's n."""
    row = {name: i for i, name in enumerate(table.classes)}
    at = np.full((len(table.classes), len(configs)), -1, dtype=np.int64)
    for i, name in enumerate(table.classes):
        base, _, own = name.rpartition("|")
        for c, n in enumerate(configs.accelerators):
            at[i, c] = row.get(f"{base}|{n}", -1) if base and own.isdigit() else -1
    per_class = np.where(at >= 0, table.rate[np.maximum(at, 0), configs.kind[None, :]], 0.0)
    good = per_class[jobs.job_class]
    own = table.rate[jobs.job_class][:, configs.kind]
    return np.where(configs.accelerators[None, :] == jobs.accelerators[:, None], own, good)
