"""Is the process alive, and can it do its work?"""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from ischeduler.service.api.desk import ADesk

router = APIRouter(tags=["health"])
_STATUS = {
    "type": "object", "required": ["status", "problems"],
    "properties": {"status": {"type": "string"}, "problems": {"type": "array", "items": {"type": "string"}}},
}  # fmt: skip
_ANSWER = {"content": {"application/json": {"schema": _STATUS}}}


@router.get("/healthz", responses={200: {"description": "Alive.", **_ANSWER}}, name="health.alive")
async def alive() -> Response:
    """Alive; touches nothing."""
    return JSONResponse({"status": "alive", "problems": []})


@router.get(
    "/readyz", responses={200: {"description": "Ready.", **_ANSWER}, 503: {"description": "Not ready.", **_ANSWER}}, name="health.ready"
)
def ready(desk: ADesk) -> Response:
    """Whether the database answers and its tables are this program's."""
    problems = list(desk.backend.problems())
    return JSONResponse({"status": "not ready" if problems else "ready", "problems": problems}, status_code=503 if problems else 200)
