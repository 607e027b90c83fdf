"""``isched exec``: the wrapper around a training inside a job. The entry point calls it without loading this module."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(rich_markup_mode=None)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def exec_(command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="The training.")]) -> int:
    """Run a training inside a job: forwards signals, heartbeats, measures, scans for out-of-memory, fences older attempts.

    Exit codes: 0 finished, 85 checkpointed before the limit, 86 superseded, 87 doubled submission,
    88 started too early and gave its allocation back, else the training's own.
    """
    from ischeduler.training.wrapper import main

    return main(list(command))
