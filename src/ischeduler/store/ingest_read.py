"""Reads what the ingest stored: the plane's news by lane and position, curves for people, and what was refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, func, select, text, union_all

from ischeduler.core.codec import loads
from ischeduler.core.event import Event
from ischeduler.store.ingest_tables import DEAD_LETTERS, EVENT_LANES, JOB_EVENTS, TELEMETRY

_SLICE = 500
_PREFIX = "stored:"
_NEWS = text(
    "SELECT e.lane, e.seq, e.kind, e.at, e.data::text AS data"
    " FROM unnest(CAST(:lanes AS bigint[]), CAST(:after AS bigint[]), CAST(:upto AS bigint[])) AS n(lane, after, upto)"
    " JOIN job_events e ON e.lane = n.lane AND e.position > n.after AND e.position <= n.upto"
)

News = Mapping[str, tuple[Sequence[Event], Mapping[str, int]]]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that was no event. ``payload`` holds its first 4 KiB, ``payload_bytes`` says how long it was."""

    id: int
    channel: str
    run_id: str
    reason: str
    payload: bytes
    payload_bytes: int
    received_at: float


class EventArchive:
    """Everything the EventInbox wrote, for reading. Runs without news cost one row of one query each."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def news(self, wanted: Mapping[str, Mapping[str, int]]) -> News:
        """By run id: events beyond the given offsets and the new offsets; runs without news are missing.

        Order: older incarnations first, within one by ``seq``. Events that reference messages brought have seq 0: their
        number is their place in a partition, which must not be compared with a spool's.
        """
        found: dict[str, tuple[list[Event], dict[str, int]]] = {}
        runs = sorted(wanted)
        with self.engine.connect() as connection:
            for start in range(0, len(runs), _SLICE):
                some = runs[start : start + _SLICE]
                lanes = [lane for lane in _lanes(connection, some) if lane.position > wanted[lane.run_id].get(_name(lane), 0)]
                rows = _rows(connection, [(x.lane, wanted[x.run_id].get(_name(x), 0), x.position) for x in lanes])
                for lane in sorted(lanes, key=lambda x: (x.run_id, _incarnation(x.token), x.source)):
                    events, offsets = found.setdefault(lane.run_id, ([], {}))
                    offsets[_name(lane)] = lane.position
                    events += [_event(lane, row) for row in rows.get(lane.lane, ())]
        return found

    def curve(self, run_id: str, kind: str, *, after: float = 0.0, limit: int = 1000) -> Sequence[tuple[float, Mapping[str, Any]]]:
        """The newest ``limit`` points of 'performance' or 'utilisation' after a time, oldest first: when, and the figures."""
        query = (
            select(TELEMETRY.c.at, TELEMETRY.c.data)
            .join(EVENT_LANES, EVENT_LANES.c.lane == TELEMETRY.c.lane)
            .where(EVENT_LANES.c.run_id == run_id, TELEMETRY.c.kind == kind, TELEMETRY.c.at > after)
            .order_by(TELEMETRY.c.at.desc())
            .limit(limit)
        )
        with self.engine.connect() as connection:
            return [(row.at, row.data) for row in connection.execute(query)][::-1]

    def curve_events(self, run_id: str, *, limit: int = 2000) -> Sequence[Event]:
        """What a run's curves are drawn from, by time and evenly thinned to ``limit``: telemetry, and what waits for the plane.

        The plane's own copies (progress, heartbeat, checkpoint) stand in the run's log once it has looked.
        """
        both = [
            select(t.c.lane, t.c.seq, t.c.kind, t.c.at, t.c.data, EVENT_LANES.c.run_id, EVENT_LANES.c.source, EVENT_LANES.c.token)
            .join(EVENT_LANES, EVENT_LANES.c.lane == t.c.lane)
            .where(EVENT_LANES.c.run_id == run_id)
            for t in (JOB_EVENTS, TELEMETRY)
        ]
        every = union_all(*both).subquery()
        numbered = select(every, func.row_number().over(order_by=every.c.at).label("number")).subquery()
        with self.engine.connect() as connection:
            count = connection.execute(select(func.count()).select_from(every)).scalar_one()
            step = max(1, -(-count // limit))
            query = select(numbered).where((numbered.c.number - 1) % step == 0).order_by(numbered.c.number)
            return [_event(row, row) for row in connection.execute(query)]

    def dead_letters(self, *, after: int = 0, limit: int = 100, run_id: str | None = None) -> Sequence[DeadLetter]:
        """Refused messages in the order they came, those beyond ``after`` only."""
        query = select(DEAD_LETTERS).where(DEAD_LETTERS.c.id > after).order_by(DEAD_LETTERS.c.id).limit(limit)
        if run_id is not None:
            query = query.where(DEAD_LETTERS.c.run_id == run_id)
        with self.engine.connect() as connection:
            return [DeadLetter(**row._mapping) for row in connection.execute(query)]

    def newest_dead_letters(self, limit: int) -> Sequence[DeadLetter]:
        """The last ``limit`` refused messages, oldest first."""
        query = select(DEAD_LETTERS).order_by(DEAD_LETTERS.c.id.desc()).limit(limit)
        with self.engine.connect() as connection:
            return [DeadLetter(**row._mapping) for row in connection.execute(query)][::-1]


def _lanes(connection: Connection, runs: Sequence[str]) -> Sequence[Any]:
    query = select(EVENT_LANES).where(EVENT_LANES.c.run_id.in_(runs), EVENT_LANES.c.position > 0)
    return connection.execute(query).all()


def _rows(connection: Connection, ranges: Iterable[tuple[int, int, int]]) -> dict[int, list[Any]]:
    """Events of each lane between two positions (the first excluded), by ``seq``.

    The end is the position that the lane was seen to have: what commits between the two queries waits for the next time.
    """
    found: dict[int, list[Any]] = {}
    asked = list(ranges)
    if connection.dialect.name == "postgresql":
        columns = {name: [r[i] for r in asked] for i, name in enumerate(("lanes", "after", "upto"))}
        rows: Iterable[Any] = connection.execute(_NEWS, columns) if asked else ()
    else:
        c = JOB_EVENTS.c
        between = [select(JOB_EVENTS).where(c.lane == lane, c.position > after, c.position <= upto) for lane, after, upto in asked]
        rows = (row for query in between for row in connection.execute(query))
    for row in rows:
        found.setdefault(row.lane, []).append(row)
    for some in found.values():
        some.sort(key=lambda row: row.seq)
    return found


def _event(lane: Any, row: Any) -> Event:
    data = loads(row.data) if isinstance(row.data, str) else row.data
    own = lane.source == "job"
    return Event(lane.run_id, row.kind, row.at, source="job", token=lane.token, seq=row.seq if own else 0, data=data)


def _name(lane: Any) -> str:
    return f"{_PREFIX}{lane.token}" if lane.source == "job" else f"{_PREFIX}{lane.source}:{lane.token}"


def _incarnation(token: str) -> tuple[int, ...]:
    return tuple(int(part) for part in token.split(".") if part.isdigit())
