"""What is done about jobs that are alive: ended because of a cancel, a cap, a stall or a move; else left in peace."""

from __future__ import annotations

from dataclasses import replace

from ischeduler.core.jobs import JobState
from ischeduler.core.run import Attempt, Run, RunState
from ischeduler.plane.actions import Action, CancelJob, Control, SignalJob
from ischeduler.plane.attempts import alive_attempts, by_number, change, spent, token
from ischeduler.plane.causes import NEVER_SENT
from ischeduler.plane.policy import Policy
from ischeduler.plane.reschedule import NODE_LOST, RESCHEDULE, due
from ischeduler.plane.services import hung, in_the_way, is_service

HARD = frozenset({"user", "superseded", "closing", "stuck"})
"""Endings that need no checkpoint first; the others are asked to save, and cancelled only when they do not."""
_RANK = ("", "moved", "stuck", "stalled", "hung", "budget", "handed_over", "deadline", "superseded", "closing", "user")
_NO_NODE = ("ReqNodeNotAvail", "BadConstraints", "NodeDown", "Nodes required for job are DOWN")
_NO_PLACE = (
    "PartitionTimeLimit", "PartitionNodeLimit", "PartitionDown", "PartitionInactive", "InvalidAccount", "InvalidQOS",
    "AccountNotAllowed", "QOSNotAllowed", "BadConstraints", "AssocMaxWallDurationPerJobLimit", "QOSMaxWallDurationPerJobLimit",
)


def supervise(run: Run, now: float, policy: Policy) -> tuple[Run, tuple[Action, ...]]:
    """Decide which living attempts are to end, and keep at it until they have."""
    run = _look_around(run, now, policy)
    actions: list[Action] = []
    for number in [a.number for a in alive_attempts(run)]:
        attempt = by_number(run, number)
        assert attempt is not None
        run = _with_ending(run, attempt, _ending(run, attempt, now, policy), now)
        run, more = _pursue_ending(run, number, now, policy)
        actions += more
    return run, tuple(actions)


def _look_around(run: Run, now: float, policy: Policy) -> Run:
    if _nodes_gone(run, now, policy):
        assert run.attempt is not None
        return replace(change(run, run.attempt.number, nudged_at=now), replan_reason=NODE_LOST)
    if not due(run, now):
        return run
    stuck = stuck_reason(run, now, policy)
    return replace(run, replan_reason=f"stuck: {stuck}" if stuck else RESCHEDULE)


def _nodes_gone(run: Run, now: float, policy: Policy) -> bool:
    """The queued job waits for nodes that are down or drained: worth a look elsewhere, soon, and again from time to time."""
    newest = run.attempt
    if newest is None or newest.state is not JobState.PENDING or run.state is not RunState.QUEUED or not run.caps.allow_move:
        return False
    asked = newest.nudged_at is not None and now - newest.nudged_at < policy.replan_first_s
    free = run.move_to is None and not run.replan_reason and run.verdict is None and not run.cancel_requested and not newest.ending
    return free and not asked and newest.reason.startswith(_NO_NODE) and now - run.state_since >= policy.settle_s


def stuck_reason(run: Run, now: float, policy: Policy) -> str:
    """Why the queued job cannot start here at all, in the batch system's word; '' while it merely waits."""
    newest = run.attempt
    if newest is None or newest.state is not JobState.PENDING or run.state is not RunState.QUEUED:
        return ""
    waited = now - run.state_since >= policy.stuck_s
    return newest.reason if waited and newest.reason.startswith(_NO_PLACE) else ""


def stalled(run: Run, attempt: Attempt) -> bool:
    """Alive by its heartbeats, yet no step for too long; both times are the job's own host's."""
    if attempt.state is not JobState.RUNNING or attempt.heard_at is None or attempt.spool_started_at is None:
        return False
    if attempt.exit_reason or attempt.finished or is_service(run):
        return False
    since = attempt.spool_started_at if attempt.progressed_at is None else attempt.progressed_at
    return attempt.heard_at - since > run.caps.stall_after_s


def _ending(run: Run, attempt: Attempt, now: float, policy: Policy) -> str:
    newest = run.attempt
    if run.cancel_requested:
        return "user"
    if run.verdict is not None:
        return "closing"
    if newest is not None and newest.number != attempt.number:
        if is_service(run):
            if newest.serving:
                return "handed_over"
        elif any(_took_over(a, now, policy) for a in alive_attempts(run) if a.number > attempt.number):
            return "superseded"
    if run.caps.deadline is not None and now >= run.caps.deadline:
        return "deadline"
    if run.caps.max_cost is not None and spent(run) > run.caps.max_cost:
        return "budget"
    if stalled(run, attempt):
        return "stalled"
    if newest is not None and hung(run, attempt) and in_the_way(attempt, newest, now):
        return "hung"
    if _without_nodes(run, attempt, now, policy):
        return "stuck"
    return "moved" if run.move_to is not None else ""


def _took_over(newest: Attempt, now: float, policy: Policy) -> bool:
    """A successor that starts early asks its predecessor to save and leave, and speaks only then; a silent one is believed in time."""
    if newest.state is not JobState.RUNNING:
        return False
    if newest.spool_started:
        return True
    if newest.keep_from is not None:  # it may have given its allocation back since it was last seen
        seen = newest.last_seen_at if newest.absent_since is None else None
        return seen is not None and newest.started_at is not None and seen - newest.started_at >= policy.soft_s
    return newest.started_at is None or now - newest.started_at >= policy.soft_s


def _without_nodes(run: Run, attempt: Attempt, now: float, policy: Policy) -> bool:
    waits = attempt.state is JobState.PENDING and bool(run.excluded_nodes) and run.state is RunState.QUEUED
    return waits and now - run.state_since >= policy.stuck_s and attempt.reason.startswith(_NO_NODE)


def _with_ending(run: Run, attempt: Attempt, ending: str, now: float) -> Run:
    """A stronger wish replaces a weaker one and starts anew; a wish is never taken back (its signal may be on its way)."""
    if _RANK.index(ending) <= _RANK.index(attempt.ending):
        return run
    return change(run, attempt.number, ending=ending, ending_since=now, nudged_at=None)


def _pursue_ending(run: Run, number: int, now: float, policy: Policy) -> tuple[Run, tuple[Action, ...]]:
    attempt = by_number(run, number)
    assert attempt is not None
    if not attempt.ending:
        return run, ()
    if attempt.job_id is None:
        return _never_sent(run, attempt, now), ()
    since = attempt.ending_since if attempt.ending_since is not None else now
    hard = attempt.ending in HARD or attempt.state is not JobState.RUNNING or now - since >= policy.soft_s
    hard_since = since if attempt.ending in HARD else since + policy.soft_s
    fresh = attempt.nudged_at is None or (hard and attempt.nudged_at < hard_since <= now)
    if not fresh and now - (attempt.nudged_at or 0.0) < policy.nudge_s:
        return run, ()
    run = change(run, number, nudged_at=now)
    if hard:
        return run, (CancelJob(attempt.cluster, attempt.job_id, attempt.ending),)
    word = "move" if attempt.ending == "moved" else "stop"
    return run, (Control(token(attempt), word), SignalJob(attempt.cluster, attempt.job_id, "USR2"))


def _never_sent(run: Run, attempt: Attempt, now: float) -> Run:
    """An attempt that was surely never accepted just ends; one whose answer is open stays until it is looked up."""
    if attempt.last_try_at is not None or attempt.spool_started:
        return run
    return change(run, attempt.number, state=JobState.CANCELLED, ended_seen_at=now, exit_reason=NEVER_SENT)
