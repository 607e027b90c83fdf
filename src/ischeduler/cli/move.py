"""``isched move``: let a run go on elsewhere."""

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
def move(
    run: RunId,
    where: Annotated[str | None, typer.Argument(metavar="[CLUSTER/PARTITION]", help="Where to.", show_default=False)] = None,
    gpus: Annotated[
        int | None, typer.Option("--gpus", metavar="N", help="On so many accelerators, for a training whose field elastic allows it.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Let a run go on elsewhere, or on more or fewer accelerators: a running job saves a checkpoint first, a waiting one is taken back."""
    if (where is None) == (gpus is None):
        raise BadInput("say either where to (CLUSTER/PARTITION) or on how many accelerators (--gpus N); one move at a time.")
    handle = session().run(run)
    after = handle.move(where) if where is not None else handle.resize(gpus or 0)
    where = where or f"{gpus} accelerator(s)"
    if as_json:
        output.document("isched.run/1", {"run": to_plain(after)})
        return
    output.line(f"✓ run {handle.id} goes on at {where} once its job has saved and left")
    output.hints([("watch", f"isched watch {handle.id}"), ("why", f"isched why {handle.id}")])
