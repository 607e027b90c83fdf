"""The Store in a dictionary: the twin of the SQL one for unit tests and simulations. It passes the same contract suite."""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from ischeduler.core.codec import dumps, from_plain
from ischeduler.core.errors import NotFound, StoreConflict
from ischeduler.core.event import Event
from ischeduler.core.history import HistoryRecord
from ischeduler.core.run import Run, RunState
from ischeduler.ports import Lease


class MemoryStore:
    """Runs, events, leases and history in memory. What it returns is a copy made by the codec, as from a database."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[str, Run] = {}
        self._events: list[Event] = []
        self._seen: set[tuple[str, str, str, int]] = set()
        self._leases: dict[str, Lease] = {}
        self._history: dict[tuple[str, str, float], HistoryRecord] = {}

    def create_run(self, run: Run) -> Run:
        """Insert; StoreConflict when the id exists."""
        with self._lock:
            if run.id in self._runs:
                raise StoreConflict(f"a run named {run.id} exists already; choose another id.")
            return self._put(run)

    def get_run(self, run_id: str) -> Run:
        """NotFound when there is none."""
        with self._lock:
            return self._get(run_id)

    def list_runs(self, *, owner: str | None = None, states: Collection[RunState] | None = None) -> Sequence[Run]:
        """Newest first."""
        with self._lock:
            runs = sorted(self._runs.values(), key=lambda r: (r.created_at, r.id), reverse=True)
        return [r for r in runs if owner in (None, r.owner) and (states is None or r.state in states)]

    def save_run(self, run: Run, events: Iterable[Event] = ()) -> Run:
        """Compare and swap on the version, with the events, all or nothing."""
        new = [_copy(Event, e) for e in events]
        if any(e.run_id != run.id for e in new):
            raise ValueError(f"an event given with run {run.id} is of another run")
        with self._lock:
            old = self._get(run.id)
            if old.version != run.version:
                raise StoreConflict(
                    f"run {run.id} was changed by someone else (version {old.version}, not {run.version}); read it again and retry."
                )
            stored = self._put(run)
            for event in new:
                self._append(event)
            return stored

    def events(self, run_id: str, *, after: int = 0) -> Sequence[tuple[int, Event]]:
        """Stored events in order of arrival with their row numbers, those beyond row ``after`` only."""
        with self._lock:
            return [(row, e) for row, e in enumerate(self._events, start=1) if row > after and e.run_id == run_id]

    def acquire_lease(self, name: str, holder: str, ttl_s: float, now: float) -> Lease | None:
        """The lease when free, expired or already this holder's; else None. Renewing in time keeps the token."""
        with self._lock:
            old = self._leases.get(name, Lease(name, "", 0, 0.0))
            alive = old.holder != "" and old.expires_at > now
            if alive and old.holder != holder:
                return None
            lease = Lease(name, holder, old.token if alive else old.token + 1, now + ttl_s)
            self._leases[name] = lease
            return lease

    def release_lease(self, lease: Lease) -> None:
        """Give it back early; nothing happens when it was lost meanwhile."""
        with self._lock:
            held = self._leases.get(lease.name)
            if held is not None and (held.holder, held.token) == (lease.holder, lease.token):
                self._leases[lease.name] = Lease(lease.name, "", lease.token, 0.0)

    def record(self, record: HistoryRecord) -> None:
        """Add evidence; the same (run_id, kind, finished_at) again changes nothing."""
        with self._lock:
            self._history.setdefault((record.run_id, record.kind, record.finished_at), _copy(HistoryRecord, record))

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
        with self._lock:
            latest_first = [*self._history.values()][::-1]
        newest = sorted(latest_first, key=lambda r: r.finished_at, reverse=True)
        found = [r for r in newest if all(v is None or getattr(r, k) == v for k, v in wanted.items())]
        return found[:limit]

    def _get(self, run_id: str) -> Run:
        if run_id not in self._runs:
            raise NotFound(f"there is no run '{run_id}'; list them with: isched status")
        return self._runs[run_id]

    def _put(self, run: Run) -> Run:
        stored = _copy(Run, replace(run, version=run.version + 1))
        self._runs[run.id] = stored
        return stored

    def _append(self, event: Event) -> None:
        key = (event.run_id, event.source, event.token, event.seq)
        if event.seq > 0 and key in self._seen:
            return
        self._seen.add(key)
        self._events.append(event)


def _copy(kind: Any, value: Any) -> Any:
    return from_plain(kind, json.loads(dumps(value)))
