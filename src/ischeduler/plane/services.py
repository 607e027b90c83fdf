"""What is different about a run that serves instead of training: it never finishes, and yields only to a successor that is ready."""

from __future__ import annotations

import json
from dataclasses import replace

from ischeduler.core.durations import human
from ischeduler.core.jobs import Cause, JobState
from ischeduler.core.run import Attempt, Run, RunState

STEADY_S = 60.0
"""A job whose service was ready for so long has done its part, however it ended."""
LEAST_SEGMENT_S = 30.0
ALONE_S = 30.0
"""A successor that still waits after so long may wait for what its hung predecessor holds."""


def is_service(run: Run) -> bool:
    """Whether the run's workload is a service."""
    return run.plan.workload.service is not None


def served(attempt: Attempt) -> bool:
    """Whether the attempt did what it was for: ready, and then handed over or up for a while. Both times are its own host's."""
    if attempt.ready_at is None:
        return False
    return attempt.exit_code == 85 or (attempt.heard_at is not None and attempt.heard_at - attempt.ready_at >= STEADY_S)


def with_end(run: Run, now: float) -> Run:
    """A service for so long: its end is counted from when it was first ready."""
    service = run.plan.workload.service
    if service is None or service.for_s is None or run.caps.deadline is not None:
        return run
    if all(a.ready_at is None for a in run.attempts):
        return run
    return replace(run, caps=replace(run.caps, deadline=now + service.for_s))


def failed_attempts(run: Run) -> int:
    """Jobs that failed, as opposed to those that served to their limit: what the cap on attempts counts for a service."""
    good = (None, Cause.WALLTIME, Cause.SUPERSEDED, Cause.MOVED, Cause.PREEMPTED)
    return sum(a.cause not in good for a in run.attempts)


def outlasts(run: Run, newest: Attempt) -> bool:
    """Whether the service is wanted beyond the running job's limit."""
    started, deadline = newest.started_at, run.caps.deadline
    return started is None or deadline is None or deadline > started + newest.resources.walltime_s


def hung_s(attempt: Attempt) -> float | None:
    """For how long the service has lived without answering its probe, as of its job's last word; None while it answers or never has.

    Both times are the job's host's.
    """
    over = attempt.ended_seen_at is not None or attempt.exit_reason != "" or attempt.state is not JobState.RUNNING
    if over or attempt.unready_since is None or attempt.heard_at is None:
        return None
    return max(0.0, attempt.heard_at - attempt.unready_since)


def hung(run: Run, attempt: Attempt) -> bool:
    """Whether a job's service has not answered for so long that another is to take its place."""
    service, silent_s = run.plan.workload.service, hung_s(attempt)
    return service is not None and silent_s is not None and service.replace_after_s > 0 and silent_s >= service.replace_after_s


def in_the_way(attempt: Attempt, successor: Attempt, now: float) -> bool:
    """Whether a hung job's accelerators are probably what its successor waits for: the queue says so, or it has waited for a while."""
    if successor.number <= attempt.number or successor.ended_seen_at is not None or successor.state is JobState.RUNNING:
        return False
    full = successor.job_id is not None and (successor.reason.startswith("Resources") or "Limit" in successor.reason)
    return full or now - successor.created_at >= ALONE_S


def hung_words(attempt: Attempt) -> str:
    """What to say of a job whose service does not answer."""
    return f"the service has not answered in job {attempt.number} for {human(hung_s(attempt) or 0.0)} though it lives: another takes its place"


def settings_text(run: Run) -> str:
    """What the wrapper in the job is told, as JSON; '' for a training."""
    service = run.plan.workload.service
    if service is None:
        return ""
    return json.dumps({
        "ready_file": service.ready_file, "ready_port": service.ready_port, "ready_url": service.ready_url,
        "restarts": service.restarts, "linger_s": service.linger_s, "drain_s": service.drain_s,
        "replace_after_s": service.replace_after_s,
    })


def after_segment(run: Run, attempt: Attempt) -> tuple[str, bool]:
    """What to say of a service's job that ended at its limit, and whether it is the second in a row that was never ready."""
    if attempt.ready_at is not None:
        return f"job {attempt.number} served to its limit or handed over", False
    ended = [a for a in run.attempts if a.cause is Cause.WALLTIME][-2:]
    text = f"the service was never ready in job {attempt.number}: see {run.directory}/logs/{attempt.number}.out"
    return text, len(ended) == 2 and all(a.ready_at is None for a in ended)


def serving(run: Run) -> Attempt | None:
    """The attempt that clients find: the newest that is ready and alive."""
    if run.state in (RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED):
        return None
    return next((a for a in reversed(run.attempts) if a.serving and a.ended_seen_at is None), None)
