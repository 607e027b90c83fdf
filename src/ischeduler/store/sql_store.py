"""The Store on a database. Every method is one short transaction; none of them talks to anything but the database."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, Table, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from ischeduler.core.codec import from_plain, to_plain
from ischeduler.core.errors import NotFound, StoreConflict
from ischeduler.core.event import Event
from ischeduler.core.history import HistoryRecord
from ischeduler.core.run import Run, RunState
from ischeduler.ports import Carried, Claim, Lease, WorkerSign
from ischeduler.store import claims as rows_of
from ischeduler.store.engine import WRITE, open_engine, reading
from ischeduler.store.migrate import prepare
from ischeduler.store.tables import EVENTS, HISTORY, LEASES, LOOKS, RUNS, WORKERS


class SqlStore:
    """Runs, events, leases and history in SQLite or PostgreSQL (port :class:`ischeduler.ports.SharedStore`).

    ``place`` is an engine, a file path or a URL. SQLite databases are brought up to date here; a PostgreSQL one is not and
    raises ConfigError when it is behind. ``clock`` dates the rows and is what :meth:`now` tells; without one that is PostgreSQL's
    own clock, or this host's for SQLite. Decisions get their time as an argument.
    """

    def __init__(self, place: Engine | str | Path, *, clock: Callable[[], float] | None = None) -> None:
        self.engine = place if isinstance(place, Engine) else open_engine(place)
        self._reading, self._writing = reading(self.engine), self.engine.execution_options(**WRITE)
        self._shared_clock, self._clock = clock, clock or time.time
        prepare(self.engine)

    def close(self) -> None:
        """Close the connections. The store may still be used; it opens new ones."""
        self.engine.dispose()

    def create_run(self, run: Run) -> Run:
        """Insert; StoreConflict when the id exists. The stored run has the next version."""
        stored = replace(run, version=run.version + 1)
        row = {**_run_row(stored), "id": run.id, "created_at": run.created_at, "updated_at": self._clock()}
        with self._writing.begin() as connection:
            query = _insert_once(connection, RUNS).values(row)
            done = connection.execute(query, execution_options={"preserve_rowcount": True})
        if done.rowcount == 0:
            raise StoreConflict(f"a run named {run.id} exists already; choose another id.")
        return stored

    def get_run(self, run_id: str) -> Run:
        """NotFound when there is none."""
        with self._reading.connect() as connection:
            row = connection.execute(select(RUNS.c.doc, RUNS.c.version).where(RUNS.c.id == run_id)).first()
        if row is None:
            raise NotFound(f"there is no run '{run_id}'; list them with: isched status")
        return _run_of(row)

    def list_runs(self, *, owner: str | None = None, states: Collection[RunState] | None = None) -> Sequence[Run]:
        """Newest first."""
        query = select(RUNS.c.doc, RUNS.c.version).order_by(RUNS.c.created_at.desc(), RUNS.c.id.desc())
        if owner is not None:
            query = query.where(RUNS.c.owner == owner)
        if states is not None:
            query = query.where(RUNS.c.state.in_([s.value for s in states]))
        with self.engine.connect() as connection:
            return [_run_of(row) for row in connection.execute(query)]

    def save_run(self, run: Run, events: Iterable[Event] = ()) -> Run:
        """Compare and swap on the version, with the events, in one transaction (see the port)."""
        stored = replace(run, version=run.version + 1)
        rows = event_rows(run.id, events)
        with self._writing.begin() as connection:
            self._swap(connection, run, stored, None)
            _add_events(connection, rows)
        return stored

    def _swap(self, connection: Connection, run: Run, stored: Run, claim: Claim | None) -> None:
        """Write the run where its version, and the claim's token where there is one, are still the newest."""
        change = update(RUNS).where(RUNS.c.id == run.id, RUNS.c.version == run.version)
        due: dict[str, Any] = {"due_at": rows_of.AT_ONCE} if claim is None else {}
        if claim is not None:
            change = change.where(RUNS.c.lease_token == claim.token)
        if connection.execute(change.values(**_run_row(stored), **due, updated_at=self._clock())).rowcount:
            return
        now = connection.execute(select(RUNS.c.version).where(RUNS.c.id == run.id)).scalar()
        if now is None:
            raise NotFound(f"there is no run '{run.id}'; list them with: isched status")
        if claim is not None and now == run.version:
            raise StoreConflict(f"run {run.id} is in another worker's hands by now; nothing was written.")
        raise StoreConflict(
            f"run {run.id} was changed by someone else (version {now}, not {run.version}); read it again and retry."
        )

    def events(self, run_id: str, *, after: int = 0) -> Sequence[tuple[int, Event]]:
        """Stored events in order of arrival with their row numbers, those beyond row ``after`` only."""
        query = select(EVENTS).where(EVENTS.c.run_id == run_id, EVENTS.c.row > after).order_by(EVENTS.c.row)
        with self.engine.connect() as connection:
            return [(row.row, _event_of(row)) for row in connection.execute(query)]

    def acquire_lease(self, name: str, holder: str, ttl_s: float, now: float) -> Lease | None:
        """The lease when free, expired or already this holder's; else None. Renewing in time keeps the token."""
        with self._writing.begin() as connection:
            free = {"name": name, "holder": "", "token": 0, "expires_at": 0.0}
            connection.execute(_insert_once(connection, LEASES).values(free))
            old = connection.execute(select(LEASES).where(LEASES.c.name == name).with_for_update()).one()
            lease = next_lease(Lease(old.name, old.holder, old.token, old.expires_at), holder, ttl_s, now)
            if lease is not None:
                values = {"holder": lease.holder, "token": lease.token, "expires_at": lease.expires_at}
                connection.execute(update(LEASES).where(LEASES.c.name == name).values(**values))
        return lease

    def release_lease(self, lease: Lease) -> None:
        """Give it back early; nothing happens when it was lost meanwhile. The row stays: its token must go on growing."""
        mine = (LEASES.c.name == lease.name) & (LEASES.c.holder == lease.holder) & (LEASES.c.token == lease.token)
        with self._writing.begin() as connection:
            connection.execute(update(LEASES).where(mine).values(holder="", expires_at=0.0))

    def now(self) -> float:
        """Epoch seconds by the clock that all who use this database share."""
        if self._shared_clock is not None or self.engine.dialect.name != "postgresql":
            return self._clock()
        with self.engine.connect() as connection:
            return rows_of.database_now(connection)

    def due_clusters(self, now: float) -> Sequence[str]:
        """Clusters of runs that are due and in nobody's hands."""
        with self.engine.connect() as connection:
            return rows_of.due_clusters(connection, now)

    def reserve_look(self, cluster: str, *, now: float, interval_s: float) -> bool:
        """True for one caller an interval."""
        with self._writing.begin() as connection:
            return rows_of.reserve_look(connection, _insert_once(connection, LOOKS), cluster, now=now, interval_s=interval_s)

    def claim_runs(self, holder: str, *, now: float, ttl_s: float, limit: int, clusters: Collection[str] | None = None) -> Sequence[Claim]:
        """Take due runs that nobody holds (see the port)."""
        with self._writing.begin() as connection:
            rows = rows_of.claim(connection, holder, now=now, ttl_s=ttl_s, limit=limit, clusters=clusters)
        return [Claim(_run_of(row), holder, row.lease_token, now + ttl_s) for row in rows]

    def renew_claims(self, claims: Iterable[Claim], *, now: float, ttl_s: float) -> Mapping[str, Claim]:
        """Those still held, until ``now + ttl_s``."""
        asked = list(claims)
        with self._writing.begin() as connection:
            kept = rows_of.renew(connection, asked, now=now, ttl_s=ttl_s)
        return {c.run.id: replace(c, expires_at=now + ttl_s) for c in asked if c.run.id in kept}

    def save_claimed(self, claim: Claim, run: Run, events: Iterable[Event] = ()) -> Claim:
        """Compare and swap on version and token, with the events, in one transaction."""
        stored = replace(run, version=run.version + 1)
        rows = event_rows(run.id, events)
        with self._writing.begin() as connection:
            self._swap(connection, run, stored, claim)
            _add_events(connection, rows)
        return replace(claim, run=stored)

    def save_and_release(self, carried: Iterable[Carried]) -> frozenset[str]:
        """Those that nobody changed or took, in one transaction (see the port)."""
        asked = list(carried)
        events = {c.run.id: event_rows(c.run.id, c.events) for c in asked}
        with self._writing.begin() as connection:
            mine = rows_of.hold(connection, asked)
            kept = [c for c in asked if c.run.id in mine]
            rows_of.write(connection, [(c, _run_row(replace(c.run, version=c.run.version + 1))) for c in kept], at=self._clock())
            _add_events(connection, [row for c in kept for row in events[c.run.id]])
        return mine

    def release_claims(self, releases: Iterable[tuple[Claim, float]]) -> None:
        """Give runs back with their due times (see the port)."""
        with self._writing.begin() as connection:
            rows_of.release(connection, releases)

    def wake(self, run_ids: Iterable[str]) -> None:
        """Make runs due at once."""
        with self._writing.begin() as connection:
            rows_of.wake(connection, frozenset(run_ids))

    def sign(self, sign: WorkerSign) -> None:
        """Leave a worker's sign of life."""
        row = to_plain(sign)
        with self._writing.begin() as connection:
            connection.execute(_insert_once(connection, WORKERS).values(row))
            connection.execute(update(WORKERS).where(WORKERS.c.name == sign.name).values(row))

    def signs(self) -> Sequence[WorkerSign]:
        """All workers' signs, the newest first."""
        with self.engine.connect() as connection:
            rows = connection.execute(select(WORKERS).order_by(WORKERS.c.seen_at.desc(), WORKERS.c.name))
            return [WorkerSign(**row._mapping) for row in rows]

    def record(self, record: HistoryRecord) -> None:
        """Add evidence; the same (run_id, kind, finished_at) again changes nothing."""
        columns = ("run_id", "kind", "finished_at", "owner", "family", "cluster", "partition")
        row = {name: getattr(record, name) for name in columns} | {"doc": to_plain(record)}
        with self._writing.begin() as connection:
            connection.execute(_insert_once(connection, HISTORY).values(row))

    def history(
        self,
        *,
        family: str | None = None,
        cluster: str | None = None,
        partition: str | None = None,
        kind: str | None = None,
        owner: str | None = None,
        limit: int = 500,
    ) -> Sequence[HistoryRecord]:
        """Evidence, newest first."""
        wanted = {"family": family, "cluster": cluster, "partition": partition, "kind": kind, "owner": owner}
        query = select(HISTORY.c.doc).order_by(HISTORY.c.finished_at.desc(), HISTORY.c.id.desc()).limit(limit)
        for name, value in wanted.items():
            if value is not None:
                query = query.where(HISTORY.c[name] == value)
        with self.engine.connect() as connection:
            return [from_plain(HistoryRecord, doc) for (doc,) in connection.execute(query)]


def next_lease(old: Lease, holder: str, ttl_s: float, now: float) -> Lease | None:
    """What a lease becomes when ``holder`` asks at ``now``; None when another holds it. Pure."""
    alive = old.holder != "" and old.expires_at > now
    if alive and old.holder != holder:
        return None
    return Lease(old.name, holder, old.token if alive else old.token + 1, now + ttl_s)


def event_rows(run_id: str, events: Iterable[Event]) -> list[dict[str, Any]]:
    """Rows to insert; ValueError for an event of another run, since a save covers one run only."""
    rows: list[dict[str, Any]] = []
    for event in events:
        if event.run_id != run_id:
            raise ValueError(f"event {event.kind} is of run {event.run_id}, not of {run_id}")
        rows.append({**to_plain(event), "at": event.at})
    return rows


def _insert_once(connection: Connection, table: Table) -> Any:
    """INSERT that leaves an existing row alone."""
    if connection.dialect.name == "postgresql":
        return postgresql.insert(table).on_conflict_do_nothing()
    if connection.dialect.name == "sqlite":
        return sqlite.insert(table).on_conflict_do_nothing()
    return insert(table)


def _add_events(connection: Connection, rows: list[dict[str, Any]]) -> None:
    """The run's row is locked by now, so events of one run get their numbers in the order of their commits."""
    if rows:
        connection.execute(_insert_once(connection, EVENTS), rows)


def _run_row(run: Run) -> dict[str, Any]:
    newest = run.attempt
    return {
        "owner": run.owner, "project": run.project, "state": run.state.value, "version": run.version, "doc": to_plain(run),
        "cluster": run.plan.cluster if newest is None else newest.cluster,
    }  # fmt: skip


def _run_of(row: Any) -> Run:
    return replace(from_plain(Run, row.doc), version=row.version)


def _event_of(row: Any) -> Event:
    return Event(row.run_id, row.kind, row.at, source=row.source, token=row.token, seq=row.seq, data=row.data)
