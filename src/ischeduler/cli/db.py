"""``isched db``: the database's version, bringing it up to this program's, and copies of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ischeduler.cli import output
from ischeduler.cli.common import Json
from ischeduler.cli.invocation import config
from ischeduler.core.codec import to_plain

if TYPE_CHECKING:
    from ischeduler.helper.backup import Copy

app = typer.Typer(rich_markup_mode=None, help="The database: version, upgrade, backup, restore.", no_args_is_help=True)


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


@app.command()
def backup(
    target: Annotated[Path, typer.Argument(metavar="FILE", help="A file that is not there yet, or a folder.")],
    keep: Annotated[int | None, typer.Option("--keep", metavar="N", help="In a folder: remove the oldest dated copies beyond N.")] = None,
    as_json: Json = False,
) -> None:
    """Copy the database, while others use it, and read the copy back. Never overwrites."""
    from ischeduler.helper.backup import backup as copy_of

    _show("copied to", copy_of(config().database_url, target, keep=keep), as_json)


@app.command()
def restore(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="A copy that isched db backup made.")],
    as_json: Json = False,
) -> None:
    """Fill an empty database from a copy. Refuses one that has tables."""
    from ischeduler.helper.backup import restore as filled_from

    _show("restored from", filled_from(config().database_url, source), as_json)


def _show(done: str, copy: Copy, as_json: bool) -> None:
    from ischeduler.core.sizes import human_size
    from ischeduler.store.migrate import HEAD

    if as_json:
        output.document("isched.db-copy/1", {"copy": to_plain(copy), "needed": HEAD})
        return
    size = human_size(copy.bytes) if copy.bytes >= 2**20 else f"{copy.bytes} bytes"
    output.line(f"✓ {done} {copy.path}: {copy.rows:,} rows in {len(copy.tables)} tables, version {copy.version}, {size}")
    for name in copy.removed:
        output.note(f"removed {name}")
    if copy.version != HEAD:
        output.hints([("upgrade", "isched db upgrade")])
