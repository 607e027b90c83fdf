"""``isched plane worker``: one of a centre's workers as a process, made from the configuration."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ischeduler.core.run import Run
from ischeduler.ports import BatchDirectory, EventSource, Replanner

if TYPE_CHECKING:
    from ischeduler.helper.session import Session
    from ischeduler.plane.workers import Round, Worker
    from ischeduler.wiring import Services


LOG = logging.getLogger("ischeduler.worker")


def worker_name() -> str:
    """Host, process and a word of its own: a process number may come again after a restart, a lease's holder must not."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"


def make_worker(
    services: Services, directory: BatchDirectory, *, name: str, replanner: Callable[[str], Replanner | None] | None = None,
    events: EventSource | None = None, variables: Callable[[Run], Mapping[str, str]] | None = None,
) -> Worker:
    """A worker over the centre's services. Its time is the database's; ``replanner`` answers for an owner, ``variables`` for a job."""
    from ischeduler.plane.cadence import Cadence
    from ischeduler.plane.leases import StoreClock
    from ischeduler.plane.workers import Aides, Pace, Worker

    settings, store = services.settings, services.store
    pace = Pace(
        look_s=settings["workers.look_interval"], lease_ttl_s=settings["workers.lease"], batch=settings["workers.batch"],
        cadence=Cadence(fast_s=settings["plane.interval"]),
    )
    return Worker(
        store, directory, events or services.events, StoreClock(store, time.monotonic, time.sleep), services.notifier, services.files,
        name=name, host=socket.gethostname(), pid=os.getpid(), pace=pace,
        aides=Aides(replanner=replanner or (lambda owner: None), variables=variables or (lambda run: {})),
    )


def carry(session: Session, directory: BatchDirectory | None = None, *, until_idle: bool = False) -> None:
    """Work until SIGTERM or Ctrl-C; with ``until_idle`` also after ``plane.idle_exit`` without a run that is due.

    The first signal lets the round in progress end, so that its runs are given back at once; a kill only makes them wait for their leases.
    """
    from ischeduler.helper.centre import Centre
    from ischeduler.helper.centre_batches import directory_of
    from ischeduler.helper.centre_jobs import job_variables
    from ischeduler.helper.telemetry import telemetry_settings
    from ischeduler.service.telemetry import begin

    services = session.services
    telemetry = begin(telemetry_settings(session.config, "ischeduler-worker"), services.engine)
    found = directory or directory_of(services)
    centre = Centre(services, found)
    worker = make_worker(
        services, found, name=worker_name(), replanner=lambda owner: centre.session(owner).planning, events=events_of(services),
        variables=job_variables(services, session.config),
    )
    stop = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stop.set())
    idle = _Idle(session.config["plane.idle_exit"] if until_idle else None)

    def tell(done: Round) -> None:
        for problem in done.problems:
            LOG.warning("%s", problem)
        if idle.too_long(done.claimed):
            stop.set()

    try:
        worker.run_forever(stop.is_set, tell)
    finally:
        telemetry.close()


def events_of(services: Services) -> EventSource:
    """What the service's ingest stored; and the jobs' spools, where run directories can be read here."""
    from ischeduler.batch.stored_events import StoredEvents
    from ischeduler.store.ingest_read import EventArchive

    reachable = services.batch_kind in ("local", "slurm") or bool(services.settings["slurmrest.shared_files"])
    return services.events if reachable else StoredEvents(EventArchive(services.engine))


class _Idle:
    """How long nothing was due."""

    def __init__(self, limit_s: float | None) -> None:
        self._limit_s, self._since = limit_s, time.monotonic()

    def too_long(self, claimed: int) -> bool:
        if claimed:
            self._since = time.monotonic()
        return self._limit_s is not None and time.monotonic() - self._since > self._limit_s
