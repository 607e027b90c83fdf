"""The one table of a run's life: from which state to which, and what that means. Nothing else changes ``Run.state``.

A row may also tell of a jump: two looks at a batch system are seconds or minutes apart, and a job may start and end between them.
"""

from __future__ import annotations

from dataclasses import replace

from ischeduler.core.run import Run, RunState

_S = RunState

TRANSITIONS: dict[tuple[RunState, RunState], str] = {
    (_S.PLANNED, _S.SUBMITTING): "the first attempt is written down, then sent",
    (_S.PLANNED, _S.BETWEEN_SEGMENTS): "ended before anything was submitted: cancelled, or a cap leaves no room",
    (_S.SUBMITTING, _S.QUEUED): "the batch system accepted the job, or it was found by its key",
    (_S.SUBMITTING, _S.RUNNING): "accepted and started between two looks",
    (_S.SUBMITTING, _S.CHECKPOINTING): "accepted, started and checkpointing between two looks",
    (_S.SUBMITTING, _S.HANDING_OVER): "a move was asked, or the predecessor still runs",
    (_S.SUBMITTING, _S.STALLED): "accepted, started and stalled between two looks",
    (_S.SUBMITTING, _S.BETWEEN_SEGMENTS): "refused for good, never sent, or ran and ended between two looks",
    (_S.SUBMITTING, _S.UNKNOWN): "the batch system does not answer",
    (_S.QUEUED, _S.RUNNING): "the job started",
    (_S.QUEUED, _S.CHECKPOINTING): "started and checkpointing between two looks",
    (_S.QUEUED, _S.HANDING_OVER): "a move was asked: the queued job is taken back; or another is queued behind it",
    (_S.QUEUED, _S.STALLED): "started and stalled between two looks",
    (_S.QUEUED, _S.BETWEEN_SEGMENTS): "ended, was cancelled or vanished between two looks",
    (_S.QUEUED, _S.UNKNOWN): "the batch system does not answer",
    (_S.RUNNING, _S.CHECKPOINTING): "the training began to save",
    (_S.RUNNING, _S.HANDING_OVER): "a move was asked, or a successor is queued",
    (_S.RUNNING, _S.STALLED): "heartbeats without progress for too long",
    (_S.RUNNING, _S.QUEUED): "the batch system itself put the job back into its queue",
    (_S.RUNNING, _S.BETWEEN_SEGMENTS): "the job ended",
    (_S.RUNNING, _S.UNKNOWN): "the batch system does not answer",
    (_S.CHECKPOINTING, _S.RUNNING): "the checkpoint is published",
    (_S.CHECKPOINTING, _S.HANDING_OVER): "a move was asked, or a successor is queued",
    (_S.CHECKPOINTING, _S.STALLED): "the checkpoint does not end",
    (_S.CHECKPOINTING, _S.QUEUED): "the batch system itself put the job back into its queue",
    (_S.CHECKPOINTING, _S.BETWEEN_SEGMENTS): "the job ended",
    (_S.CHECKPOINTING, _S.UNKNOWN): "the batch system does not answer",
    (_S.HANDING_OVER, _S.SUBMITTING): "the predecessor ended while its successor is being sent",
    (_S.HANDING_OVER, _S.QUEUED): "the predecessor ended, the successor waits",
    (_S.HANDING_OVER, _S.RUNNING): "the predecessor ended, the successor runs; or a successor gave its allocation back",
    (_S.HANDING_OVER, _S.CHECKPOINTING): "the predecessor ended, the successor saves; or a successor gave its allocation back",
    (_S.HANDING_OVER, _S.STALLED): "the one that runs makes no progress",
    (_S.HANDING_OVER, _S.BETWEEN_SEGMENTS): "the job stopped for the move",
    (_S.HANDING_OVER, _S.UNKNOWN): "the batch system does not answer",
    (_S.STALLED, _S.HANDING_OVER): "a move was asked",
    (_S.STALLED, _S.SUBMITTING): "the stalled one ended while its successor is being sent",
    (_S.STALLED, _S.QUEUED): "the batch system itself put the job back into its queue",
    (_S.STALLED, _S.RUNNING): "requeued and started again between two looks, or its successor runs",
    (_S.STALLED, _S.CHECKPOINTING): "requeued and saving between two looks",
    (_S.STALLED, _S.BETWEEN_SEGMENTS): "the stalled job was ended",
    (_S.STALLED, _S.UNKNOWN): "the batch system does not answer",
    (_S.BETWEEN_SEGMENTS, _S.SUBMITTING): "the next attempt is written down, then sent",
    (_S.BETWEEN_SEGMENTS, _S.QUEUED): "a job taken for lost was seen again",
    (_S.BETWEEN_SEGMENTS, _S.RUNNING): "a job taken for lost was seen again",
    (_S.BETWEEN_SEGMENTS, _S.CHECKPOINTING): "a job taken for lost was seen again",
    (_S.BETWEEN_SEGMENTS, _S.HANDING_OVER): "a job taken for lost was seen again during a move",
    (_S.BETWEEN_SEGMENTS, _S.STALLED): "a job taken for lost was seen again, without progress",
    (_S.BETWEEN_SEGMENTS, _S.COMPLETED): "the training is done and its evidence recorded",
    (_S.BETWEEN_SEGMENTS, _S.FAILED): "no way is left, and the message says why",
    (_S.BETWEEN_SEGMENTS, _S.CANCELLED): "cancelled, and the last job is seen ended",
    (_S.UNKNOWN, _S.SUBMITTING): "the batch system answers again",
    (_S.UNKNOWN, _S.QUEUED): "the batch system answers again",
    (_S.UNKNOWN, _S.RUNNING): "the batch system answers again",
    (_S.UNKNOWN, _S.CHECKPOINTING): "the batch system answers again",
    (_S.UNKNOWN, _S.HANDING_OVER): "the batch system answers again",
    (_S.UNKNOWN, _S.STALLED): "the batch system answers again",
    (_S.UNKNOWN, _S.BETWEEN_SEGMENTS): "the batch system answers again: the job ended meanwhile",
}

TERMINAL = frozenset(s for s in RunState if s.ended)
LIVE = frozenset(RunState) - TERMINAL


class IllegalTransition(Exception):
    """A move that the table does not allow: a defect of the plane, told with its whole story."""


def allowed(before: RunState, after: RunState) -> bool:
    """Whether the table has that row; staying is always allowed."""
    return before is after or (before, after) in TRANSITIONS


def move(run: Run, state: RunState, now: float) -> Run:
    """The run in that state, ``state_since`` now; IllegalTransition when the table has no such row."""
    if state is run.state:
        return run
    if (run.state, state) not in TRANSITIONS:
        raise IllegalTransition(_story(run, state))
    before = run.state if state is RunState.UNKNOWN else None
    ended_at = now if state.ended and run.ended_at is None else run.ended_at
    return replace(run, state=state, state_since=now, state_before_unknown=before, ended_at=ended_at)


def _story(run: Run, state: RunState) -> str:
    attempts = "; ".join(
        f"{a.number}: {a.state}, job {a.job_id}, cause {a.cause}, ending {a.ending or 'no'}" for a in run.attempts
    )
    return (
        f"run {run.id} cannot go from {run.state} to {state} (verdict {run.verdict}, cancel {run.cancel_requested}, "
        f"query failures {run.query_failures}; attempts: {attempts or 'none'})"
    )
