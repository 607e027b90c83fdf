"""When a run moves: only where another option is better by a clear margin, early and late, and not again too soon."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ischeduler.core.elastic import resized
from ischeduler.core.estimate import Estimate, total
from ischeduler.core.jobs import JobState
from ischeduler.core.plan import Plan
from ischeduler.core.run import Run, RunState
from ischeduler.plane.attempts import alive_attempts, change
from ischeduler.plane.inputs import Amended, Replanned
from ischeduler.plane.policy import Policy
from ischeduler.plane.reestimate import training_left
from ischeduler.plane.segments import checkpoint_s, segments_left, startup_s

RELATIVE_MARGIN, ABSOLUTE_MARGIN_S, ABSOLUTE_SHARE = 0.15, 600.0, 0.25
RESCHEDULE = "reschedule"
NODE_LOST = "node lost"
"""Asked before the next attempt: the lost node may have been the last one here."""


def margin_s(current_s: float) -> float:
    """What a move must save: 15 %, and 10 minutes, of which short runs are asked a quarter of what they have left."""
    return max(RELATIVE_MARGIN * current_s, min(ABSOLUTE_MARGIN_S, ABSOLUTE_SHARE * current_s))


def clearly_better(current: Estimate, option: Estimate, move_cost_s: float) -> bool:
    """Better by the margin at p50 and at p90, the cost of the move included. Both are seconds from now to the end."""
    return all(
        there + move_cost_s < here - margin_s(here)
        for here, there in ((current.p50, option.p50), (current.p90, option.p90))
    )


def expected_finish(run: Run, now: float) -> Estimate | None:
    """Seconds from now to the end where the run is: training left, later segments' waits and overheads, and what is left of
    the present wait (never taken as negative). None when nothing is known of the training's speed."""
    left = training_left(run)
    if left is None:
        return None
    wait = _wait(run.plan)
    overhead_s = startup_s(run) + checkpoint_s(run)
    more = segments_left(run)
    parts = [left, Estimate.exact(overhead_s * more, "s", "cascade@1"), wait.scaled(more)]
    if not any(a.state is JobState.RUNNING for a in alive_attempts(run)):
        newest = run.attempt
        waited_s = max(0.0, now - newest.created_at) if newest and alive_attempts(run) else 0.0
        here = [max(0.0, q - waited_s) for q in (wait.p10, wait.p50, wait.p90)]
        parts += [Estimate(here[0], here[1], here[2], "s", wait.source), Estimate.exact(startup_s(run), "s", "cascade@1")]
    return total(parts, source=left.source, reason=left.reason)


def _wait(plan: Plan) -> Estimate:
    if plan.needs.wait is not None:
        return plan.needs.wait
    return plan.segments[0].wait if plan.segments else Estimate.exact(0.0, "s", "plan")


def move_cost_s(run: Run) -> float:
    """Saving here and starting there; a job that does not run yet costs nothing to take back."""
    running = any(a.state is JobState.RUNNING for a in alive_attempts(run))
    return checkpoint_s(run) + startup_s(run) if running else 0.0


def due(run: Run, now: float) -> bool:
    """Whether it is time to look for something better."""
    settled = run.state in (RunState.QUEUED, RunState.RUNNING)
    free = run.move_to is None and not run.replan_reason and run.verdict is None and not run.cancel_requested
    return settled and free and run.caps.allow_move and run.replan_after is not None and now >= run.replan_after


def elsewhere(run: Run, plans: Iterable[Plan]) -> tuple[Plan, ...]:
    """The plans for another partition or node type than the present one."""
    here = run.plan.cluster, run.plan.partition, run.plan.node_type
    return tuple(p for p in plans if (p.cluster, p.partition, p.node_type) != here)


def answer(run: Run, answered: Replanned, now: float, policy: Policy) -> Run:
    """The run after the planner's answer to the open question; other answers change nothing.

    Where a question had to be answered (no memory here, refused, stuck) any other place will do; a mere look around moves only
    by :func:`clearly_better`.
    """
    if not run.replan_reason or answered.reason != run.replan_reason:
        return run
    reason, options = run.replan_reason, elsewhere(run, answered.plans)
    run = replace(run, replan_reason="", replan_after=now + policy.replan_every_s)
    if reason == RESCHEDULE:
        return _move_if_better(run, options, now)
    if reason == NODE_LOST:
        still_here = len(options) < len(answered.plans)
        return _move_if_better(run, options, now) if still_here or not options else _leave(run, options[0], "no node is left here")
    if options:
        return _leave(run, options[0], reason)
    return replace(run, unanswered=reason)


def _leave(run: Run, plan: Plan, why: str) -> Run:
    return replace(run, move_to=plan, message=f"{why}: goes on at {plan.where}")


def _move_if_better(run: Run, options: tuple[Plan, ...], now: float) -> Run:
    current = expected_finish(run, now)
    if current is None or not options:
        return run
    best = min(options, key=lambda p: (p.finish.p50, p.finish.p90))
    if not clearly_better(current, best.finish, move_cost_s(run)):
        return run
    gain_s = current.p50 - best.finish.p50
    return replace(run, move_to=best, message=f"moves to {best.where}: about {gain_s:.0f} s sooner")


def resized_plan(plan: Plan, world_size: int) -> Plan:
    """The plan on another number of accelerators of its node, batch and accumulation as the owner allows. BadInput in one sentence."""
    workload = resized(plan.workload, world_size)
    return replace(plan, workload=workload, resources=replace(plan.resources, gpus_per_node=world_size))


def absorb_amended(run: Run, amended: Amended, now: float, policy: Policy) -> Run:
    """The newest job was changed while it waited: its attempt and the plan follow; one that has started or gone meanwhile stays as it is."""
    newest, plan = run.attempt, amended.plan
    if newest is None or newest.job_id != amended.job_id or newest.state is not JobState.PENDING or newest.cluster != plan.cluster:
        return run
    asked = replace(newest.resources, gres=plan.resources.gres, gpus_per_node=plan.resources.gpus_per_node, features=plan.resources.features)
    asked = replace(asked, walltime_s=min(asked.walltime_s, plan.max_walltime_s or asked.walltime_s))
    run = replace(adopt(run, plan, now, policy), move_to=run.move_to)
    return change(run, newest.number, partition=plan.partition, node_type=plan.node_type, resources=asked)


def adopt(run: Run, plan: Plan, now: float, policy: Policy) -> Run:
    """The run with another plan in force. The run's total epochs stay; epoch times of another machine are forgotten."""
    workload = replace(plan.workload, epochs=run.plan.workload.epochs)
    had = run.plan.workload
    here = (run.plan.node_type, had.batch, had.devices) == (plan.node_type, workload.batch, workload.devices)
    progress = run.progress if here else replace(run.progress, epoch_times_s=(), step_time_s=None)
    return replace(
        run, plan=replace(plan, workload=workload), first_plan=run.first_plan or run.plan, move_to=None, progress=progress,
        excluded_nodes=run.excluded_nodes if plan.cluster == run.plan.cluster else (), replan_after=now + policy.replan_every_s,
    )
