"""Live updates as server-sent events: one run's events, or the state of all of one's runs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response
from sse_starlette.sse import EventSourceResponse
from starlette.concurrency import run_in_threadpool

from ischeduler.core.codec import to_plain
from ischeduler.core.errors import BadInput, NotFound
from ischeduler.core.run import Run
from ischeduler.service.api.desk import ADesk, Desk
from ischeduler.service.api.documents import answers
from ischeduler.service.api.house_route import HouseRoute
from ischeduler.service.api.runs import summary
from ischeduler.service.auth.limits import TooMany
from ischeduler.service.auth.principal import NotSignedIn, Principal
from ischeduler.service.auth.require import ARun, Reader, visible_run
from ischeduler.service.live import Live, Watch

router = APIRouter(prefix="/v1", tags=["live"], route_class=HouseRoute)
LastId = Annotated[str | None, Header(alias="Last-Event-ID", max_length=64, description="The `id` of the last event seen.")]
PING_S, CHECK_S = 15, 20.0
MOST_STREAMS = 32
RESUME_OVERLAP_S = 15.0
_STREAM: dict[int | str, Any] = {200: {"description": "Events.", "content": {"text/event-stream": {"schema": {"type": "string"}}}}}
_OPEN: Counter[str] = Counter()


def _responses(*problems: int) -> dict[int | str, Any]:
    return {**answers(None, *problems), **_STREAM}


@router.get("/runs/{run_id}/stream", responses=_responses(404), name="run.stream")
def run_stream(desk: ADesk, request: Request, who: Reader, run: ARun, last_event_id: LastId = None) -> Response:
    """A run's events (`event`) and where it stands (`run`), as they come; `end` when it has ended and all was told.

    An event's id is its row: with Last-Event-ID the stream goes on behind it, without loss and without repeats.
    """
    after = _row(last_event_id)
    return _stream(who, _run_events(desk, request, who, run, after))


@router.get("/stream", responses=_responses(), name="runs.stream")
def runs_stream(desk: ADesk, request: Request, who: Reader, last_event_id: LastId = None) -> Response:
    """Where each of your runs stands (`run`): at first all that have not ended, then whatever changes.

    With Last-Event-ID at first those that changed since; one may be told twice, none is left out.
    """
    since = _time(last_event_id)
    return _stream(who, _states(desk, request, who, since))


def _stream(who: Principal, events: AsyncIterator[dict[str, str]]) -> Response:
    if _OPEN[who.user] >= MOST_STREAMS:
        raise TooMany(60.0)

    async def counted() -> AsyncIterator[dict[str, str]]:
        _OPEN[who.user] += 1
        try:
            async for event in events:
                yield event
        finally:
            _OPEN[who.user] -= 1

    return EventSourceResponse(counted(), ping=PING_S, headers={"X-Accel-Buffering": "no"})


async def _run_events(desk: Desk, request: Request, who: Principal, run: Run, after: int) -> AsyncIterator[dict[str, str]]:
    live: Live = request.app.state.live
    told = -1
    with live.watching(Watch(run_ids=frozenset({run.id}))) as watch:
        while True:
            now = await run_in_threadpool(_still_there, desk, request, who, run.id)
            if now is None:
                return
            for row, event in await run_in_threadpool(desk.backend.store.events, run.id, after=after):
                after = row
                yield {"event": "event", "id": str(row), "data": _line(to_plain(event))}
            if now.version != told:
                told = now.version
                yield {"event": "run", "data": _line(summary(now))}
            if now.state.ended and not await run_in_threadpool(desk.backend.store.events, run.id, after=after):
                yield {"event": "end", "data": _line({"run_id": now.id, "state": now.state.value})}
                return
            await watch.wait(CHECK_S)


async def _states(desk: Desk, request: Request, who: Principal, since: float | None) -> AsyncIterator[dict[str, str]]:
    live: Live = request.app.state.live
    watch = Watch(owners=frozenset({who.user}), projects=who.seen_projects)
    with live.watching(watch):
        changed = await run_in_threadpool(_at_first, desk, who, since)
        while True:
            for run_id, at in sorted(changed.items(), key=lambda item: item[1]):
                run = await run_in_threadpool(_seen, request, who, run_id)
                if run is not None:
                    yield {"event": "run", "id": f"{at:.3f}", "data": _line(summary(run))}
            if not await run_in_threadpool(_signed_in, desk, request):
                return
            changed = await watch.wait(CHECK_S)


def _at_first(desk: Desk, who: Principal, since: float | None) -> dict[str, float]:
    if since is None:
        live = desk.pages.versions(owner=who.user, projects=who.seen_projects)
        return dict.fromkeys(live, desk.backend.clock.now())
    found = desk.pages.changed(since - RESUME_OVERLAP_S, owners=[who.user], projects=who.seen_projects)
    return {run_id: at for run_id, _, _, _, at in found}


def _seen(request: Request, who: Principal, run_id: str) -> Run | None:
    try:
        return visible_run(request, who, run_id)
    except NotFound:
        return None


def _signed_in(desk: Desk, request: Request) -> bool:
    """A stream outlives its request's check: a token withdrawn meanwhile ends it."""
    try:
        return bool(desk.gate.identify(request))
    except NotSignedIn:
        return False


def _still_there(desk: Desk, request: Request, who: Principal, run_id: str) -> Run | None:
    return _seen(request, who, run_id) if _signed_in(desk, request) else None


def _line(value: Any) -> str:
    return json.dumps(to_plain(value), separators=(",", ":"))


def _row(text: str | None) -> int:
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise BadInput("Last-Event-ID is none of this stream's; leave it out to begin anew.")
    return int(text)


def _time(text: str | None) -> float | None:
    if not text:
        return None
    if not (text.isascii() and text.replace(".", "", 1).isdigit() and len(text) < 20):
        raise BadInput("Last-Event-ID is none of this stream's; leave it out to begin anew.")
    return float(text)
