"""Opens a database by path or URL, so that several processes may use it at once and its failures read as one sentence."""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, ExceptionContext, make_url
from sqlalchemy.exc import ArgumentError, DisconnectionError, InterfaceError, OperationalError

from ischeduler.core.codec import dumps, loads
from ischeduler.core.errors import ConfigError, StoreUnavailable
from ischeduler.store.filesystems import file_system_type, is_network

BUSY_TIMEOUT_S = 15.0
_SQLITE, _POSTGRESQL = ("sqlite", "sqlite+pysqlite"), ("postgresql", "postgres", "postgresql+psycopg")
IDLE_S = 5.0
"""A PostgreSQL connection that was idle for longer is tried before it is used again."""
WRITE = {"isched_write": True}
"""Options of a transaction that will write: SQLite then takes its lock at the start and cannot deadlock on an upgrade."""


def open_engine(url: str | Path | URL, *, busy_timeout_s: float = BUSY_TIMEOUT_S) -> Engine:
    """An engine for a SQLite file (a path or ``sqlite:///...``) or ``postgresql+psycopg://...``.

    A new SQLite file gets mode 600 and its new folders 700. Raises ConfigError on a URL of another kind and StoreUnavailable
    where the file cannot be made; a server that is down shows at first use.
    """
    target = _as_url(url)
    engine = _open_sqlite(target, busy_timeout_s) if target.drivername in _SQLITE else _open_postgresql(target)
    event.listen(engine, "handle_error", _to_sentence, retval=True)
    return engine


def reading(engine: Engine) -> Engine:
    """The same engine for questions of one statement each: PostgreSQL answers without a transaction around it, which saves two ways there and back."""
    return engine.execution_options(isolation_level="AUTOCOMMIT") if engine.dialect.name == "postgresql" else engine


def engine_notes(engine: Engine) -> tuple[str, ...]:
    """What a person should know about how this database was opened, e.g. a journal that is slower but safe on a network disk."""
    database = engine.url.database
    if engine.dialect.name != "sqlite" or not database or database == ":memory:":
        return ()
    kind = file_system_type(Path(database))
    if not is_network(kind):
        return ()
    return (
        f"{database} is on a network file system ({kind}): a rollback journal is used in place of the write-ahead log; "
        "put it on a local disk, or use PostgreSQL, where several hosts write at once.",
    )


def _as_url(url: str | Path | URL) -> URL:
    if isinstance(url, URL):
        return url
    text = str(url)
    if "://" not in text:
        return URL.create("sqlite", database=str(Path(text).expanduser().absolute()))
    try:
        target = make_url(text)
    except ArgumentError:
        target = None
    if target is None or target.drivername not in (*_SQLITE, *_POSTGRESQL):
        shown = text if target is None else target.render_as_string(hide_password=True)
        raise ConfigError(
            f"'{shown}' is not a database of a kind we use; expected a file path, sqlite:///FILE or postgresql+psycopg://HOST/NAME."
        )
    return target.set(drivername="postgresql+psycopg") if target.drivername in _POSTGRESQL else target


def _open_sqlite(url: URL, busy_timeout_s: float) -> Engine:
    path = Path(url.database) if url.database and url.database != ":memory:" else None
    journal = "wal"
    if path is not None:
        _make_private(path)
        journal = "delete" if is_network(file_system_type(path)) else "wal"
    engine = create_engine(
        url, connect_args={"timeout": busy_timeout_s, "check_same_thread": False}, json_serializer=dumps, json_deserializer=loads
    )

    def prepare(connection: Any, record: Any) -> None:
        _prepare_sqlite(connection, journal, busy_timeout_s)

    event.listen(engine, "connect", prepare)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _make_private(path: Path) -> None:
    missing = [p for p in (path.parent, *path.parent.parents) if not p.exists()]
    try:
        for folder in reversed(missing):
            folder.mkdir(mode=0o700, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        info = path.stat()
        if info.st_uid == os.getuid() and stat.S_IMODE(info.st_mode) & 0o077:
            path.chmod(0o600)
    except OSError as error:
        raise StoreUnavailable(
            f"cannot open the database {path}: {error.strerror}; check the folder's rights and free space."
        ) from error


def _prepare_sqlite(connection: Any, journal: str, busy_timeout_s: float) -> None:
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {int(busy_timeout_s * 1000)}")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.execute("PRAGMA journal_mode")
    if str(cursor.fetchone()[0]).lower() != journal:
        _set_journal(cursor, journal)
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.close()


def _set_journal(cursor: Any, journal: str) -> None:
    # Changing the mode needs the file alone; when another process holds it, that process is setting the same mode.
    try:
        cursor.execute(f"PRAGMA journal_mode = {journal}")
        cursor.fetchone()
    except sqlite3.OperationalError as error:
        if "locked" not in str(error):
            raise


def _begin_sqlite(connection: Connection) -> None:
    write = connection.get_execution_options().get("isched_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


_PATIENCE = {"connect_timeout": "10", "keepalives_idle": "10", "keepalives_interval": "5", "keepalives_count": "3", "tcp_user_timeout": "20000"}
"""A network that swallows packets is told as an error within half a minute, in place of a worker that hangs for a quarter of an hour."""
_SESSION = ("SET idle_in_transaction_session_timeout = '10s'", "SET lock_timeout = '30s'")
"""A client that vanished in mid-transaction keeps no row locked for longer."""


def _open_postgresql(url: URL) -> Engine:
    given = {name: value for name, value in _PATIENCE.items() if name not in url.query}
    try:
        engine = create_engine(url, connect_args=given, json_serializer=dumps, json_deserializer=loads)
    except ImportError:
        raise ConfigError("PostgreSQL needs the psycopg driver; install it with: pip install 'ischeduler[postgres]'.") from None
    event.listen(engine, "connect", _prepare_postgresql)
    event.listen(engine, "checkin", _note_use)
    event.listen(engine, "checkout", _try_idle)
    return engine


def _note_use(connection: Any, record: Any) -> None:
    record.info["used_at"] = time.monotonic()


def _try_idle(connection: Any, record: Any, proxy: Any) -> None:
    """As SQLAlchemy's pool_pre_ping, which asks at every use: the pool makes a new connection in place of a dead one."""
    used_at = record.info.get("used_at")
    if used_at is None or time.monotonic() - used_at < IDLE_S:
        return
    try:
        connection.execute("SELECT 1")
        connection.rollback()
    except Exception as error:
        raise DisconnectionError(str(error)) from error


def _prepare_postgresql(connection: Any, record: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("; ".join(_SESSION))
    connection.commit()


_SENTENCES = (
    ("locked", "the database {where} stayed locked by another process for too long; try again, or look for a process that hangs"),
    (
        "disk is full",
        "the database {where} could not be written because its disk or quota is full; free some space and try again",
    ),
    ("DiskFull", "the database {where} could not be written because its disk is full; free some space and try again"),
    ("No space left", "the database {where} could not be written because its disk is full; free some space and try again"),
    ("readonly", "the database {where} may not be written by you; check its rights or choose another with ISCHED_DATABASE_URL"),
    ("unable to open", "the database {where} cannot be opened; check that its folder exists and is yours"),
    (
        "disk I/O error",
        "the database {where} could not be read or written (disk I/O error); check its disk, quota and file system",
    ),
    ("malformed", "the database {where} is damaged; restore it from a copy, or move it away to start anew"),
    ("not a database", "the file {where} is not a database; move it away or choose another"),
    ("no such table", "the database {where} has no tables of iScheduler yet; run: isched db upgrade"),
    ("UndefinedTable", "the database {where} has no tables of iScheduler yet; run: isched db upgrade"),
)


def _to_sentence(context: ExceptionContext) -> BaseException | None:
    error = context.original_exception
    text = f"{type(error).__name__}: {error}"
    where = _where(context)
    for needle, sentence in _SENTENCES:
        if needle in text:
            return StoreUnavailable(sentence.format(where=where) + ".")
    if isinstance(context.sqlalchemy_exception, (OperationalError, InterfaceError)) or context.is_disconnect:
        first = str(error).strip().splitlines()[0] if str(error).strip() else "no answer"
        return StoreUnavailable(f"the database {where} did not answer ({first}); check that it runs and can be reached.")
    return None


def _where(context: ExceptionContext) -> str:
    url = context.engine.url if context.engine is not None else None
    if url is None:
        return "of iScheduler"
    return str(url.database) if url.get_backend_name() == "sqlite" else url.render_as_string(hide_password=True)
