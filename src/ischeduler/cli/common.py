"""Pieces that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from ischeduler.cli import output
from ischeduler.core.codec import to_plain
from ischeduler.core.durations import human
from ischeduler.core.run import Run
from ischeduler.helper.plans import Option, Plans
from ischeduler.helper.session import Session
from ischeduler.plane.attempts import spent
from ischeduler.plane.services import serving

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or the beginning of it.")]
AnyRun = Annotated[str | None, typer.Argument(metavar="[RUN]", help="A run's id, or the beginning of it; default: the newest.")]
Which = Annotated[
    str,
    typer.Argument(metavar="[CHOICE]", help="A number of the last plan, soonest, cheapest, ideal, goal, or CLUSTER/PARTITION."),
]


def show_plans(plans: Plans, *, everything: bool = False) -> None:
    """The plan page and its next steps."""
    for text in plans.lines(everything=everything):
        if text.lstrip().startswith("# "):
            text = output.style(text, "bold")
        output.line(text.replace("✔", output.style("✔", "green")))
    if len(plans):
        first = plans.planset.plans[0].number
        output.hints([("script", f"isched script {first}"), ("submit", f"isched submit {first}")])


def show_run(run: Run, now: float, *, as_json: bool) -> None:
    """Where a run stands, in a few lines."""
    if as_json:
        output.document("isched.run/1", {"run": to_plain(run)})
        return
    output.line(f"{output.style(run.id, 'bold')}  {state_word(run)}  {run.plan.workload.name}  {run.plan.where}")
    output.line(f"  {progress_words(run, now)}")
    if run.message:
        output.line(f"  {run.message}")
    if run.attempts:
        header = ("ATTEMPT", "JOB", "WHERE", "STATE", "WAITED", "RAN", "ENDED BY")
        output.table(header, [_attempt_row(run, i, now) for i in range(len(run.attempts))], indent="  ")
    output.hints(next_steps(run))


def state_word(run: Run) -> str:
    """The state, coloured by how much attention it wants."""
    colour = {"completed": "green", "failed": "red", "cancelled": "yellow", "stalled": "red", "unknown": "yellow"}.get(
        run.state.value
    )
    return output.style(run.state.value.upper(), *([colour] if colour else []))


def progress_words(run: Run, now: float) -> str:
    """``epoch 27/50 · loss 0.412 · checkpoint 2m ago · spent $0.21 of about $0.36``."""
    p = run.progress
    if run.plan.workload.service is not None:
        return " · ".join([service_words(run), spent_words(run)])
    parts = [f"epoch {p.epochs_done}/{p.epochs or run.plan.workload.epochs}"]
    if p.loss is not None:
        parts.append(f"loss {p.loss:.4g}")
    return " · ".join([*parts, *checkpoint_words(run, now), spent_words(run)])


def service_words(run: Run) -> str:
    """``serves at node7:8888``, and where clients read that."""
    up = serving(run)
    where = f"{run.directory}/endpoint.json"
    return f"serves at {up.endpoint} ({where})" if up is not None else "not ready now" if not run.state.ended else "has ended"


def checkpoint_words(run: Run, now: float) -> list[str]:
    """``checkpoint 2m ago``, nothing before the first."""
    at = run.progress.checkpoint_at
    return [] if at is None else [f"checkpoint {human(max(0.0, now - at))} ago"]


def spent_words(run: Run) -> str:
    """``spent $0.21 of about $0.36``: of what was planned first."""
    planned = (run.first_plan or run.plan).cost
    shown = (lambda x: f"${x:.2f}") if planned.unit == "usd" else (lambda x: f"{x:.3g}")
    unit = "" if planned.unit == "usd" else f" {planned.unit}"
    return f"spent {shown(spent(run))} of about {shown(planned.p50)}{unit}"


def _attempt_row(run: Run, index: int, now: float) -> tuple[str, ...]:
    a = run.attempts[index]
    waited = human(a.started_at - a.submitted_at) if a.started_at is not None and a.submitted_at is not None else "-"
    end = a.ended_at if a.ended_at is not None else (now if a.state.value == "running" else None)
    ran = human(max(0.0, end - a.started_at)) if a.started_at is not None and end is not None else "-"
    cause = a.cause.value if a.cause else (a.reason or "-" if not a.state.ended else "-")
    return (str(a.number), a.job_id or "-", f"{a.cluster}/{a.partition}", a.state.value, waited, ran, cause)


def next_steps(run: Run) -> list[tuple[str, str]]:
    """What one may want to do now."""
    if run.state.ended:
        steps = [("report", f"isched report {run.id}"), ("logs", f"isched logs {run.id}")]
        return steps if run.state.value == "completed" else [("why", f"isched why {run.id}"), *steps]
    return [
        ("watch", f"isched watch {run.id}"),
        ("why", f"isched why {run.id}"),
        ("logs", f"isched logs -f {run.id}"),
        ("stop", f"isched cancel {run.id}"),
    ]


def chosen(here: Session, which: str, *, check_age: bool) -> tuple[Option, str]:
    """The option of the last plan made in this folder, and a remark. One that is old is planned again before it is trusted."""
    plans, age_s = here.last_plans()
    option = plans[which]
    if not check_age or age_s <= here.config["plan.max_age"]:
        return option, ""
    fresh = here.plan(plans.request)
    return here.same_option(fresh, option), f"That plan is {human(age_s)} old; it was checked against the queues as they are now."
