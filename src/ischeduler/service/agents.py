"""``POST /v1/agents/{cluster}/poll``: a user's agent tells what it did and fetches what to do. Everything in it is that user's own."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from ischeduler.service.api.house_route import UNLOGGED, HouseRoute
from ischeduler.service.auth.require import Writer
from ischeduler.store.mailbox import Mailbox

router = APIRouter(prefix="/v1/agents", tags=["agents"], route_class=HouseRoute)
ClusterName = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", examples=["pitzer"])]
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,199}$"
_FIRST_LOOKS_S, _LOOK_S, _QUICK_LOOKS = 0.1, 0.5, 20
"""While something happens the mailbox is looked at often, afterwards seldom."""


class Done(BaseModel):
    """An answer to one request."""

    id: int = Field(ge=1, le=2**62)
    answer: dict[str, Any] = Field(
        description="{ok: value}, {packed: base64 of zlib of JSON} or {error: {kind, message, refusal}}."
    )


class Poll(BaseModel):
    """What an agent says when it calls."""

    agent: str = Field(pattern=_NAME, description="The agent's name, another for each start.")
    answers: list[Done] = Field(default=[], max_length=100)
    wait_s: float = Field(default=20.0, ge=0, le=25, allow_inf_nan=False, description="How long to wait for requests.")
    next_s: float = Field(
        default=60.0, ge=30, le=3600, allow_inf_nan=False, description="It calls again within this time, or is gone."
    )
    instead_of: str = Field(default="", pattern=r"^[A-Za-z0-9._:-]{0,200}$", description="An agent that it knows to be dead.")


class Asked(BaseModel):
    """A request to the agent. It may be begun within ``ttl_s`` seconds, or not at all."""

    id: int
    kind: str
    body: dict[str, Any]
    ttl_s: float


class Fetched(BaseModel):
    """What the agent shall do; which of its answers are kept; and whose turn it is (another name: that agent is at work)."""

    at_work: str
    settled: list[int]
    requests: list[Asked]


@router.post(
    "/{cluster}/poll", name="agent.poll", openapi_extra={UNLOGGED: True}, summary="Tell what was done, fetch what is to do"
)
async def poll(request: Request, who: Writer, cluster: ClusterName, said: Poll) -> Fetched:
    """Answers are kept once, however often they are told. A request is given to one agent only and never again."""
    mailbox = _mailbox(request)
    for done in said.answers:
        await run_in_threadpool(mailbox.settle, who.user, cluster, done.id, done.answer)
    settled = [done.id for done in said.answers]
    at_work = await run_in_threadpool(mailbox.arrive, who.user, cluster, said.agent, said.next_s, said.instead_of)
    if at_work != said.agent:
        return Fetched(at_work=at_work, settled=settled, requests=[])
    found = await _wait(request, mailbox, who.user, cluster, said)
    return Fetched(
        at_work=at_work, settled=settled, requests=[Asked(id=m.id, kind=m.kind, body=dict(m.body), ttl_s=m.ttl_s) for m in found]
    )


@router.delete("/{cluster}", name="agent.leave", openapi_extra={UNLOGGED: True}, summary="An agent ends", status_code=204)
def leave(request: Request, who: Writer, cluster: ClusterName, agent: Annotated[str, Query(pattern=_NAME)]) -> None:
    """Its place is free at once."""
    _mailbox(request).leave(who.user, cluster, agent)


async def _wait(request: Request, mailbox: Mailbox, user: str, cluster: str, said: Poll) -> Any:
    """Requests as soon as there are any; none when the time is over or the agent has hung up."""
    loop, looks = asyncio.get_running_loop(), 0
    until = loop.time() + said.wait_s
    while not await request.is_disconnected():
        found = await run_in_threadpool(mailbox.take, user, cluster, said.agent)
        left_s = until - loop.time()
        if found or left_s <= 0:
            return found
        looks += 1
        await asyncio.sleep(min(left_s, _FIRST_LOOKS_S if looks < _QUICK_LOOKS else _LOOK_S))
    return ()


def _mailbox(request: Request) -> Mailbox:
    backend = request.app.state.backend
    return Mailbox(backend.engine, backend.clock.now)
