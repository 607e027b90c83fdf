"""``isched config``: settings and where each comes from."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ischeduler.cli import output
from ischeduler.cli.common import Json
from ischeduler.cli.invocation import config as load
from ischeduler.core.errors import NotFound
from ischeduler.helper.settings import BY_KEY, write_value
from ischeduler.helper.suggest import did_you_mean

app = typer.Typer(rich_markup_mode=None, help="Settings and where each comes from.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    pass


@app.command()
def show(
    key: Annotated[str | None, typer.Argument(metavar="[KEY]", help="Only this setting.")] = None,
    origin: Annotated[bool, typer.Option("--origin", help="Say where each value comes from.")] = False,
    as_json: Json = False,
) -> None:
    """Show settings. Stronger first: flag, ISCHED_* variable, ./ischeduler.toml or pyproject.toml, user file, /etc/ischeduler."""
    found = load()
    if key is not None and key not in BY_KEY:
        raise NotFound(f"'{key}' is not a setting{did_you_mean(key, BY_KEY)}.")
    keys = [key] if key else list(BY_KEY)
    if as_json:
        rows = {k: {"value": _plain(found.shown(k)), "origin": found.values[k].origin, "help": BY_KEY[k].help} for k in keys}
        output.document("isched.config/1", {"settings": rows})
        return
    effective = {"paths.state": str(found.state_dir), "paths.data": str(found.data_dir)}
    shown = {k: effective.get(k) or write_value(BY_KEY[k], found.shown(k)) or "-" for k in keys}
    header = ("KEY", "VALUE", "ORIGIN") if origin else ("KEY", "VALUE")
    output.table(header, [(k, shown[k], found.values[k].origin)[: len(header)] for k in keys])


def _plain(value: Any) -> Any:
    from ischeduler.core.codec import to_plain

    return to_plain(value)
