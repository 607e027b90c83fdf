"""What "best" means, and why an option misses a deadline or a budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from ischeduler.core.blocker import Blocker
from ischeduler.core.durations import human
from ischeduler.core.errors import BadInput
from ischeduler.core.estimate import Estimate
from ischeduler.core.plan import GOALS, Plan
from ischeduler.planning.cost import USD, cost_words

_Z90 = 1.2815515655446004
_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Goal:
    """``deadline`` is epoch seconds; ``budget`` an amount in ``unit`` ('usd', or a centre's own unit such as 'SU')."""

    name: str = "soonest"
    deadline: float | None = None
    budget: float | None = None
    unit: str = USD

    def __post_init__(self) -> None:
        if self.name not in GOALS:
            raise BadInput(f"goal '{self.name}' is unknown; expected one of {', '.join(GOALS)}.")
        if self.name == "deadline" and (self.deadline is None or not math.isfinite(self.deadline)):
            raise BadInput("goal deadline needs a time: deadline=12h or deadline=2026-05-01T09:00.")
        if self.name == "budget" and (self.budget is None or not self.budget > 0):
            raise BadInput("goal budget needs an amount above zero: budget=2.50.")


def chance_by(estimate: Estimate, value: float) -> float:
    """P(X <= value) for a normal split at the median, with p10 and p90 as its two scales. Exact figures give 0 or 1."""
    side = estimate.p90 - estimate.p50 if value >= estimate.p50 else estimate.p50 - estimate.p10
    if side <= 0:
        return 1.0 if value >= estimate.p50 else 0.0
    if math.isinf(side):
        return 0.5
    return _NORMAL.cdf((value - estimate.p50) * _Z90 / side)


def misses(goal: Goal, plans: Sequence[Plan], now: float) -> dict[int, Blocker]:
    """By index, why each plan misses the goal; empty unless every one does (then all are refused)."""
    if goal.name == "deadline" and goal.deadline is not None:
        return _misses_deadline(goal.deadline - now, plans)
    if goal.name == "budget" and goal.budget is not None:
        return _misses_budget(goal, goal.budget, plans)
    return {}


def _misses_deadline(left_s: float, plans: Sequence[Plan]) -> dict[int, Blocker]:
    if not plans or any(p.finish.p90 <= left_s for p in plans):
        return {}
    best = min(plans, key=lambda p: (p.finish.p90, p.where))
    fix = _promise(best, left_s)
    have = f"{human(left_s)} left until the deadline" if left_s > 0 else f"the deadline passed {human(-left_s)} ago"
    needed = [f"{human(p.finish.p90)} to be done in nine cases of ten" for p in plans]
    return {i: Blocker("deadline", have, need, fix) for i, need in enumerate(needed)}


def _promise(best: Plan, left_s: float) -> str:
    chance = f"{chance_by(best.finish, left_s):.0%}"
    if math.isinf(best.finish.p90):
        return f"no deadline can be promised, the wait has no bound ({best.where} meets this one with {chance})"
    enough = human(_rounded_up_s(best.finish.p90))
    return f"deadline={enough} can be met ({best.where}; the one you gave with {chance})"


def _rounded_up_s(seconds: float) -> float:
    """Up to a figure that the short spelling shows exactly: whole minutes, whole hours beyond three days."""
    step = 60.0 if seconds <= 71.0 * 3600 else 3600.0
    return math.ceil(seconds / step) * step if math.isfinite(seconds) else seconds


def _misses_budget(goal: Goal, most: float, plans: Sequence[Plan]) -> dict[int, Blocker]:
    if not plans or any(p.cost.unit == goal.unit and p.cost.p90 <= most for p in plans):
        return {}
    priced = [p for p in plans if p.cost.unit == goal.unit]
    fix = "set a price: isched clusters edit NAME"
    if priced:
        best = min(priced, key=lambda p: (p.cost.p90, p.where))
        fix = f"budget={math.ceil(best.cost.p90 * 100) / 100:.2f} is enough for {best.where}"
    return {i: _over_budget(p, goal, most, fix) for i, p in enumerate(plans)}


def _over_budget(plan: Plan, goal: Goal, most: float, fix: str) -> Blocker:
    need = f"{cost_words(plan.cost.p90, plan.cost.unit)} in nine cases of ten"
    have = f"budget is {cost_words(most, goal.unit)}"
    if plan.cost.unit != goal.unit:
        have += f" and {plan.cluster} publishes no price of a {plan.cost.unit}"
    return Blocker("budget", have, need, fix)
