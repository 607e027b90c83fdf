"""``isched why``: the reason in words, and the action to take."""

from __future__ import annotations

import typer

from ischeduler.cli import output
from ischeduler.cli.common import AnyRun, Json
from ischeduler.cli.invocation import session

app = typer.Typer(rich_markup_mode=None)


@app.command()
def why(run: AnyRun = None, as_json: Json = False) -> None:
    """Say in words why a run is where it is, and what to do. Also for an option that was refused: isched why pitzer/gpu."""
    here = session()
    if run and "/" in run:
        words, state = here.explain_refusal(run), "refused"
    else:
        found = here.run(run).status()
        run, words, state = found.id, here.explain(found), found.state.value
    if as_json:
        output.document("isched.why/1", {"about": run, "state": state, "words": words})
    else:
        output.line(words)
