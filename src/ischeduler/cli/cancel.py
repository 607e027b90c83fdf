"""``isched cancel``: end a run."""

from __future__ import annotations

from typing import Annotated

import typer

from ischeduler.cli import output
from ischeduler.cli.common import Json, RunId
from ischeduler.cli.invocation import session
from ischeduler.core.codec import to_plain
from ischeduler.core.errors import BadInput

app = typer.Typer(rich_markup_mode=None)


@app.command()
def cancel(
    run: RunId,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """End a run. Its checkpoints stay."""
    handle = session().run(run)
    if not yes and not as_json:
        found = handle.status(look=False)
        if not output.confirm(f"End run {handle.id} ({found.plan.workload.name}, {found.state.value})?"):
            raise BadInput("nothing was cancelled; --yes answers for you.")
    after = handle.cancel()
    if as_json:
        output.document("isched.run/1", {"run": to_plain(after)})
        return
    ended = after.state.value == "cancelled"
    words = "is cancelled" if ended else "will end: its job is being cancelled"
    output.line(f"{output.style('✓', 'green')} run {handle.id} {words}; checkpoints stay in {after.directory}")
