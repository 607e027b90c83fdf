"""Questions to a run's attempts, and the one way to change one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ischeduler.core.jobs import Cause
from ischeduler.core.run import Attempt, Run
from ischeduler.plane.services import is_service, served

FAILURES = frozenset({
    Cause.OUT_OF_MEMORY, Cause.GPU_OUT_OF_MEMORY, Cause.NODE_FAILURE, Cause.USER_ERROR, Cause.STALLED, Cause.LOST, Cause.UNKNOWN,
})
"""Causes that count against ``Caps.max_failures``."""
_NEUTRAL = frozenset({Cause.MOVED, Cause.PREEMPTED, Cause.REFUSED, Cause.RETURNED, Cause.SUPERSEDED})


def alive(attempt: Attempt) -> bool:
    """True until the attempt was seen ended, refused or taken for lost."""
    return attempt.ended_seen_at is None


def alive_attempts(run: Run) -> tuple[Attempt, ...]:
    """Attempts whose job waits, runs, or may have been accepted."""
    return tuple(a for a in run.attempts if alive(a))


def all_understood(run: Run) -> bool:
    """Whether every attempt that ended has its cause."""
    return all(a.cause is not None or alive(a) for a in run.attempts)


def token(attempt: Attempt) -> str:
    """The in-job token of the attempt's newest incarnation."""
    return f"{attempt.number}.{attempt.restarts}"


def by_key(run: Run, key: str) -> Attempt | None:
    """The attempt with that key."""
    return next((a for a in run.attempts if a.key == key), None)


def by_number(run: Run, number: int) -> Attempt | None:
    """The attempt with that number."""
    return next((a for a in run.attempts if a.number == number), None)


def change(run: Run, number: int, **fields: Any) -> Run:
    """The run with some fields of one attempt replaced."""
    return replace(run, attempts=tuple(replace(a, **fields) if a.number == number else a for a in run.attempts))


def speaks(run: Run) -> bool:
    """Whether the training reports its progress (a script may also be wrapped unchanged and say nothing)."""
    return run.progress.epochs > 0 or run.progress.steps > 0 or run.progress.checkpoint is not None


def progressed(run: Run, attempt: Attempt) -> bool:
    """Whether the attempt left the run further than it found it: a later checkpoint, or a silent script's own word (exit 85).

    A service's job did when it was ready and then handed over, or was up for a while.
    """
    if is_service(run):
        return served(attempt)
    if speaks(run):
        return attempt.checkpoint_step > attempt.start_step
    return attempt.exit_code == 85


def saved_and_leaving(attempt: Attempt) -> bool:
    """The training has saved and left; only the batch job's own end is still to come."""
    return alive(attempt) and attempt.exit_reason in ("checkpointed", "left") and attempt.job_id is not None and not attempt.ending


def returned(run: Run, since: int = 0) -> tuple[Attempt, ...]:
    """Attempts beyond that number whose job started too early and gave its allocation back."""
    return tuple(a for a in run.attempts if a.number > since and a.cause is Cause.RETURNED)


def failure_streak(run: Run) -> int:
    """Failed attempts in a row, counted back to the last one that made progress or ended in another way."""
    count = 0
    for attempt in reversed(run.attempts):
        if attempt.cause is None or attempt.cause in _NEUTRAL:
            continue
        if attempt.cause not in FAILURES or progressed(run, attempt):
            break
        count += 1
    return count


def used_s(attempt: Attempt) -> float:
    """Seconds the attempt ran, each difference taken on one clock: the batch system's, else the job's host's."""
    if attempt.started_at is not None and attempt.ended_at is not None:
        return max(0.0, attempt.ended_at - attempt.started_at)
    if attempt.spool_started_at is not None and attempt.heard_at is not None:
        return max(0.0, attempt.heard_at - attempt.spool_started_at)
    return 0.0


def spent(run: Run) -> float:
    """What the run has cost so far, in its plan's unit, running attempts included."""
    return run.spent + sum(used_s(a) * a.cost_rate for a in alive_attempts(run))
