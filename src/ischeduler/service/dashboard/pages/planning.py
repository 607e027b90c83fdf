"""A workload by form, its options side by side, and the submission."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Form, Path, Request
from starlette.datastructures import FormData
from starlette.responses import RedirectResponse, Response

from ischeduler.core.errors import BadInput, IschedError, NotFound
from ischeduler.core.plan import PlanSet
from ischeduler.service.auth.principal import Principal
from ischeduler.service.dashboard.access import Actor, PageRoute, Viewer
from ischeduler.service.dashboard.rendering import page
from ischeduler.service.dashboard.views.plans import OptionRow, form_address, options
from ischeduler.service.dashboard.words import ago

router = APIRouter(route_class=PageRoute, include_in_schema=False)
FIELDS = ("model", "name", "command", "directory", "samples", "epochs", "batch_size", "precision", "gpus", "nodes", "optimizer", "input_shape")
VALUED_GOALS = ("deadline", "budget")
PlanId = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Number = Annotated[int, Path(ge=1, le=100_000)]


@router.get("/plan")
def form(request: Request, who: Viewer) -> Response:
    """The form, filled from the address where it says something."""
    query = request.query_params
    given: dict[str, Any] = {k: query[k][:1000] for k in (*FIELDS, "goal", "goal_value") if k in query}
    return _form(request, who, given | {"clusters": query.getlist("clusters")})


@router.post("/plan")
async def plan(request: Request, who: Actor) -> Response:
    """Options for what the form says; on a mistake the form again, with what was written and what is wrong."""
    from starlette.concurrency import run_in_threadpool

    return await run_in_threadpool(_plan, request, who, await request.form())


def _plan(request: Request, who: Principal, sent: FormData) -> Response:
    given = {k: str(sent[k]).strip()[:1000] for k in (*FIELDS, "goal", "goal_value") if sent.get(k)}
    chosen = [str(c)[:200] for c in sent.getlist("clusters")]
    try:
        fields = {k: given[k] for k in FIELDS if k in given}
        with request.app.state.desk.slot():
            plan_id, _ = request.app.state.backend.plan(who.user, fields, goal=_goal(given), clusters=chosen)
    except IschedError as error:
        return _form(request, who, given | {"clusters": chosen}, str(error), 422)
    return RedirectResponse(f"/plan/{plan_id}", status_code=303)


def _goal(given: Mapping[str, str]) -> str | None:
    name, value = given.get("goal") or None, given.get("goal_value", "")
    if name in VALUED_GOALS:
        if not value:
            raise BadInput(f"the goal '{name}' needs a value: {'12h' if name == 'deadline' else '2.50'}.")
        return f"{name}={value}"
    return name


def _form(request: Request, who: Principal, given: Mapping[str, Any], problem: str = "", status: int = 200) -> Response:
    reachable = list(request.app.state.backend.reachable(who.user))
    others = [c.name for c in request.app.state.backend.clusters(who.user) if c.name not in reachable]
    return page(
        request, "plan.html", who, status=status, form=given, problem=problem, problems=_of_fields(problem), clusters=[*reachable, *others],
        reachable=reachable,
    )  # fmt: skip


def _of_fields(problem: str) -> dict[str, str]:
    """The field that a sentence is about: it begins with the field's name."""
    name = problem.partition(" ")[0]
    return {name: problem} if name in FIELDS else {}


@router.get("/plan/{plan_id}")
def show(request: Request, who: Viewer, plan_id: PlanId) -> Response:
    """What there is to choose from."""
    found = request.app.state.backend.planset(who.user, plan_id)
    known = {c.name: c for c in request.app.state.backend.clusters(who.user)}
    looked = ago(found.made_at, request.app.state.backend.clock.now())
    again = form_address(found.workload, found.goal)
    return page(request, "options.html", who, options=options(found, known), plan_id=plan_id, again=again, looked=looked)


@router.get("/plan/{plan_id}/{number}")
def ask(request: Request, who: Viewer, plan_id: PlanId, number: Number) -> Response:
    """The question before it is submitted."""
    return _ask(request, who, plan_id, number)


@router.post("/plan/{plan_id}/{number}")
def submit(
    request: Request, who: Actor, plan_id: PlanId, number: Number, max_cost: Annotated[str, Form(max_length=40)] = "",
    allow_move: Annotated[str, Form()] = "", allow_smaller_batch: Annotated[str, Form()] = "",
    once: Annotated[str, Form(max_length=100)] = "", project: Annotated[str, Form(max_length=64)] = "",
) -> Response:  # fmt: skip
    """Delegate it. The form carries a word of its own: however often it is sent, that is one run."""
    gate = request.app.state.gate
    try:
        caps = {"allow_move": bool(allow_move), "allow_smaller_batch": bool(allow_smaller_batch), **_cap(max_cost)}
        if project and project not in who.projects:
            raise BadInput(f"you are no member of a project '{project}'.")
        key = gate.derived.digest("run", f"{who.user}\nform:{once}")[:20] if once else ""
        run = request.app.state.backend.submit(who.user, plan_id, str(number), caps, project, key)
    except NotFound:
        raise
    except IschedError as error:
        return _ask(request, who, plan_id, number, str(error), max_cost, 422)
    gate.audit(request, who.user, "run.submit", run.id)
    return RedirectResponse(f"/runs/{run.id}", status_code=303)


def _cap(text: str) -> dict[str, float]:
    if not text.strip():
        return {}
    try:
        value = float(text.strip().lstrip("$").replace(",", "."))
    except ValueError:
        value = -1.0
    if not 0 < value < 1e9:
        raise BadInput(f"'{text[:40]}' is no amount to spend at most; write e.g. 2.50, or leave it empty.")
    return {"max_cost": value}


def _ask(
    request: Request, who: Principal, plan_id: str, number: int, problem: str = "", max_cost: str = "", status: int = 200
) -> Response:
    planset: PlanSet = request.app.state.backend.planset(who.user, plan_id)
    known = {c.name: c for c in request.app.state.backend.clusters(who.user)}
    shown = options(planset, known)
    row: OptionRow | None = next((o for o in (*shown.rows, *shown.hidden) if o.number == number), None)
    if row is None:
        raise NotFound(f"these options have no number {number}.")
    unit = next(p.cost.unit for p in planset.plans if p.number == number)
    return page(
        request, "submit.html", who, status=status, o=row, plan_id=plan_id, title=shown.title, problem=problem, max_cost=max_cost,
        unit="US dollars" if unit == "usd" else unit, once=secrets.token_urlsafe(16), projects=sorted(who.projects),
    )  # fmt: skip
