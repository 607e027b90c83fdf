"""``isched events``: the log of a run, as the plane, its jobs and its owner wrote it."""

from __future__ import annotations

import json
import time

import typer

from ischeduler.cli import output
from ischeduler.cli.common import AnyRun, Json
from ischeduler.cli.invocation import session
from ischeduler.core.codec import to_plain

app = typer.Typer(rich_markup_mode=None)


@app.command()
def events(run: AnyRun = None, as_json: Json = False) -> None:
    """List everything that happened to a run, in order of arrival."""
    handle = session().run(run)
    found = handle.events()
    if as_json:
        output.document("isched.events/1", {"run_id": handle.id, "events": [to_plain(e) for e in found]})
        return
    rows = [
        (time.strftime("%m-%d %H:%M:%S", time.localtime(e.at)), e.source, e.token or "-", e.kind, _words(to_plain(e.data)))
        for e in found
    ]
    output.table(("WHEN", "SOURCE", "TOKEN", "KIND", "WHAT"), rows)


def _words(data: dict[str, object]) -> str:
    text = " ".join(f"{k}={json.dumps(v, ensure_ascii=False)}" for k, v in data.items())
    return text if len(text) <= 140 else text[:139] + "…"
