"""Signing in and out, and the theme."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Form, Request
from starlette.responses import RedirectResponse, Response

from ischeduler.core.errors import IschedError
from ischeduler.service.auth.oidc import START
from ischeduler.service.auth.principal import Forbidden, NotSignedIn
from ischeduler.service.auth.sessions import CSRF_FIELD, check_csrf, close_session, open_session
from ischeduler.service.dashboard.access import PageRoute, local_path, same_site
from ischeduler.service.dashboard.rendering import THEME_COOKIE, THEMES, page

router = APIRouter(route_class=PageRoute, include_in_schema=False)
YEAR_S = 365 * 86400


@router.get("/login")
def login_page(request: Request, back: str = "/runs") -> Response:
    """The sign-in."""
    return _login(request, back)


@router.post("/login")
def login(
    request: Request, token: Annotated[str, Form(max_length=400)] = "", back: Annotated[str, Form(max_length=500)] = "/runs"
) -> Response:
    """A session for whoever holds a personal token; it may do what the token may."""
    same_site(request)
    gate = request.app.state.gate
    try:
        gate.strangers.take(gate.origin(request), gate.clock.now())
        row = gate.tokens.recognise(token.strip())
        if row.kind != "personal":
            raise NotSignedIn("that is a job's token; a personal one begins with isc_.")
        gate.of_user(row.user, frozenset(row.scopes))
    except IschedError as error:
        return _login(request, back, str(error), 401 if isinstance(error, NotSignedIn) else 429)
    answer = RedirectResponse(local_path(back), status_code=303)
    open_session(request, answer, row.user, row.scopes)
    return answer


def _login(request: Request, back: str, problem: str = "", status: int = 200) -> Response:
    back = local_path(back)
    oidc = f"{START}?{urlencode({'next': back})}" if request.app.state.gate.settings.oidc is not None else ""
    return page(request, "login.html", status=status, back=back, problem=problem, oidc=oidc)


@router.post("/logout")
def logout(request: Request, given: Annotated[str, Form(alias=CSRF_FIELD)] = "") -> Response:
    """The end of the session."""
    try:
        check_csrf(request, given)
    except Forbidden:
        same_site(request)
    answer = RedirectResponse("/login", status_code=303)
    close_session(request, answer)
    return answer


@router.post("/theme")
def theme(request: Request, theme: Annotated[str, Form()] = "auto", back: Annotated[str, Form()] = "/runs") -> Response:
    """Light, dark, or as the system has it; kept by the browser."""
    same_site(request)
    answer = RedirectResponse(local_path(back), status_code=303)
    chosen = theme if theme in THEMES else "auto"
    secure = request.app.state.gate.settings.secure
    answer.set_cookie(THEME_COOKIE, chosen, max_age=YEAR_S, path="/", samesite="lax", httponly=True, secure=secure)
    return answer
