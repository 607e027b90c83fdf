"""Which options are ideal, soonest and cheapest, which are not worth showing, and in what order for a goal. Deterministic.

Costs in different units (a centre without a published price) are not compared: dollars come first, then each unit by name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from ischeduler.core.plan import Plan
from ischeduler.planning.build import PREEMPTIBLE
from ischeduler.planning.cost import USD
from ischeduler.planning.goals import Goal, chance_by

Key = tuple[float | str | int | bool, ...]


def interruptions(plan: Plan) -> int:
    """How often the training is expected to be cut: between segments, and once more where jobs may be preempted."""
    return len(plan.segments) - 1 + (PREEMPTIBLE in plan.notes)


def identity(plan: Plan) -> Key:
    """The last word between equals, whatever the order of the input."""
    return (
        plan.cluster, plan.partition, plan.node_type, plan.workload.batch, len(plan.segments), plan.segments[0].walltime_s,
        plan.segments[0].wait.p50,
    )


def by_finish(plan: Plan) -> Key:
    """Soonest: the median end, then the p90, then cost."""
    return (plan.finish.p50, plan.finish.p90, *_cost(plan), *identity(plan))


def by_cost(plan: Plan) -> Key:
    """Cheapest, then soonest."""
    return (*_cost(plan), plan.finish.p50, plan.finish.p90, *identity(plan))


def by_interruptions(plan: Plan) -> Key:
    """Fewest interruptions, then soonest."""
    return (interruptions(plan), *by_finish(plan))


def by_ideal(plan: Plan) -> Key:
    """The best machine if there were no queue: fewest interruptions, then the shortest run, then cost and finish."""
    return (interruptions(plan), plan.run.p50, plan.run.p90, *by_cost(plan))


def _cost(plan: Plan) -> tuple[bool, str, float, float]:
    return (plan.cost.unit != USD, plan.cost.unit, plan.cost.p50, plan.cost.p90)


def order_for(goal: Goal, now: float) -> Callable[[Plan], Key]:
    """The sort key of a goal. Options that meet a deadline or budget come first; the others by how close they are."""
    if goal.name == "cheapest":
        return by_cost
    if goal.name == "fewest-interruptions":
        return by_interruptions
    if goal.name == "deadline":
        left_s = (goal.deadline or 0.0) - now
        return lambda p: (False, *by_cost(p)) if p.finish.p90 <= left_s else (True, -chance_by(p.finish, left_s), *by_finish(p))
    if goal.name == "budget":
        most = goal.budget or 0.0
        return lambda p: (False, *by_finish(p)) if _within(p, most, goal.unit) else (True, *by_cost(p))
    return by_finish


def _within(plan: Plan, most: float, unit: str) -> bool:
    return plan.cost.unit == unit and plan.cost.p90 <= most


def tagged(plans: Sequence[Plan], goal: Goal, now: float) -> tuple[Plan, ...]:
    """All plans in the goal's order: tagged, the dominated ones hidden and behind the others, numbered from 1."""
    if not plans:
        return ()
    tags: dict[int, list[str]] = defaultdict(list)
    keys = {"ideal": by_ideal, "soonest": by_finish, "cheapest": by_cost, "goal": order_for(goal, now)}
    for tag, key in keys.items():
        tags[min(range(len(plans)), key=lambda i: key(plans[i]))].append(tag)
    hidden = dominated(plans) - tags.keys()
    ordered = sorted(range(len(plans)), key=lambda i: (i in hidden, *keys["goal"](plans[i])))
    return tuple(
        replace(plans[i], number=number, tags=tuple(tags.get(i, ())), hidden=i in hidden) for number, i in enumerate(ordered, 1)
    )


def dominated(plans: Sequence[Plan]) -> frozenset[int]:
    """Indices of plans for which another of the same batch size is as good in every respect and better in one.

    Respects: end (p50, p90), cost (in one unit), interruptions. Batch sizes train differently, so none stands for another.
    """
    groups: dict[tuple[int, str], list[int]] = defaultdict(list)
    for index, plan in enumerate(plans):
        groups[plan.workload.batch, plan.cost.unit].append(index)
    return frozenset(i for group in groups.values() for i in _dominated_in({i: _respects(plans[i]) for i in group}))


def _respects(plan: Plan) -> tuple[float, ...]:
    return (plan.finish.p50, plan.finish.p90, plan.cost.p50, plan.cost.p90, float(interruptions(plan)))


def _dominated_in(respects: dict[int, tuple[float, ...]]) -> Iterable[int]:
    """Sorted by the first respect, a plan can only be dominated by one before it, so only the front is compared."""
    front: list[tuple[float, ...]] = []
    for index in sorted(respects, key=lambda i: respects[i]):
        mine = respects[index]
        if any(other != mine and all(a <= b for a, b in zip(other, mine, strict=True)) for other in front):
            yield index
        else:
            front.append(mine)
