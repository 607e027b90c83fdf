"""What every endpoint of ours does around its work: one answer a key, and a line in the audit log for whatever changes something."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool

from ischeduler.core.errors import BadInput, IschedError, StoreConflict
from ischeduler.service.api.problems import KeyReused
from ischeduler.service.auth.principal import NotSignedIn, Principal
from ischeduler.service.auth.sessions import SAFE_METHODS
from ischeduler.store.requests import AnswersByKey

KEY_HEADER = "idempotency-key"
KEPT_HEADERS = ("location", "etag", "content-type")
MOST_KEY = 200
UNLOGGED, SECRET = "x-isched-unlogged", "x-isched-secret"
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class HouseRoute(APIRoute):
    """Use as ``APIRouter(route_class=HouseRoute)``.

    An endpoint with ``openapi_extra={UNLOGGED: True}`` writes no audit line; one with ``SECRET`` answers with a secret, which must
    not be kept: an idempotency key means nothing to it.
    """

    def get_route_handler(self) -> Handler:
        """FastAPI's own handler, wrapped."""
        inner = super().get_route_handler()
        marks = self.openapi_extra or {}
        logged, kept = not marks.get(UNLOGGED), not marks.get(SECRET)

        async def handle(request: Request) -> Response:
            if request.method in SAFE_METHODS:
                return await inner(request)
            if not logged:
                return await inner(request)
            try:
                answer = await (_once(request, inner) if kept else inner(request))
            except (IschedError, RequestValidationError) as error:
                await run_in_threadpool(self._note, request, type(error).__name__)
                raise
            await run_in_threadpool(self._note, request, "done")
            return answer

        return handle

    def _note(self, request: Request, outcome: str) -> None:
        principal: Principal | None = getattr(request.state, "principal", None)
        if principal is None and outcome != "done":
            return  # a stranger's attempts are counted and limited at the door; they must not fill the log
        about = "/".join(str(v) for v in request.path_params.values())
        who = principal.user if principal else "nobody"
        request.app.state.gate.audit(request, who, self.name, about, outcome=outcome, detail={"method": request.method})


async def _once(request: Request, inner: Handler) -> Response:
    key = request.headers.get(KEY_HEADER)
    if key is None or request.method != "POST":
        return await inner(request)
    if not 1 <= len(key) <= MOST_KEY or not key.isascii() or not key.isprintable():
        raise BadInput(f"an Idempotency-Key has 1 to {MOST_KEY} printable ASCII characters.")
    gate, engine = request.app.state.gate, request.app.state.backend.engine
    principal = await run_in_threadpool(gate.principal, request)
    answers = AnswersByKey(engine, clock=gate.clock.now)
    digest = _digest(request, await request.body())
    before = await run_in_threadpool(answers.begin, principal.user, key, digest)
    if before is not None:
        return _replayed(before, digest)
    request.state.key = key
    try:
        answer = await inner(request)
    except (Exception, NotSignedIn):
        await run_in_threadpool(answers.give_up, principal.user, key)
        raise
    if answer.status_code >= 500 or not isinstance(getattr(answer, "body", None), bytes):
        await run_in_threadpool(answers.give_up, principal.user, key)
        return answer
    kept = {n: answer.headers[n] for n in KEPT_HEADERS if n in answer.headers}
    await run_in_threadpool(answers.finish, principal.user, key, answer.status_code, kept, bytes(answer.body).decode())
    return answer


def _replayed(before: Any, digest: str) -> Response:
    if before.digest != digest:
        raise KeyReused("that Idempotency-Key was sent with another request before; a new request needs a new key.")
    if before.status is None:
        raise StoreConflict("the same request is being worked on; ask again in a moment.")
    return Response(before.body, before.status, headers={**before.headers, "Idempotent-Replayed": "true"})


def _digest(request: Request, body: bytes) -> str:
    said = hashlib.sha256()
    for part in (request.method.encode(), request.url.path.encode(), request.url.query.encode(), body):
        said.update(len(part).to_bytes(8, "big") + part)
    return said.hexdigest()
