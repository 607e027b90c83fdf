"""``POST /v1/guard``: a job as it is about to be submitted, and what there is to say about it.

The asker is known by a MUNGE credential (body ``application/x-munge``, the question sealed inside) or by a token like everywhere
(body ``application/json``). Nothing here asks a batch system: what is not known already is not said.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Header, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.concurrency import run_in_threadpool

from ischeduler.core.cluster import Cluster
from ischeduler.core.errors import BadInput
from ischeduler.core.history import HistoryRecord
from ischeduler.service.guard import answer
from ischeduler.service.guard.job import read_job
from ischeduler.service.guard.judge import Advice, judge
from ischeduler.service.guard.munge import LONGEST_CREDENTIAL, unseal

MUNGE = "application/x-munge"


class GuardEvidence(Protocol):
    """What the guard needs to know; both answers come from what is stored, at once."""

    def guard_cluster(self, user: str, name: str) -> Cluster | None:
        """A known cluster as ``user`` sees it; None where there is none of that name."""
        ...

    def guard_past(self, user: str, cluster: str) -> Sequence[HistoryRecord]:
        """The user's own evidence, newest first."""
        ...

    def user_of_account(self, account: str) -> str:
        """The service's name of a cluster's account."""
        ...


class TokenBearer(Protocol):
    """How the app knows a request's user."""

    async def __call__(self, request: Request) -> str:
        """The user; raises the app's own refusal."""
        ...


def guard_router(evidence: GuardEvidence, bearer: TokenBearer, *, unmunge: Sequence[str] = ("unmunge",)) -> APIRouter:
    """The one route, over what is known and the app's own way to know its users. ``unmunge``: the program and its options."""
    router = APIRouter(tags=["guard"])

    @router.post("/v1/guard", summary="What to know about a job before it is submitted", response_model=None)
    async def guard(
        request: Request,
        x_slurm_cluster: Annotated[str, Header(max_length=128)] = "",
        x_guard_rewrite: Annotated[str, Header(max_length=8)] = "no",
    ) -> Response:
        """Advice on one job; text/plain for the filter, JSON otherwise."""
        user, text = await _asked(request, evidence, bearer, unmunge)
        advice = await run_in_threadpool(advise, evidence, user, x_slurm_cluster, answer.read_question(text))
        if request.headers.get("accept", "").startswith("text/plain"):
            return PlainTextResponse(answer.lines(advice, rewrite=x_guard_rewrite == "yes"))
        return JSONResponse(answer.document(advice))

    return router


def advise(evidence: GuardEvidence, user: str, cluster: str, fields: Any) -> tuple[Advice, ...]:
    """Reads what is known and judges."""
    job = read_job(fields, cluster)
    return judge(job, evidence.guard_cluster(user, cluster), evidence.guard_past(user, cluster))


async def _asked(request: Request, evidence: GuardEvidence, bearer: TokenBearer, unmunge: Sequence[str]) -> tuple[str, str]:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > LONGEST_CREDENTIAL:
            raise BadInput(f"the question is too long; expected at most {LONGEST_CREDENTIAL} bytes.")
    if request.headers.get("content-type", "").split(";")[0].strip() != MUNGE:
        return await bearer(request), body.decode("utf-8", "replace")
    account, text = await run_in_threadpool(partial(unseal, bytes(body), program=unmunge))
    return evidence.user_of_account(account), text
