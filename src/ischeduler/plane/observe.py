"""What a batch system's answer, or its silence, changes."""

from __future__ import annotations

from dataclasses import replace

from ischeduler.core.jobs import JobState, JobStatus
from ischeduler.core.run import Attempt, Run
from ischeduler.plane.actions import Action, CancelJob
from ischeduler.plane.attempts import alive, alive_attempts, by_number, change, used_s
from ischeduler.plane.inputs import Observed, QueryFailed
from ischeduler.plane.policy import Policy
from ischeduler.plane.spool import new_incarnation

DUPLICATE_EXIT = 87


def absorb_observation(run: Run, seen: Observed, now: float, policy: Policy) -> tuple[Run, tuple[Action, ...]]:
    """The run after a look at one cluster. A look older than the last one is ignored, and attempts that it could not see stay as they are."""
    actions: list[Action] = []
    for number in [a.number for a in run.attempts if a.cluster == seen.cluster]:
        attempt = by_number(run, number)
        assert attempt is not None
        if attempt.key in seen.observation.unknown or (attempt.last_seen_at is not None and seen.asked_at < attempt.last_seen_at):
            continue
        statuses = seen.observation.jobs.get(attempt.key, ())
        if statuses:
            run, more = _seen(run, attempt, statuses, seen, now)
            actions += more
        elif alive(attempt):
            run = _absent(run, attempt, seen, now, policy)
    newest = run.attempt
    if newest is not None and newest.cluster == seen.cluster and run.query_failures:
        run = replace(run, query_failures=0)
    return run, tuple(actions)


def absorb_query_failure(run: Run, failed: QueryFailed, policy: Policy) -> Run:
    """Count it, up to where more would say nothing new."""
    newest = run.attempt
    if newest is None or newest.cluster != failed.cluster:
        return run
    return replace(run, query_failures=min(run.query_failures + 1, policy.unknown_after))


def _seen(
    run: Run, attempt: Attempt, statuses: tuple[JobStatus, ...], seen: Observed, now: float
) -> tuple[Run, list[Action]]:
    status = keeper(statuses)
    actions: list[Action] = [
        CancelJob(attempt.cluster, s.job_id, f"a second job of {attempt.key}: {status.job_id} came first")
        for s in statuses if s.job_id != status.job_id and not s.state.ended
    ]
    if not alive(attempt):
        if status.state not in (JobState.PENDING, JobState.RUNNING):
            return run, actions
        if not _reopens(run, attempt):
            actions.append(CancelJob(attempt.cluster, status.job_id, "superseded: a newer attempt took over"))
            return run, actions
        run = _reopened(run, attempt)
    if status.restarts > attempt.restarts:
        run = new_incarnation(run, attempt, status.restarts)
    return _apply(run, attempt.number, status, seen, now), actions


def _reopens(run: Run, attempt: Attempt) -> bool:
    newest = run.attempt
    return run.verdict is None and not run.state.ended and newest is not None and newest.number <= attempt.number


def _reopened(run: Run, attempt: Attempt) -> Run:
    """Requeued after it had ended, or taken for lost too early: it lives, and what was booked for it is not spent yet."""
    booked = used_s(attempt) * attempt.cost_rate if attempt.cause is not None else 0.0
    run = replace(run, spent=max(0.0, run.spent - booked))
    return change(run, attempt.number, ended_seen_at=None, cause=None, ended_at=None)


def keeper(statuses: tuple[JobStatus, ...]) -> JobStatus:
    """Of several jobs of one key the one that holds the claim: the first to start, else the first submitted; never one that
    ended as a double."""
    never = float("inf")

    def rank(s: JobStatus) -> tuple[bool, float, float, int, str]:
        started = never if s.start_s is None or s.state is JobState.PENDING else s.start_s
        submitted = never if s.submit_s is None else s.submit_s
        return s.exit_code == DUPLICATE_EXIT, started, submitted, len(s.job_id), s.job_id

    return min(statuses, key=rank)


def _apply(run: Run, number: int, status: JobStatus, seen: Observed, now: float) -> Run:
    attempt = by_number(run, number)
    assert attempt is not None
    ended = status.state.ended
    state = attempt.state if status.state is JobState.UNKNOWN else status.state
    started = status.start_s if state is not JobState.PENDING else None
    exit_code = attempt.exit_code
    if ended and exit_code is None and not attempt.exit_reason:
        exit_code = status.exit_code
    return change(
        run, number, state=state, raw_state=status.raw_state, job_id=status.job_id, reason=status.reason,
        nodes=status.nodes or attempt.nodes, last_seen_at=seen.asked_at, last_try_at=None, absent_since=None,
        submitted_at=status.submit_s if status.submit_s is not None else attempt.submitted_at or now,
        started_at=started if started is not None else (None if state is JobState.PENDING else attempt.started_at),
        ended_at=status.end_s if ended else None, expected_start_s=status.expected_start_s, exit_code=exit_code,
        signal=status.signal if ended else attempt.signal, ended_seen_at=now if ended else None,
        checkpointing=attempt.checkpointing and not ended,
    )


def _absent(run: Run, attempt: Attempt, seen: Observed, now: float, policy: Policy) -> Run:
    """The key is not in the answer. What that means depends on what is known and how complete the answer is."""
    patience_s = policy.settle_s if seen.observation.complete else policy.vanish_s
    if attempt.job_id is None and not attempt.spool_started:
        if attempt.last_try_at is not None and seen.asked_at >= attempt.last_try_at + max(patience_s, policy.in_flight_s):
            return change(run, attempt.number, last_try_at=None, last_seen_at=seen.asked_at)
        return run
    if attempt.last_try_at is not None and seen.asked_at < attempt.last_try_at:
        return run
    since = attempt.absent_since
    run = change(run, attempt.number, absent_since=seen.asked_at if since is None else since, last_seen_at=seen.asked_at)
    gone = attempt.exit_reason != "" or (since is not None and seen.asked_at - since >= patience_s)
    if not gone:
        return run
    return change(
        run, attempt.number, state=_state_of_spool(attempt), ended_seen_at=now, last_try_at=None, checkpointing=False,
        ended_at=None,
    )


def _state_of_spool(attempt: Attempt) -> JobState:
    """What an attempt that nobody remembers ended as, by its own last word."""
    if attempt.exit_reason == "completed":
        return JobState.COMPLETED
    return JobState.FAILED if attempt.exit_reason else JobState.UNKNOWN


def watched(run: Run) -> tuple[Attempt, ...]:
    """The attempts worth looking for: those alive, and the last few ended ones, whose jobs may come back by a requeue."""
    recent = run.attempts[-3:]
    return tuple(a for a in run.attempts if a in recent or a in alive_attempts(run))
