"""Writes events into the database, each once, together with how far their channel was read.

Order. All events of one batch in one lane get the lane's next position, and the lane's row stays locked from then to the
commit. A reader that has seen a position has therefore seen every smaller one, however many writers there are and in
whatever order they commit; a late event gets a newer position and is never passed over.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DataError, IntegrityError

from ischeduler.core.incoming import TELEMETRY, Claimed, Fenced, Incoming, Mark, Refused, Written
from ischeduler.store import ingest_copy
from ischeduler.store.engine import WRITE
from ischeduler.store.ingest_tables import DEAD_LETTERS, EVENT_CHANNELS, EVENT_LANES, JOB_EVENTS
from ischeduler.store.ingest_tables import TELEMETRY as TELEMETRY_ROWS
from ischeduler.store.tables import RUNS

PAYLOAD_KEPT_BYTES = 4096
LANES_KEPT = 100_000
ROUTINE = frozenset({"progress", "heartbeat", *TELEMETRY})
"""Kinds that are no reason to look at a run before its time."""
_SLICE = 500

LaneKey = tuple[str, str, str]


class Row(NamedTuple):
    """An event with its lane's number and position (0 for telemetry)."""

    lane: int
    position: int
    event: Incoming


class EventInbox:
    """The EventSink on SQLite and PostgreSQL. ``clock`` dates what was refused. Use one for each thread that writes."""

    def __init__(self, engine: Engine, *, clock: Callable[[], float] = time.time, lanes_kept: int = LANES_KEPT) -> None:
        self.engine = engine
        self._writing = engine.execution_options(**WRITE)
        self._clock, self._lanes_kept = clock, lanes_kept
        self._lanes: OrderedDict[LaneKey, int] = OrderedDict()
        self._copies = engine.dialect.name == "postgresql"

    def claim(self, channel: str, holder: str, incarnation: str = "") -> Claimed:
        """Take a channel: whoever had it can write no more. A channel of another ``incarnation`` begins anew at 0."""
        with self._writing.begin() as connection:
            fresh = {"name": channel, "holder": "", "generation": 0, "position": 0, "epoch": 0, "incarnation": incarnation}
            connection.execute(once(connection, EVENT_CHANNELS).values(fresh))
            old = connection.execute(select(EVENT_CHANNELS).where(EVENT_CHANNELS.c.name == channel).with_for_update()).one()
            anew = bool(incarnation and old.incarnation and incarnation != old.incarnation)
            new = Claimed(
                channel, old.generation + 1, 0 if anew else old.position, old.epoch + anew, incarnation or old.incarnation
            )
            change = update(EVENT_CHANNELS).where(EVENT_CHANNELS.c.name == channel)
            connection.execute(
                change.values(
                    holder=holder, generation=new.generation, position=new.position, epoch=new.epoch, incarnation=new.incarnation
                )
            )
        return new

    def restart(self, claimed: Claimed, position: int) -> Claimed:
        """The channel itself began anew (its broker lost its log): read it from ``position`` on, in the next epoch. Raises Fenced."""
        mine = (EVENT_CHANNELS.c.name == claimed.channel) & (EVENT_CHANNELS.c.generation == claimed.generation)
        with self._writing.begin() as connection:
            change = update(EVENT_CHANNELS).where(mine).values(position=position, epoch=claimed.epoch + 1)
            if connection.execute(change).rowcount == 0:
                raise Fenced((claimed.channel,))
        return Claimed(claimed.channel, claimed.generation, position, claimed.epoch + 1, claimed.incarnation)

    def write(self, events: Sequence[Incoming], refused: Sequence[Refused] = (), marks: Sequence[Mark] = ()) -> Written:
        """Store all of it in one transaction, or nothing.

        An event that the database itself cannot take is refused by itself and does not stop the others. Raises Fenced,
        and StoreUnavailable when nothing was written because the database is away.
        """
        try:
            return self._write(events, refused, marks)
        except (DataError, IntegrityError, ingest_copy.Unstorable) as error:
            self._lanes.clear()
            return self._write_around(events, refused, marks, str(error).splitlines()[0])

    def _write_around(self, events: Sequence[Incoming], refused: Sequence[Refused], marks: Sequence[Mark], why: str) -> Written:
        """Halve the batch until the bad event stands alone. The marks come with the last half: what is read twice is stored once."""
        if len(events) < 2:
            bad = [Refused("database", f"the database cannot hold it: {why[:200]}", e.data.encode(), e.run) for e in events]
            return self._write((), [*refused, *bad], marks)
        middle = len(events) // 2
        first = self.write(events[:middle])
        last = self.write(events[middle:], refused, marks)
        return Written(
            first.new + last.new, first.repeated + last.repeated, first.refused + last.refused, first.runs | last.runs
        )

    def _write(self, events: Sequence[Incoming], refused: Sequence[Refused], marks: Sequence[Mark]) -> Written:
        lanes = self._lanes_of(events)
        unknown = [Refused("events", "no run has this id", e.data.encode(), e.run) for e in events if e[:3] not in lanes]
        known = [(lanes[e[:3]], e) for e in events if e[:3] in lanes] if unknown else [(lanes[e[:3]], e) for e in events]
        with self._writing.begin() as connection:
            self._advance(connection, marks)
            new = self._insert(connection, known)
            letters = [*refused, *unknown]
            self._bury(connection, letters)
        runs = frozenset(e.run for _, e in known if e.kind not in ROUTINE)
        return Written(new, len(known) - new, len(letters), runs)

    def _advance(self, connection: Connection, marks: Sequence[Mark]) -> None:
        """Move the channels on, in the order of their names, as every writer does. Raises Fenced."""
        lost: list[str] = []
        for mark in sorted(marks, key=lambda m: m.channel):
            mine = (EVENT_CHANNELS.c.name == mark.channel) & (EVENT_CHANNELS.c.generation == mark.generation)
            if connection.execute(update(EVENT_CHANNELS).where(mine).values(position=mark.position)).rowcount == 0:
                lost.append(mark.channel)
        if lost:
            raise Fenced(tuple(lost))

    def _insert(self, connection: Connection, known: Sequence[tuple[int, Incoming]]) -> int:
        for_plane = [(lane, e) for lane, e in known if e.kind not in TELEMETRY]
        positions = self._next_positions(connection, sorted({lane for lane, _ in for_plane}))
        rows = [Row(lane, positions[lane], e) for lane, e in for_plane if lane in positions]
        telemetry = [Row(lane, 0, e) for lane, e in known if e.kind in TELEMETRY] if len(for_plane) < len(known) else []
        if self._copies:
            return ingest_copy.insert_rows(connection, [*rows, *telemetry])
        fresh = _not_thinned(connection, telemetry)
        return _insert_plainly(connection, JOB_EVENTS, rows) + _insert_plainly(connection, TELEMETRY_ROWS, fresh)

    def _next_positions(self, connection: Connection, lanes: Sequence[int]) -> dict[int, int]:
        """Count up these lanes and keep them locked, in the order of their numbers. A lane whose run was deleted is missing."""
        if not lanes:
            return {}
        if self._copies:
            return ingest_copy.next_positions(connection, lanes)
        found: dict[int, int] = {}
        for start in range(0, len(lanes), _SLICE):
            some = EVENT_LANES.c.lane.in_(lanes[start : start + _SLICE])
            connection.execute(update(EVENT_LANES).where(some).values(position=EVENT_LANES.c.position + 1))
            found |= {r.lane: r.position for r in connection.execute(select(EVENT_LANES.c.lane, EVENT_LANES.c.position).where(some))}
        return found

    def _bury(self, connection: Connection, letters: Iterable[Refused]) -> None:
        now = self._clock()
        rows = [
            {
                "channel": r.channel[:200], "run_id": r.run[:64].replace("\0", ""), "reason": r.reason.replace("\0", "")[:500],
                "payload": r.payload[:PAYLOAD_KEPT_BYTES], "payload_bytes": len(r.payload), "received_at": now,
            }
            for r in letters
        ]  # fmt: skip
        if rows:
            connection.execute(insert(DEAD_LETTERS), rows)

    def _lanes_of(self, events: Iterable[Incoming]) -> dict[LaneKey, int]:
        """Numbers of the events' lanes; those of unknown runs are missing. New lanes are made in a transaction of their own."""
        wanted = {e[:3] for e in events}
        found: dict[LaneKey, int] = {}
        for key in wanted:
            lane = self._lanes.get(key)
            if lane is not None:
                self._lanes.move_to_end(key)
                found[key] = lane
        missing = sorted(wanted - found.keys())
        for start in range(0, len(missing), _SLICE):
            found |= self._make_lanes(missing[start : start + _SLICE])
        self._lanes.update({key: found[key] for key in missing if key in found})
        while len(self._lanes) > self._lanes_kept:
            self._lanes.popitem(last=False)
        return found

    def _make_lanes(self, keys: Sequence[LaneKey]) -> dict[LaneKey, int]:
        runs = sorted({run for run, _, _ in keys})
        with self._writing.begin() as connection:
            known = set(connection.execute(select(RUNS.c.id).where(RUNS.c.id.in_(runs))).scalars())
            rows = [{"run_id": r, "source": s, "token": t} for r, s, t in keys if r in known]
            if not rows:
                return {}
            connection.execute(once(connection, EVENT_LANES), rows)
            c = EVENT_LANES.c
            query = select(c.lane, c.run_id, c.source, c.token).where(c.run_id.in_(known))
            wanted = set(keys)
            lanes = {(row.run_id, row.source, row.token): row.lane for row in connection.execute(query)}
        return {key: lane for key, lane in lanes.items() if key in wanted}


def _not_thinned(connection: Connection, rows: Sequence[Row]) -> Sequence[Row]:
    """Without what was thinned out before and comes again."""
    lanes = sorted({r.lane for r in rows})
    to: dict[int, int] = {}
    for start in range(0, len(lanes), _SLICE):
        query = select(EVENT_LANES.c.lane, EVENT_LANES.c.thinned_to).where(EVENT_LANES.c.lane.in_(lanes[start : start + _SLICE]))
        to |= {row.lane: row.thinned_to for row in connection.execute(query)}
    return [r for r in rows if r.lane in to and r.event.seq > to[r.lane]]


def _insert_plainly(connection: Connection, table: Any, rows: Sequence[Row]) -> int:
    """One INSERT for each few hundred rows; the number of new ones."""
    new, with_position = 0, "position" in table.c
    for start in range(0, len(rows), _SLICE):
        values = [
            {"lane": r.lane, "seq": r.event.seq, "kind": r.event.kind, "at": r.event.at, "data": ingest_copy.plain(r.event.data)}
            | ({"position": r.position} if with_position else {})
            for r in rows[start : start + _SLICE]
        ]
        done = connection.execute(once(connection, table).values(values), execution_options={"preserve_rowcount": True})
        new += max(0, done.rowcount)
    return new


def once(connection: Connection, table: Any) -> Any:
    """INSERT that leaves an existing row alone."""
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    return dialect.insert(table).on_conflict_do_nothing()
