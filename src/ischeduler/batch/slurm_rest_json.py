"""slurmrestd's answers about accounting, nodes, queue and partitions, of any version from v0.0.38 on. Pure.

As in :mod:`ischeduler.batch.slurm_json`: fields are found by shape, unknown keys and missing ones are no error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ischeduler.batch.hostlists import expand_hosts
from ischeduler.batch.names import key_of
from ischeduler.batch.slurm_json import as_words, exit_of, moment, number
from ischeduler.batch.slurm_nodes import NodeLine, state_column
from ischeduler.batch.slurm_states import job_state
from ischeduler.batch.slurm_text import tres_count
from ischeduler.core.jobs import JobState, JobStatus
from ischeduler.core.naming import gpus_of_gres, node_type_name
from ischeduler.core.snapshot import FinishedJob, QueuedJob

_WORDS = {JobState.PENDING: "PENDING", JobState.RUNNING: "RUNNING"}


def read_accounting(jobs: Sequence[Mapping[str, Any]], user: str | None) -> list[JobStatus]:
    """Jobs of ours as slurmdbd remembers them, of ``user`` alone where given.

    A job that Slurm requeued has several rows of one id, oldest first; those before the last are its restarts.
    """
    found: dict[str, JobStatus] = {}
    for row in jobs:
        key = key_of(str(row.get("name") or ""), _comment(row))
        if key is None or (user is not None and _user(row) != user):
            continue
        job_id = str(row.get("job_id"))
        restarts = found[job_id].restarts + 1 if job_id in found else 0
        found[job_id] = replace(_remembered(row, key), restarts=restarts)
    return list(found.values())


def read_finished(jobs: Sequence[Mapping[str, Any]]) -> list[FinishedJob]:
    """Every remembered job that ran and ended, with a finite time limit."""
    return [job for row in jobs if (job := _finished(row)) is not None]


def read_nodes(rows: Sequence[Mapping[str, Any]]) -> list[NodeLine]:
    """One entry a node."""
    return [_node(row) for row in rows if row.get("name")]


def read_queue(jobs: Sequence[Mapping[str, Any]], user: str) -> list[QueuedJob]:
    """Jobs that wait or run; one that waits in several partitions appears in each."""
    found: list[QueuedJob] = []
    for row in jobs:
        state = job_state(as_words(row.get("job_state")))
        if not state.ended:
            found += [replace(_queued(row, state, user), partition=p) for p in str(row.get("partition") or "").split(",")]
    return found


def _remembered(row: Mapping[str, Any], key: str) -> JobStatus:
    told = row.get("state") if isinstance(row.get("state"), Mapping) else {"current": row.get("state")}
    words = as_words(told.get("current"))  # type: ignore[union-attr]
    state, times = job_state(words), row.get("time") or {}
    code, signum = exit_of(row.get("exit_code")) if state.ended else (None, None)
    reason = str(told.get("reason") or "")  # type: ignore[union-attr]
    limit_min = number(times.get("limit"))
    return JobStatus(
        job_id=str(row.get("job_id")), key=key, state=state, raw_state="+".join(words), reason="" if reason == "None" else reason,
        partition=str(row.get("partition") or ""), exit_code=code, signal=signum, nodes=expand_hosts(str(row.get("nodes") or "")),
        submit_s=moment(times.get("submission")), start_s=moment(times.get("start")),
        end_s=moment(times.get("end")) if state.ended else None, limit_s=None if limit_min is None else limit_min * 60.0,
        max_rss_bytes=_largest_memory(row.get("steps") or []) or None,
    )  # fmt: skip


def _largest_memory(steps: Sequence[Mapping[str, Any]]) -> int:
    """The largest resident memory of one task of any step, which slurmdbd keeps in bytes under "requested"."""
    found = 0
    for step in steps:
        for tres in ((step.get("tres") or {}).get("requested") or {}).get("max") or []:
            if tres.get("type") == "mem":
                found = max(found, int(number(tres.get("count")) or 0))
    return found


def _finished(row: Mapping[str, Any]) -> FinishedJob | None:
    times = row.get("time") or {}
    submit, start, end = (moment(times.get(n)) for n in ("submission", "start", "end"))
    limit_min = number(times.get("limit"))
    if submit is None or start is None or end is None or not limit_min or limit_min == float("inf"):
        return None
    gpus = sum(int(number(t.get("count")) or 0) for t in _allocated(row) if (t.get("type"), t.get("name")) == ("gres", "gpu"))
    nodes = int(number(row.get("allocation_nodes")) or 1)
    return FinishedJob(
        _user(row), str(row.get("name") or ""), str(row.get("partition") or ""), submit, start, end, limit_min * 60, nodes, gpus
    )


def _allocated(row: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return (row.get("tres") or {}).get("allocated") or []


def _node(row: Mapping[str, Any]) -> NodeLine:
    gres, features = str(row.get("gres") or ""), _listed(row.get("active_features") or row.get("features"))
    total = sum(gpus_of_gres(gres).values())
    counted = tres_count(str(row.get("tres") or ""), "gres/gpu") is not None
    by_tres = tres_count(str(row.get("tres_used") or ""), "gres/gpu") or 0
    used = by_tres if counted else sum(gpus_of_gres(str(row.get("gres_used") or "")).values())
    state = "+".join([*as_words(row.get("state")), *as_words(row.get("state_flags"))])
    return NodeLine(
        name=str(row["name"]), partitions=_listed(row.get("partitions")), column=state_column(state), gpus=total, gpus_used=min(used, total),
        node_type=node_type_name(int(number(row.get("cpus")) or 0), int(number(row.get("real_memory")) or 0), gres, features),
    )  # fmt: skip


def _queued(row: Mapping[str, Any], state: JobState, user: str) -> QueuedJob:
    start, limit_min, priority = moment(row.get("start_time")), number(row.get("time_limit")), number(row.get("priority"))
    nodes = int(number(row.get("node_count")) or 1)
    name, reason = str(row.get("user_name") or ""), str(row.get("state_reason") or "")
    return QueuedJob(
        job_id=str(row.get("job_id")), partition="", state=_WORDS.get(state, "+".join(as_words(row.get("job_state")))), nodes=nodes,
        gpus=_gpus(row, nodes), submit_s=moment(row.get("submit_time")), start_s=start,
        limit_s=None if limit_min is None else limit_min * 60.0, priority=None if priority is None else int(priority),
        mine=name == user, reason="" if reason == "None" else reason, user=name, name=str(row.get("name") or ""),
    )  # fmt: skip


def _gpus(row: Mapping[str, Any], nodes: int) -> int:
    counted = tres_count(str(row.get("tres_alloc_str") or ""), "gres/gpu")
    if counted is not None:
        return counted
    request = str(row.get("tres_per_node") or "").replace("gres:", "").replace("gres/", "")
    return nodes * sum(gpus_of_gres(request).values())


def _comment(row: Mapping[str, Any]) -> str:
    told = row.get("comment")
    return str(told.get("job") or "") if isinstance(told, Mapping) else str(told or "")


def _user(row: Mapping[str, Any]) -> str:
    return str(row.get("user") or (row.get("association") or {}).get("user") or "")


def _listed(value: Any) -> tuple[str, ...]:
    return tuple(_parts(value))


def _parts(value: Any) -> Iterator[str]:
    for word in as_words(value):
        yield from (part for part in word.split(",") if part)
