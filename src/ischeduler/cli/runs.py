"""``isched runs``: all of one's runs."""

from __future__ import annotations

from typing import Annotated

import typer

from ischeduler.cli import output
from ischeduler.cli.common import Json, state_word
from ischeduler.cli.invocation import session
from ischeduler.core.codec import to_plain
from ischeduler.core.durations import human

app = typer.Typer(rich_markup_mode=None)


@app.command()
def runs(
    everything: Annotated[bool, typer.Option("--all", help="Ended ones beyond the newest twenty, too.")] = False,
    as_json: Json = False,
) -> None:
    """List your runs, newest first."""
    here = session()
    here.tick_if_free()
    found = here.all_runs()
    shown = found if everything else [r for i, r in enumerate(found) if i < 20 or not r.state.ended]
    if as_json:
        output.document("isched.runs/1", {"runs": [to_plain(r) for r in shown]})
        return
    now = here.clock.now()
    if not shown:
        output.line("No runs yet: isched plan train.py, then isched submit 1.")
        return
    rows = [
        (
            r.id,
            state_word(r),
            r.plan.workload.name,
            r.plan.where,
            f"{r.progress.epochs_done}/{r.plan.workload.epochs}",
            str(len(r.attempts)),
            f"{human(max(0.0, now - r.created_at))} ago",
        )
        for r in shown
    ]
    output.table(("RUN", "STATE", "NAME", "WHERE", "EPOCHS", "JOBS", "MADE"), rows)
    if len(shown) < len(found):
        output.note(f"{len(found) - len(shown)} older ones hidden: isched runs --all")
