"""Every error as RFC 9457 ``application/problem+json``: type, title, status, detail, fix. No answer carries a traceback."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException

from ischeduler.core import errors
from ischeduler.service.auth.limits import TooMany
from ischeduler.service.auth.oidc import ProviderAway
from ischeduler.service.auth.principal import Forbidden, NotSignedIn
from ischeduler.service.auth.require import SignInFirst
from ischeduler.service.backend import Busy

MEDIA_TYPE = "application/problem+json"
LOG = logging.getLogger("ischeduler.service")


class Changed(errors.IschedError):
    """The thing was changed since the version that If-Match names."""


class KeyReused(errors.IschedError):
    """An idempotency key came again with another request."""


class TooLarge(errors.IschedError):
    """The request's body is larger than the service takes."""


STATUS: Mapping[type[BaseException], tuple[int, str]] = {
    errors.ConfigError: (500, "The service is not set up rightly"),
    errors.BadInput: (422, "The request cannot be"),
    errors.NotFound: (404, "There is no such thing"),
    errors.NoFeasiblePlan: (409, "Nothing fits"),
    errors.RunFailed: (409, "The run failed"),
    errors.SubmitRefused: (409, "The batch system refused"),
    errors.BatchUnavailable: (503, "The batch system does not answer"),
    errors.StoreConflict: (409, "Somebody else was faster"),
    errors.StoreUnavailable: (503, "The database does not answer"),
    errors.EstimatorFailed: (502, "An estimator could not answer"),
    NotSignedIn: (401, "Nobody is signed in"),
    Forbidden: (403, "You may not do this"),
    TooMany: (429, "Too many requests"),
    TooLarge: (413, "The request is too large"),
    ProviderAway: (503, "The sign-in provider does not answer"),
    Busy: (503, "The service is busy"),
    Changed: (412, "It was changed meanwhile"),
    KeyReused: (422, "The idempotency key was used for another request"),
}
RETRY_S = 5
_TITLES = {400: "The request cannot be read", 404: "There is no such page", 405: "That method is not for this page"}


def problem(
    status: int, slug: str, title: str, detail: str, *, fix: str = "", headers: Mapping[str, str] | None = None, **more: Any
) -> Response:
    """One problem document."""
    body = {"type": f"urn:ischeduler:problem:{slug}", "title": title, "status": status, "detail": detail, "fix": fix, **more}
    return JSONResponse(body, status_code=status, media_type=MEDIA_TYPE, headers=dict(headers or {}))


def of_error(error: errors.IschedError) -> Response:
    """The problem that an error of the house is: its sentence, and what to do where the sentence says it."""
    known = next((k for k in type(error).__mro__ if k in STATUS), None)
    status, title = STATUS[known] if known else (422, "The request cannot be")
    detail = str(error)
    _, _, fix = detail.rpartition("; ")
    headers: dict[str, str] = {}
    if isinstance(error, TooMany):
        headers["Retry-After"] = str(math.ceil(error.retry_s))
    elif status == 503:
        headers["Retry-After"] = str(RETRY_S)
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return problem(status, slug_of(known or type(error)), title, detail, fix=fix if fix != detail else "", headers=headers)


def slug_of(kind: type) -> str:
    """``no-feasible-plan`` of NoFeasiblePlan."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower()


def install(app: FastAPI) -> None:
    """Answer every error of the house, of validation and of routing as a problem."""

    @app.exception_handler(errors.IschedError)
    def ours(request: Request, error: Exception) -> Response:
        assert isinstance(error, errors.IschedError)
        answer = of_error(error)
        if answer.status_code >= 500:
            LOG.warning("%s %s: %s", request.method, request.url.path, error)
        return answer

    @app.exception_handler(RequestValidationError)
    def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return problem(422, "bad-input", "The request cannot be", _first(error), errors=_all(error))

    @app.exception_handler(HTTPException)
    def routing(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        title = _TITLES.get(error.status_code, "The request cannot be answered")
        return problem(error.status_code, f"http-{error.status_code}", title, f"{title}.", headers=error.headers)

    @app.exception_handler(SignInFirst)
    def sign_in(request: Request, error: Exception) -> Response:
        from urllib.parse import quote

        assert isinstance(error, SignInFirst)
        return RedirectResponse(f"/login?next={quote(error.next_path, safe='/')}", status_code=303)

    @app.exception_handler(Exception)
    def unexpected(request: Request, error: Exception) -> Response:
        LOG.exception("%s %s failed", request.method, request.url.path, exc_info=error)
        return problem(500, "internal", "The service made a mistake", "Something went wrong inside; it is in the service's log.")


def _all(error: RequestValidationError) -> list[dict[str, str]]:
    """Where and what, without the value itself: it may be a secret in the wrong place."""
    return [{"where": "/".join(str(p) for p in e["loc"]), "what": str(e["msg"])[:300]} for e in error.errors()[:20]]


def _first(error: RequestValidationError) -> str:
    found = _all(error)[0]
    return f"{found['where']}: {found['what']}."
