"""Is a plane alive for this user, and starting one in the background.

The store's lease is what keeps two planes from acting at once; the lock here only answers "is a daemon running on this host"
without asking the database, so that a delegation does not start a second one.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ischeduler.core.errors import IschedError


@dataclass(frozen=True, slots=True)
class DaemonInfo:
    """Who holds the lock: process, host, since when (epoch seconds), when it last finished a look."""

    pid: int
    host: str
    started_at: float
    last_tick_at: float | None = None
    active_runs: int = 0


class DaemonBusy(IschedError):
    """Another plane of this user is alive on this host."""


def lock_path(state_dir: Path) -> Path:
    """The lock file; its text says who holds it."""
    return state_dir / "plane.lock"


def alive(state_dir: Path) -> DaemonInfo | None:
    """The daemon that holds the lock on this host, or None."""
    try:
        handle = os.open(lock_path(state_dir), os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _info(os.read(handle, 4096))
    finally:
        os.close(handle)
    return None


def _info(text: bytes) -> DaemonInfo:
    try:
        data = json.loads(text)
        return DaemonInfo(**data)
    except (ValueError, TypeError):
        return DaemonInfo(0, socket.gethostname(), 0.0)  # it is just writing who it is


class DaemonLock:
    """Held by a running daemon; :meth:`beat` tells others what it last did."""

    def __init__(self, handle: int, info: DaemonInfo) -> None:
        self._handle, self._info = handle, info

    def beat(self, now: float, active_runs: int) -> None:
        """Note a finished look."""
        self._write(DaemonInfo(self._info.pid, self._info.host, self._info.started_at, now, active_runs))

    def _write(self, info: DaemonInfo) -> None:
        text = json.dumps({name: getattr(info, name) for name in DaemonInfo.__slots__}).encode()
        os.pwrite(self._handle, text.ljust(512), 0)


@contextlib.contextmanager
def held(state_dir: Path) -> Iterator[DaemonLock]:
    """Hold the lock while the block runs. DaemonBusy when another daemon has it."""
    state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(lock_path(state_dir), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = alive(state_dir)
            who = f" (pid {other.pid})" if other else ""
            raise DaemonBusy(f"a plane is alive already{who}; isched plane status shows it.") from None
        lock = DaemonLock(handle, DaemonInfo(os.getpid(), socket.gethostname(), time.time()))
        lock.beat(time.time(), 0)
        yield lock
    finally:
        os.close(handle)


def start_detached(state_dir: Path, arguments: list[str], environment: Mapping[str, str]) -> int:
    """Start ``isched plane run`` in a session of its own, its output in the state folder; the process id."""
    state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    command = [sys.executable, "-m", "ischeduler.cli.main", *arguments]
    with (state_dir / "plane.log").open("ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/", env=dict(environment)
        )
    return process.pid
