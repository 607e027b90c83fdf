"""What Tapis says of a job, in the house's words. Pure. Source: Tapis Jobs API, statuses and conditions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ischeduler.batch.names import key_of
from ischeduler.core.jobs import Cause, JobState, JobStatus

WAITING = ("PENDING", "PROCESSING_INPUTS", "STAGING_INPUTS", "STAGING_JOB", "SUBMITTING_JOB", "QUEUED", "BLOCKED", "PAUSED")
RUNNING = ("RUNNING", "ARCHIVING")
"""A job that is archiving still writes, so it counts as running."""
CONDITIONS: Mapping[str, tuple[JobState, Cause]] = {
    "NORMAL_COMPLETION": (JobState.COMPLETED, Cause.FINISHED),
    "SCHEDULER_TIMEOUT": (JobState.TIMEOUT, Cause.WALLTIME),
    "SCHEDULER_DEADLINE": (JobState.TIMEOUT, Cause.WALLTIME),
    "JOB_EXECUTION_MONITORING_TIMEOUT": (JobState.TIMEOUT, Cause.WALLTIME),
    "SCHEDULER_OUT_OF_MEMORY": (JobState.OUT_OF_MEMORY, Cause.OUT_OF_MEMORY),
    "SCHEDULER_STOPPED": (JobState.PREEMPTED, Cause.PREEMPTED),
    "SCHEDULER_CANCELLED": (JobState.CANCELLED, Cause.CANCELLED),
    "CANCELLED_BY_USER": (JobState.CANCELLED, Cause.CANCELLED),
    "SCHEDULER_TERMINATED": (JobState.FAILED, Cause.UNKNOWN),
    "JOB_REMOTE_OUTCOME_ERROR": (JobState.FAILED, Cause.USER_ERROR),
}
"""The condition of a job that failed -> the state it is told as, and the cause the plane reads from it when nothing else is known.

Conditions that are not listed are Tapis' own troubles (staging, archiving, its database): failed, cause unknown, to be tried again.
SCHEDULER_TERMINATED is a node's failure where the message says so, else a failure.
"""
_NODE = re.compile(r"NODE_FAIL|BOOT_FAIL|node fail", re.IGNORECASE)
_PREEMPTED = re.compile(r"PREEMPT", re.IGNORECASE)
_OUTCOME = re.compile(r"^\s*(-?\d{1,3})(?::(\d{1,3}))?\s*$")


def status_of(job: Mapping[str, Any]) -> JobStatus | None:
    """The status of one row of a job search; None for a job that is not ours."""
    key = key_of(str(job.get("name") or ""))
    if key is None:
        return None
    status, condition, message = (str(job.get(n) or "") for n in ("status", "condition", "lastMessage"))
    state = state_of(status, condition, f"{message} {job.get('remoteResultInfo') or ''}")
    code, signum = _exit(job, state) if state.ended else (None, None)
    minutes = job.get("maxMinutes")
    started = moment(job.get("remoteStarted"))
    return JobStatus(
        job_id=str(job.get("uuid")), key=key, state=state, raw_state=f"{status}+{condition}" if condition else status,
        reason=message if status in ("BLOCKED", "PAUSED") or state is JobState.FAILED else "", partition=str(job.get("execSystemLogicalQueue") or ""),
        exit_code=code, signal=signum, submit_s=moment(job.get("created")), start_s=None if state is JobState.PENDING else started,
        end_s=(moment(job.get("remoteEnded")) or moment(job.get("ended"))) if state.ended else None,
        limit_s=float(minutes) * 60.0 if isinstance(minutes, (int, float)) else None,
    )  # fmt: skip


def state_of(status: str, condition: str = "", message: str = "") -> JobState:
    """The state of a status with its condition."""
    if status in WAITING:
        return JobState.PENDING
    if status in RUNNING:
        return JobState.RUNNING
    if status == "FINISHED":
        return JobState.COMPLETED
    if status == "CANCELLED":
        return JobState.CANCELLED
    if status != "FAILED":
        return JobState.UNKNOWN
    if condition == "SCHEDULER_TERMINATED" and _NODE.search(message):
        return JobState.NODE_FAIL
    if condition == "SCHEDULER_TERMINATED" and _PREEMPTED.search(message):
        return JobState.PREEMPTED
    state = CONDITIONS.get(condition, (JobState.FAILED, Cause.UNKNOWN))[0]
    return JobState.FAILED if state is JobState.COMPLETED else state


def moment(text: Any) -> float | None:
    """Epoch seconds of Tapis' times (``2026-11-21T10:00:00.000000Z``, in UTC); None where there is none."""
    try:
        found = datetime.fromisoformat(str(text).replace("Z", "+00:00"))
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _exit(job: Mapping[str, Any], state: JobState) -> tuple[int | None, int | None]:
    """(exit code, signal) from ``remoteResultInfo``: ``85``, ``0:9``; 0 for a job that finished."""
    match = _OUTCOME.match(str(job.get("remoteResultInfo") or ""))
    if match is None:
        return (0, None) if state is JobState.COMPLETED else (None, None)
    signum = int(match[2] or 0) & 0x7F
    return (None, signum) if signum else (int(match[1]), None)
