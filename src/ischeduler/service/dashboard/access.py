"""Who may see a page, and how a page says no: pages answer in HTML and lead to the sign-in, where the API answers in problem documents."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any
from urllib.parse import quote, urlsplit

from fastapi import Depends, Form, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.responses import RedirectResponse, Response

from ischeduler.core.errors import BadInput, IschedError, NotFound
from ischeduler.core.run import Run
from ischeduler.service.auth.limits import TooMany
from ischeduler.service.auth.principal import Forbidden, NotSignedIn, Principal
from ischeduler.service.auth.require import RunId, principal, visible_run
from ischeduler.service.auth.sessions import CSRF_FIELD, check_csrf
from ischeduler.service.dashboard.rendering import page


class PageRoute(APIRoute):
    """A route whose errors are pages."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except NotSignedIn:
                return _to_login(request)
            except IschedError as error:
                return _refusal(request, error)
            except (RequestValidationError, HTTPException):
                return _refusal(request, BadInput("the address or the form has a part that cannot be read; go back and try again."))

        return handle


def _to_login(request: Request) -> Response:
    """A whole page is led to the sign-in; a live part tells its page to go there."""
    if "hx-request" in request.headers:
        return Response(status_code=401, headers={"HX-Redirect": "/login"})
    back = request.url.path if request.method == "GET" else "/runs"
    return RedirectResponse(f"/login?back={quote(back)}", status_code=303)


def _refusal(request: Request, error: IschedError) -> Response:
    titles = {
        NotFound: ("Not found", 404), Forbidden: ("Not allowed", 403), BadInput: ("That cannot be", 422), TooMany: ("Too often", 429),
    }  # fmt: skip
    title, status = next((t for kind, t in titles.items() if isinstance(error, kind)), ("It did not work", 503))
    if "hx-request" in request.headers:
        return Response(status_code=status)
    return page(request, "error.html", getattr(request.state, "principal", None), status=status, title=title, detail=str(error), back="")


def _reader(request: Request) -> Principal:
    who = principal(request)
    if "read" not in who.scope:
        raise Forbidden("this session may not look at pages; sign in again.")
    return who


def _writer(request: Request, who: Annotated[Principal, Depends(_reader)], given: Annotated[str, Form(alias=CSRF_FIELD)] = "") -> Principal:
    """Whoever sends a form of ours. A bearer token's holder is no browser, so nothing can have been forged."""
    if who.by == "session":
        check_csrf(request, given)
    if "write" not in who.scope:
        raise Forbidden("this session may only look; sign in again to act.")
    return who


def _admin(who: Annotated[Principal, Depends(_reader)]) -> Principal:
    if not who.centre_admin:
        raise NotFound("there is no such page.")
    return who


Viewer = Annotated[Principal, Depends(_reader)]
Actor = Annotated[Principal, Depends(_writer)]
Administrator = Annotated[Principal, Depends(_admin)]


def _seen_run(request: Request, who: Viewer, run_id: RunId) -> Run:
    return visible_run(request, who, run_id)


SeenRun = Annotated[Run, Depends(_seen_run)]


def same_site(request: Request) -> None:
    """Forbidden for a form that another site sent: what protects forms that are used before there is a session."""
    origin = request.headers.get("origin")
    settings = request.app.state.gate.settings
    ours = (settings.public_url.rstrip("/"), f"{request.url.scheme}://{request.url.netloc}")
    if request.headers.get("sec-fetch-site") == "cross-site" or (origin is not None and origin not in ours):
        raise Forbidden("that form was sent from another site.")


def local_path(given: str, default: str = "/runs") -> str:
    """A path of this site to go back to; anything that could lead elsewhere is ``default``."""
    parts = urlsplit(given)
    plain = given.startswith("/") and not given.startswith(("//", "/\\")) and not parts.scheme and not parts.netloc
    return given if plain and given.isprintable() and "\\" not in given and len(given) < 500 else default
