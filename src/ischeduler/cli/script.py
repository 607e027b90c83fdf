"""``isched script``: a plan as a plain batch script on stdout."""

from __future__ import annotations

from typing import Annotated

import typer

from ischeduler.cli import output
from ischeduler.cli.common import Json, Which, chosen
from ischeduler.cli.invocation import session

app = typer.Typer(rich_markup_mode=None)


@app.command()
def script(
    which: Which = "goal",
    standalone: Annotated[bool, typer.Option("--plain", help="Without isched exec around the command.")] = False,
    as_json: Json = False,
) -> None:
    """Print a plan of the last isched plan as a batch script to read, edit and submit yourself. Nothing is submitted."""
    here = session()
    option, _ = chosen(here, which, check_age=False)
    text = here.script(option.plan, wrapped=not standalone)
    if as_json:
        output.document("isched.script/1", {"where": option.plan.where, "script": text})
    else:
        output.line(text.rstrip("\n"))
