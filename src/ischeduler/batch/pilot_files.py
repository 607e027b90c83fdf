"""What a pool's directory holds: segments of members in ``jobs/``, pilots in ``pilots/``. Every change is one rename or one link.

A segment's folder is that of :class:`~ischeduler.batch.local_jobs.JobFolder`; the pilot that takes it links ``start.json``, so that only one ever
does. A pilot's folder has ``state.json`` (its own), ``orders.json`` (the pool's) and, once its batch job is known to have ended,
``ended.json``. The pilot's side is :mod:`ischeduler.training.pilot`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ischeduler.batch.local_jobs import JobFolder
from ischeduler.core.jobs import JobState, JobStatus
from ischeduler.core.pilots import ROUND_OVER, MemberJob, PilotSign
from ischeduler.core.pool import ANY
from ischeduler.training.files import write_atomic


def status_of(folder: JobFolder, pilots: Path) -> JobStatus:
    """The segment as the port wants it. One that ran in a pilot that is closed, and has not said how it ended, is lost with its node."""
    spec, submitted, started, ended = folder.spec, folder.read("submit.json"), folder.read("start.json"), folder.read("end.json")
    if started and not ended:
        closed = read_json(pilots / str(started.get("pilot")) / "ended.json")
        ended = folder.read("end.json") or ({"state": "node_fail", "at": closed["at"], "reason": "its pilot ended"} if closed else {})
    state = JobState(ended["state"]) if ended else JobState.RUNNING if started else JobState.PENDING
    reason = ended.get("reason", "") if ended else "" if started else "PoolRound"
    return JobStatus(
        job_id=folder.job_id, key=spec.key, state=state, raw_state=state.value.upper(), reason=reason, partition=spec.partition,
        exit_code=ended.get("exit_code"), signal=ended.get("signal"), nodes=(started["node"],) if started.get("node") else (),
        submit_s=submitted.get("at"), start_s=started.get("at"), end_s=ended.get("at"), limit_s=spec.resources.walltime_s,
    )  # fmt: skip


def member_job(folder: JobFolder, status: JobStatus) -> MemberJob:
    """The segment as the pool's rounds want it."""
    spec, started, ended = folder.spec, folder.read("start.json"), folder.read("end.json")
    return MemberJob(
        folder.job_id, spec.key, max(1, spec.resources.gpus_per_node), spec.resources.cpus_per_node,
        "" if spec.partition == ANY else spec.partition, spec.exclude_nodes, str(started.get("pilot", "")), str(started.get("node", "")),
        str(started.get("type", "")), spec.resources.walltime_s, status.submit_s or 0.0, status.start_s, status.end_s,
        asked=ended.get("reason") == ROUND_OVER,
    )  # fmt: skip


def pilot_sign(folder: Path) -> PilotSign | None:
    """A pilot's report; None before its first, and where the file is of no use."""
    found = read_json(folder / "state.json")
    try:
        return PilotSign(
            folder.name, str(found["type"]), str(found["node"]), int(found["gpus"]), float(found["beat_at"]), float(found["started_at"]),
            None if found.get("ends_at") is None else float(found["ends_at"]), bool(found.get("leaving")),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError):
        return None


def read_json(path: Path) -> dict[str, Any]:
    """The file's object; empty where it is missing or torn."""
    try:
        found: Any = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_json(path: Path, content: Any) -> None:
    """Replace a file."""
    write_atomic(path, json.dumps(content, sort_keys=True).encode())
