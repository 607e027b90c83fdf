"""``POST /v1/guard``: a job as it is about to be submitted, and what there is to say about it.

The asker is known by a MUNGE credential (body ``application/x-munge``, the question sealed inside) or by a token like everywhere
(body ``application/json``). Nothing here asks a batch system: what is not known already is not said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, FastAPI, Header, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.concurrency import run_in_threadpool

from ischeduler.core import meters
from ischeduler.core.cluster import Cluster
from ischeduler.core.errors import BadInput
from ischeduler.core.history import HistoryRecord
from ischeduler.service.guard import answer
from ischeduler.service.guard.job import read_job
from ischeduler.service.guard.judge import Advice, judge
from ischeduler.service.guard.munge import LONGEST_CREDENTIAL, unseal

MUNGE = "application/x-munge"
MOST_EVIDENCE = 300


class GuardEvidence(Protocol):
    """What the guard needs to know; both answers come from what is stored, at once."""

    def cluster(self, user: str, name: str) -> Cluster | None:
        """A known cluster as ``user`` sees it; None where there is none of that name."""
        ...

    def past(self, user: str, cluster: str) -> Sequence[HistoryRecord]:
        """The user's own evidence, newest first."""
        ...


class Door(Protocol):
    """How the guard knows whoever asks. Both raise the app's own refusal."""

    def by_token(self, request: Request) -> str:
        """The user of the request's credential."""
        ...

    def by_account(self, account: str) -> str:
        """The user whose account on the cluster this is."""
        ...


@dataclass(frozen=True, slots=True)
class Guard:
    """Kept as ``app.state.guard``. ``unmunge`` is the program and its options."""

    evidence: GuardEvidence
    door: Door
    unmunge: Sequence[str] = ("unmunge",)


@dataclass(frozen=True, slots=True)
class GuardSettings:
    """``munge_socket`` '' is munge's own. ``accounts`` maps a cluster's accounts to users where the names differ."""

    munge_socket: str = ""
    accounts: Mapping[str, str] = field(default_factory=dict[str, str])


class StoredEvidence:
    """What the service's backend has stored."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def cluster(self, user: str, name: str) -> Cluster | None:
        """A known cluster."""
        return next((c for c in self._backend.clusters(user) if c.name == name), None)

    def past(self, user: str, cluster: str) -> Sequence[HistoryRecord]:
        """The newest of the user's own evidence there."""
        return self._backend.store.history(owner=user, cluster=cluster or None, limit=MOST_EVIDENCE)


class GateDoor:
    """The service's own door (``service.auth.gate``): accounts of the cluster are users of the same name unless mapped."""

    def __init__(self, gate: Any, accounts: Mapping[str, str]) -> None:
        self._gate, self._accounts = gate, accounts

    def by_token(self, request: Request) -> str:
        """The user of the request's credential."""
        return self._gate.principal(request).user

    def by_account(self, account: str) -> str:
        """The user whose account this is; NotSignedIn when there is none."""
        user = self._accounts.get(account, account)
        return self._gate.of_user(user, frozenset({"read"}), by="munge").user


def install(app: FastAPI, settings: Any) -> None:
    """Give the app's own backend and door to the route. ``settings.extra['guard']`` may be a :class:`GuardSettings`."""
    found = settings.extra.get("guard")
    own = found if isinstance(found, GuardSettings) else GuardSettings()
    unmunge = ("unmunge", f"--socket={own.munge_socket}") if own.munge_socket else ("unmunge",)
    app.state.guard = Guard(StoredEvidence(app.state.backend), GateDoor(app.state.gate, own.accounts), unmunge)


router = APIRouter(tags=["guard"])
_TEXT = {"type": "string"}
_QUESTION = {
    "type": "object", "required": ["schema", "job"],
    "properties": {"schema": {"const": answer.SCHEMA}, "job": {"type": "object", "additionalProperties": _TEXT}},
}  # fmt: skip
_ONE = {"type": "object", "properties": {"kind": _TEXT, "text": _TEXT, "changes": {"type": "object", "additionalProperties": _TEXT}}}
_ANSWER = {"type": "object", "required": ["schema", "advice"], "properties": {"schema": {"const": answer.SCHEMA}, "advice": {"type": "array", "items": _ONE}}}
_BODY = {"required": True, "content": {"application/json": {"schema": _QUESTION}, MUNGE: {"schema": _TEXT}}}
_WORDS = {401: "Nobody is known by that.", 403: "Not with this credential.", 422: "No question of the guard.", 429: "Too many."}
_PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
_FOUND = {"application/json": {"schema": _ANSWER}, "text/plain": {"schema": _TEXT}}
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"description": "What to know; text/plain holds the filter's lines.", "content": _FOUND},
    **{status: {"description": words, "content": _PROBLEM} for status, words in _WORDS.items()},
}


@router.post("/v1/guard", responses=_ANSWERS, openapi_extra={"requestBody": _BODY}, response_class=JSONResponse, response_model=None, name="guard.ask")
async def ask(
    request: Request,
    x_slurm_cluster: Annotated[str, Header(max_length=128)] = "",
    x_guard_rewrite: Annotated[str, Header(max_length=8)] = "no",
) -> Response:
    """What to know about a job in the moment before it is submitted."""
    guard: Guard = request.app.state.guard
    user, text = await _asked(request, guard)
    advice = await run_in_threadpool(advise, guard.evidence, user, x_slurm_cluster, answer.read_question(text))
    meters.count("isched_guard_answers_total", advice=advice[0].kind if advice else "none")
    if request.headers.get("accept", "").startswith("text/plain"):
        return PlainTextResponse(answer.lines(advice, rewrite=x_guard_rewrite == "yes"))
    return JSONResponse(answer.document(advice))


def advise(evidence: GuardEvidence, user: str, cluster: str, fields: Mapping[str, str]) -> tuple[Advice, ...]:
    """Reads what is known and judges."""
    return judge(read_job(fields, cluster), evidence.cluster(user, cluster), evidence.past(user, cluster))


async def _asked(request: Request, guard: Guard) -> tuple[str, str]:
    if request.headers.get("content-type", "").partition(";")[0].strip() != MUNGE:
        user = await run_in_threadpool(guard.door.by_token, request)
        return user, (await _body(request)).decode("utf-8", "replace")
    account, text = await run_in_threadpool(partial(unseal, await _body(request), program=guard.unmunge))
    return await run_in_threadpool(guard.door.by_account, account), text


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > LONGEST_CREDENTIAL:
            raise BadInput(f"the question is too long; expected at most {LONGEST_CREDENTIAL} bytes.")
    return bytes(body)
