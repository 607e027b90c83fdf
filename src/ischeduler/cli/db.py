"""``isched db``: the database's version, and bringing it up to this program's."""

from __future__ import annotations

import typer

from ischeduler.cli import output
from ischeduler.cli.common import Json
from ischeduler.cli.invocation import config

app = typer.Typer(rich_markup_mode=None, help="The database: version, upgrade.", no_args_is_help=True)


@app.command()
def version(as_json: Json = False) -> int:
    """Which version the database is at. Exit code 1 when it needs an upgrade."""
    from ischeduler.store.engine import engine_notes, open_engine
    from ischeduler.store.migrate import HEAD, revision

    engine = open_engine(config().database_url)
    found = revision(engine)
    shown = engine.url.render_as_string(hide_password=True)
    if as_json:
        output.document("isched.db/1", {"url": shown, "version": found, "needed": HEAD, "notes": list(engine_notes(engine))})
    else:
        output.line(f"{shown} is at version {found or 'none'}; this program needs {HEAD}")
        for words in engine_notes(engine):
            output.note(words)
    return 0 if found == HEAD else 1


@app.command()
def upgrade(as_json: Json = False) -> None:
    """Bring the database's tables up to this program's version."""
    from ischeduler.store.engine import open_engine
    from ischeduler.store.migrate import HEAD, migrate

    engine = open_engine(config().database_url)
    reached = migrate(engine)
    shown = engine.url.render_as_string(hide_password=True)
    if as_json:
        output.document("isched.db/1", {"url": shown, "version": reached, "needed": HEAD, "notes": []})
    else:
        output.line(f"✓ {shown} is at version {reached}")
