"""Finished jobs of Slurm's accounting as evidence of queue waits. Pure: the question to ask, and the reading of its answer.

A job that is not iScheduler's says nothing of models or batches, but how long it waited for how many nodes of which partition.
Waits count from when the job became eligible: before that it was held, or waited for another job (sacct(1), Eligible).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from ischeduler.core.history import HistoryRecord
from ischeduler.core.jobs import Cause

SEPARATOR = "\x1f"
FIELDS: tuple[str, ...] = (
    "JobIDRaw", "User", "Partition", "State", "Submit", "Eligible", "Start", "End", "TimelimitRaw", "NNodes", "NCPUS", "AllocTRES",
    "Comment", "JobName",
)  # fmt: skip
ENDED = "COMPLETED,FAILED,TIMEOUT,OUT_OF_MEMORY,NODE_FAIL,PREEMPTED,CANCELLED"
_CAUSES = {
    "COMPLETED": Cause.FINISHED, "TIMEOUT": Cause.WALLTIME, "OUT_OF_MEMORY": Cause.OUT_OF_MEMORY, "NODE_FAIL": Cause.NODE_FAILURE,
    "PREEMPTED": Cause.PREEMPTED, "CANCELLED": Cause.CANCELLED, "FAILED": Cause.USER_ERROR,
}  # fmt: skip
_GPUS = re.compile(r"(?:^|,)gres/gpu=(\d+)")


def question(user: str, since: float) -> tuple[str, ...]:
    """The command that lists a user's own ended jobs since then (epoch seconds), times as epoch seconds in UTC."""
    start = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(max(0.0, since)))
    return (
        "env", "TZ=UTC", "SLURM_TIME_FORMAT=%s", "sacct", "-n", "-P", "-X", "--noconvert", f"--delimiter={SEPARATOR}",
        f"--user={user}", f"--starttime={start}", "--endtime=now", f"--state={ENDED}", f"--format={','.join(FIELDS)}",
    )  # fmt: skip


def key_of_job(cluster: str, job_id: str = "") -> str:
    """How a job of the accounting is called in history; without an id, what all of a cluster's begin with."""
    return f"sacct:{cluster[:40]}:{job_id}"


def records(text: str, cluster: str, ours: Callable[[str, str], bool] = lambda name, comment: False) -> tuple[HistoryRecord, ...]:
    """Records of kind 'attempt' of the jobs that started and ended. ``ours`` (job name, comment) says whose evidence is kept already.

    Lines that are no such job are left out; the job's name is its family, as ``job:NAME``.
    """
    return tuple(_records(text.splitlines(), cluster, ours))


def _records(lines: Iterable[str], cluster: str, ours: Callable[[str, str], bool]) -> Iterator[HistoryRecord]:
    for line in lines:
        cells = [c.strip() for c in line.split(SEPARATOR, len(FIELDS) - 1)]
        if len(cells) != len(FIELDS):
            continue
        row = dict(zip(FIELDS, cells, strict=True))
        record = None if ours(row["JobName"], row["Comment"]) else _record(row, cluster)
        if record is not None:
            yield record


def _record(row: Mapping[str, str], cluster: str) -> HistoryRecord | None:
    submit, eligible, start, end = (_epoch(row[f]) for f in ("Submit", "Eligible", "Start", "End"))
    if not row["JobIDRaw"] or start is None or end is None or end < start:
        return None
    asked = max(t for t in (submit, eligible) if t is not None) if submit or eligible else None
    gpus = _GPUS.search(row["AllocTRES"])
    word = row["State"].split(" ")[0].rstrip("+").upper()
    return HistoryRecord(
        run_id=key_of_job(cluster, row["JobIDRaw"]), kind="attempt", owner=row["User"], family=f"job:{row['JobName']}",
        cluster=cluster, partition=row["Partition"], node_type="", finished_at=end, nodes=_count(row["NNodes"], 1),
        gpus=int(gpus[1]) if gpus else 0, cpus=_count(row["NCPUS"], 0), walltime_s=_count(row["TimelimitRaw"], 0) * 60.0 or None,
        wait_s=None if asked is None else max(0.0, start - asked), run_s=end - start,
        cause=str(_CAUSES.get(word, Cause.UNKNOWN)),
    )  # fmt: skip


def _epoch(text: str) -> float | None:
    """Epoch seconds; None for ``Unknown``, ``None`` and 0."""
    return float(text) or None if text.isdigit() else None


def _count(text: str, otherwise: int) -> int:
    return int(text) if text.isdigit() else otherwise
