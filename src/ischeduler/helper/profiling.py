"""``isched profile``: a few real steps, measured in a short job where the training would run, kept as evidence."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ischeduler.core.codec import from_plain, to_plain
from ischeduler.core.errors import BatchUnavailable, EstimatorFailed, NotFound
from ischeduler.core.history import HistoryRecord
from ischeduler.core.jobs import JobRef, JobSpec, JobState
from ischeduler.core.workload import Workload

if TYPE_CHECKING:
    from ischeduler.estimators.profile import Place
    from ischeduler.helper.session import Session
    from ischeduler.planning.candidates import Candidate

WALLTIME_S = 600.0
POLL_S = 1.0
LATE_S = 30.0
"""How long a result may take to appear on the shared file system after the job has ended."""


def profile_here(workload: Workload, place: Place, steps: int, time_limit_s: float, owner: str) -> HistoryRecord:
    """Measure on this node, now."""
    from ischeduler.estimators.profile import measure_step_time

    return measure_step_time(_first(workload), place, steps=steps, time_limit_s=time_limit_s, owner=owner)


def profile_there(
    session: Session, workload: Workload, where: str | None, steps: int, tell: Callable[[str], None]
) -> HistoryRecord:
    """Measure in a short batch job at ``where`` (or an idle place) and record it. EstimatorFailed with the job's words."""
    candidate = _candidate(session, _first(workload), where)
    folder = session.services.settings.data_dir / "profiles" / f"p-{secrets.token_hex(3)}"
    folder.mkdir(parents=True, mode=0o700)
    spec = _job(session, candidate, folder, steps)
    batch = session.services.batches[candidate.cluster.name]
    job_id = batch.submit(spec)
    tell(f"profiling {candidate.workload.name} for {steps} steps on {candidate.where} (job {job_id})")
    _wait(session, spec.key, job_id, candidate.cluster.name, folder)
    record = _result(session, folder)
    session.services.store.record(record)
    return record


def last_profile(session: Session, workload: Workload) -> HistoryRecord:
    """The newest profile of this workload. NotFound when there is none."""
    found = session.services.store.history(family=_first(workload).family, kind="profile", owner=session.owner, limit=1)
    if not found:
        raise NotFound(f"{workload.name} has not been profiled yet; run: isched profile.")
    return found[0]


def epoch_time_s(record: HistoryRecord, workload: Workload) -> float | None:
    """Steps of an epoch times the measured step; None without samples or a step time."""
    if record.step_time_s is None or not workload.samples:
        return None
    return record.step_time_s * _first(workload).steps_per_epoch


def _first(workload: Workload) -> Workload:
    return workload.variants()[0]


def _candidate(session: Session, workload: Workload, where: str | None) -> Candidate:
    """A live place that takes the workload: the named one, else the one with the most idle nodes."""
    from ischeduler.planning.candidates import candidates

    services = session.services
    clusters = [services.cluster(name) for name in services.batches]
    places = [c for c in candidates(workload, clusters) if where in (None, c.where, c.partition.name)]
    wanted = [c for c in places if c.partition.state == "UP" and (c.partition.access is None or c.partition.access.allowed)]
    fitting = [c for c in wanted if workload.gpus in (None, c.resources.gpus_per_node)]
    if not fitting:
        known = sorted({c.where for c in candidates(workload, clusters)})
        raise NotFound(f"no partition can take a profile{f' at {where}' if where else ''}; known: {', '.join(known) or 'none'}.")
    idle = {name: services.batches[name].snapshot() for name in services.batches}
    return max(
        fitting,
        key=lambda c: (
            c.resources.gpus_per_node > 0,
            sum(n.idle + n.mixed for n in idle[c.cluster.name].counts(c.partition.name)),
        ),
    )


def _job(session: Session, c: Candidate, folder: Path, steps: int) -> JobSpec:
    limit_s = min(WALLTIME_S, c.partition.max_walltime_s or WALLTIME_S)
    card = c.node_type.accelerator.name if c.node_type.accelerator and c.resources.gpus_per_node else ""
    request = {
        "workload": to_plain(c.workload),
        "steps": steps,
        "time_limit_s": max(20.0, limit_s - 15.0),
        "owner": session.owner,
        "place": {
            "cluster": c.cluster.name,
            "partition": c.partition.name,
            "node_type": c.node_type.name,
            "accelerator": card or None,
        },
    }
    (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
    command = (c.workload.options.get("python", sys.executable), "-m", "ischeduler.helper.profiling", str(folder))
    key = f"profile-{folder.name}"
    return JobSpec(
        key=key,
        name=key,
        partition=c.partition.name,
        resources=replace(c.resources, walltime_s=limit_s),
        command=command,
        directory=c.workload.directory,
        output=str(folder / "out"),
        environment=c.workload.environment,
        account=c.account,
        qos=c.qos,
        signal_lead_s=None,
    )


def _wait(session: Session, key: str, job_id: str, cluster: str, folder: Path) -> None:
    """Until the result is there or the job has ended without one."""
    batch, clock = session.services.batches[cluster], session.clock
    ended_at: float | None = None
    while not (folder / "result.json").exists():
        try:
            statuses = batch.observe([JobRef(key, job_id)]).jobs.get(key, ())
        except BatchUnavailable:
            statuses = ()  # says nothing about the job
        if statuses and all(s.state.ended for s in statuses):
            ended_at = ended_at if ended_at is not None else clock.now()
            late = LATE_S if statuses[-1].state is JobState.COMPLETED else 3.0
            if clock.now() - ended_at > late:
                raise EstimatorFailed(
                    f"the profiling job {job_id} ended ({statuses[-1].state.value}) without a result: {_tail(folder)}"
                )
        clock.sleep(POLL_S)


def _result(session: Session, folder: Path) -> HistoryRecord:
    answer: dict[str, Any] = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    if "error" in answer:
        raise EstimatorFailed(str(answer["error"]))
    return from_plain(HistoryRecord, answer["record"])


def _tail(folder: Path) -> str:
    path = folder / "out"
    text = path.read_text(encoding="utf-8", errors="replace").strip() if path.exists() else ""
    return " ".join(text.splitlines()[-3:])[-300:] or "no output"


def main(folder: Path) -> int:
    """Inside the job: measure, and leave the answer beside the request (atomically: the other side waits for it)."""
    from ischeduler.core.errors import IschedError
    from ischeduler.estimators.profile import Place

    request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    workload = from_plain(Workload, request["workload"])
    try:
        record = profile_here(workload, Place(**request["place"]), request["steps"], request["time_limit_s"], request["owner"])
        answer: dict[str, Any] = {"record": to_plain(record)}
    except IschedError as error:
        answer = {"error": str(error)}
    scratch = folder / "result.tmp"
    scratch.write_text(json.dumps(answer), encoding="utf-8")
    scratch.replace(folder / "result.json")
    return 1 if "error" in answer else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
