"""Plans and refusals in words for a person: why this one, why not that one, what to do."""

from __future__ import annotations

from collections.abc import Iterator

from ischeduler.core.durations import human
from ischeduler.core.estimate import Estimate
from ischeduler.core.plan import Plan, PlanSet, Refusal
from ischeduler.planning.cost import cost_words
from ischeduler.planning.rank import interruptions
from ischeduler.planning.structure import count_of


def explain_plan(plan: Plan, planset: PlanSet) -> tuple[str, ...]:
    """Why a plan has its tags, how it compares with the other tagged ones, and where its numbers come from."""
    lines = [*_tags(plan, planset), *_course(plan), *plan.notes, *plan.needs.notes]
    for what, estimate in (("run", plan.needs.run), ("wait", plan.needs.wait), ("cost", plan.cost)):
        if estimate is not None:
            lines.append(f"{what}: {source_words(estimate, planset.made_at)}")
    return tuple(lines)


def explain_refusal(refusal: Refusal) -> tuple[str, ...]:
    """One line a blocker: what is missing and what would fix it."""
    return tuple(f"{refusal.where}: {blocker.sentence()}" for blocker in refusal.blockers)


def explain_place(planset: PlanSet, where: str) -> tuple[str, ...]:
    """All that is known of a place (``pitzer/gpu`` or ``gpu``): its plans, its refusals; empty where it was not considered."""
    plans = [p for p in planset.plans if where in (p.where, p.partition)]
    refusals = [r for r in planset.refusals if where in (r.where, r.partition)]
    return (
        *(f"{p.where}: {line}" for p in plans for line in explain_plan(p, planset)),
        *(line for r in refusals for line in explain_refusal(r)),
    )


def source_words(estimate: Estimate, now: float) -> str:
    """``history@1, 12 similar runs, 2d old``: who said so, why, and how long ago."""
    age_s = estimate.age_s(now)
    parts = [estimate.source, estimate.reason, f"{human(age_s)} old" if age_s else ""]
    return ", ".join(p for p in parts if p)


def _tags(plan: Plan, planset: PlanSet) -> Iterator[str]:
    if "soonest" in plan.tags:
        yield f"soonest: done in {human(plan.finish.p50)} (nine in ten: {human(plan.finish.p90)}){_next_soonest(plan, planset)}"
    if "cheapest" in plan.tags:
        yield f"cheapest: {cost_words(plan.cost.p50, plan.cost.unit)}{_next_cheapest(plan, planset)}"
    if "ideal" in plan.tags:
        cuts = count_of(interruptions(plan), "interruption")
        yield f"ideal: {cuts} and, among those, the shortest run once it starts, {human(plan.run.p50)}"
    if plan.hidden:
        yield "hidden: another option of this batch size is as good in every respect and better in one"


def _next_soonest(plan: Plan, planset: PlanSet) -> str:
    others = [p for p in planset.plans if p.where != plan.where]
    if not others:
        return ""
    other = min(others, key=lambda p: (p.finish.p50, p.number))
    return f"; next is {other.where} with {human(other.finish.p50)}, of which {human(other.wait.p50)} waiting"


def _next_cheapest(plan: Plan, planset: PlanSet) -> str:
    others = [p for p in planset.plans if p.where != plan.where and p.cost.unit == plan.cost.unit]
    if not others:
        return ""
    other = min(others, key=lambda p: (p.cost.p50, p.number))
    return f"; next is {other.where} with {cost_words(other.cost.p50, other.cost.unit)}"


def _course(plan: Plan) -> Iterator[str]:
    jobs = len(plan.segments)
    if jobs == 1:
        yield f"1 job of {human(plan.segments[0].walltime_s)}, asked for so that nine runs in ten fit"
        return
    useful, limit = plan.segments[0].useful_s, plan.segments[0].walltime_s
    yield (
        f"{jobs} jobs: each of {human(limit)} leaves {human(useful)} for training after start-up, checkpoint and margin; "
        f"the waits add up to {human(plan.wait.p50)}–{human(plan.wait.p90)}"
    )
