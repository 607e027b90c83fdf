"""Copies of the database that can be trusted: consistent while others write, read back before they count, never over anything.

SQLite by its backup API, PostgreSQL by its own pg_dump and pg_restore. A copy is written beside its place under another name, with mode
600, and gets its name once every table in it was read again and holds as many rows as the database had at that instant.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine, func, inspect, select, table

from ischeduler.core.errors import BadInput, ConfigError, StoreUnavailable
from ischeduler.store.engine import open_engine
from ischeduler.store.migrate import known_revisions, revision

SQLITE_HEAD, POSTGRES_HEAD = b"SQLite format 3\x00", b"PGDMP"
NAMED = re.compile(r"ischeduler-\d{8}-\d{6}\.(sqlite|pgdump)")


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of a database, or a database made from one. ``tables`` are the rows of each table, ``version`` the tables' migration."""

    path: str
    kind: str
    version: str
    bytes: int
    tables: Mapping[str, int]
    removed: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """All rows."""
        return sum(self.tables.values())


def backup(url: str, target: Path, *, keep: int | None = None) -> Copy:
    """Copies the database to ``target``, or into it under a dated name where it is a folder; there ``keep`` of the newest stay.

    BadInput when the file exists; ConfigError when the database has no tables of ours or a program is missing; StoreUnavailable when
    it cannot be read, or when what was written is not what was there.
    """
    engine = open_engine(url)
    try:
        version = revision(engine)
        if version is None:
            raise ConfigError(f"{_shown(engine)} has no tables of iScheduler; there is nothing to copy.")
        final = _place(target, engine)
        partial = final.with_name(f".{final.name}.partial")
        partial.unlink(missing_ok=True)  # of an earlier attempt that was killed
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        try:
            tables = _copy_sqlite(engine, partial) if engine.dialect.name == "sqlite" else _copy_postgresql(engine, partial)
            _keep_for_good(partial, final)
        finally:
            partial.unlink(missing_ok=True)
        removed = _thin(final.parent, keep) if keep is not None and target.is_dir() else ()
        return Copy(str(final), engine.dialect.name, version, final.stat().st_size, tables, removed)
    except OSError as error:
        raise StoreUnavailable(f"the copy could not be written: {error.strerror or error}; check {target} and its free space.") from None
    finally:
        engine.dispose()


def restore(url: str, source: Path) -> Copy:
    """Fills an empty database from a copy and counts every table again.

    BadInput when the file is no copy or one of another kind of database; ConfigError when it is of a newer program; StoreUnavailable
    when the database is not empty.
    """
    kind = kind_of(source)
    engine = open_engine(url)
    try:
        if kind != engine.dialect.name:
            raise BadInput(f"{source} is a copy of a {kind} database and {_shown(engine)} is {engine.dialect.name}; restore like into like.")
        if found := inspect(engine).get_table_names():
            raise StoreUnavailable(f"{_shown(engine)} is not empty (it has {', '.join(found[:3])}); restore into a new database, then switch.")
        _refuse_newer(_version_in(source, kind))
        tables = _fill_sqlite(engine, source) if kind == "sqlite" else _fill_postgresql(engine, source)
        engine.dispose()
        found = counts(engine)
        if found != dict(tables):
            raise StoreUnavailable(f"what was restored is not what {source} holds: {_difference(dict(tables), found)}; do not use it.")
        return Copy(str(source), kind, revision(engine) or "", source.stat().st_size, found)
    finally:
        engine.dispose()


def kind_of(source: Path) -> str:
    """'sqlite' or 'postgresql', by the file's first bytes. BadInput for anything else."""
    try:
        with source.open("rb") as file:
            head = file.read(16)
    except OSError as error:
        raise BadInput(f"{source} cannot be read: {error.strerror}; give a file that isched db backup made.") from None
    if head == SQLITE_HEAD:
        return "sqlite"
    if head.startswith(POSTGRES_HEAD):
        return "postgresql"
    raise BadInput(f"{source} is no copy of a database; give a file that isched db backup made.")


def counts(engine: Engine) -> dict[str, int]:
    """Rows of every table."""
    with engine.connect() as connection:
        names = inspect(connection).get_table_names()
        return {name: int(connection.execute(select(func.count()).select_from(table(name))).scalar_one()) for name in sorted(names)}


def _place(target: Path, engine: Engine) -> Path:
    suffix = "sqlite" if engine.dialect.name == "sqlite" else "pgdump"
    final = target / f"ischeduler-{time.strftime('%Y%m%d-%H%M%S')}.{suffix}" if target.is_dir() else target
    if final.exists() or final.is_symlink():
        raise BadInput(f"{final} exists and is not overwritten; give another name, or a folder.")
    if not final.parent.is_dir():
        raise BadInput(f"there is no folder {final.parent}; make it first (mkdir -m 700).")
    return final


def _keep_for_good(partial: Path, final: Path) -> None:
    """On the disk before it has its name; a name that appeared meanwhile is not taken from it."""
    for path in (partial, partial.parent):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    try:
        os.link(partial, final)
    except FileExistsError:
        raise BadInput(f"{final} exists and is not overwritten; give another name, or a folder.") from None


def _thin(folder: Path, keep: int) -> tuple[str, ...]:
    """Removes the oldest dated copies beyond ``keep``; anything with another name is left alone."""
    if keep < 1:
        raise BadInput("--keep must be at least 1.")
    dated = sorted(p for p in folder.iterdir() if NAMED.fullmatch(p.name))
    for path in dated[:-keep]:
        path.unlink()
    return tuple(p.name for p in dated[:-keep])


def _copy_sqlite(engine: Engine, partial: Path) -> Mapping[str, int]:
    """SQLite's backup API takes one instant of a database that others write to."""
    with closing(sqlite3.connect(str(engine.url.database), timeout=30)) as source, closing(sqlite3.connect(partial)) as copy:
        source.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")
    return _read_sqlite(partial)


def _read_sqlite(path: Path) -> Mapping[str, int]:
    """Rows of every table of a copy, all of whose pages were read. StoreUnavailable when it is damaged."""
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as copy:
            said = [row[0] for row in copy.execute("PRAGMA integrity_check(3)")]
            if said != ["ok"]:
                raise StoreUnavailable(f"{path} is damaged ({said[0]}); use another copy.")
            names = [r[0] for r in copy.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name")]
            return {name: copy.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in names}
    except sqlite3.DatabaseError as error:
        raise StoreUnavailable(f"{path} is damaged ({error}); use another copy.") from None


def _fill_sqlite(engine: Engine, source: Path) -> Mapping[str, int]:
    tables = _read_sqlite(source)
    with closing(sqlite3.connect(f"file:{source}?mode=ro&immutable=1", uri=True)) as copy, closing(sqlite3.connect(str(engine.url.database))) as target:
        copy.backup(target)
    return tables


def _copy_postgresql(engine: Engine, partial: Path) -> Mapping[str, int]:
    """pg_dump in the very snapshot in which the rows were counted."""
    from ischeduler.helper import backup_postgresql as programs

    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        snapshot = str(connection.exec_driver_sql("SELECT pg_export_snapshot()").scalar())
        names = sorted(inspect(connection).get_table_names())
        before = {n: int(connection.execute(select(func.count()).select_from(table(n))).scalar_one()) for n in names}
        programs.dump(engine.url, partial, snapshot)
    after = programs.rows_in(partial)
    if after != before:
        raise StoreUnavailable(f"the copy is not what the database held: {_difference(before, after)}; nothing was kept.")
    return before


def _fill_postgresql(engine: Engine, source: Path) -> Mapping[str, int]:
    from ischeduler.helper import backup_postgresql as programs

    tables = programs.rows_in(source)
    programs.fill(engine.url, source)
    return tables


def _version_in(source: Path, kind: str) -> str:
    if kind == "postgresql":
        from ischeduler.helper import backup_postgresql as programs

        return programs.version_in(source)
    _read_sqlite(source)
    with closing(sqlite3.connect(f"file:{source}?mode=ro&immutable=1", uri=True)) as copy:
        try:
            row = copy.execute("SELECT version_num FROM alembic_version").fetchone()
        except sqlite3.DatabaseError:
            row = None
    return str(row[0]) if row else ""


def _refuse_newer(version: str) -> None:
    if not version:
        raise BadInput("this is a database, but none of iScheduler's; give a file that isched db backup made.")
    if version not in known_revisions():
        raise ConfigError(f"this copy is of a newer iScheduler (version {version}); update this program to restore it.")


def _difference(wanted: Mapping[str, int], found: Mapping[str, int]) -> str:
    wrong = [n for n in sorted({*wanted, *found}) if wanted.get(n) != found.get(n)]
    return ", ".join(f"{n} has {found.get(n, 'no table')} rows in place of {wanted.get(n, 'none')}" for n in wrong[:3])


def _shown(engine: Engine) -> str:
    return str(engine.url.database) if engine.dialect.name == "sqlite" else engine.url.render_as_string(hide_password=True)
