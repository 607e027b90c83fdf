"""Reads the jobs' spools into the store, where the service sees the run directories. How far each was read stands with its events.

A user owns what is in a run directory: links are not followed, and only events of that run and that spool's incarnation count.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ischeduler.core import meters
from ischeduler.core.errors import IschedError
from ischeduler.core.incoming import Claimed, Fenced, Incoming, Mark, Refused, Written
from ischeduler.core.run import Run
from ischeduler.ports import EventSink
from ischeduler.service.ingest.messages import EVENT_BYTES_MAX, Malformed, read_event
from ischeduler.training.token import Token

log = logging.getLogger(__name__)
CHUNK_BYTES = 4 << 20


@dataclass(slots=True)
class _Batch:
    events: list[Incoming] = field(default_factory=list[Incoming])
    refused: list[Refused] = field(default_factory=list[Refused])
    marks: list[Mark] = field(default_factory=list[Mark])


class SpoolIngest:
    """``runs`` gives those to look at: the ones under way. A run is looked at once more after it has left them.

    ``wake`` is told of runs that should be looked at soon.
    """

    def __init__(
        self, sink: EventSink, runs: Callable[[], Sequence[Run]], *, holder: str,
        wake: Callable[[frozenset[str]], None] | None = None, batch_events: int = 5000, chunk_bytes: int = CHUNK_BYTES,
    ) -> None:  # fmt: skip
        self._sink, self._runs, self._holder, self._wake = sink, runs, holder, wake
        self._batch_events, self._chunk_bytes = batch_events, chunk_bytes
        self._claims: dict[str, Claimed] = {}
        self._before: dict[str, Run] = {}
        self.figures = Written()

    def step(self) -> int:
        """Read everything that is new in all spools; how many events and refusals. Raises StoreUnavailable: nothing is lost by it."""
        now = {run.id: run for run in self._runs()}
        count, batch = 0, _Batch()
        for run in [*now.values(), *(r for i, r in self._before.items() if i not in now)]:
            for path, token in _spools(run):
                while self._read(run, path, token, batch):
                    if len(batch.events) >= self._batch_events:
                        count += self._write(batch)
                        batch = _Batch()
                if len(batch.events) >= self._batch_events:
                    count += self._write(batch)
                    batch = _Batch()
        count += self._write(batch)
        gone = self._before.keys() - now.keys()
        self._claims = {name: c for name, c in self._claims.items() if name.split(":")[1] not in gone}
        self._before = now
        return count

    def _read(self, run: Run, path: Path, token: Token, batch: _Batch) -> bool:
        """Take the next chunk of a spool into the batch; True when there is more."""
        channel = f"spool:{run.id}:{token}"
        claimed = self._claims.get(channel) or self._sink.claim(channel, self._holder)
        lines, size = b"", 0
        try:
            lines, size = _chunk(path, claimed.position, self._chunk_bytes)
        except OSError as error:
            log.info("%s cannot be read (%s)", path, error.strerror)
        if size < claimed.position and size:
            claimed = self._sink.restart(claimed, 0)
            lines, size = _chunk(path, 0, self._chunk_bytes)
        end = lines.rfind(b"\n") + 1
        if end == 0 and len(lines) > EVENT_BYTES_MAX:
            end = len(lines)  # no event has a line this long: pass over it in pieces
        if end:
            self._take(run, token, channel, lines[:end], batch)
            claimed = Claimed(channel, claimed.generation, claimed.position + end, claimed.epoch)
            batch.marks = [m for m in batch.marks if m.channel != channel]
            batch.marks.append(Mark(channel, claimed.generation, claimed.position))
        self._claims[channel] = claimed
        return bool(end) and claimed.position < size

    def _take(self, run: Run, token: Token, channel: str, lines: bytes, batch: _Batch) -> None:
        for line in lines.split(b"\n"):
            if not line.strip():
                continue
            read = read_event(line)
            if isinstance(read, Incoming) and (read.run, read.token) != (run.id, str(token)):
                read = Malformed("it is an event of another run or incarnation")
            if isinstance(read, Incoming):
                batch.events.append(read)
            else:
                batch.refused.append(Refused(channel, read.reason, line, run.id))

    def _write(self, batch: _Batch) -> int:
        if not batch.marks:
            return 0
        try:
            with meters.timed("isched_ingest_batch_seconds"):
                written = self._sink.write(batch.events, batch.refused, batch.marks)
        except IschedError as error:
            self._claims.clear()  # read again from where the store is
            if isinstance(error, Fenced):
                log.warning("%s", error)
                return 0
            raise
        old = self.figures
        self.figures = Written(old.new + written.new, old.repeated + written.repeated, old.refused + written.refused)
        meters.count("isched_events_ingested_total", written.new, transport="spool")
        meters.count("isched_events_duplicate_total", written.repeated, transport="spool")
        meters.count("isched_events_dead_total", written.refused, transport="spool", reason="malformed")
        if self._wake is not None and written.runs:
            self._wake(written.runs)
        return written.new + written.repeated + written.refused


def _spools(run: Run) -> Iterator[tuple[Path, Token]]:
    """A run's spools, oldest incarnation first."""
    folder = Path(run.directory) / "events"
    try:
        names = os.listdir(folder)
    except OSError:
        return  # not begun, or not to be seen from here
    tokens = (Token.try_parse(name.removesuffix(".jsonl")) for name in names if name.endswith(".jsonl"))
    for token in sorted(t for t in tokens if t is not None):
        yield folder / f"{token}.jsonl", token


def _chunk(path: Path, start: int, most: int) -> tuple[bytes, int]:
    """Bytes from ``start`` on, and the file's size. Raises OSError, also for anything but a plain file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise OSError(22, "it is no plain file")
        return os.pread(descriptor, most, start), info.st_size
    finally:
        os.close(descriptor)
