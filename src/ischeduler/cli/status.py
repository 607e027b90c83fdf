"""``isched status``: where a run stands."""

from __future__ import annotations

import typer

from ischeduler.cli.common import AnyRun, Json, show_run
from ischeduler.cli.invocation import session

app = typer.Typer(rich_markup_mode=None)


@app.command()
def status(
    run: AnyRun = None,
    as_json: Json = False,
) -> int:
    """Where a run stands. Takes a look at the batch system where no plane is doing so. Exit code 1 for a failed run."""
    here = session()
    found = here.run(run).status()
    show_run(found, here.clock.now(), as_json=as_json)
    return 1 if found.state.value == "failed" else 0
