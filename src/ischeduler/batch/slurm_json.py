"""``squeue --json`` of any data parser from v0.0.38 to v0.0.43. Pure.

What differs: numbers are plain or ``{"set", "infinite", "number"}``, states and nodes are words or lists of words, exit codes are
wait statuses or objects. Unknown keys and missing ones are no error.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ischeduler.batch.hostlists import expand_hosts
from ischeduler.batch.names import key_of
from ischeduler.batch.slurm_states import exit_of_wait_status, job_state
from ischeduler.core.errors import BatchUnavailable
from ischeduler.core.jobs import JobState, JobStatus

_NO_VALUE = {4294967294, 65534, 18446744073709551614}
_INFINITE = {4294967295, 65535, 18446744073709551615}


def read_squeue_json(text: str) -> list[JobStatus]:
    """Every job that carries one of our keys."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = None
    jobs = (data.get("jobs") or []) if isinstance(data, dict) else None
    if not isinstance(jobs, list) or not all(isinstance(job, dict) for job in jobs):
        raise BatchUnavailable("squeue --json gave no list of jobs in JSON; ask again, or read text with reader='text'.")
    return read_jobs(jobs)


def read_jobs(rows: Iterable[Mapping[str, Any]]) -> list[JobStatus]:
    """Every job of the rows that carries one of our keys."""
    return list(_ours(rows))


def _ours(jobs: Iterable[Mapping[str, Any]]) -> Iterator[JobStatus]:
    for job in jobs:
        key = key_of(str(job.get("name") or ""), str(job.get("comment") or ""))
        if key is not None:
            yield _status(job, key)


def _status(job: Mapping[str, Any], key: str) -> JobStatus:
    words = as_words(job.get("job_state"))
    state = job_state(words)
    code, signum = exit_of(job.get("exit_code")) if state.ended else (None, None)
    start, limit_min = moment(job.get("start_time")), number(job.get("time_limit"))
    reason = str(job.get("state_reason") or "")
    return JobStatus(
        job_id=str(job.get("job_id")), key=key, state=state, raw_state="+".join(words),
        reason="" if reason == "None" else reason, partition=str(job.get("partition") or ""), exit_code=code, signal=signum,
        nodes=_nodes(job.get("nodes")), submit_s=moment(job.get("submit_time")),
        start_s=None if state is JobState.PENDING else start, end_s=moment(job.get("end_time")) if state.ended else None,
        expected_start_s=start if state is JobState.PENDING else None,
        limit_s=None if limit_min is None else limit_min * 60.0, restarts=int(number(job.get("restart_cnt")) or 0),
    )  # fmt: skip


def number(value: Any) -> float | None:
    """A number in any spelling; None where it is not set, infinity where it is infinite."""
    if isinstance(value, Mapping):
        if value.get("infinite"):
            return math.inf
        return number(value.get("number")) if value.get("set", True) else None
    if isinstance(value, str):
        word = value.strip().upper()
        return math.inf if word in {"UNLIMITED", "INFINITE"} else float(word) if word.isdigit() else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return None if value in _NO_VALUE else math.inf if value in _INFINITE else float(value)


def moment(value: Any) -> float | None:
    """Epoch seconds; Slurm's 0 means never."""
    found = number(value)
    return found if found and math.isfinite(found) else None


def as_words(value: Any) -> list[str]:
    """A word or a list of words as a list."""
    if isinstance(value, str):
        return [value]
    return [str(v) for v in value] if isinstance(value, list) else []


def exit_of(value: Any) -> tuple[int | None, int | None]:
    """(exit code, signal) of a wait status or of ``{"return_code": ..., "signal": {"id"|"signal_id": ...}}``."""
    if not isinstance(value, Mapping) or "return_code" not in value:
        status = number(value)
        return (None, None) if status is None else exit_of_wait_status(int(status))
    told = value.get("signal")
    signum = number(told.get("id", told.get("signal_id"))) if isinstance(told, Mapping) else None
    code = number(value.get("return_code"))
    return (None, int(signum)) if signum else (None if code is None else int(code), None)


def _nodes(value: Any) -> tuple[str, ...]:
    return expand_hosts(value if isinstance(value, str) else ",".join(as_words(value)))
