"""``isched top``: all one's runs and the clusters, live in the terminal."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ischeduler.cli import output
from ischeduler.cli.common import Json
from ischeduler.cli.invocation import session
from ischeduler.core.codec import to_plain
from ischeduler.core.errors import BadInput

app = typer.Typer(rich_markup_mode=None)


@app.command()
def top(
    once: Annotated[bool, typer.Option("--once", help="Print one look as text and leave.")] = False,
    interval: Annotated[float, typer.Option("--interval", metavar="S", help="Seconds between two looks.")] = 3.0,
    as_json: Json = False,
) -> None:
    """Show all your runs and the clusters, live: keys for why, logs, cancel. Piped, or with --once: one look as text."""
    from ischeduler.helper.top import Lookout

    if not 0.5 <= interval <= 3600:
        raise BadInput(f"--interval {interval:g} cannot be; give 0.5 to 3600 seconds.")
    lookout = Lookout(session())
    if as_json:
        output.document("isched.top/1", {"glance": to_plain(lookout.glance())})
    elif once or not (sys.stdout.isatty() and sys.stdin.isatty()):
        from ischeduler.cli.top_text import once as lines

        for words in lines(lookout.glance()):
            output.line(words)
    else:
        _screen(lookout, interval)


def _screen(lookout: object, interval: float) -> None:
    try:
        from ischeduler.cli.top_screen import TopApp
    except ModuleNotFoundError as error:
        raise BadInput(f"the live screen needs the extra 'top' ({error}): pip install 'ischeduler[top]'; or: isched top --once") from None
    TopApp(lookout, interval).run()  # type: ignore[arg-type]
