"""Text of squeue and sacct with our own field lists. Pure.

Fields are separated by U+001F, which no job name holds; times are epoch seconds (``SLURM_TIME_FORMAT=%s``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ischeduler.batch.hostlists import expand_hosts
from ischeduler.batch.names import key_of
from ischeduler.batch.slurm_states import exit_of_pair, exit_of_wait_status, job_state
from ischeduler.core.durations import parse_slurm
from ischeduler.core.errors import BadInput
from ischeduler.core.jobs import JobState, JobStatus
from ischeduler.core.naming import gpus_of_gres
from ischeduler.core.snapshot import FinishedJob, QueuedJob

SEPARATOR = "\x1f"
OWN_FIELDS = (
    "JobID", "Name", "State", "exit_code", "RestartCnt", "Reason", "NodeList", "StartTime", "EndTime", "SubmitTime",
    "TimeLimit", "Partition", "Comment",
)  # fmt: skip
QUEUE_FIELDS = (
    "JobArrayID", "Partition", "State", "NumNodes", "tres-alloc", "tres-per-node", "SubmitTime", "StartTime", "TimeLimit",
    "PriorityLong", "UserName", "Reason", "Name",
)  # fmt: skip
FINISHED_FIELDS = ("User", "Partition", "Submit", "Start", "End", "TimelimitRaw", "NNodes", "AllocTRES", "JobName")
SACCT_FIELDS = (
    "JobID", "JobName", "State", "ExitCode", "Reason", "NodeList", "Partition", "Submit", "Start", "End", "TimelimitRaw",
    "MaxRSS", "Comment",
)  # fmt: skip


def squeue_format(fields: Sequence[str]) -> str:
    """The value of ``squeue --Format`` that prints fields whole, each followed by the separator."""
    return ",".join(f"{name}:{SEPARATOR}" for name in fields)


def read_squeue(text: str) -> list[JobStatus]:
    """Every job that carries one of our keys; lines that are no jobs are left out."""
    rows = _rows(text, OWN_FIELDS)
    return [_squeue_status(row, key) for row in rows if (key := key_of(row["Name"], _given(row["Comment"])))]


def read_sacct(text: str) -> list[JobStatus]:
    """Every job of ours, its last incarnation, with the largest MaxRSS of its steps.

    With ``--duplicates`` a job that Slurm requeued has several rows of one id, oldest first; those before the last are its restarts.
    """
    found: dict[str, JobStatus] = {}
    rss: dict[str, int] = {}
    for row in _rows(text, SACCT_FIELDS):
        job_id, _, step = row["JobID"].partition(".")
        if step:
            rss[job_id] = max(rss.get(job_id, 0), size_bytes(row["MaxRSS"]))
        elif key := key_of(row["JobName"], row["Comment"]):
            restarts = found[job_id].restarts + 1 if job_id in found else 0
            found[job_id] = replace(_sacct_status(row, key), restarts=restarts)
    return [replace(s, max_rss_bytes=rss.get(s.job_id) or None) for s in found.values()]


def read_queue(text: str, user: str) -> list[QueuedJob]:
    """All jobs of the queue; one that waits in several partitions appears in each."""
    jobs: list[QueuedJob] = []
    for row in _rows(text, QUEUE_FIELDS):
        job = _queued(row, user)
        jobs += [replace(job, partition=p) for p in row["Partition"].split(",")]
    return jobs


def read_finished(text: str) -> list[FinishedJob]:
    """Every job of ``sacct -X`` that ran, with a finite time limit."""
    return [job for row in _rows(text, FINISHED_FIELDS) if (job := _finished(row)) is not None]


def seconds(text: str) -> float | None:
    """Epoch seconds as Slurm printed them; None for ``N/A``, ``Unknown``, ``None`` and 0."""
    word = text.strip()
    return float(word) or None if word.isdigit() else None


def limit_seconds(text: str) -> float | None:
    """A time limit as squeue prints it; None where it is not set."""
    try:
        return parse_slurm(text)
    except BadInput:
        return None


def size_bytes(text: str) -> int:
    """Bytes of sacct's MaxRSS (``309809152``, ``3104K``, ``1.50G``); 0 where nothing was measured."""
    word = text.strip().upper()
    scale = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}.get(word[-1:], 1)
    digits = word.rstrip("KMGT")
    return round(float(digits) * scale) if digits.replace(".", "", 1).isdigit() else 0


def tres_count(tres: str, name: str) -> int | None:
    """The count of ``gres/gpu`` in ``cpu=1,mem=2000M,gres/gpu=2``; None when it is not listed."""
    for part in tres.split(","):
        key, _, count = part.partition("=")
        if key.strip() == name and count.isdigit():
            return int(count)
    return None


def _rows(text: str, fields: Sequence[str]) -> Iterator[Mapping[str, str]]:
    """The free text comes last, so that a separator or line break in it costs a piece of the text and not the job."""
    for line in text.split("\n"):
        cells = line.split(SEPARATOR)
        if len(cells) >= len(fields):
            yield dict(zip(fields, (c.strip() for c in cells), strict=False))


def _squeue_status(row: Mapping[str, str], key: str) -> JobStatus:
    state = job_state(row["State"])
    status = int(row["exit_code"]) if row["exit_code"].isdigit() else None
    code, signum = exit_of_wait_status(status) if state.ended and status is not None else (None, None)
    start = seconds(row["StartTime"])
    return JobStatus(
        job_id=row["JobID"], key=key, state=state, raw_state=row["State"], reason=_given(row["Reason"]),
        partition=row["Partition"], exit_code=code, signal=signum, nodes=expand_hosts(row["NodeList"]),
        submit_s=seconds(row["SubmitTime"]), start_s=None if state is JobState.PENDING else start,
        end_s=seconds(row["EndTime"]) if state.ended else None,
        expected_start_s=start if state is JobState.PENDING else None,
        limit_s=limit_seconds(row["TimeLimit"]), restarts=int(row["RestartCnt"]) if row["RestartCnt"].isdigit() else 0,
    )  # fmt: skip


def _sacct_status(row: Mapping[str, str], key: str) -> JobStatus:
    state = job_state(row["State"])
    code, signum = exit_of_pair(row["ExitCode"]) if state.ended else (None, None)
    limit = row["TimelimitRaw"]
    return JobStatus(
        job_id=row["JobID"], key=key, state=state, raw_state=row["State"], reason=_given(row["Reason"]),
        partition=row["Partition"], exit_code=code, signal=signum, nodes=expand_hosts(row["NodeList"]),
        submit_s=seconds(row["Submit"]), start_s=seconds(row["Start"]), end_s=seconds(row["End"]) if state.ended else None,
        limit_s=float(limit) * 60 if limit.isdigit() else math.inf if limit.upper() == "UNLIMITED" else None,
    )  # fmt: skip


def _queued(row: Mapping[str, str], user: str) -> QueuedJob:
    nodes = int(row["NumNodes"]) if row["NumNodes"].isdigit() else 1
    state = job_state(row["State"])
    words = {JobState.PENDING: "PENDING", JobState.RUNNING: "RUNNING"}
    priority = row["PriorityLong"]
    return QueuedJob(
        job_id=row["JobArrayID"], partition=row["Partition"], state=words.get(state, row["State"]), nodes=nodes,
        gpus=_gpus(row, nodes), submit_s=seconds(row["SubmitTime"]), start_s=seconds(row["StartTime"]),
        limit_s=limit_seconds(row["TimeLimit"]), priority=int(priority) if priority.isdigit() else None,
        mine=row["UserName"] == user, reason=_given(row["Reason"]), user=row["UserName"], name=row["Name"],
    )  # fmt: skip


def _finished(row: Mapping[str, str]) -> FinishedJob | None:
    submit, start, end = (seconds(row[n]) for n in ("Submit", "Start", "End"))
    minutes, nodes = row["TimelimitRaw"], row["NNodes"]
    if submit is None or start is None or end is None or not minutes.isdigit() or int(minutes) == 0:
        return None
    return FinishedJob(
        row["User"], row["JobName"], row["Partition"], submit, start, end, float(minutes) * 60,
        int(nodes) if nodes.isdigit() else 1, tres_count(row["AllocTRES"], "gres/gpu") or 0,
    )  # fmt: skip


def _gpus(row: Mapping[str, str], nodes: int) -> int:
    """From allocated TRES where the site counts GPUs there, else from the request for each node."""
    counted = tres_count(row["tres-alloc"], "gres/gpu")
    if counted is not None:
        return counted
    request = row["tres-per-node"].replace("gres:", "").replace("gres/", "")
    return nodes * sum(gpus_of_gres(request).values())


def _given(word: str) -> str:
    return "" if word in {"None", "(null)", "N/A"} else word
