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
LATEST_S = 0.1


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


class HostTime:
    """The host's time as the emulated devices see it: seconds of the monotonic clock, less what emulating took.

    Launching work costs a real host next to nothing; here the emulator's own work (inside ``with host``) and a sleeper that is woken
    late take time. That time does not pass for the devices: it is owed, and the next waits are shorter by it, since they end at
    moments, not after durations. What the script itself does passes in full. At most ``LATEST_S`` is owed; beyond that the host is
    too slow, and the devices wait for it. ``own_s`` is what emulating took in all.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep) -> None:
        self._now, self._sleep = now, sleep
        self._owed_s = self._began = 0.0
        self._depth = 0
        self._spent_s = self._waited_inside_s = self._entered = 0.0
        self.waited_s = 0.0

    @property
    def own_s(self) -> float:
        """Seconds spent inside so far, without waits; asked outside."""
        return self._spent_s

    def __enter__(self) -> None:
        if self._depth == 0:
            self._began = self._entered = self._now()
        self._depth += 1

    def __exit__(self, *error: object) -> None:
        if self._depth == 1:
            real = self._now()
            self._owed_s = self._owed(real)
            self._spent_s += real - self._entered - self._waited_inside_s
            self._waited_inside_s = 0.0
        self._depth -= 1

    def now(self) -> float:
        """The moment, in seconds."""
        real = self._now()
        return real - self._owed(real)

    def wait_until(self, moment: float) -> None:
        """Return when it is ``moment`` or later."""
        real = self._now()
        if moment <= real - self._owed(real):
            return
        if moment > real:
            before, self.waited_s = real, self.waited_s + moment - real
            self._sleep(moment - real)
            real = self._now()
            self._waited_inside_s += real - before if self._depth else 0.0
        self._owed_s, self._began = min(LATEST_S, max(0.0, real - moment)), real

    def forgive(self) -> None:
        """Nothing is owed any more."""
        self._owed_s, self._began = 0.0, self._now()

    def _owed(self, real: float) -> float:
        return min(LATEST_S, self._owed_s + real - self._began) if self._depth else self._owed_s


class DeviceClock:
    """Small pieces of work are gathered before they are queued. ``busy_s`` is all work so far; ``host`` is shared by a process's devices."""

    def __init__(self, free: Free, host: HostTime) -> None:
        self._free, self.host = free, host
        self._gathered_s = self._done_at = 0.0
        self.busy_s = 0.0

    def run(self, seconds: float) -> None:
        """Queue work; the host goes on, unless it is too far ahead."""
        self.busy_s += seconds
        self._gathered_s += seconds
        if self._gathered_s >= _CHUNK_S:
            self._flush()
            self.host.wait_until(self._done_at - RUN_AHEAD_S)

    def synchronize(self) -> None:
        """Wait until all queued work is done."""
        self._flush()
        self.host.wait_until(self._done_at)

    def done_at(self) -> float:
        """When the work queued so far will be done, on the host's clock."""
        self._flush()
        return max(self._done_at, self.host.now())

    def _flush(self) -> None:
        if self._gathered_s > 0.0:
            self._done_at = self._free.queue(self._gathered_s, self.host.now())
            self._gathered_s = 0.0
