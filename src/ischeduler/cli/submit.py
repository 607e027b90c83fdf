"""``isched submit``: delegate a plan, after a question."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ischeduler.cli import output
from ischeduler.cli.common import Json, Which, chosen, next_steps
from ischeduler.cli.invocation import session
from ischeduler.cli.workload_options import takes_workload
from ischeduler.core.codec import to_plain
from ischeduler.core.errors import BadInput
from ischeduler.core.plan import Plan
from ischeduler.core.run import Run
from ischeduler.helper.goals import parse_time
from ischeduler.helper.plans import Option
from ischeduler.helper.session import Session
from ischeduler.planning.cells import request_words

app = typer.Typer(rich_markup_mode=None)

Source = Annotated[
    str | None, typer.Argument(metavar="[SCRIPT]", help="Plan this first, instead of taking the last plan.", show_default=False)
]


@app.command()
@takes_workload
def submit(
    workload: dict[str, Any],
    which: Which = "goal",
    source: Source = None,
    goal: Annotated[str | None, typer.Option("--goal", help="For the planning, where a script is given.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done; submit nothing.")] = False,
    max_cost: Annotated[float | None, typer.Option("--max-cost", metavar="AMOUNT", help="Stop the run beyond this cost.")] = None,
    max_attempts: Annotated[int | None, typer.Option("--max-attempts", metavar="N", help="Batch jobs at most.")] = None,
    deadline: Annotated[
        str | None, typer.Option("--deadline", metavar="WHEN", help="End the run then: 12h, 2026-05-01T09:00.")
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="WHEN", help="End a service then: 12h, 2026-05-01T09:00.")] = None,
    smaller_batch: Annotated[
        bool | None,
        typer.Option(
            "--allow-smaller-batch/--keep-batch",
            show_default=False,
            help="After running out of GPU memory, halve the batch and accumulate.",
        ),
    ] = None,
    may_move: Annotated[
        bool | None, typer.Option("--allow-move/--stay", show_default=False, help="Move to a clearly better place by itself.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Delegate a plan to the Intelligence Plane: it submits, watches, resumes over limits and failures, and reports."""
    if deadline and until:
        raise BadInput("--until ends a service and --deadline a training; give one of both.")
    here = session()
    option = _option(here, which, source, workload, goal)
    here.check_submittable(option.plan)
    if until and option.plan.workload.service is None:
        raise BadInput("--until is for a service; a training takes --deadline.")
    words = request_words(option.plan, max_cost)
    if dry_run:
        _show_dry_run(here.script(option.plan), words, option.plan, as_json)
        return
    caps = {
        "max_cost": max_cost,
        "max_attempts": max_attempts,
        "deadline": parse_time(deadline or until or "", here.clock.now()) if deadline or until else None,
        "allow_smaller_batch": smaller_batch,
        "allow_move": may_move,
    }
    if not yes and not output.confirm(f"{words} Submit?"):
        raise BadInput("nothing was submitted; --yes answers for you.")
    handle = here.submit(option.plan, caps={k: v for k, v in caps.items() if v is not None})
    _show(here, handle.status(look=False), as_json)


def _option(here: Session, which: str, source: str | None, workload: dict[str, Any], goal: str | None) -> Option:
    """The option meant: of a plan made now where a script or fields are given, else of the last plan shown in this folder."""
    if source is None and which.endswith((".py", ".sh")):
        source, which = which, "goal"
    if source or workload:
        return here.plan(here.request(here.workload(source, workload), goal=goal))[which]
    option, remark = chosen(here, which, check_age=True)
    if remark:
        output.note(remark)
    return option


def _show(here: Session, run: Run, as_json: bool) -> None:
    if as_json:
        output.document("isched.run/1", {"run": to_plain(run)})
        return
    job = run.attempt.job_id if run.attempt else None
    output.line(f"{output.style('✓', 'green')} run {output.style(run.id, 'bold')} accepted{f' (job {job})' if job else ''}")
    for trouble in here.troubles:
        output.note(f"the first look did not succeed ({trouble}); the plane tries again")
    output.hints(next_steps(run))


def _show_dry_run(script: str, words: str, plan: Plan, as_json: bool) -> None:
    if as_json:
        output.document("isched.script/1", {"where": plan.where, "script": script})
        return
    output.note(f"{words} Dry run: nothing was submitted; the first job would be")
    output.line(script.rstrip("\n"))
