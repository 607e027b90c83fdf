"""``isched serve``: the centre's service."""

from __future__ import annotations

from typing import Annotated

import typer

from ischeduler.cli import output
from ischeduler.cli.invocation import config

app = typer.Typer(rich_markup_mode=None)


@app.command()
def serve(
    host: Annotated[str | None, typer.Option("--host", metavar="ADDRESS", help="Listen there (serve.host).", show_default=False)] = None,
    port: Annotated[int | None, typer.Option("--port", metavar="N", help="Listen at that port (serve.port).", show_default=False)] = None,
    workers: Annotated[int | None, typer.Option("--workers", metavar="N", help="Web processes (serve.workers).", show_default=False)] = None,
    openapi: Annotated[bool, typer.Option("--openapi", help="Print the API's description (OpenAPI 3.1) and end.")] = False,
) -> None:
    """Serve many users over HTTP: API under /v1, dashboard at /. Runs are carried by plane workers beside it."""
    from ischeduler.helper import serving

    settings = config({"serve.host": host, "serve.port": port, "serve.workers": workers})
    if openapi:
        import json

        output.line(json.dumps(serving.description(), indent=1, ensure_ascii=False))
        return
    serving.serve(settings)
