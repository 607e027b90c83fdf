"""``POST /v1/hooks/tapis/{user}/{word}``: what a Tapis tenant tells of a user's jobs.

Tapis signs nothing, so the address itself is the secret: its last word is a keyed digest of the user's name. News is believed for two
things only: a run is looked at sooner, and events that its own job sent are taken in, each once by its token and number. What a
job's state is, the plane asks Tapis itself; so news may be late, doubled, out of order, lost or false.
"""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.concurrency import run_in_threadpool

from ischeduler.batch.tapis.events import read_notice, unpack_events
from ischeduler.core.errors import BadInput, NotFound
from ischeduler.core.run import Run
from ischeduler.plane.observe import watched
from ischeduler.plane.transitions import LIVE
from ischeduler.service.api.documents import answers
from ischeduler.service.api.house_route import UNLOGGED, HouseRoute
from ischeduler.service.auth.secrets import Derived

router = APIRouter(prefix="/v1/hooks/tapis", tags=["hooks"], route_class=HouseRoute)
PURPOSE = "tapis-hook"


def hook_path(derived: Derived, user: str) -> str:
    """Where Tapis shall tell news of a user's jobs."""
    return f"/v1/hooks/tapis/{user}/{derived.digest(PURPOSE, user)}"


@router.post(
    "/{user}/{word}",
    name="hook.tapis",
    openapi_extra={UNLOGGED: True},
    status_code=204,
    responses=answers(None, 404, 413, status=204, words="Heard."),
    summary="News of Tapis about a user's jobs",
)
async def hear(
    request: Request, user: Annotated[str, Path(pattern=r"^[a-z_][a-z0-9_.-]{0,31}$")], word: Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")],
) -> None:  # fmt: skip
    """Take one notification in. The same one again changes nothing."""
    if not request.app.state.gate.derived.matches(PURPOSE, user, word):
        raise NotFound("there is nothing here.")
    try:
        body = json.loads(await request.body())
    except ValueError:
        raise BadInput("a Tapis notification is JSON.") from None
    notice = read_notice(body)
    run = await run_in_threadpool(_run_of, request, user, notice.job)
    if run is None:
        return
    if notice.text:
        await _take_events(request, run, notice.text)
    if notice.status or notice.text:
        await run_in_threadpool(request.app.state.backend.store.wake, [run.id])


def _run_of(request: Request, user: str, job: str) -> Run | None:
    """The user's live run one of whose last jobs it is."""
    runs = request.app.state.backend.store.list_runs(owner=user, states=LIVE)
    return next((r for r in runs if any(a.job_id == job for a in watched(r))), None)


async def _take_events(request: Request, run: Run, text: str) -> None:
    """The same way in as for events sent over HTTP."""
    from ischeduler.service.ingest.http import read_body

    door = getattr(request.app.state, "ingest", None)
    events = unpack_events(text)
    if door is None or not events:
        return
    good, _ = read_body(json.dumps({"run": run.id, "events": events}).encode(), run.id)
    door.take(run.id, len(good))
    if good:
        await door.funnel.put(good, [])
