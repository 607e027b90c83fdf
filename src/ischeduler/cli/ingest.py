"""``isched ingest``: events from jobs into the database of a centre."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ischeduler.cli import output
from ischeduler.cli.common import Json
from ischeduler.cli.invocation import config
from ischeduler.core.codec import to_plain

if TYPE_CHECKING:
    from ischeduler.helper.ingest import RefusedMessage

app = typer.Typer(rich_markup_mode=None)


@app.command()
def ingest(
    transport: Annotated[str, typer.Option("--transport", metavar="kafka|spool", help="Where events come from.")] = "kafka",
    make_topics: Annotated[
        int | None,
        typer.Option("--make-topics", metavar="N", help="Create missing Kafka topics with N partitions, and end.", show_default=False),
    ] = None,
    until_idle: Annotated[
        float | None, typer.Option("--until-idle", metavar="SECONDS", help="End when nothing came for so long.", show_default=False)
    ] = None,
    refused: Annotated[
        int | None, typer.Option("--refused", metavar="N", min=1, help="Show the last N messages put aside, and end.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Read jobs' events into the database until interrupted (daemon). Ending or killing it loses and doubles nothing.

    Run several for more throughput: they share Kafka's partitions among them.
    """
    from ischeduler.helper import ingest as helper

    settings = config()
    if make_topics is not None:
        made = helper.make_topics(settings, make_topics)
        if as_json:
            output.document("isched.topics/1", {"made": made})
        else:
            output.line(f"✓ {', '.join(made)}" if made else "every topic is there already")
        return
    if refused is not None:
        _show(helper.refused(settings, refused), as_json)
        return
    done = helper.ingest(settings, transport, until_idle_s=until_idle)
    if as_json:
        output.document("isched.ingest/1", {"ingested": to_plain(done)})
    else:
        output.line(f"{done.new} event(s) stored, {done.repeated} were there already, {done.refused} refused")


def _show(found: Sequence[RefusedMessage], as_json: bool) -> None:
    if as_json:
        output.document("isched.refused/1", {"refused": to_plain(found)})
    elif not found:
        output.line("nothing was put aside")
    for one in () if as_json else found:
        output.line(f"{one.channel} {one.run or '-'}: {one.reason} ({one.payload_bytes} bytes: {one.beginning[:60]!r})")
