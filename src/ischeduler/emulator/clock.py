"""When an emulated device is free: work is queued on it, and whoever needs a result waits until it is done.

Processes on one device take turns in the order in which they queue, through a file that each locks for a moment.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

RUN_AHEAD_S = 0.5
"""How far the host may be ahead of the device: CUDA's launch queue is finite, too."""
_CHUNK_S = 0.002
_LATEST_S = 0.02


class Free(Protocol):
    """Where the moment at which the device is free is kept."""

    def queue(self, seconds: float, now: float) -> float:
        """Queue work at ``now``; when it will be done (both on the monotonic clock)."""
        ...


class Own:
    """One process alone on the device."""

    def __init__(self) -> None:
        self._free_at = 0.0

    def queue(self, seconds: float, now: float) -> float:
        """See :class:`Free`."""
        self._free_at = max(now, self._free_at) + seconds
        return self._free_at


class Shared:
    """Several processes of one host on the device."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def queue(self, seconds: float, now: float) -> float:
        """See :class:`Free`."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            kept = os.pread(self._file, 8, 0)
            before = struct.unpack("d", kept)[0] if len(kept) == 8 else 0.0
            free_at = max(now, before) + seconds
            os.pwrite(self._file, struct.pack("d", free_at), 0)
            return free_at
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)


class DeviceClock:
    """Small pieces of work are gathered before they are queued. ``busy_s`` is all work so far.

    An operating system wakes a sleeper late. What comes next is queued as if it had not: the delay is the host's, not the card's.
    """

    def __init__(self, free: Free, *, now: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep) -> None:
        self._free, self._now, self._sleep = free, now, sleep
        self._gathered_s = 0.0
        self._done_at = self._late_s = 0.0
        self.busy_s = self.waited_s = 0.0

    def run(self, seconds: float) -> None:
        """Queue work; the host goes on, unless it is too far ahead."""
        self.busy_s += seconds
        self._gathered_s += seconds
        if self._gathered_s < _CHUNK_S:
            return
        self._flush()
        ahead_s = self._done_at - self._now()
        if ahead_s > RUN_AHEAD_S:
            self._wait(ahead_s - RUN_AHEAD_S)

    def synchronize(self) -> None:
        """Wait until all queued work is done."""
        self._flush()
        self._wait(self._done_at - self._now())

    def done_at(self) -> float:
        """When the work queued so far will be done, on the monotonic clock."""
        self._flush()
        return max(self._done_at, self._now())

    def _flush(self) -> None:
        if self._gathered_s > 0.0:
            self._done_at = self._free.queue(self._gathered_s, self._now() - self._late_s)
            self._gathered_s = self._late_s = 0.0

    def _wait(self, seconds: float) -> None:
        if seconds > 0:
            self.waited_s += seconds
            began = self._now()
            self._sleep(seconds)
            self._late_s = min(_LATEST_S, max(0.0, self._now() - began - seconds))
