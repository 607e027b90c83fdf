"""A browser's session: a random value in a cookie, its digest in the database, and a CSRF token bound to it."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from ischeduler.service.auth.principal import PERSONAL_SCOPES, Forbidden
from ischeduler.store.credentials import SessionRow

COOKIE = "isched_session"
CSRF_HEADER = "x-csrf-token"
CSRF_FIELD = "csrf_token"
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


def cookie_name(secure: bool) -> str:
    """Over https the cookie is bound to this very host (RFC 6265bis, ``__Host-``)."""
    return f"__Host-{COOKIE}" if secure else COOKIE


def open_session(request: Request, response: Response, user: str, scopes: Sequence[str] = PERSONAL_SCOPES) -> None:
    """Begin a session: a new value always, so that none planted before the sign-in is of use."""
    gate = request.app.state.gate
    value, now = secrets.token_urlsafe(32), gate.clock.now()
    digest = gate.derived.digest("session", value)
    gate.credentials.add_session(SessionRow(digest, user, tuple(scopes), now, now + gate.settings.session_s))
    response.set_cookie(
        cookie_name(gate.settings.secure), value, max_age=int(gate.settings.session_s), path="/", httponly=True, samesite="lax",
        secure=gate.settings.secure,
    )  # fmt: skip
    gate.audit(request, user, "session.open")


def close_session(request: Request, response: Response) -> None:
    """End the session of this browser; nothing happens when there is none."""
    gate = request.app.state.gate
    value = request.cookies.get(cookie_name(gate.settings.secure))
    if value:
        gate.credentials.end_sessions(digest=gate.derived.digest("session", value))
    response.delete_cookie(cookie_name(gate.settings.secure), path="/", httponly=True, samesite="lax", secure=gate.settings.secure)


def session_of(request: Request) -> SessionRow | None:
    """The session that the request's cookie names; None when there is none."""
    gate = request.app.state.gate
    value = request.cookies.get(cookie_name(gate.settings.secure))
    return gate.credentials.session(gate.derived.digest("session", value)) if value and len(value) < 100 else None


def csrf_token(request: Request) -> str:
    """What every form of this session's pages carries; '' without a session."""
    gate = request.app.state.gate
    value = request.cookies.get(cookie_name(gate.settings.secure), "")
    return gate.derived.digest("csrf", value) if value else ""


def check_csrf(request: Request, given: str | None = None) -> None:
    """Forbidden unless the header (or the form's field, ``given``) carries this session's token."""
    expected, shown = csrf_token(request), given or request.headers.get(CSRF_HEADER, "")
    if not expected or not hmac.compare_digest(expected.encode(), shown.encode()):
        raise Forbidden("the page's form is too old or not from this service; load the page again and repeat.")
