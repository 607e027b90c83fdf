"""FastAPI dependencies: what an endpoint demands of whoever asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, Path, Request
from fastapi.security import APIKeyCookie, HTTPBearer

from ischeduler.core.errors import NotFound
from ischeduler.core.run import Run
from ischeduler.service.auth.principal import Forbidden, Principal
from ischeduler.service.auth.sessions import COOKIE, check_csrf, csrf_token

RUN_ID = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
_bearer = HTTPBearer(auto_error=False, scheme_name="token", description="A personal token (isc_...), a job's (isj_...), or a Tapis token.")
_cookie = APIKeyCookie(name=COOKIE, auto_error=False, scheme_name="session", description="A browser's session.")
RunId = Annotated[str, Path(pattern=RUN_ID, description="A run's id.", examples=["r-0a1b2c"])]


def principal(request: Request, bearer: Any = Depends(_bearer), cookie: Any = Depends(_cookie)) -> Principal:  # noqa: B008
    """Whoever asks, a person. NotSignedIn otherwise; a job's token is no person."""
    found = request.app.state.gate.principal(request)
    if found.run_id is not None:
        raise Forbidden("a job's token may only send events and read the control word of its own run.")
    return found


def anyone(request: Request, bearer: Any = Depends(_bearer), cookie: Any = Depends(_cookie)) -> Principal:  # noqa: B008
    """Whoever asks, a person or a job."""
    return request.app.state.gate.principal(request)


def scoped(scope: str) -> Callable[..., Principal]:
    """A person whose credential has that scope. Forbidden otherwise."""

    def check(who: Annotated[Principal, Depends(principal)]) -> Principal:
        if scope not in who.scope:
            raise Forbidden(f"this token has no '{scope}' scope; make one that has: isched admin token create --scope {scope}.")
        return who

    return check


def require_role(*roles: str) -> Callable[..., Principal]:
    """A person with one of those roles, whose credential has the scope admin. Forbidden otherwise."""

    def check(who: Annotated[Principal, Depends(scoped("admin"))]) -> Principal:
        if not who.roles & set(roles):
            raise Forbidden(f"this needs the role {' or '.join(roles)}.")
        return who

    return check


Reader = Annotated[Principal, Depends(scoped("read"))]
Writer = Annotated[Principal, Depends(scoped("write"))]
CentreAdmin = Annotated[Principal, Depends(require_role("centre_admin"))]
EstimatorDeveloper = Annotated[Principal, Depends(require_role("estimator_developer", "centre_admin"))]


def visible_run(request: Request, who: Principal, run_id: str) -> Run:
    """The run where it exists for this principal. NotFound, in the same words, for other people's runs and for none."""
    try:
        run = request.app.state.backend.store.get_run(run_id)
    except NotFound:
        run = None
    if run is None or not who.may_see(run.owner, run.project):
        raise NotFound(f"you have no run '{run_id}'.")
    return run


def run_of(request: Request, who: Reader, run_id: RunId) -> Run:
    """Dependency: the run of the path, to look at."""
    return visible_run(request, who, run_id)


def run_to_change(request: Request, who: Writer, run_id: RunId) -> Run:
    """Dependency: the run of the path, to act on."""
    return visible_run(request, who, run_id)


def run_of_job(request: Request, who: Annotated[Principal, Depends(anyone)], run_id: RunId) -> Run:
    """Dependency: the run of the path, for its own jobs' tokens (scope events) and for whoever may change it."""
    if who.run_id is not None:
        if who.run_id != run_id or "events" not in who.scope:
            raise NotFound(f"you have no run '{run_id}'.")
        run = request.app.state.backend.store.get_run(run_id)
        if run.owner != who.user:
            raise NotFound(f"you have no run '{run_id}'.")
        return run
    if "write" not in who.scope:
        raise Forbidden("this token has no 'write' scope.")
    return visible_run(request, who, run_id)


ARun = Annotated[Run, Depends(run_of)]
ARunToChange = Annotated[Run, Depends(run_to_change)]
ARunOfJob = Annotated[Run, Depends(run_of_job)]


class SignInFirst(Exception):
    """A page was asked for and nobody is signed in: the answer is a redirect to the sign-in page."""

    def __init__(self, next_path: str) -> None:
        super().__init__(next_path)
        self.next_path = next_path


def page_principal(request: Request) -> Principal:
    """Whoever looks at a page. SignInFirst (answered by a redirect to /login) when nobody is signed in."""
    from ischeduler.service.auth.principal import NotSignedIn

    try:
        return principal(request)
    except NotSignedIn:
        path = request.url.path if request.method == "GET" else "/"
        raise SignInFirst(path) from None


__all__ = [
    "ARun", "ARunOfJob", "ARunToChange", "CentreAdmin", "EstimatorDeveloper", "Reader", "RunId", "SignInFirst", "Writer", "anyone",
    "check_csrf", "csrf_token", "page_principal", "principal", "require_role", "run_of", "run_of_job", "run_to_change", "scoped",
    "visible_run",
]  # fmt: skip
