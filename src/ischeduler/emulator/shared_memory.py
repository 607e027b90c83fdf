"""What each process holds of a device, in a file that all of them keep: the sum is what is not free."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Protocol


class Ledger(Protocol):
    """The device's books."""

    def claim(self, size_bytes: int) -> None:
        """This process holds that much now."""
        ...

    def others(self) -> int:
        """Bytes that other living processes hold."""
        ...


class OwnLedger:
    """One process alone."""

    def claim(self, size_bytes: int) -> None:
        """Nobody asks."""

    def others(self) -> int:
        """None."""
        return 0


class SharedLedger:
    """Several processes; those that died are struck off."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._path = path
        self._others = 0

    def claim(self, size_bytes: int) -> None:
        """See :class:`Ledger`."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            held = {pid: n for pid, n in self._read().items() if int(pid) != os.getpid() and Path(f"/proc/{pid}").exists()}
            self._others = sum(held.values())
            text = json.dumps({**held, str(os.getpid()): size_bytes}).encode()
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, text, 0)
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def others(self) -> int:
        """See :class:`Ledger`."""
        fcntl.flock(self._file, fcntl.LOCK_SH)
        try:
            held = self._read()
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        return sum(n for pid, n in held.items() if int(pid) != os.getpid() and Path(f"/proc/{pid}").exists())

    def _read(self) -> dict[str, int]:
        text = os.pread(self._file, 2**20, 0)
        return json.loads(text) if text else {}
