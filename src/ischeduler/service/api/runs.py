"""Runs: list, get, submit, cancel, move; events, logs, report, why."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request, Response

from ischeduler.core.run import Run, RunState
from ischeduler.service.api.bodies import MoveBody, Name, SubmitBody
from ischeduler.service.api.desk import ADesk
from ischeduler.service.api.documents import answers, document
from ischeduler.service.api.house_route import SECRET, HouseRoute
from ischeduler.service.api.problems import Changed
from ischeduler.service.auth.principal import Forbidden
from ischeduler.service.auth.require import ARun, ARunOfJob, ARunToChange, Reader, Writer

router = APIRouter(prefix="/v1/runs", tags=["runs"], route_class=HouseRoute)
Tag = Annotated[str | None, Header(max_length=200)]
Key = Annotated[str | None, Header(alias="Idempotency-Key", max_length=200, description="The same key and request again: the same answer.")]
Cursor = Annotated[str | None, Query(max_length=400, description="`next` of the page before.")]
MOST_EVENTS = 1000


@router.get("", responses=answers("runs"), name="run.list")
def list_runs(
    desk: ADesk, who: Reader, limit: Annotated[int, Query(ge=1, le=200)] = 50, cursor: Cursor = None,
    state: Annotated[list[RunState] | None, Query(max_length=12)] = None, project: Annotated[Name | None, Query()] = None,
    scope: Annotated[Literal["mine", "all"], Query(description="`all`: also those that you see as an administrator.")] = "mine",
) -> Response:  # fmt: skip
    """Your runs, newest first, a page at a time."""
    everybody = scope == "all" and who.centre_admin
    projects = who.seen_projects if scope == "all" else frozenset()
    found, following = desk.pages.page(
        owner=None if everybody else who.user, projects=projects, states=state, limit=limit, cursor=cursor, project=project
    )
    headers = {"Link": f'</v1/runs?cursor={following}&limit={limit}>; rel="next"'} if following else {}
    return document("runs", {"runs": found, "next": following}, headers=headers)


@router.post("", status_code=201, responses=answers("run", 404, 409, 413, status=201), name="run.submit")
def submit(desk: ADesk, who: Writer, body: SubmitBody, request: Request, idempotency_key: Key = None) -> Response:
    """Delegate an option of a kept plan. A plane worker submits its first job; this answer does not wait for it."""
    project = body.project or ""
    if project and project not in who.projects:
        raise Forbidden(f"you are no member of a project '{project}'.")
    key = desk.gate.derived.digest("run", f"{who.user}\n{idempotency_key}")[:20] if idempotency_key else ""
    run = desk.backend.submit(who.user, body.plan, body.choice, body.caps.given(), project, key)
    return document("run", {"run": run}, status=201, headers={"Location": f"/v1/runs/{run.id}", "ETag": tag_of(run)})


@router.get("/{run_id}", responses=answers("run", 404, 304), name="run.get")
def get_run(run: ARun, if_none_match: Tag = None) -> Response:
    """Where a run stands. With If-None-Match: 304 while nothing has changed."""
    if if_none_match is not None and tag_of(run) in [t.strip() for t in if_none_match.split(",")]:
        return Response(status_code=304, headers={"ETag": tag_of(run)})
    return document("run", {"run": run}, headers={"ETag": tag_of(run)})


@router.post("/{run_id}/cancel", responses=answers("run", 404, 409, 412, 413), name="run.cancel")
def cancel(desk: ADesk, run: ARunToChange, if_match: Tag = None, idempotency_key: Key = None) -> Response:
    """End a run: its job is cancelled at the plane's next look; its checkpoints stay."""
    _match(run, if_match)
    after = desk.backend.cancel(run.owner, run.id)
    return document("run", {"run": after}, headers={"ETag": tag_of(after)})


@router.post("/{run_id}/move", responses=answers("run", 404, 409, 412, 413), name="run.move")
def move(desk: ADesk, run: ARunToChange, body: MoveBody, if_match: Tag = None, idempotency_key: Key = None) -> Response:
    """Let a run go on elsewhere: its job saves a checkpoint first."""
    _match(run, if_match)
    with desk.slot():
        after = desk.backend.move(run.owner, run.id, body.where)
    return document("run", {"run": after}, headers={"ETag": tag_of(after)})


@router.get("/{run_id}/events", responses=answers("events", 404), name="run.events")
def events(
    desk: ADesk, run: ARun, after: Annotated[int, Query(ge=0, le=2**62)] = 0, limit: Annotated[int, Query(ge=1, le=MOST_EVENTS)] = MOST_EVENTS
) -> Response:
    """What happened to a run, in order of arrival, beyond row ``after``; ``next`` is the row to go on from."""
    found = list(desk.backend.store.events(run.id, after=after))
    page = found[:limit]
    following = page[-1][0] if len(found) > limit else None
    return document("events", {"run_id": run.id, "events": [e for _, e in page], "rows": [n for n, _ in page], "next": following})


@router.get("/{run_id}/logs", responses=answers("logs", 404), name="run.logs")
def logs(
    desk: ADesk, run: ARun, attempt: Annotated[int | None, Query(ge=0, le=10**6)] = None, lines: Annotated[int, Query(ge=1, le=10_000)] = 200
) -> Response:
    """The last lines that an attempt (the newest, where none is named) printed."""
    text = desk.backend.log_tail(run.owner, run, attempt, lines)
    number = attempt if attempt is not None else run.attempt.number if run.attempt else 0
    return document("logs", {"run_id": run.id, "path": f"{run.directory}/logs/{number}.out", "text": text})


@router.get("/{run_id}/report", responses=answers("report", 404), name="run.report")
def report(desk: ADesk, run: ARun) -> Response:
    """Predicted against actual."""
    return document("report", desk.backend.report_document(run.owner, run))


@router.get("/{run_id}/why", responses=answers("why", 404), name="run.why")
def why(desk: ADesk, run: ARun) -> Response:
    """In words: why the run is where it is, and what to do."""
    return document("why", {"about": run.id, "state": run.state.value, "words": desk.backend.explain(run.owner, run)})


@router.post(
    "/{run_id}/token", status_code=201, responses=answers("job-token", 404, 409, 413, status=201), name="run.token", openapi_extra={SECRET: True}
)
def job_token(desk: ADesk, run: ARunToChange) -> Response:
    """A short-lived token for this run's jobs: to send its events and to read its control word, nothing else. Shown this once."""
    from ischeduler.core.errors import StoreConflict

    if run.state.ended:
        raise StoreConflict(f"run {run.id} has {run.state.value} already; its jobs need no token.")
    text, row = desk.gate.tokens.make_for_job(run.owner, run.id, desk.settings.job_token_s)
    return document("job-token", {"run_id": run.id, "token": text, "expires_at": row.expires_at}, status=201)


@router.get("/{run_id}/control", responses=answers("control", 404), name="run.control")
def control(run: ARunOfJob) -> Response:
    """What the plane asks of the running job: '', 'stop' or 'move'. For the job's own token, too."""
    word = "stop" if run.cancel_requested or run.state.ended else "move" if run.move_to is not None else ""
    number = run.attempt.number if run.attempt else 0
    return document("control", {"run_id": run.id, "attempt": number, "word": word})


def tag_of(run: Run) -> str:
    """The run's entity tag: it changes with every save."""
    return f'"{run.id}.{run.version}"'


def _match(run: Run, given: str | None) -> None:
    if given is not None and given.strip() != "*" and tag_of(run) not in [t.strip() for t in given.split(",")]:
        raise Changed(f"run {run.id} was changed meanwhile (it is {run.state.value}); read it again.")


def summary(run: Run) -> dict[str, Any]:
    """What a list or a stream needs of a run."""
    p = run.progress
    return {
        "run_id": run.id, "version": run.version, "state": run.state.value, "where": run.plan.where, "epochs_done": p.epochs_done,
        "epochs": p.epochs or run.plan.workload.epochs, "loss": p.loss, "message": run.message,
    }  # fmt: skip
