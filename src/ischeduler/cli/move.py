"""``isched move``: let a run go on elsewhere."""

from __future__ import annotations

from typing import Annotated

import typer

from ischeduler.cli import output
from ischeduler.cli.common import Json, RunId
from ischeduler.cli.invocation import session
from ischeduler.core.codec import to_plain

app = typer.Typer(rich_markup_mode=None)


@app.command()
def move(
    run: RunId, where: Annotated[str, typer.Argument(metavar="CLUSTER/PARTITION", help="Where to.")], as_json: Json = False
) -> None:
    """Let a run go on elsewhere: a running job saves a checkpoint first, a waiting one is taken back."""
    handle = session().run(run)
    after = handle.move(where)
    if as_json:
        output.document("isched.run/1", {"run": to_plain(after)})
        return
    output.line(f"✓ run {handle.id} goes on at {where} once its job has saved and left")
    output.hints([("watch", f"isched watch {handle.id}"), ("why", f"isched why {handle.id}")])
