"""Signals inside the training process: a handler only sets a flag, the training looks at it at its step boundaries.

Checkpointing inside a handler can hang (a handler may interrupt a collective, an allocator or a lock); a flag cannot.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

STOP_SIGNALS = (signal.SIGUSR2, signal.SIGTERM)


class StopFlag:
    """Remembers that a stop was asked for; `only_warned` is False once anything but SIGUSR2 has come.

    Forked workers (data loaders) get the signals' default meaning back.
    """

    def __init__(self) -> None:
        self.signal_name: str | None = None
        self.only_warned = True
        self._previous: dict[int, object] = {}
        self._owner_pid = 0

    @property
    def is_set(self) -> bool:
        return self.signal_name is not None

    def set(self, name: str) -> None:
        """Ask for a stop as if signal `name` had come."""
        self.signal_name = self.signal_name or name
        self.only_warned = self.only_warned and name == signal.SIGUSR2.name

    def install(self) -> bool:
        """Catch SIGUSR2 and SIGTERM. False outside the main thread, where Python allows no handlers."""
        if threading.current_thread() is not threading.main_thread():
            return False
        self._owner_pid = os.getpid()
        for number in STOP_SIGNALS:
            self._previous[number] = signal.signal(number, self._handle)
        os.register_at_fork(after_in_child=self._after_fork)
        return True

    def restore(self) -> None:
        """Give the signals back to whoever had them before."""
        if os.getpid() != self._owner_pid:
            return
        while self._previous:
            number, previous = self._previous.popitem()
            signal.signal(number, previous if previous is not None else signal.SIG_DFL)  # type: ignore[arg-type]

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.set(signal.Signals(number).name)

    def _after_fork(self) -> None:
        if self._previous and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGUSR2, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._previous.clear()
