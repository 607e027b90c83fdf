"""Many requests, one writer: what arrives while a transaction commits goes into the next one together.

Each request waits for its own commit, so an answer means stored. What waits is bounded; beyond that a request is told to
come back, and the sender's spool keeps its events.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ischeduler.core import meters
from ischeduler.core.errors import IschedError, StoreUnavailable
from ischeduler.core.incoming import Incoming, Refused, Written
from ischeduler.ports import EventSink
from ischeduler.service.backend import Busy

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Waiting:
    events: Sequence[Incoming]
    refused: Sequence[Refused]
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[None]


class Funnel:
    """Writes to a sink in a thread of its own, for requests of one or more event loops.

    ``most_waiting`` events may wait at once; a transaction takes ``batch_events`` at most (or one larger request).
    """

    def __init__(
        self, sink: EventSink, *, wake: Callable[[frozenset[str]], None] | None = None, batch_events: int = 5000,
        most_waiting: int = 20_000,
    ) -> None:  # fmt: skip
        self._sink, self._wake = sink, wake
        self._batch_events, self._most_waiting = batch_events, most_waiting
        self._queue: deque[_Waiting] = deque()
        self._size, self._ending = 0, False
        self._news = threading.Condition()
        self._thread: threading.Thread | None = None

    @property
    def waiting(self) -> int:
        """Events not written yet."""
        return self._size

    async def start(self) -> None:
        """Start the writer."""
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="isched-ingest", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Write what waits, then end."""
        with self._news:
            self._ending = True
            self._news.notify()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, 30.0)

    async def put(self, events: Sequence[Incoming], refused: Sequence[Refused] = ()) -> None:
        """Return when these are stored. Busy when too much waits, StoreUnavailable when the database is away: then none are."""
        loop = asyncio.get_running_loop()
        item = _Waiting(events, refused, loop, loop.create_future())
        size = len(events) + len(refused)
        with self._news:
            if self._ending or self._size + size > self._most_waiting:
                raise Busy("more events wait than can be written at once; send them again a little later.")
            self._size += size
            self._queue.append(item)
            self._news.notify()
        await item.done

    def _run(self) -> None:
        while True:
            with self._news:
                while not self._queue and not self._ending:
                    self._news.wait()
                if not self._queue:
                    return
                batch = self._take()
            self._write(batch)

    def _take(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        size = 0
        while self._queue and (not batch or size + len(self._queue[0].events) <= self._batch_events):
            batch.append(self._queue.popleft())
            size += len(batch[-1].events)
        return batch

    def _write(self, batch: Sequence[_Waiting]) -> None:
        events = [event for item in batch for event in item.events]
        refused = [one for item in batch for one in item.refused]
        failure: Exception | None = None
        try:
            with meters.timed("isched_ingest_batch_seconds"):
                written = self._sink.write(events, refused)
            self._after(written)
        except IschedError as error:
            failure = error
        except Exception as error:  # the thread must live: every later request would wait for ever
            log.exception("events could not be written")
            failure = StoreUnavailable(f"the events could not be written ({type(error).__name__}).")
        with self._news:
            self._size -= len(events) + len(refused)
        for item in batch:
            _resolve(item, failure)

    def _after(self, written: Written) -> None:
        meters.count("isched_events_ingested_total", written.new, transport="http")
        meters.count("isched_events_duplicate_total", written.repeated, transport="http")
        meters.count("isched_events_dead_total", written.refused, transport="http", reason="malformed")
        if self._wake is not None and written.runs:
            try:
                self._wake(written.runs)
            except IschedError:
                log.info("runs could not be woken; the plane looks at them in its time")


def _resolve(item: _Waiting, failure: Exception | None) -> None:
    def settle() -> None:
        if item.done.done():
            return  # the request was given up
        if failure is None:
            item.done.set_result(None)
        else:
            item.done.set_exception(failure)

    try:
        item.loop.call_soon_threadsafe(settle)
    except RuntimeError:
        return  # its loop has ended, and its request with it
