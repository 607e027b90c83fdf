"""``isched logs``: what the training printed."""

from __future__ import annotations

from typing import Annotated

import typer

from ischeduler.cli import output
from ischeduler.cli.common import AnyRun, Json
from ischeduler.cli.invocation import session

app = typer.Typer(rich_markup_mode=None)


@app.command()
def logs(
    run: AnyRun = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the run has ended.")] = False,
    attempt: Annotated[int | None, typer.Option("--attempt", metavar="N", help="That attempt's; default: the newest.")] = None,
    as_json: Json = False,
) -> None:
    """Print what the training printed."""
    handle = session().run(run)
    if as_json:
        path = handle.log_path(attempt)
        output.document("isched.logs/1", {"run_id": handle.id, "path": str(path), "text": handle.logs(attempt=attempt)})
    elif follow:
        for text in handle.follow(attempt):
            output.text(text)
            output.flush()
    else:
        output.text(handle.logs(attempt=attempt))
