"""A QueueSnapshot from scontrol's nodes and squeue's jobs. Pure.

Free GPUs are configured minus allocated TRES of each node: squeue's ``%b`` shows requests, which differ for whole-node jobs.
"""

from __future__ import annotations

import re

from ischeduler.batch.slurm_text import SEPARATOR, job_state, timestamp
from ischeduler.core.durations import parse_slurm
from ischeduler.core.errors import BadInput
from ischeduler.core.jobs import JobState
from ischeduler.core.naming import gpus_of_gres, node_type_name
from ischeduler.core.snapshot import NodeCounts, QueuedJob, QueueSnapshot

SNAPSHOT_FIELDS = (
    "JobID", "Partition", "State", "NumNodes", "tres-alloc", "SubmitTime", "StartTime", "TimeLimit", "PriorityLong", "UserName", "Reason",
)  # fmt: skip
_KEY = re.compile(r"(?:^|\s)([A-Z][A-Za-z/:_]*)=")
_GPU_TRES = re.compile(r"gres/gpu=(\d+)")


def snapshot_of(cluster: str, nodes_text: str, queue_text: str, taken_at: float, me: str) -> QueueSnapshot:
    """``nodes_text`` is ``scontrol -o show node``'s, ``queue_text`` squeue's with :data:`SNAPSHOT_FIELDS`."""
    counts: dict[tuple[str, str], dict[str, int]] = {}
    for line in nodes_text.splitlines():
        node = _pairs(line)
        if "NodeName" in node:
            _count(node, counts)
    jobs = tuple(job for line in queue_text.splitlines() if (job := _job(line, me)) is not None)
    return QueueSnapshot(cluster, taken_at, tuple(NodeCounts(p, t, **c) for (p, t), c in sorted(counts.items())), jobs)


def _pairs(line: str) -> dict[str, str]:
    matches = list(_KEY.finditer(line))
    ends = [m.start() for m in matches[1:]] + [len(line)]
    return {m[1]: line[m.end() : end].strip() for m, end in zip(matches, ends, strict=True)}


def _count(node: dict[str, str], counts: dict[tuple[str, str], dict[str, int]]) -> None:
    features = tuple(f for f in node.get("AvailableFeatures", "").split(",") if f and f != "(null)")
    cpus, memory_mb = int(node.get("CPUEfctv") or node.get("CPUTot") or 1), int(node.get("RealMemory") or 0)
    kind = node_type_name(cpus, memory_mb, node.get("Gres", ""), features)
    state = _node_state(node.get("State", ""))
    gpus = sum(gpus_of_gres(node.get("Gres", "")).values())
    used = _GPU_TRES.search(node.get("AllocTRES", ""))
    usable = state in ("idle", "mixed", "allocated")
    for partition in node.get("Partitions", "").split(","):
        if not partition or partition == "(null)":
            continue
        row = counts.setdefault((partition, kind), {})
        row[state] = row.get(state, 0) + 1
        row["total_gpus"] = row.get("total_gpus", 0) + gpus
        row["idle_gpus"] = row.get("idle_gpus", 0) + (max(0, gpus - int(used[1] if used else 0)) if usable else 0)


def _node_state(text: str) -> str:
    """One of NodeCounts' words for ``IDLE+DRAIN``, ``DOWN*``, ``MIXED+PLANNED``."""
    words = set(re.split(r"[+*~#!%$@^-]+", text.upper()))
    if words & {"DOWN", "FAIL", "FAILING", "NOT_RESPONDING", "POWERED_DOWN", "POWERING_DOWN", "UNKNOWN", "FUTURE"}:
        return "down"
    if words & {"DRAIN", "DRAINED", "DRAINING", "MAINT", "RESERVED"}:
        return "drained"
    if "MIXED" in words:
        return "mixed"
    return "allocated" if words & {"ALLOCATED", "COMPLETING"} else "idle"


def _job(line: str, me: str) -> QueuedJob | None:
    cells = [cell.strip() for cell in line.removesuffix(SEPARATOR).split(SEPARATOR)]
    if len(cells) != len(SNAPSHOT_FIELDS):
        return None
    row = dict(zip(SNAPSHOT_FIELDS, cells, strict=True))
    gpus = _GPU_TRES.search(row["tres-alloc"])
    state = job_state(row["State"])
    return QueuedJob(
        job_id=row["JobID"], partition=row["Partition"], state="PENDING" if state is JobState.PENDING else "RUNNING",
        nodes=int(row["NumNodes"]) if row["NumNodes"].isdigit() else 1, gpus=int(gpus[1]) if gpus else 0,
        submit_s=timestamp(row["SubmitTime"]), start_s=timestamp(row["StartTime"]) if state is JobState.RUNNING else None,
        limit_s=_limit(row["TimeLimit"]), priority=int(row["PriorityLong"]) if row["PriorityLong"].isdigit() else None,
        mine=row["UserName"] == me, reason=row["Reason"],
    )  # fmt: skip


def _limit(text: str) -> float | None:
    try:
        return parse_slurm(text)
    except BadInput:
        return None
