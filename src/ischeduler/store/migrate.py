"""Brings a database's tables up to this program's version. The steps are Alembic's, shipped inside the package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from ischeduler.core.errors import ConfigError, StoreUnavailable
from ischeduler.store.engine import WRITE

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0006"
"""The newest migration; known here so that a database that is up to date costs one SELECT and no import of Alembic."""
_LOCK = 0x15C4ED  # PostgreSQL advisory lock: any number, the same for every process of ours


def prepare(engine: Engine) -> None:
    """Make the database usable: SQLite is migrated on the spot; for PostgreSQL a ConfigError names the command that does it."""
    current = revision(engine)
    if current == HEAD or _still_serves(engine, current):
        return
    if engine.dialect.name == "sqlite":
        migrate(engine)
        return
    state = "has no tables of iScheduler yet" if current is None else f"is at version {current}, this program needs {HEAD}"
    raise ConfigError(f"the database {engine.url.render_as_string(hide_password=True)} {state}; run: isched db upgrade")


def _still_serves(engine: Engine, current: str | None) -> bool:
    """Whether a database that a newer program has upgraded says that this one may go on: then both run side by side."""
    if current is None or current <= HEAD:
        return False
    with engine.connect() as connection:
        oldest: Any = connection.execute(text("SELECT oldest FROM compatible WHERE id = 1")).scalar()
    return oldest is not None and str(oldest) <= HEAD


def revision(engine: Engine) -> str | None:
    """The database's migration, None when it has none yet."""
    with engine.connect() as connection:
        return _revision(connection)


def migrate(engine: Engine, target: str = "head") -> str | None:
    """Run the missing migrations in one transaction under a lock, and return the revision reached.

    Safe when several processes start at once: one migrates, the others wait and find it done. ConfigError when the database
    was written by a newer program.
    """
    with engine.execution_options(**WRITE).begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        current = _revision(connection)
        if current is not None and current not in known_revisions():
            raise ConfigError(
                f"the database was written by a newer iScheduler (version {current}); update this program to use it."
            )
        _upgrade(connection, target)
        return _revision(connection)


def known_revisions() -> tuple[str, ...]:
    """All migrations of this program, oldest first."""
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory.from_config(alembic_config())
    return tuple(reversed([step.revision for step in scripts.walk_revisions()]))


def alembic_config() -> Config:
    """Alembic's configuration for the migrations inside the package; no alembic.ini is needed."""
    from alembic.config import Config

    config = Config()
    folder = str(Path(__file__).parent / "migrations").replace("%", "%%")
    config.set_main_option("script_location", folder)
    config.set_main_option("path_separator", "os")
    return config


def _upgrade(connection: Connection, target: str) -> None:
    from alembic import command

    config = alembic_config()
    config.attributes["connection"] = connection
    command.upgrade(config, target)


def _revision(connection: Connection) -> str | None:
    if not _has_version_table(connection):
        return None
    row: Any = connection.execute(text("SELECT version_num FROM alembic_version")).first()
    return None if row is None else str(row[0])


def _has_version_table(connection: Connection) -> bool:
    queries = {
        "sqlite": "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'alembic_version'",
        "postgresql": "SELECT 1 WHERE to_regclass('alembic_version') IS NOT NULL",
    }
    try:
        return connection.execute(text(queries[connection.dialect.name])).first() is not None
    except DBAPIError as error:
        raise StoreUnavailable(f"the database could not be read ({error.orig}); check that it is one of iScheduler's.") from error
