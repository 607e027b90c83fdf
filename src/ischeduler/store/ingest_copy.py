"""PostgreSQL's fast way in: COPY into a temporary table, then one INSERT that leaves what is there alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection

from ischeduler.core.errors import StoreUnavailable

if TYPE_CHECKING:
    from ischeduler.store.ingest import Row

FEW = 400
"""Up to so many rows go as arrays of one statement: a temporary table costs more than they do."""
_STAGE = (
    "CREATE TEMPORARY TABLE IF NOT EXISTS incoming_events"
    " (lane bigint, seq bigint, position bigint, kind text, at float8, data text) ON COMMIT DELETE ROWS"
)
_COPY = "COPY pg_temp.incoming_events (lane, seq, position, kind, at, data) FROM STDIN"
_STAGED = "pg_temp.incoming_events"
_ARRAYS = (
    "unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::text[], %s::float8[], %s::text[])"
    " AS few(lane, seq, position, kind, at, data)"
)
_MOVE = {
    "job_events": (
        "INSERT INTO job_events (lane, seq, position, kind, at, data) SELECT s.lane, s.seq, s.position, s.kind, s.at, s.data::json"
        " FROM (SELECT * FROM {source}) s WHERE s.position > 0 ORDER BY s.lane, s.seq ON CONFLICT DO NOTHING"
    ),
    "telemetry": (
        "INSERT INTO telemetry (lane, seq, kind, at, data) SELECT s.lane, s.seq, s.kind, s.at, s.data::json"
        " FROM (SELECT * FROM {source}) s JOIN event_lanes l ON l.lane = s.lane"
        " WHERE s.position = 0 AND s.seq > l.thinned_to ORDER BY s.lane, s.seq ON CONFLICT DO NOTHING"
    ),
}
_POSITIONS = (
    "WITH held AS (SELECT lane FROM event_lanes WHERE lane = ANY(%s) ORDER BY lane FOR NO KEY UPDATE)"
    " UPDATE event_lanes l SET position = l.position + 1 FROM held WHERE l.lane = held.lane RETURNING l.lane, l.position"
)


class Unstorable(Exception):
    """The database cannot hold one of these events."""


def insert_rows(connection: Connection, rows: Sequence[Row]) -> int:
    """Insert what is not there yet, rows without a position as telemetry; how many that were."""
    if not rows:
        return 0
    for_plane = sum(r.position > 0 for r in rows)
    counts = {"job_events": for_plane, "telemetry": len(rows) - for_plane}
    with _cursor(connection) as cursor:
        source, values = _hand_over(cursor, rows)
        new = 0
        for table in (name for name, count in counts.items() if count):
            cursor.execute(_MOVE[table].format(source=source), values)
            new += cursor.rowcount
    return new


def _hand_over(cursor: Any, rows: Sequence[Row]) -> tuple[str, list[list[Any]] | None]:
    """Give the rows to the server; where a statement finds them, and its parameters."""
    if len(rows) <= FEW:
        events = [r.event for r in rows]
        columns = [r.lane for r in rows], [e.seq for e in events], [r.position for r in rows]
        return _ARRAYS, [*columns, [e.kind for e in events], [e.at for e in events], [e.data for e in events]]
    cursor.execute(_STAGE)
    with cursor.copy(_COPY) as copy:
        copy.write("".join([_line(r.lane, r.position, *r.event[3:]) for r in rows]).encode())
    return _STAGED, None


def next_positions(connection: Connection, lanes: Sequence[int]) -> dict[int, int]:
    """Count up these lanes' positions, locking them in the order of their numbers."""
    with _cursor(connection) as cursor:
        cursor.execute(_POSITIONS, (list(lanes),))
        return dict(cursor.fetchall())


def _line(lane: int, position: int, seq: int, kind: str, at: float, data: str) -> str:
    """A line of COPY's text form. A kind has no character that needs escaping; in JSON text only the backslash does."""
    if "\\" in data:
        data = data.replace("\\", "\\\\")
    return f"{lane}\t{seq}\t{position}\t{kind}\t{at!r}\t{data}\n"


def plain(data: str) -> Any:
    """The object of a JSON text."""
    return json.loads(data)


@contextmanager
def _cursor(connection: Connection) -> Iterator[Any]:
    """psycopg's own cursor inside the connection's transaction. Its failures read as SQLAlchemy's do elsewhere."""
    import psycopg

    try:
        raw: Any = connection.connection
        with raw.cursor() as cursor:
            yield cursor
    except (psycopg.DataError, psycopg.IntegrityError) as error:
        raise Unstorable(str(error)) from error
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        first = (str(error).strip().splitlines() or ["no answer"])[0]
        raise StoreUnavailable(f"the database did not take the events ({first}); check that it runs and can be reached.") from error
