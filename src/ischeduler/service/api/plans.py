"""Plans, estimates and saved workloads: before anything is submitted."""

from __future__ import annotations

import secrets
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response

from ischeduler.core.codec import to_plain
from ischeduler.core.errors import BadInput
from ischeduler.service.api.bodies import AskBody, EstimateBody, SaveBody
from ischeduler.service.api.desk import ADesk, Desk
from ischeduler.service.api.documents import answers, document
from ischeduler.service.api.house_route import HouseRoute
from ischeduler.service.api.runs import Key
from ischeduler.service.auth.principal import Principal
from ischeduler.service.auth.require import Reader, Writer

router = APIRouter(prefix="/v1", tags=["plans"], route_class=HouseRoute)
PlanPath = Annotated[str, Path(pattern=r"^p-[0-9a-f]{16}$", examples=["p-0123456789abcdef"])]
WorkloadPath = Annotated[str, Path(pattern=r"^w-[0-9a-f]{16}$", examples=["w-0123456789abcdef"])]


@router.post("/plans", status_code=201, responses=answers("plan", 404, 409, 413, 502, status=201), name="plan.make")
def make_plan(desk: ADesk, who: Reader, body: AskBody, idempotency_key: Key = None) -> Response:
    """Where a training could run, how, when it would be done and at what cost. Nothing is submitted; the answer is kept for a week."""
    with desk.slot():
        plan_id, planset = desk.backend.plan(who.user, _fields(desk, who, body), **body.asked())
    return document("plan", {**to_plain(planset), "id": plan_id}, status=201, headers={"Location": f"/v1/plans/{plan_id}"})


@router.get("/plans/{plan_id}", responses=answers("plan", 404), name="plan.get")
def get_plan(desk: ADesk, who: Reader, plan_id: PlanPath) -> Response:
    """A kept plan of yours."""
    return document("plan", {**to_plain(desk.backend.planset(who.user, plan_id)), "id": plan_id})


@router.get("/plans/{plan_id}/script", responses=answers("script", 404, 409), name="plan.script")
def get_script(desk: ADesk, who: Reader, plan_id: PlanPath, choice: Annotated[str, Query(max_length=200)] = "goal") -> Response:
    """An option of a kept plan as a plain batch script."""
    where, script = desk.backend.script(who.user, plan_id, choice)
    return document("script", {"where": where, "script": script})


@router.post("/estimates", responses=answers("estimate", 404, 409, 413, 502), name="estimate.make")
def estimate(desk: ADesk, who: Reader, body: EstimateBody, idempotency_key: Key = None) -> Response:
    """What a training will need, place by place: memory, step time, run time, queue wait."""
    with desk.slot():
        found = desk.backend.estimates(who.user, _fields(desk, who, body), memory=body.memory, **body.asked())
    return document("estimate", found)


@router.get("/workloads", responses=answers("workloads"), name="workload.list", tags=["workloads"])
def list_workloads(desk: ADesk, who: Reader) -> Response:
    """Your saved workloads, newest first."""
    return document("workloads", {"workloads": desk.workloads.all(who.user)})


@router.post("/workloads", status_code=201, responses=answers("workload", 409, 413, status=201), name="workload.save", tags=["workloads"])
def save_workload(desk: ADesk, who: Writer, body: SaveBody, idempotency_key: Key = None) -> Response:
    """Keep a workload under a name, to be planned again."""
    fields = body.workload.fields()
    desk.backend.workload(who.user, fields)
    saved = desk.workloads.save(f"w-{secrets.token_hex(8)}", who.user, body.name, fields)
    return document("workload", {"workload": saved}, status=201, headers={"Location": f"/v1/workloads/{saved.id}"})


@router.get("/workloads/{workload_id}", responses=answers("workload", 404), name="workload.get", tags=["workloads"])
def get_workload(desk: ADesk, who: Reader, workload_id: WorkloadPath) -> Response:
    """A saved workload of yours."""
    return document("workload", {"workload": desk.workloads.get(workload_id, who.user)})


@router.delete(
    "/workloads/{workload_id}", status_code=204, responses=answers(None, 404, status=204, words="Gone."), name="workload.remove", tags=["workloads"]
)
def remove_workload(desk: ADesk, who: Writer, workload_id: WorkloadPath) -> Response:
    """Forget a saved workload."""
    desk.workloads.remove(workload_id, who.user)
    return Response(status_code=204)


def _fields(desk: Desk, who: Principal, body: AskBody) -> dict[str, Any]:
    if (body.workload is None) == (body.saved is None):
        raise BadInput("say what to train, once: either a workload, or the id of a saved one.")
    if body.workload is not None:
        return body.workload.fields()
    assert body.saved is not None
    return dict(desk.workloads.get(body.saved, who.user).workload)
