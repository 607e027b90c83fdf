"""One plane worker as a process of its own, on the fast clock. Its own clock is as wrong as the file ``skew`` says."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import insert, update
from tests.chaos.engine import impatient

from ischeduler.batch.spool_events import SpoolEvents
from ischeduler.core.event import Event
from ischeduler.core.run import Run
from ischeduler.plane.cadence import Cadence
from ischeduler.plane.inputs import Observed
from ischeduler.plane.leases import ClaimKeeper, StoreClock
from ischeduler.plane.policy import Policy
from ischeduler.plane.workers import Pace, Round, Worker
from ischeduler.ports import BatchSystem, Carried, Claim, RunFiles
from ischeduler.store.engine import open_engine
from ischeduler.store.sql_store import SqlStore
from ischeduler.store.tables import EVENTS, RUNS
from ischeduler.testing.batch_server import ScaledClock
from ischeduler.testing.remote_controller import RemoteController

_real_time = time.time


class FastStore(SqlStore):
    """The store, whose clock (the database's own) passes faster."""

    def __init__(self, url: str, origin: float, speed: float) -> None:
        self._origin, self._speed = origin, speed
        super().__init__(impatient(open_engine(url)))

    def now(self) -> float:
        return ScaledClock(self._origin, self._speed, super().now).now()


class OneByOneStore(FastStore):
    """What is defective about a save is so about every run."""

    def save_and_release(self, carried: Iterable[Carried]) -> frozenset[str]:
        asked = list(carried)
        for one in asked:
            self.save_claimed(one.claim, one.run, one.events)
        self.release_claims([(c.claim, c.due_at) for c in asked])
        return frozenset(c.run.id for c in asked)


class BlindStore(OneByOneStore):
    """A defect put in on purpose: leases are not minded, and saves overwrite whatever is there."""

    def claim_runs(self, holder: str, *, now: float, ttl_s: float, limit: int, clusters: Collection[str] | None = None) -> Sequence[Claim]:
        with self._writing.begin() as connection:
            connection.execute(update(RUNS).values(lease_expires_at=0.0, lease_holder=""))
        return super().claim_runs(holder, now=now, ttl_s=ttl_s, limit=limit, clusters=clusters)

    def save_claimed(self, claim: Claim, run: Run, events: Iterable[Event] = ()) -> Claim:
        current = self.get_run(run.id)
        saved = self.save_run(replace(run, version=current.version), events)
        return replace(claim, run=saved)


class DoublingStore(OneByOneStore):
    """A defect put in on purpose: an event is stored as often as it comes."""

    def save_claimed(self, claim: Claim, run: Run, events: Iterable[Event] = ()) -> Claim:
        kept = list(events)
        claim = super().save_claimed(claim, run, kept)
        with self._writing.begin() as connection:
            for one in kept:
                row = {"run_id": one.run_id, "source": one.source, "token": one.token, "seq": 0, "kind": one.kind, "at": one.at, "data": one.data}
                connection.execute(insert(EVENTS).values(row))
        return claim


class HastyWorker(Worker):
    """A defect put in on purpose: what was sent is sent again when no answer came, without a look at the queue."""

    def _ask(self, runs: Sequence[Run], granted: Collection[str]) -> Any:
        answers = super()._ask(runs, granted)
        return {k: replace(v, observation=replace(v.observation, jobs={})) if isinstance(v, Observed) else v for k, v in answers.items()}


class Directory:
    """One controller: looked at by one identity, acted on by each user over a connection of their own."""

    def __init__(self, controller: RemoteController, made: Callable[[], RemoteController]) -> None:
        self._controller, self._made = controller, made
        self._own: dict[str, RemoteController] = {}

    def observer(self, cluster: str) -> BatchSystem | None:
        return self._controller if cluster == self._controller.name else None

    def of(self, owner: str) -> Mapping[str, BatchSystem]:
        if owner not in self._own:
            self._own[owner] = self._made()
        return {self._controller.name: self._own[owner]}


class Silent:
    """No notices."""

    def notify(self, run: Run, subject: str, text: str) -> None:
        return None


def skew_clock(path: Path) -> None:
    """From now on this process's wall clock is wrong by what the file says, read at each look."""

    def wrong() -> float:
        try:
            return _real_time() + float(path.read_text() or 0)
        except (OSError, ValueError):
            return _real_time()

    time.time = wrong


def build(given: Mapping[str, Any]) -> Worker:
    """The worker of a configuration."""
    speed, origin, mutation = given["speed"], given["origin"], given.get("mutation", "")
    kinds: dict[str, type[FastStore]] = {"blind": BlindStore, "double-events": DoublingStore}
    store = kinds.get(mutation, FastStore)(given["url"], origin, speed)
    ticking: Callable[[], float] = lambda: time.monotonic() * speed  # noqa: E731
    clock = StoreClock(store, ticking, lambda s: time.sleep(s / speed))
    if mutation == "own-clock":
        store.now = ScaledClock(origin, speed, time.time).now  # type: ignore[method-assign]
    if mutation == "blind":
        ClaimKeeper.holds = lambda self, run_id: True  # type: ignore[method-assign]

    def connect() -> RemoteController:
        return RemoteController(tuple(given["controller"]), timeout_s=1.0)  # type: ignore[arg-type]

    files: RunFiles = connect()
    pace = Pace(lease_ttl_s=given["lease_s"], batch=50, cadence=Cadence(slow_s=30.0, idle_s=60.0))
    kind = HastyWorker if mutation == "hasty" else Worker
    return kind(
        store, Directory(connect(), connect), events_of(given), clock, Silent(), files, name=f"{given['name']}:{os.getpid()}",
        host=given["name"], pid=os.getpid(), policy=Policy(retry_max_s=60.0), pace=pace,
    )  # fmt: skip


def events_of(given: Mapping[str, Any]) -> Any:
    """Where the worker hears its runs' jobs: their spools, or what the ingest took from the broker."""
    if given.get("transport", "spool") == "spool":
        return SpoolEvents()
    from ischeduler.batch.stored_events import StoredEvents
    from ischeduler.store.ingest_read import EventArchive

    return StoredEvents(EventArchive(impatient(open_engine(given["url"]))))


def main() -> None:
    """Work until killed."""
    given = json.loads(sys.argv[1])
    skew_clock(Path(given["skew"]))
    log = open(given["log"], "a", buffering=1)  # noqa: SIM115

    def tell(done: Round) -> None:
        for problem in done.problems:
            log.write(f"{_real_time():.3f} {given['name']}:{os.getpid()} {problem[:300]}\n")

    while True:
        try:
            worker = build(given)
            break
        except Exception as error:
            tell(Round(problems=(f"cannot start: {error}",)))
            time.sleep(0.2)
    worker.run_forever(lambda: False, tell)


if __name__ == "__main__":
    main()
