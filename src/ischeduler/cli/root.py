"""The root command: global options, and the lazily loaded commands."""

from __future__ import annotations

from typing import Annotated

import typer

from ischeduler.cli import invocation, output
from ischeduler.cli.group import LazyGroup

app = typer.Typer(
    cls=LazyGroup,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    invoke_without_command=True,
    help="Sizes, plans and carries DNN trainings through batch systems.",
    epilog="Exit codes: 0 done, 1 the thing asked about is bad, 2 it could not be asked, 130 interrupted.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        from ischeduler import __version__

        print(f"isched {__version__}")
        raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting for this call.")] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """Global options."""
    invocation.begin(settings or [])
    if ctx.invoked_subcommand is None:
        output.line(ctx.get_help())
