"""The plane as a daemon: tick, sleep, tick. Everything it must not lose is in the store, so it may be killed at any time."""

from __future__ import annotations

import signal
import sys
import threading
from typing import TYPE_CHECKING

from ischeduler.core.errors import IschedError
from ischeduler.helper import daemon
from ischeduler.helper.foresight import prepare

if TYPE_CHECKING:
    from ischeduler.helper.session import Session

LONGEST_SLEEP_S = 60.0


def carry(session: Session, *, until_idle: bool) -> None:
    """Tick until SIGTERM or Ctrl-C; with ``until_idle`` also after ``plane.idle_exit`` without runs.

    DaemonBusy when one is alive.
    """
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    idle_since: float | None = None
    failures = 0
    with daemon.held(session.config.state_dir) as lock:
        prepare(str(session.config["plane.provisioner"]))
        while not stop.is_set():
            now = session.clock.now()
            try:
                report = session.services.tick(keeper=True)
            except (IschedError, OSError) as error:
                failures += 1
                print(f"isched plane: {error}", file=sys.stderr, flush=True)
                stop.wait(min(LONGEST_SLEEP_S, session.config["plane.interval"] * 2.0**failures))
                continue
            failures = 0
            for problem in report.problems:
                print(f"isched plane: {problem}", file=sys.stderr, flush=True)
            lock.beat(session.clock.now(), report.runs)
            idle_since = None if report.runs or not report.held else (idle_since if idle_since is not None else now)
            if until_idle and idle_since is not None and now - idle_since >= session.config["plane.idle_exit"]:
                return
            _sleep(session, stop, report.next_tick_s if report.runs else session.config["plane.interval"] * 5)


def _sleep(session: Session, stop: threading.Event, wait_s: float) -> None:
    """Sleep in pieces; a run delegated meanwhile wakes the plane (its row is newer than the last look)."""
    until = session.clock.now() + min(wait_s, LONGEST_SLEEP_S)
    before = _wishes(session)
    while not stop.is_set() and (left := until - session.clock.now()) > 0:
        stop.wait(min(left, session.config["plane.interval"]))
        if _wishes(session) != before:
            return


def _wishes(session: Session) -> tuple[tuple[str, int], ...]:
    """Live runs and pools and their versions: anything their owner asked shows here."""
    from ischeduler.plane.transitions import LIVE

    services = session.services
    try:
        runs = services.store.list_runs(owner=session.owner, states=LIVE)
        return (*((r.id, r.version) for r in runs), *((p.name, p.version) for p in services.live_pools()))
    except IschedError:
        return ()  # the next tick will say what is wrong with the store
