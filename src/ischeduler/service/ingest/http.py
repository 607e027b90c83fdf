"""``POST /v1/runs/{run_id}/events``: events of a run from its own jobs, with the job's token. Safe to send again."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.security import HTTPBearer
from pydantic import BaseModel, Field
from pydantic_core import from_json
from starlette.concurrency import run_in_threadpool

from ischeduler.core.errors import BadInput
from ischeduler.core.incoming import Incoming, Refused
from ischeduler.service.auth.limits import Buckets
from ischeduler.service.auth.require import RunId, anyone, run_of_job
from ischeduler.service.ingest.funnel import Funnel
from ischeduler.service.ingest.messages import Malformed, read_value
from ischeduler.service.settings import ServiceSettings
from ischeduler.store.ingest import EventInbox

EVENTS_MAX = 5000
LETTERS_MAX = 20
_THREAD_FROM_BYTES = 32 * 1024
_bearer = HTTPBearer(auto_error=False, scheme_name="token", description="A job's token (isj_...), or a personal one with the scope write.")

router = APIRouter(prefix="/v1/runs", tags=["events"])


class RefusedEvent(BaseModel):
    """An event that was not taken; sending it again changes nothing."""

    index: int = Field(description="Its place in the list, from 0.")
    reason: str


class Taken(BaseModel):
    """What became of a batch. Accepted events are stored (or were before)."""

    run: str
    accepted: int
    refused: list[RefusedEvent] = Field(description="At most the first 20.")
    refused_count: int


@dataclass(frozen=True, slots=True)
class IngestSettings:
    """``rate`` and ``burst`` limit one run's events (a second, and at once); the burst lets a whole spool be sent again.

    ``trust_s`` is how long a token that was checked is not looked up again: a withdrawn one may speak that much longer.
    """

    rate: float = 500.0
    burst: float = 50_000.0
    trust_s: float = 60.0
    most_waiting: int = 20_000


class Door:
    """What the endpoint keeps between requests, as ``app.state.ingest``."""

    def __init__(self, funnel: Funnel, settings: IngestSettings) -> None:
        self.funnel, self._settings = funnel, settings
        self._buckets = Buckets(settings.rate, settings.burst)
        self._admitted: OrderedDict[bytes, float] = OrderedDict()

    def take(self, run_id: str, count: int) -> None:
        """Count events of a run. TooMany beyond its rate."""
        self._buckets.take(run_id, time.monotonic(), max(1, count))

    def knows(self, header: str | None, run_id: str) -> bool:
        """Whether this credential was admitted to this run a moment ago."""
        return header is not None and self._admitted.get(_digest(header, run_id), 0.0) > time.monotonic()

    def remember(self, header: str | None, run_id: str) -> None:
        """It was admitted just now."""
        if header is None:
            return
        key = _digest(header, run_id)
        self._admitted[key] = time.monotonic() + self._settings.trust_s
        self._admitted.move_to_end(key)
        while len(self._admitted) > 20_000:
            self._admitted.popitem(last=False)


def install(app: FastAPI, settings: ServiceSettings) -> None:
    """Give the application its way in; the writer starts and ends with it."""
    own = settings.extra.get("ingest")
    found = own if isinstance(own, IngestSettings) else IngestSettings()
    backend = app.state.backend
    wake = getattr(backend.store, "wake", None)
    funnel = Funnel(EventInbox(backend.engine, clock=backend.clock.now), wake=wake, most_waiting=found.most_waiting)
    app.state.ingest = Door(funnel, found)
    app.state.beside.append(funnel)


async def admitted(request: Request, run_id: RunId, bearer: Any = Depends(_bearer)) -> str:  # noqa: B008
    """The run of the path, where this credential may send its events."""
    door, header = request.app.state.ingest, request.headers.get("authorization")
    if not door.knows(header, run_id):
        who = await run_in_threadpool(anyone, request)
        await run_in_threadpool(run_of_job, request, who, run_id)
        door.remember(header, run_id)
    return run_id


_BODY = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["events"],
                "properties": {
                    "run": {"type": "string", "description": "The path's run again, or left out."},
                    "events": {"type": "array", "maxItems": EVENTS_MAX, "items": {"type": "object"}},
                },
            }
        }
    },
}


@router.post(
    "/{run_id}/events", name="run.events.send", openapi_extra={"requestBody": _BODY},
    summary="Send events of a run, from inside its jobs",
)  # fmt: skip
async def send(request: Request, run_id: Annotated[str, Depends(admitted)]) -> Taken:
    """Store events, each once however often it is sent. A malformed one is refused by itself, with its reason.

    400 to 499 say that this body must not be sent again; 429 and 503 that it shall, after ``Retry-After``.
    """
    door, body = request.app.state.ingest, await request.body()
    if len(body) > _THREAD_FROM_BYTES:
        events, refused = await run_in_threadpool(read_body, body, run_id)
    else:
        events, refused = read_body(body, run_id)
    door.take(run_id, len(events) + len(refused))
    letters = [one for _, one in refused[:LETTERS_MAX]]
    if events or letters:
        await door.funnel.put(events, letters)
    shown = [RefusedEvent(index=index, reason=one.reason) for index, one in refused[:LETTERS_MAX]]
    return Taken(run=run_id, accepted=len(events), refused=shown, refused_count=len(refused))


def read_body(body: bytes, run_id: str) -> tuple[list[Incoming], list[tuple[int, Refused]]]:
    """The events of ``{"run", "events": [...]}``, and those that are none with their places. BadInput on another body."""
    try:
        value = from_json(body)
    except ValueError as error:
        raise BadInput(f"the body is no JSON: {error}.") from None
    found = value.get("events") if isinstance(value, dict) else None
    if not isinstance(found, list) or value.get("run", run_id) != run_id:
        raise BadInput(f'expected {{"run": "{run_id}", "events": [...]}}; see the reference page on events.')
    if len(found) > EVENTS_MAX:
        raise BadInput(f"{len(found)} events at once are too many; send {EVENTS_MAX} at most.")
    events: list[Incoming] = []
    refused: list[tuple[int, Refused]] = []
    for index, item in enumerate(found):
        read = read_value(item)
        if isinstance(read, Incoming) and read.run != run_id:
            read = Malformed("it is an event of another run")
        if isinstance(read, Incoming):
            events.append(read)
        else:
            refused.append((index, Refused("http", read.reason, repr(item)[:4096].encode("utf-8", "replace"), run_id)))
    return events, refused


def _digest(header: str, run_id: str) -> bytes:
    return hashlib.blake2b(f"{run_id}\0{header}".encode("utf-8", "surrogateescape"), digest_size=16).digest()
