"""Slurm's words for a job's state and end, reduced to ours. Pure. Source: squeue(1) and sacct(1), JOB STATE CODES."""

from __future__ import annotations

from collections.abc import Iterable

from ischeduler.core.jobs import JobState

_STATES = {
    "PENDING": JobState.PENDING, "REQUEUED": JobState.PENDING, "REQUEUE_FED": JobState.PENDING,
    "REQUEUE_HOLD": JobState.PENDING, "SPECIAL_EXIT": JobState.PENDING, "RESV_DEL_HOLD": JobState.PENDING,
    "RUNNING": JobState.RUNNING, "CONFIGURING": JobState.RUNNING, "COMPLETING": JobState.RUNNING,
    "RESIZING": JobState.RUNNING, "SIGNALING": JobState.RUNNING, "STAGE_OUT": JobState.RUNNING,
    "STOPPED": JobState.RUNNING, "SUSPENDED": JobState.RUNNING, "EXPEDITING": JobState.RUNNING,
    "COMPLETED": JobState.COMPLETED, "FAILED": JobState.FAILED, "LAUNCH_FAILED": JobState.FAILED,
    "RECONFIG_FAIL": JobState.FAILED, "TIMEOUT": JobState.TIMEOUT, "DEADLINE": JobState.TIMEOUT,
    "OUT_OF_MEMORY": JobState.OUT_OF_MEMORY, "NODE_FAIL": JobState.NODE_FAIL, "BOOT_FAIL": JobState.NODE_FAIL,
    "PREEMPTED": JobState.PREEMPTED, "CANCELLED": JobState.CANCELLED, "REVOKED": JobState.CANCELLED,
}  # fmt: skip
_STILL_THERE = {"COMPLETING", "STAGE_OUT"}
_WAITS_AGAIN = {"REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT"}


def job_state(raw: str | Iterable[str]) -> JobState:
    """Our state of ``CANCELLED by 1000``, ``COMPLETING``, or a base state with flags (``["FAILED", "COMPLETING"]``).

    A completing job still holds its nodes and may still write, so it counts as running; a requeued one is pending.
    """
    words = [raw] if isinstance(raw, str) else list(raw)
    plain = [w.strip().upper().split(" ")[0].rstrip("+") for w in words if w.strip()]
    if any(w in _WAITS_AGAIN for w in plain):
        return JobState.PENDING
    if any(w in _STILL_THERE for w in plain):
        return JobState.RUNNING
    return next((_STATES[w] for w in plain if w in _STATES), JobState.UNKNOWN)


def exit_of_wait_status(status: int) -> tuple[int | None, int | None]:
    """(exit code, signal) of the wait status that squeue prints: 21760 is code 85, 9 is signal 9 (waitpid(2))."""
    signum = status & 0x7F
    return (None, signum) if signum else (status >> 8 & 0xFF, None)


def exit_of_pair(text: str) -> tuple[int | None, int | None]:
    """(exit code, signal) of sacct's ``85:0`` or ``0:9``; a signal leaves no exit code."""
    code, _, signum = text.partition(":")
    if not code.strip().isdigit():
        return None, None
    number = int(signum) & 0x7F if signum.strip().isdigit() else 0
    return (None, number) if number else (int(code), None)
