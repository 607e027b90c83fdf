"""My runs, one run, and what may be done to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import RedirectResponse, Response

from ischeduler.core.errors import IschedError
from ischeduler.core.event import Event
from ischeduler.core.run import Run, RunState
from ischeduler.service.auth.principal import Principal
from ischeduler.service.backend import Backend
from ischeduler.service.dashboard.access import Actor, PageRoute, SeenRun, Viewer
from ischeduler.service.dashboard.rendering import page
from ischeduler.service.dashboard.views.plans import form_address
from ischeduler.service.dashboard.views.run import NEWEST_EVENTS, QUIET, RunPage, run_page
from ischeduler.service.dashboard.views.runs import run_row, run_rows
from ischeduler.store.ingest_read import EventArchive
from ischeduler.store.run_log import RunLog

if TYPE_CHECKING:
    from sqlalchemy import Engine

router = APIRouter(route_class=PageRoute, include_in_schema=False)
NEWEST, MOST_GOING, LOG_LINES = 30, 200, 200
ENDED = tuple(s for s in RunState if s.ended)
GOING = tuple(s for s in RunState if not s.ended)
Cursor = Annotated[str | None, Query(max_length=200)]


def _backend(request: Request) -> Backend:
    return request.app.state.backend


@router.get("/")
def root(who: Viewer) -> Response:
    """The list is the front page."""
    return RedirectResponse("/runs", status_code=303)


@router.get("/runs")
def runs(request: Request, who: Viewer, before: Cursor = None, everybody: bool = False) -> Response:
    """The list."""
    return page(request, "runs.html", who, **_list(request, who, before, everybody))


@router.get("/runs/live")
def runs_live(request: Request, who: Viewer, before: Cursor = None, everybody: bool = False) -> Response:
    """The list's live part."""
    return page(request, "_runs.html", who, **_list(request, who, before, everybody))


def _list(request: Request, who: Principal, before: str | None, everybody: bool) -> dict[str, Any]:
    """Runs under way, and a page of ended ones. ``everybody`` are those that the viewer administers, too."""
    pages, now = request.app.state.desk.pages, _backend(request).clock.now()
    everybody = everybody and (who.centre_admin or bool(who.seen_projects))
    seen = {"owner": None if everybody and who.centre_admin else who.user, "projects": who.seen_projects if everybody else ()}
    going, more = pages.page(states=GOING, limit=MOST_GOING, **seen) if before is None else ((), None)
    ended, older = pages.page(states=ENDED, limit=NEWEST, cursor=before, **seen)
    query = {k: v for k, v in (("before", before), ("everybody", "1" if everybody else "")) if v}
    rows = run_rows([*going, *ended], now)
    return {
        "going": rows[0], "ended": rows[1], "everybody": everybody, "may_see_all": who.centre_admin or bool(who.seen_projects),
        "more_going": more is not None, "query": "?" + urlencode(query) if query else "",
        "stream": "/v1/stream" if before is None and not everybody else "",
        "older": "/runs?" + urlencode(query | {"before": older}) if older else "", "paged": before is not None,
    }  # fmt: skip


@router.get("/runs/{run_id}")
def one(request: Request, who: Viewer, run: SeenRun, log: int | None = None) -> Response:
    """One run."""
    return page(request, "run.html", who, **_one(request, run, log))


@router.get("/runs/{run_id}/live")
def one_live(request: Request, who: Viewer, run: SeenRun, log: int | None = None) -> Response:
    """One run's live part."""
    return page(request, "_run.html", who, **_one(request, run, log))


def _one(request: Request, run: Run, wanted: int | None) -> dict[str, Any]:
    attempt = wanted if wanted is not None else (run.attempt.number if run.attempt else None)
    return {
        "page": _page_of(_backend(request), run), "log": _log(_backend(request), run, attempt), "log_of": attempt,
        "query": f"?log={wanted}" if wanted is not None else "", "stream": f"/v1/runs/{run.id}/stream",
        "again": form_address(run.plan.workload),
    }  # fmt: skip


def _page_of(backend: Backend, run: Run) -> RunPage:
    """What cannot be said now (a controller that does not answer) leaves its place empty; the page is shown all the same."""
    log = RunLog(backend.engine)
    return run_page(
        run, _events(backend.engine, log, run.id), _told(backend.report, run), _told(backend.explain, run) or "", backend.clock.now(),
        count=log.count(run.id),
    )  # fmt: skip


def _events(engine: Engine, log: RunLog, run_id: str) -> list[Event]:
    """What the page is made of: the newest that are told, all saves, and enough of the rest for curves. Each once, by time.

    What a job has just sent is seen before the plane has looked at it.
    """
    found = [*log.newest(run_id, but=QUIET, limit=NEWEST_EVENTS), *log.thinned(run_id, ("checkpoint",)), *log.thinned(run_id, QUIET),
             *EventArchive(engine).curve_events(run_id)]  # fmt: skip
    once = {(e.source, e.token, e.seq, e.kind, e.at): e for e in found}
    return sorted(once.values(), key=lambda e: e.at)


def _told(ask: Any, run: Run) -> Any:
    try:
        return ask(run.owner, run)
    except IschedError:
        return None


def _log(backend: Backend, run: Run, attempt: int | None) -> str:
    if attempt is None:
        return ""
    try:
        return backend.log_tail(run.owner, run, attempt, LOG_LINES)
    except IschedError:
        return ""


@router.get("/runs/{run_id}/cancel")
def ask_cancel(request: Request, who: Viewer, run: SeenRun) -> Response:
    """The question before it is ended."""
    return _ask_cancel(request, who, run)


@router.post("/runs/{run_id}/cancel")
def cancel(request: Request, who: Actor, run: SeenRun) -> Response:
    """End it."""
    try:
        _backend(request).cancel(run.owner, run.id)
    except IschedError as error:
        return _ask_cancel(request, who, run, str(error), 422)
    request.app.state.gate.audit(request, who.user, "run.cancel", run.id)
    return RedirectResponse(f"/runs/{run.id}", status_code=303)


def _ask_cancel(request: Request, who: Principal, run: Run, problem: str = "", status: int = 200) -> Response:
    words = "Its job is ended at once and nothing more is submitted. Checkpoints stay."
    return _ask(request, who, run, f"Cancel {run.id}?", words, "cancel", "Cancel the run", problem=problem, status=status, danger=True)


@router.get("/runs/{run_id}/move")
def ask_move(request: Request, who: Viewer, run: SeenRun) -> Response:
    """Where to, before it is moved."""
    return _ask_move(request, who, run)


@router.post("/runs/{run_id}/move")
def move(request: Request, who: Actor, run: SeenRun, where: Annotated[str, Form(max_length=200)] = "") -> Response:
    """Let it go on elsewhere."""
    if where.count("/") != 1:
        return _ask_move(request, who, run, where, "Write where to as CLUSTER/PARTITION.", 422)
    try:
        _backend(request).move(run.owner, run.id, where.strip())
    except IschedError as error:
        return _ask_move(request, who, run, where, str(error), 422)
    request.app.state.gate.audit(request, who.user, "run.move", run.id)
    return RedirectResponse(f"/runs/{run.id}", status_code=303)


def _ask_move(request: Request, who: Principal, run: Run, where: str = "", problem: str = "", status: int = 200) -> Response:
    words = "A running job saves a checkpoint first, a waiting one is taken back; the run goes on from there at the other place."
    known = _backend(request).clusters(run.owner)
    places = [f"{c.name}/{p.name}" for c in known for p in c.partitions if f"{c.name}/{p.name}" != run.plan.where]
    return _ask(
        request, who, run, f"Move {run.id}", words, "move", "Move the run", problem=problem, status=status, places=places, where=where
    )


def _ask(
    request: Request, who: Principal, run: Run, title: str, words: str, what: str, button: str, *, problem: str, status: int,
    danger: bool = False, places: list[str] | None = None, where: str = "",
) -> Response:  # fmt: skip
    row = run_row(run, _backend(request).clock.now())
    return page(
        request, "ask.html", who, status=status, title=title, row=row, words=words, action=f"/runs/{run.id}/{what}", button=button,
        problem=problem, danger=danger, places=places, where=where,
    )  # fmt: skip
