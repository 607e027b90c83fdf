"""The spool: a run's events as append-only JSON lines on the shared file system.

The wrapper and the training process of one incarnation append to the same file on the same host. Each append holds an
advisory lock, looks at what the other has written since, and takes the next `seq`; where the file system has no locks
the append goes on without.
"""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ischeduler.training.files import say
from ischeduler.training.token import Token

VERSION = 1
_LOCK_TRIES = 20
_LOCK_PAUSE_S = 0.005
_READ_BYTES = 4 << 20
_TAIL_BYTES = 16 << 10
_SPARE_KINDS = ("heartbeat", "progress")


@dataclass(frozen=True, slots=True)
class SpoolEvent:
    """One event as read back. `t` is the job's own clock in epoch seconds: order by `seq`, never compare across hosts."""

    run: str
    token: Token
    seq: int
    t: float
    kind: str
    data: dict[str, Any]


class SpoolWriter:
    """Appends events and never raises into training: what cannot be written waits (bounded) and is retried.

    When events had to be given up, a `dropped` event says how many as soon as the spool can be written again.
    """

    def __init__(
        self,
        path: Path,
        run: str,
        token: Token,
        *,
        clock: Callable[[], float] = time.time,
        backlog: int = 1000,
        opener: Callable[[Path], int] | None = None,
    ) -> None:
        self.path = path
        self.dropped = 0
        self._run, self._token, self._clock, self._backlog = run, token, clock, backlog
        self._open = opener or _open_append
        self._waiting: deque[tuple[float, str, dict[str, Any]]] = deque()
        self._untold = 0
        self._seen_bytes, self._seq = 0, 0
        self._failing = False
        self._torn = False

    @property
    def waiting(self) -> int:
        """Events not written yet."""
        return len(self._waiting)

    def emit(self, kind: str, **data: Any) -> bool:
        """Append one event; False when it has to wait for a later call."""
        self._waiting.append((self._clock(), kind, data))
        return self.flush()

    def flush(self) -> bool:
        """Write what waits. False when something still waits."""
        if not self._waiting:
            return True
        try:
            written = self._append()
        except OSError as error:
            self._note_failure(error)
            return False
        if written and self._failing:
            self._failing = False
            say("the event spool can be written again")
        return written

    def _note_failure(self, error: OSError) -> None:
        if not self._failing:
            self._failing = True
            say(f"events cannot be written to {self.path} ({error.strerror}); training goes on, they are kept and retried")
        while len(self._waiting) > self._backlog:
            spare = next((i for i, item in enumerate(self._waiting) if item[1] in _SPARE_KINDS), 0)
            del self._waiting[spare]
            self.dropped += 1
            self._untold += 1

    def _append(self) -> bool:
        descriptor = self._open(self.path)
        try:
            if not _lock(descriptor):
                return False
            size = self._catch_up(descriptor)
            if self._untold:
                self._waiting.append((self._clock(), "dropped", {"count": self._untold}))
            lines, last_seq = self._render()
            if self._torn:
                lines = b"\n" + lines  # a writer died in mid-line: end its line so that ours stays readable
            _write_all(descriptor, lines, size)
            self._waiting.clear()
            self._untold = 0
            self._seq, self._seen_bytes, self._torn = last_seq, size + len(lines), False
            return True
        finally:
            os.close(descriptor)  # releases the lock, and sends the bytes on where the file system is NFS

    def _render(self) -> tuple[bytes, int]:
        seq, lines = self._seq, []
        for t, kind, data in self._waiting:
            seq += 1
            event = {"v": VERSION, "run": self._run, "token": str(self._token), "seq": seq, "t": round(t, 3)}
            lines.append(json.dumps({**event, "kind": kind, "data": _finite(data)}, default=str) + "\n")
        return "".join(lines).encode(), seq

    def _catch_up(self, descriptor: int) -> int:
        """Read what was appended by the other writer since our last look; returns the file's size in bytes."""
        size = os.fstat(descriptor).st_size
        if size < self._seen_bytes:
            self._seen_bytes = 0
        while self._seen_bytes < size:
            chunk = os.pread(descriptor, min(size - self._seen_bytes, _READ_BYTES), self._seen_bytes)
            if not chunk:
                break
            end = chunk.rfind(b"\n") + 1
            for line in chunk[:end].splitlines():
                self._seq = max(self._seq, _seq_of(line))
            if end == 0:
                break
            self._seen_bytes += end
        self._torn = self._seen_bytes < size
        return size


def _open_append(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _lock(descriptor: int) -> bool:
    """True when held, or when this file system knows no locks; False when the other writer keeps it for 100 ms."""
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EINTR):
                return True
        time.sleep(_LOCK_PAUSE_S)
    return False


def _write_all(descriptor: int, data: bytes, size: int) -> None:
    """Append everything or nothing: what a full disk cut short is taken back. Raises OSError."""
    done = 0
    try:
        while done < len(data):
            count = os.write(descriptor, data[done:])
            if count == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            done += count
    except OSError:
        if done:
            os.ftruncate(descriptor, size)
        raise


def _finite(value: Any) -> Any:
    """NaN and infinities are not JSON: they become the words 'nan', 'inf', '-inf'."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def _seq_of(line: bytes) -> int:
    try:
        return int(json.loads(line)["seq"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return 0


def parse_line(line: bytes, token: Token) -> SpoolEvent | None:
    """One spool line, or None when it is torn, foreign, of another incarnation or of a newer format."""
    try:
        value = json.loads(line)
        if value["v"] != VERSION or Token.parse(value["token"]) != token:
            return None
        seq, t, kind, data = value["seq"], value["t"], value["kind"], value["data"]
        run = value["run"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    sound = type(seq) is int and seq > 0 and type(t) in (int, float) and isinstance(kind, str)
    if not sound or not isinstance(data, dict) or not isinstance(run, str):
        return None
    return SpoolEvent(run, token, seq, float(t), kind, data)


def last_exit(path: Path) -> int | None:
    """The code of the wrapper's last word in a spool file; None where it has not spoken it, or the file cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            lines = file.read().splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        try:
            value = json.loads(line)
            return int(value["data"]["code"]) if value["kind"] == "exit" else None
        except (ValueError, KeyError, TypeError):
            continue  # torn
    return None


class SpoolReader:
    """Reads a run's spools from where the last read ended. `offsets` (file name to bytes) may be stored between lives."""

    def __init__(self, run_dir: Path, offsets: Mapping[str, int] | None = None) -> None:
        self.run_dir = run_dir
        self.offsets: dict[str, int] = dict(offsets or {})
        self.corrupt_lines = 0

    def poll(self) -> list[SpoolEvent]:
        """New events, oldest incarnation first, each spool in the order written. Raises OSError when a spool cannot be read.

        A last line without its newline stays for the next call; a corrupt line is skipped and counted.
        """
        events: list[SpoolEvent] = []
        for token in self._tokens():
            events += self._read(f"{token}.jsonl", token)
        return events

    def _tokens(self) -> list[Token]:
        try:
            names = os.listdir(self.run_dir / "events")
        except FileNotFoundError:
            return []
        stems = (name.removesuffix(".jsonl") for name in names if name.endswith(".jsonl"))
        return sorted(token for token in map(Token.try_parse, stems) if token is not None)

    def _read(self, name: str, token: Token) -> list[SpoolEvent]:
        offset = self.offsets.get(name, 0)
        with open(self.run_dir / "events" / name, "rb") as file:
            if os.fstat(file.fileno()).st_size < offset:
                offset = 0  # the spool was replaced; readers drop what they know by (token, seq)
            file.seek(offset)
            data = file.read()
        end = data.rfind(b"\n") + 1
        events: list[SpoolEvent] = []
        for line in data[:end].split(b"\n")[:-1]:
            event = parse_line(line, token)
            if event is not None:
                events.append(event)
            elif line.strip():
                self.corrupt_lines += 1
        self.offsets[name] = offset + end
        return events


def read_events(run_dir: Path, offsets: Mapping[str, int]) -> tuple[list[SpoolEvent], dict[str, int]]:
    """New events since `offsets` and the offsets to pass next time (see SpoolReader for the count of corrupt lines)."""
    reader = SpoolReader(run_dir, offsets)
    return reader.poll(), reader.offsets
