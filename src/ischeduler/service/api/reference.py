"""Counterparts of the reference implementation's endpoints that nothing else here covers: its three kinds of messages, and stress tests.

Schedule a job is ``POST /v1/runs``, stop a job ``POST /v1/runs/{run}/cancel``; ``docs/reference/api.md`` has the whole table.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response

from ischeduler.core.errors import NotFound, StoreConflict
from ischeduler.core.event import Event
from ischeduler.core.run import Run
from ischeduler.service.api.bodies import StressBody
from ischeduler.service.api.desk import ADesk, Desk
from ischeduler.service.api.documents import answers, document
from ischeduler.service.api.house_route import HouseRoute
from ischeduler.service.api.runs import Key
from ischeduler.service.auth.require import ARun, EstimatorDeveloper
from ischeduler.store.ingest_read import EventArchive

router = APIRouter(prefix="/v1", tags=["reference"], route_class=HouseRoute)
StressId = Annotated[str, Path(pattern=r"^s-[0-9a-f]{16}$", examples=["s-0123456789abcdef"])]
MOST_MESSAGES = 2000


class MessageKind(StrEnum):
    """The reference's topics, without ``-messages``."""

    PERFORMANCE = "performance"
    PROGRESS = "progress"
    UTILISATION = "utilisation"


@router.get("/runs/{run_id}/messages/{kind}", responses=answers("messages", 404), name="run.messages")
def messages(
    desk: ADesk, run: ARun, kind: MessageKind, after: Annotated[float, Query(ge=0, le=10**11, allow_inf_nan=False)] = 0.0,
    limit: Annotated[int, Query(ge=1, le=MOST_MESSAGES)] = 1000,
) -> Response:  # fmt: skip
    """What the run's jobs said of one kind, oldest first, in the reference's fields and with its time (`at`, epoch seconds).

    performance: accuracy, fmeasure, precision, recall; progress: epochsCompleted, totalEpochs and the time since the first start as
    days, hours, minutes; utilisation: cpu, memory, swap. Each with jobId, the batch job's id where it is known.
    """
    told = _progress(desk, run, after, limit) if kind is MessageKind.PROGRESS else _figures(desk, run, kind, after, limit)
    return document("messages", {"run_id": run.id, "kind": kind.value, "messages": list(told)})


def _figures(desk: Desk, run: Run, kind: MessageKind, after: float, limit: int) -> Iterator[Mapping[str, Any]]:
    names = ("accuracy", "fmeasure", "precision", "recall") if kind is MessageKind.PERFORMANCE else ("cpu", "memory", "swap")
    for at, data in EventArchive(desk.backend.engine).curve(run.id, kind.value, after=after, limit=limit):
        yield {"at": at, "jobId": _job(run, at), **{name: data.get(name) for name in names}}


def _progress(desk: Desk, run: Run, after: float, limit: int) -> Iterator[Mapping[str, Any]]:
    events = {e.at: e for e in _progress_events(desk, run) if e.at > after and "epoch" in e.data}
    began = min((a.started_at for a in run.attempts if a.started_at is not None), default=run.created_at)
    for at in sorted(events)[-limit:]:
        minutes = int(max(0.0, at - began) // 60)
        yield {
            "at": at, "jobId": _job(run, at), "epochsCompleted": events[at].data["epoch"],
            "totalEpochs": events[at].data.get("epochs", run.plan.workload.epochs), "days": minutes // 1440,
            "hours": minutes % 1440 // 60, "minutes": minutes % 60,
        }  # fmt: skip


def _progress_events(desk: Desk, run: Run) -> Iterator[Event]:
    """Those the plane has taken in, and those that still wait for it."""
    yield from (e for _, e in desk.backend.store.events(run.id) if e.kind == "progress")
    yield from (e for e in EventArchive(desk.backend.engine).curve_events(run.id, limit=MOST_MESSAGES) if e.kind == "progress")


def _job(run: Run, at: float) -> str:
    """The batch job that was the run's at that time."""
    known = [a.job_id for a in run.attempts if a.job_id and (a.started_at or a.created_at) <= at]
    return known[-1] if known else run.id


@router.post("/stress-tests", status_code=201, responses=answers("stress-test", 404, 409, 413, status=201), name="stress.launch")
def launch(desk: ADesk, who: EstimatorDeveloper, body: StressBody, idempotency_key: Key = None) -> Response:
    """Delegate the same option of a kept plan many times over. For estimator developers and administrators."""
    word = desk.gate.derived.digest("stress", f"{who.user}\n{idempotency_key}")[:16] if idempotency_key else secrets.token_hex(8)
    made = [
        desk.backend.submit(who.user, body.plan, body.choice, body.caps.given(), "", f"stress-{word}-{number}").id for number in range(body.runs)
    ]
    return document("stress-test", {"id": f"s-{word}", "runs": made}, status=201, headers={"Location": f"/v1/stress-tests/s-{word}"})


@router.delete("/stress-tests/{stress_id}", responses=answers("stress-test", 404), name="stress.stop")
def stop(desk: ADesk, who: EstimatorDeveloper, stress_id: StressId) -> Response:
    """End all runs of a stress test of yours; those that have ended stay as they are. Names the runs that were told to end."""
    runs = desk.pages.named(who.user, f"r-stress-{stress_id[2:]}-")
    if not runs:
        raise NotFound(f"you have no stress test '{stress_id}'.")
    return document("stress-test", {"id": stress_id, "runs": [r for r in runs if _ends(desk, who.user, r)]})


@router.delete("/stress-tests", responses=answers("stress-test"), name="stress.stop_all")
def stop_all(desk: ADesk, who: EstimatorDeveloper) -> Response:
    """End the runs of all stress tests of yours."""
    runs = desk.pages.named(who.user, "r-stress-")
    return document("stress-test", {"id": "", "runs": [r for r in runs if _ends(desk, who.user, r)]})


def _ends(desk: Desk, user: str, run_id: str) -> bool:
    try:
        desk.backend.cancel(user, run_id)
    except StoreConflict:
        return False
    return True
