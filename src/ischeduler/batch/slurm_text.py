"""Readers of squeue's, sacct's, scontrol's and sbatch's text. Pure functions; times are read in the zone Slurm prints them in.

Text with chosen fields is the same in every Slurm in use; its JSON changes with each data parser (numbers turn into objects, states
into lists), so text is what monitoring stands on.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from ischeduler.batch.hostlists import expand_hosts
from ischeduler.batch.names import key_of
from ischeduler.core.durations import parse_slurm
from ischeduler.core.errors import BadInput
from ischeduler.core.jobs import JobState, JobStatus
from ischeduler.core.sizes import parse_size

SEPARATOR = "|"
"""Both squeue and sacct print it behind each field. A job of ours has none in its name; others' rows with one are left out."""
SQUEUE_FIELDS = (
    "JobID", "Name", "State", "Reason", "Partition", "NodeList", "SubmitTime", "StartTime", "EndTime", "TimeLimit", "RestartCnt",
    "exit_code",
)
SACCT_FIELDS = (
    "JobIDRaw", "JobName", "State", "Reason", "Partition", "NodeList", "Submit", "Start", "End", "Timelimit", "ExitCode", "MaxRSS",
)  # fmt: skip
_STATES = {
    "PENDING": JobState.PENDING, "CONFIGURING": JobState.PENDING, "REQUEUED": JobState.PENDING, "REQUEUE_FED": JobState.PENDING,
    "REQUEUE_HOLD": JobState.PENDING, "SPECIAL_EXIT": JobState.PENDING, "RESV_DEL_HOLD": JobState.PENDING,
    "RUNNING": JobState.RUNNING, "COMPLETING": JobState.RUNNING, "SUSPENDED": JobState.RUNNING, "SIGNALING": JobState.RUNNING,
    "STAGE_OUT": JobState.RUNNING, "STOPPED": JobState.RUNNING, "RESIZING": JobState.RUNNING,
    "COMPLETED": JobState.COMPLETED, "FAILED": JobState.FAILED, "TIMEOUT": JobState.TIMEOUT, "DEADLINE": JobState.TIMEOUT,
    "OUT_OF_MEMORY": JobState.OUT_OF_MEMORY, "NODE_FAIL": JobState.NODE_FAIL, "BOOT_FAIL": JobState.NODE_FAIL,
    "LAUNCH_FAILED": JobState.NODE_FAIL, "RECONFIG_FAIL": JobState.NODE_FAIL,
    "PREEMPTED": JobState.PREEMPTED, "CANCELLED": JobState.CANCELLED, "REVOKED": JobState.CANCELLED,
}  # fmt: skip


def job_state(word: str) -> JobState:
    """Slurm's word (``CANCELLED by 1000``, ``CANCELLED+``) as a JobState; UNKNOWN for a word from the future."""
    bare = re.split(r"[\s+]", word.strip().upper(), maxsplit=1)[0]
    return _STATES.get(bare, JobState.UNKNOWN)


def timestamp(text: str) -> float | None:
    """Epoch seconds of ``2026-11-21T04:54:09`` in the local zone; None for Unknown, N/A, None."""
    try:
        return time.mktime(time.strptime(text.strip(), "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return None


def _limit(text: str) -> float | None:
    try:
        return parse_slurm(text)
    except BadInput:
        return None


def exit_pair(text: str) -> tuple[int | None, int | None]:
    """``0:9`` as exit code and signal; sacct and scontrol print pairs, squeue a wait status."""
    match = re.fullmatch(r"(\d+):(\d+)", text.strip())
    if match:
        return int(match[1]), int(match[2]) or None
    if text.strip().isdigit():
        status = int(text)
        return status >> 8, (status & 0x7F) or None
    return None, None


def squeue_jobs(text: str) -> list[JobStatus]:
    """Rows of squeue with :data:`SQUEUE_FIELDS`."""
    return [_squeue_job(row) for row in _rows(text, SQUEUE_FIELDS)]


def _squeue_job(row: dict[str, str]) -> JobStatus:
    state = job_state(row["State"])
    code, signal = exit_pair(row["exit_code"])
    start = timestamp(row["StartTime"])
    waiting = state is JobState.PENDING
    return JobStatus(
        job_id=row["JobID"], key=key_of(row["Name"]) or "", state=state, raw_state=row["State"], reason=_reason(row["Reason"]),
        partition=row["Partition"], exit_code=code if state.ended else None, signal=signal if state.ended else None,
        nodes=expand_hosts(row["NodeList"]), submit_s=timestamp(row["SubmitTime"]), start_s=None if waiting else start,
        end_s=timestamp(row["EndTime"]) if state.ended else None, expected_start_s=start if waiting else None,
        limit_s=_limit(row["TimeLimit"]), restarts=int(row["RestartCnt"]) if row["RestartCnt"].isdigit() else 0,
    )  # fmt: skip


def sacct_jobs(text: str) -> list[JobStatus]:
    """Rows of ``sacct -P`` with :data:`SACCT_FIELDS`, job lines and their steps; steps give the memory peak."""
    jobs: dict[str, JobStatus] = {}
    peaks: dict[str, int] = {}
    for row in _rows(text, SACCT_FIELDS):
        job_id, dot, _ = row["JobIDRaw"].partition(".")
        if dot:
            peaks[job_id] = max(peaks.get(job_id, 0), _rss(row["MaxRSS"]))
        else:
            jobs[job_id] = _sacct_job(row)
    return [_with_peak(job, peaks.get(job_id, 0)) for job_id, job in jobs.items()]


def _sacct_job(row: dict[str, str]) -> JobStatus:
    state = job_state(row["State"])
    code, signal = exit_pair(row["ExitCode"])
    return JobStatus(
        job_id=row["JobIDRaw"], key=key_of(row["JobName"]) or "", state=state, raw_state=row["State"], reason=_reason(row["Reason"]),
        partition=row["Partition"], exit_code=code if state.ended else None, signal=signal if state.ended else None,
        nodes=expand_hosts(row["NodeList"]), submit_s=timestamp(row["Submit"]), start_s=timestamp(row["Start"]),
        end_s=timestamp(row["End"]) if state.ended else None, limit_s=_limit(row["Timelimit"]),
    )  # fmt: skip


def _with_peak(job: JobStatus, peak_bytes: int) -> JobStatus:
    from dataclasses import replace

    return replace(job, max_rss_bytes=peak_bytes) if peak_bytes else job


def _rss(text: str) -> int:
    try:
        return parse_size(text) if text.strip() else 0
    except BadInput:
        return 0


def _reason(text: str) -> str:
    word = text.strip()
    return "" if word in ("None", "(null)", "(None)") else word.strip("()")


def _rows(text: str, fields: Sequence[str]) -> list[dict[str, str]]:
    """A row a line; rows of another width (a job name with the separator in it) are left out."""
    found: list[dict[str, str]] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.removesuffix(SEPARATOR).split(SEPARATOR)]
        if len(cells) == len(fields):
            found.append(dict(zip(fields, cells, strict=True)))
    return found


def test_only_start(text: str) -> float | None:
    """``sbatch: Job 3 to start at 2026-11-21T04:55:40 using ...`` as epoch seconds."""
    match = re.search(r"to start at (\S+)", text)
    return timestamp(match[1]) if match else None


def refusal(text: str) -> str:
    """Slurm's reason without its prefixes: the last line that says something."""
    prefix = r"^(sbatch: )?(error: )?((Batch job submission failed|allocation failure): )?"
    lines = [re.sub(prefix, "", line).strip() for line in text.splitlines()]
    return next((line for line in reversed(lines) if line), "refused without a word")
