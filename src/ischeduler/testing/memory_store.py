"""The Store in a dictionary: the twin of the SQL one for unit tests and simulations. It passes the same contract suite."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ischeduler.core.codec import dumps, from_plain
from ischeduler.core.errors import NotFound, StoreConflict
from ischeduler.core.event import Event
from ischeduler.core.history import HistoryRecord
from ischeduler.core.run import Run, RunState
from ischeduler.ports import Carried, Claim, Lease, WorkerSign


@dataclass(slots=True)
class _Hand:
    """Who carries a run, and when it is due (0: something woke it)."""

    holder: str = ""
    token: int = 0
    expires_at: float = 0.0
    due_at: float = 0.0

    def holds(self, claim: Claim) -> bool:
        return (self.holder, self.token) == (claim.holder, claim.token)


class MemoryStore:
    """Runs, events, leases and history in memory. What it returns is a copy made by the codec, as from a database."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._lock = threading.RLock()
        self._clock = clock
        self._hands: dict[str, _Hand] = {}
        self._looks: dict[str, float] = {}
        self._signs: dict[str, WorkerSign] = {}
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
            stored = self._swap(run, new)
            self._hand(run.id).due_at = 0.0
            return stored

    def _swap(self, run: Run, events: Iterable[Event]) -> Run:
        old = self._get(run.id)
        if old.version != run.version:
            raise StoreConflict(
                f"run {run.id} was changed by someone else (version {old.version}, not {run.version}); read it again and retry."
            )
        stored = self._put(run)
        for event in events:
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

    def now(self) -> float:
        """Epoch seconds."""
        return self._clock()

    def due_clusters(self, now: float) -> Sequence[str]:
        """Clusters of runs that are due and in nobody's hands."""
        with self._lock:
            return sorted({_cluster(r) for r in self._due(now)})

    def reserve_look(self, cluster: str, *, now: float, interval_s: float) -> bool:
        """True for one caller an interval."""
        with self._lock:
            if now < self._looks.get(cluster, 0.0) <= now + interval_s:
                return False
            self._looks[cluster] = now + interval_s
            return True

    def claim_runs(self, holder: str, *, now: float, ttl_s: float, limit: int, clusters: Collection[str] | None = None) -> Sequence[Claim]:
        """Take due runs that nobody holds (see the port)."""
        with self._lock:
            fit = [r for r in self._due(now) if clusters is None or r.state is RunState.PLANNED or _cluster(r) in clusters]
            taken = sorted(fit, key=lambda r: (self._hand(r.id).due_at, r.id))[:limit]
            for run in taken:
                self._hands[run.id] = _Hand(holder, self._hand(run.id).token + 1, now + ttl_s, now)
            return [Claim(r, holder, self._hand(r.id).token, now + ttl_s) for r in taken]

    def renew_claims(self, claims: Iterable[Claim], *, now: float, ttl_s: float) -> Mapping[str, Claim]:
        """Those still held, until ``now + ttl_s``."""
        with self._lock:
            kept = [c for c in claims if self._hand(c.run.id).holds(c)]
            for claim in kept:
                self._hand(claim.run.id).expires_at = now + ttl_s
            return {c.run.id: replace(c, expires_at=now + ttl_s) for c in kept}

    def save_claimed(self, claim: Claim, run: Run, events: Iterable[Event] = ()) -> Claim:
        """Compare and swap on version and token."""
        new = [_copy(Event, e) for e in events]
        if any(e.run_id != run.id for e in new):
            raise ValueError(f"an event given with run {run.id} is of another run")
        with self._lock:
            if self._get(run.id).version == run.version and self._hand(run.id).token != claim.token:
                raise StoreConflict(f"run {run.id} is in another worker's hands by now; nothing was written.")
            return replace(claim, run=self._swap(run, new))

    def save_and_release(self, carried: Iterable[Carried]) -> frozenset[str]:
        """Those that nobody changed or took (see the port)."""
        kept: set[str] = set()
        for one in carried:
            with self._lock:
                if not self._hand(one.run.id).holds(one.claim):
                    continue
                try:
                    self.save_claimed(one.claim, one.run, one.events)
                except StoreConflict:
                    continue
                self.release_claims([(one.claim, one.due_at)])
                kept.add(one.run.id)
        return frozenset(kept)

    def release_claims(self, releases: Iterable[tuple[Claim, float]]) -> None:
        """Give runs back with their due times (see the port)."""
        with self._lock:
            for claim, due_at in releases:
                hand = self._hand(claim.run.id)
                if hand.holds(claim):
                    self._hands[claim.run.id] = _Hand("", hand.token, 0.0, due_at if hand.due_at else 0.0)

    def wake(self, run_ids: Iterable[str]) -> None:
        """Make runs due at once."""
        with self._lock:
            for run_id in run_ids:
                self._hand(run_id).due_at = 0.0

    def sign(self, sign: WorkerSign) -> None:
        """Leave a worker's sign of life."""
        with self._lock:
            self._signs[sign.name] = sign

    def signs(self) -> Sequence[WorkerSign]:
        """All workers' signs, the newest first."""
        with self._lock:
            return sorted(self._signs.values(), key=lambda s: (-s.seen_at, s.name))

    def _hand(self, run_id: str) -> _Hand:
        return self._hands.setdefault(run_id, _Hand())

    def _due(self, now: float) -> list[Run]:
        hands = ((r, self._hand(r.id)) for r in self._runs.values() if not r.state.ended)
        return [r for r, hand in hands if hand.due_at <= now and hand.expires_at <= now]

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


def _cluster(run: Run) -> str:
    return run.plan.cluster if run.attempt is None else run.attempt.cluster


def _copy(kind: Any, value: Any) -> Any:
    return from_plain(kind, json.loads(dumps(value)))
