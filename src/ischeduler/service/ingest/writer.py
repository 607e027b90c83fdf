"""Writes batches in a thread of its own, so that the next one is read while the database commits. One waits at most."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from ischeduler.core import meters
from ischeduler.core.errors import StoreUnavailable
from ischeduler.core.incoming import Claimed, Fenced, Written
from ischeduler.ports import EventSink
from ischeduler.service.ingest.kafka_batches import Part

log = logging.getLogger(__name__)
_RETRY_FIRST_S, _RETRY_MAX_S = 0.25, 5.0


class Writer:
    """Batches in order, each tried until the database takes it. ``done`` is told of each in the writer's thread.

    ``away`` says that the database does not answer now, ``held_s`` how long it did not so far. A part that another reader has taken over is left out and
    remembered for :meth:`fenced`.
    """

    def __init__(self, sink: EventSink, done: Callable[[Written], None]) -> None:
        self._sink, self._done = sink, done
        self._change = threading.Condition()
        self._next: Sequence[Part] | None = None
        self._busy = self._ending = False
        self._fenced: list[Claimed] = []
        self._failure: BaseException | None = None
        self.away, self.held_s = False, 0.0
        self._thread = threading.Thread(target=self._run, name="isched-ingest-writer", daemon=True)
        self._thread.start()

    def offer(self, parts: Sequence[Part], timeout_s: float) -> bool:
        """Hand over a batch; False when there was no room for it in that time. Raises what the writer failed of."""
        with self._change:
            if not self._change.wait_for(lambda: self._next is None or self._failure is not None, timeout_s):
                return False
            self._raise()
            self._next = parts
            self._change.notify_all()
            return True

    def drain(self, timeout_s: float) -> bool:
        """Wait until everything is written; False when that took too long. Raises what the writer failed of."""
        with self._change:
            done = self._change.wait_for(lambda: self._failure is not None or (self._next is None and not self._busy), timeout_s)
            self._raise()
            return done

    def fenced(self) -> list[Claimed]:
        """Claims that were found lost since the last call."""
        with self._change:
            found, self._fenced = self._fenced, []
            return found

    def close(self, timeout_s: float) -> None:
        """Write what waits where the database answers in that time; what is left is read again by whoever comes next."""
        try:
            self.drain(timeout_s)
        finally:
            with self._change:
                self._ending = True
                self._change.notify_all()
            self._thread.join(timeout_s)

    def _raise(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._next is not None or self._ending)
                if self._ending:
                    return
                parts, self._next, self._busy = list(self._next or ()), None, True
                self._change.notify_all()
            try:
                self._write(parts)
            except BaseException as error:  # told to the reader, which ends
                self._failure = error
            with self._change:
                self._busy = False
                self._change.notify_all()

    def _write(self, parts: list[Part]) -> None:
        wait_s = _RETRY_FIRST_S
        while parts and not self._ending:
            try:
                with meters.timed("isched_ingest_batch_seconds"):
                    written = self._sink.write(
                        [e for p in parts for e in p.events], [r for p in parts for r in p.refused], [p.mark for p in parts]
                    )
                self.away = False
                self._done(written)
                return
            except Fenced as error:
                log.warning("%s", error)
                self.away = False
                with self._change:
                    self._fenced += [p.claimed for p in parts if p.claimed.channel in error.channels]
                parts = [p for p in parts if p.claimed.channel not in error.channels]
            except StoreUnavailable as error:
                if not self.away:
                    log.warning("events wait for the database (%s)", error)
                self.away = True
                with self._change:
                    self._change.wait_for(lambda: self._ending, wait_s)
                self.held_s += wait_s
                wait_s = min(_RETRY_MAX_S, wait_s * 2)
