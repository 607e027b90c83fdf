"""Other ways to write the same events into the same database, for comparison: one by one, many by executemany, and COPY without care."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from benchmarks.events_world import CENTRE_MIX, World, kind_of, message, run_name
from ischeduler.core.incoming import Incoming
from ischeduler.service.ingest.messages import read_event
from ischeduler.store.ingest import EventInbox

RUNS = 500
MANY, FEW = 40_000, 2_000
_INSERT = (
    "INSERT INTO peer_events (run_id, token, seq, kind, at, data) VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"
)


def peers(here: World) -> dict[str, Any]:
    """Events a second of each way, from messages in memory: reading and checking them is part of it, Kafka is not."""
    found: dict[str, Any] = {}
    for name, write, count, batch in (
        ("ours_from_memory_per_s", _ours(here), MANY, 5000),
        ("peer_row_by_row_per_s", _rows(here), FEW, 1),
        ("peer_executemany_500_per_s", _rows(here), MANY // 2, 500),
    ):
        here.clear()
        with here.engine.begin() as connection:
            connection.exec_driver_sql("DROP TABLE IF EXISTS peer_events")
            connection.exec_driver_sql(
                "CREATE TABLE peer_events (run_id text, token text, seq bigint, kind text, at float8, data json, PRIMARY KEY (run_id, token, seq))"
            )
        messages = [message(run_name(n % RUNS), n // RUNS + 1, kind_of(n, RUNS, CENTRE_MIX), 1.7e9).encode() for n in range(count)]
        began = time.perf_counter()
        for start in range(0, count, batch):
            write(messages[start : start + batch])
        found[name] = count / (time.perf_counter() - began)
    found["times_row_by_row"] = found["ours_from_memory_per_s"] / found["peer_row_by_row_per_s"]
    return found


def _ours(here: World) -> Callable[[list[bytes]], None]:
    inbox = EventInbox(here.engine)

    def write(messages: list[bytes]) -> None:
        read = [read_event(m) for m in messages]
        inbox.write([e for e in read if isinstance(e, Incoming)])

    return write


def _rows(here: World) -> Callable[[list[bytes]], None]:
    """What a first consumer does: parse, insert, commit; the offset is somewhere else, so a crash repeats or loses."""

    def write(messages: list[bytes]) -> None:
        rows = []
        for text in messages:
            e = json.loads(text)
            rows.append((e["run"], e["token"], e["seq"], e["kind"], e["t"], json.dumps(e["data"])))
        connection: Any = here.engine.raw_connection()
        try:
            with connection.cursor() as cursor:
                cursor.executemany(_INSERT, rows)
            connection.commit()
        finally:
            connection.close()

    return write
