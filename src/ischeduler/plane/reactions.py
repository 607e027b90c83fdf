"""What follows from each cause. One function a cause; :data:`REACTIONS` is the table that the reference page shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ischeduler.core.jobs import Cause
from ischeduler.core.run import Attempt, Run, RunState
from ischeduler.core.sizes import MIB, human_size
from ischeduler.plane.attempts import FAILURES, failure_streak, progressed
from ischeduler.plane.policy import Policy
from ischeduler.plane.reschedule import NODE_LOST
from ischeduler.plane.segments import advice
from ischeduler.plane.services import after_segment, is_service

MEMORY_GROWTH = 1.5
REFUSALS_MAX = 3


@dataclass(frozen=True, slots=True)
class Reaction:
    """What the table shows of a reaction, and the function itself."""

    text: str
    apply: Callable[[Run, Attempt, float, Policy], Run]


def end_as(run: Run, state: RunState, message: str, now: float) -> Run:
    """Decide what the run ends as. The state itself changes when its last job is gone and its evidence recorded."""
    if run.verdict is not None:
        return run
    return replace(run, verdict=state, message=message, ended_at=now, move_to=None, replan_reason="")


def react(run: Run, attempt: Attempt, now: float, policy: Policy) -> Run:
    """The run after an attempt's end was understood. Only the newest attempt that stayed leads to another; success counts for any."""
    if attempt.cause is None or run.verdict is not None:
        return run
    newest = run.attempt
    if attempt.cause is Cause.RETURNED and newest is not None and newest.number < attempt.number and newest.cause is not None:
        attempt = newest  # it ended while this one was thought to take over: its own reaction is still due
    if attempt.cause is not Cause.FINISHED and (newest is None or newest.number > attempt.number or run.cancel_requested):
        return run
    assert attempt.cause is not None
    run = REACTIONS[attempt.cause].apply(run, attempt, now, policy)
    streak = failure_streak(run)
    if attempt.cause in FAILURES and streak >= run.caps.max_failures:
        last = attempt.reason or str(attempt.cause)
        return end_as(run, RunState.FAILED, f"{streak} failures in a row without progress, the last one: {last}", now)
    return run


def again(run: Run, now: float, policy: Policy, message: str) -> Run:
    """Submit again, a little later with each failure in a row."""
    wait_s = policy.backoff_s(policy.retry_s, failure_streak(run))
    return replace(run, not_before=now + wait_s, message=message)


def _finished(run: Run, attempt: Attempt, now: float, policy: Policy) -> Run:
    jobs = "one job" if len(run.attempts) == 1 else f"{len(run.attempts)} jobs"
    return end_as(run, RunState.COMPLETED, f"training finished in {jobs}", now)


def _walltime(run: Run, attempt: Attempt, now: float, policy: Policy) -> Run:
    if is_service(run):
        text, hopeless = after_segment(run, attempt)
        return end_as(run, RunState.FAILED, text, now) if hopeless else replace(run, message=text)
    segments = [a for a in run.attempts if a.cause is Cause.WALLTIME][-2:]
    if len(segments) == 2 and segments[-1] is run.attempt and not any(progressed(run, a) for a in segments):
        return end_as(run, RunState.FAILED, f"two segments ended at their limit without a checkpoint: {advice(run)}", now)
    if not progressed(run, attempt):
        return replace(run, message=f"a segment ended without a new checkpoint; one more try: {advice(run)}")
    return replace(run, message=f"segment {attempt.number} ended at its limit; {_so_far(run)}")


def _so_far(run: Run) -> str:
    if is_service(run):
        return f"{len(run.attempts)} job(s) have served"
    return f"{run.progress.checkpoint_epoch} of {run.plan.workload.epochs} epochs are saved"


def _out_of_memory(run: Run, attempt: Attempt, now: float, policy: Policy) -> Run:
    bigger = bigger_memory(run, attempt)
    if bigger is not None:
        run = with_memory(run, bigger)
        return again(run, now, policy, f"out of memory: asks for {human_size(bigger)} a node now")
    return _ask_or(run, "host_memory", now, policy)


def bigger_memory(run: Run, attempt: Attempt) -> int | None:
    """Half as much again as was asked for (or used, where the site's default was taken), up to the node; None beyond it."""
    had = attempt.resources.memory_bytes or run.progress.peak_rss_bytes
    if had <= 0 and run.plan.needs.host_memory is not None:
        had = round(run.plan.needs.host_memory.p90)
    node = run.plan.node_memory_bytes
    if had <= 0 or (node is not None and had >= node) or attempt.resources.whole_node:
        return None
    wanted = -(-round(had * MEMORY_GROWTH) // MIB) * MIB
    return wanted if node is None else min(wanted, node)


def with_memory(run: Run, memory_bytes: int) -> Run:
    """The plan with more memory a node."""
    plan = replace(run.plan, resources=replace(run.plan.resources, memory_bytes=memory_bytes))
    return replace(run, plan=plan, first_plan=run.first_plan or run.plan)


def _gpu_out_of_memory(run: Run, attempt: Attempt, now: float, policy: Policy) -> Run:
    smaller = smaller_batch(run)
    if smaller is not None:
        return again(smaller, now, policy, f"accelerator out of memory: {_batch_text(smaller)}")
    return _ask_or(run, "gpu_memory", now, policy)


def _batch_text(run: Run) -> str:
    workload = run.plan.workload
    return f"batch {workload.batch} with accumulation {workload.grad_accum} now"


def smaller_batch(run: Run) -> Run | None:
    """The batch divided and accumulation multiplied by its smallest divisor, so that the optimizer sees the same batch.

    A prime batch is halved, rounded down. None when the owner did not allow it or the batch is 1.
    """
    workload = run.plan.workload
    if not run.caps.allow_smaller_batch or workload.batch <= 1:
        return None
    factor = next((f for f in (2, 3, 5, 7) if workload.batch % f == 0), 2)
    less = replace(workload, batch_size=max(1, workload.batch // factor), grad_accum=workload.grad_accum * factor)
    progress = replace(run.progress, epoch_times_s=(), step_time_s=None)
    return replace(run, plan=replace(run.plan, workload=less), first_plan=run.first_plan or run.plan, progress=progress)


def _ask_or(run: Run, question: str, now: float, policy: Policy) -> Run:
    if run.caps.allow_move:
        run = again(run, now, policy, f"{question.replace('_', ' ')} is not enough: looks for a bigger node")
        return replace(run, replan_reason=question)
    return unanswered(replace(run, unanswered=question), now, policy)


def unanswered(run: Run, now: float, policy: Policy) -> Run:
    """The planner knows no other place: what is left to try, or the end."""
    question = run.unanswered
    run = replace(run, unanswered="")
    if not question or run.verdict is not None:
        return run
    if question.startswith("stuck"):
        return replace(run, message=f"the job cannot start ({question}) and no other place would take it: waits")
    if question.startswith("refused"):
        return end_as(run, RunState.FAILED, f"the batch system {question}; no other place would take it", now)
    smaller = smaller_batch(run)
    if smaller is not None:
        return again(smaller, now, policy, f"{question.replace('_', ' ')} is not enough: {_batch_text(smaller)}")
    return end_as(run, RunState.FAILED, _memory_advice(run, question), now)


def _memory_advice(run: Run, question: str) -> str:
    what = "accelerator's" if question == "gpu_memory" else "host's"
    allow = "" if run.caps.allow_smaller_batch else ", or allow a smaller batch with accumulation"
    where = f"{run.plan.where} ({run.plan.node_type})"
    return f"the {what} memory on {where} is not enough and no bigger node was found: choose a smaller batch{allow}"


def _avoid(run: Run, attempt: Attempt, policy: Policy) -> Run:
    if not attempt.nodes or len(attempt.nodes) > policy.excluded_nodes_max:
        return run
    kept = [n for n in run.excluded_nodes if n not in attempt.nodes] + list(attempt.nodes)
    return replace(run, excluded_nodes=tuple(kept[-policy.excluded_nodes_max:]))


def _node_failure(run: Run, attempt: Attempt, now: float, policy: Policy) -> Run:
    run = again(_avoid(run, attempt, policy), now, policy, f"{attempt.reason}: goes on elsewhere, {_so_far(run)}")
    lost = attempt.cause is Cause.NODE_FAILURE and run.caps.allow_move
    return replace(run, replan_reason=NODE_LOST) if lost else run


def _log(run: Run, attempt: Attempt) -> str:
    return f"{run.directory}/logs/{attempt.number}.out"


def _user_error(run: Run, attempt: Attempt, now: float, policy: Policy) -> Run:
    errors = [a for a in run.attempts if a.cause in FAILURES][-2:]
    same = len(errors) == 2 and all(a.cause is Cause.USER_ERROR for a in errors) and errors[0].exit_code == errors[1].exit_code
    if same and not progressed(run, attempt):
        what = "service" if is_service(run) else "training"
        text = f"the {what} ended twice with exit code {attempt.exit_code} without progress: see {_log(run, attempt)}"
        return end_as(run, RunState.FAILED, text, now)
    return again(run, now, policy, f"{attempt.reason}: tries once more in case it was passing")


def _stalled(run: Run, attempt: Attempt, now: float, policy: Policy) -> Run:
    stalls = [a for a in run.attempts if a.cause is Cause.STALLED][-2:]
    if len(stalls) == 2 and not any(progressed(run, a) for a in stalls):
        text = f"twice no progress for {run.caps.stall_after_s:.0f} s though the job was alive: see {_log(run, attempt)}"
        return end_as(run, RunState.FAILED, text, now)
    return again(run, now, policy, "stalled: stopped and tried again")


def _cancelled(run: Run, attempt: Attempt, now: float, policy: Policy) -> Run:
    if attempt.ending == "deadline" and is_service(run):
        return end_as(run, RunState.COMPLETED, f"served to the end that was asked for; {_so_far(run)}", now)
    if attempt.ending == "deadline":
        return end_as(run, RunState.FAILED, f"the deadline passed; {_so_far(run)}", now)
    if attempt.ending == "budget":
        return end_as(run, RunState.FAILED, f"the budget is used up; {_so_far(run)}", now)
    if attempt.ending == "user":
        return run
    text = f"job {attempt.job_id} was cancelled outside iScheduler; {_so_far(run)}"
    return end_as(run, RunState.CANCELLED, text, now)


def _refused(run: Run, attempt: Attempt, now: float, policy: Policy) -> Run:
    refusals = 0
    for a in reversed(run.attempts):
        if a.cause is not Cause.REFUSED:
            break
        refusals += 1
    if refusals >= REFUSALS_MAX:
        return end_as(run, RunState.FAILED, f"refused {refusals} times, at last: {attempt.reason}", now)
    if run.excluded_nodes:
        return again(replace(run, excluded_nodes=()), now, policy, "refused while avoiding nodes: tries with all nodes")
    question = f"refused the job: {attempt.reason}"
    if run.caps.allow_move:
        return replace(run, replan_reason=question, message=question)
    return unanswered(replace(run, unanswered=question), now, policy)


def _moved(run: Run, attempt: Attempt, now: float, policy: Policy) -> Run:
    if attempt.ending == "stuck":
        return again(replace(run, excluded_nodes=()), now, policy, "no node was left while avoiding some: tries with all nodes")
    return replace(run, message=f"stopped to move; {_so_far(run)}")


def _returned(run: Run, attempt: Attempt, now: float, policy: Policy) -> Run:
    text = f"job {attempt.number} gave its allocation back: too early by far; queued again in time"
    return replace(run, not_before=now + policy.retry_s, message=text)


def _again(run: Run, attempt: Attempt, now: float, policy: Policy) -> Run:
    return again(run, now, policy, f"{attempt.reason or attempt.cause}: submitted again, {_so_far(run)}")


REACTIONS: dict[Cause, Reaction] = {
    Cause.FINISHED: Reaction("completed", _finished),
    Cause.WALLTIME: Reaction("the next segment, at once; twice in a row without a checkpoint: failed, with advice", _walltime),
    Cause.OUT_OF_MEMORY: Reaction(
        "half as much memory again, up to the node; then a bigger node; then, if allowed, a smaller batch with accumulation; "
        "else failed",
        _out_of_memory,
    ),
    Cause.GPU_OUT_OF_MEMORY: Reaction(
        "if allowed, a smaller batch with accumulation; else a bigger accelerator; else failed", _gpu_out_of_memory,
    ),
    Cause.NODE_FAILURE: Reaction(
        "submitted again, avoiding the node, elsewhere where none is left; the older incarnation is fenced off", _node_failure
    ),
    Cause.PREEMPTED: Reaction("submitted again, avoiding the node; not counted as a failure", _node_failure),
    Cause.USER_ERROR: Reaction("one retry; the same exit code again without progress: failed", _user_error),
    Cause.SUPERSEDED: Reaction("a new attempt with a newer token, unless one is there", _again),
    Cause.CANCELLED: Reaction("cancelled; failed when the plane itself ended it for deadline or budget", _cancelled),
    Cause.REFUSED: Reaction("without avoided nodes; else another place; else failed (a site limit is only waited for)", _refused),
    Cause.STALLED: Reaction("stopped (signal, then cancel) and tried once more; twice without progress: failed", _stalled),
    Cause.MOVED: Reaction("goes on with the new plan from the checkpoint", _moved),
    Cause.RETURNED: Reaction("queued again later; not counted as an attempt, its predecessor goes on", _returned),
    Cause.LOST: Reaction("submitted again with a newer token; the lost one is fenced off", _again),
    Cause.UNKNOWN: Reaction("submitted again, counted as a failure", _again),
}
