"""Sums: the most work, or the least money, with or without deadlines.

'max_sum_throughput':  maximise sum_jk rate_jk x_jk; '..._normalized_by_cost': rate_jk / price_k; '..._SLOs': besides,
sum_k rate_jk x_jk >= steps_left_j / (deadline_j - now) for jobs with a deadline (Gavel, OSDI 2020, section 4.3). Steps of different
models are not comparable: these follow Gavel and depend on the unit a job counts its work in.

'min_cost' and 'min_cost_SLOs' do not: a step of job j is worth ``worth`` (option, default 1.5) times what it costs on its cheapest type,
c_j = min_k size_j price_k / rate_jk, and the programme is  maximise sum_jk (worth c_j rate_jk - size_j price_k) x_jk: no job pays more
than ``worth`` times its least cost unless a deadline makes it. A pair pays its accelerators once. Types on which the rest of a job would cost
more than its budget, alone, are closed to it. One linear programme, O(J K^2) per interior-point step. Deadlines that cannot hold: NoShares
says which; the option ``relax`` instead lets all deadline jobs run at the same largest fraction of the pace they need.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ischeduler.core.errors import BadInput
from ischeduler.policies.packing import PackedLevels, best_level
from ischeduler.policies.problem import Accelerators, Allocation, Floats, Ints, Jobs, Objective, Throughputs, allocation, rates
from ischeduler.policies.program import NoShares, most_gain

SAFE = 1.0 - 1e-6


def allocate(
    jobs: Jobs, throughputs: Throughputs, accelerators: Accelerators, objective: Objective, now: float, previous: Allocation | None = None,
) -> Allocation:
    """See the module. ``value``: the sum; ``score``: each job's rate."""
    rate = rates(jobs, throughputs, accelerators, objective)
    gain, charge, rate = _gain(jobs, rate, accelerators, objective)
    floor = None
    if objective.name.endswith("_SLOs"):
        def reach(rows: Ints, pace: Floats) -> tuple[float, Floats]:
            return best_level(jobs.take(rows), throughputs, accelerators, rate[rows], rate[rows], objective, need=pace)

        floor = _floors(jobs, rate, now, reach, relax=bool(objective.options.get("relax", False)))
    if objective.sharing:
        return PackedLevels(jobs, throughputs, accelerators, rate, objective).gain(gain, floor, charge=charge)
    found = most_gain(gain - charge, jobs.accelerators, accelerators.count, speed=rate, floor=floor)
    return allocation(jobs, accelerators, found.share, value=found.level, score=(rate * found.share).sum(axis=1))


def _gain(jobs: Jobs, rate: Floats, accelerators: Accelerators, objective: Objective) -> tuple[Floats, Floats, Floats]:
    """What the work of a whole share of a type is worth and what it costs (J, K), and the rates without the types that the budget forbids."""
    free = np.zeros_like(rate)
    if objective.name == "max_sum_throughput":
        return rate, free, rate
    price = accelerators.price_per_h
    if not np.all(price > 0):
        name = accelerators.types[int(np.argmin(price))]
        raise BadInput(f"A policy of cost needs a price above zero for every type; '{name}' has none. Set the price of an hour on it.")
    if objective.name.startswith("max_sum_throughput"):
        return rate / price[None, :], free, rate
    cost_per_h = jobs.accelerators[:, None] * price[None, :]
    with np.errstate(divide="ignore"):
        per_step = np.where(rate > 0, cost_per_h / 3600.0 / np.maximum(rate, 1e-300), np.inf)
    allowed = jobs.steps_left[:, None] * per_step <= jobs.budget[:, None]
    broke = ~(allowed & (rate > 0)).any(axis=1)
    if broke.any():
        row = int(np.argmax(broke))
        least = float(jobs.steps_left[row] * per_step[row].min())
        raise NoShares(f"Job '{jobs.ids[row]}' costs at least {least:.2f} to finish and its budget is {jobs.budget[row]:.2f}; raise the budget.")
    rate = np.where(allowed, rate, 0.0)
    worth = float(objective.options.get("worth", 1.5))
    if not worth > 1.0:
        raise BadInput(f"The option worth={worth:g} must be above 1: how many times its least cost a step is worth.")
    least = np.where(allowed, per_step, np.inf).min(axis=1, keepdims=True)
    return np.where(rate > 0, worth * least * 3600.0 * rate, 0.0), np.where(rate > 0, cost_per_h, 0.0), rate


def _floors(jobs: Jobs, rate: Floats, now: float, reach: Callable[[Ints, Floats], tuple[float, Floats]], *, relax: bool) -> Floats:
    """The pace (J,) each deadline needs; -1 without one."""
    bound = np.isfinite(jobs.deadline_s) & (jobs.steps_left > 0)
    left_s = jobs.deadline_s - now
    late = bound & ((left_s <= 0) | (jobs.steps_left > left_s * rate.max(axis=1)))
    if late.any() and not relax:
        row = int(np.argmax(late))
        alone = jobs.steps_left[row] / rate[row].max()
        raise NoShares(
            f"Job '{jobs.ids[row]}' cannot meet its deadline in {left_s[row]:.0f} s: it needs {alone:.0f} s on its fastest type even alone; "
            "move the deadline or let it go (option relax).")
    if not bound.any():
        return np.full(len(jobs), -1.0)
    pace = np.where(bound, jobs.steps_left / np.maximum(left_s, 1.0), 0.0)
    rows = np.flatnonzero(bound)
    level, worth = reach(rows, pace[rows])
    if level < SAFE and not relax:
        worst = rows[np.argsort(-worth * pace[rows])[:3]]
        raise NoShares(
            f"The deadlines cannot all be met: the best split reaches {level:.1%} of the pace they need; "
            f"the tightest are {', '.join(repr(jobs.ids[int(r)]) for r in worst)}. Move one, or let all slip evenly (option relax).")
    return np.where(bound, pace * min(1.0, level) * SAFE, -1.0)
