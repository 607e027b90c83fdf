"""Passing the training's output through, byte for byte and at once, while looking for out-of-memory text."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Callable

from ischeduler.training.oom import OomScanner, OomText

_BLOCK_BYTES = 1 << 18
_PIPE_BYTES = 1 << 20


class Tee:
    """Pumps one pipe to one descriptor in a thread. A sink that fails (full disk, closed) loses bytes, never the training.

    `on_oom` is called from the thread.
    """

    def __init__(self, source: int, sink: int, on_oom: Callable[[OomText], None]) -> None:
        self._source, self._sink, self._on_oom = source, sink, on_oom
        with contextlib.suppress(OSError):  # only fewer wake-ups; a user may be at the limit of pipe memory
            fcntl.fcntl(source, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._scanner = OomScanner()
        self.passed_bytes = 0
        self.lost_bytes = 0
        self._thread = threading.Thread(target=self._pump, name=f"isched-tee-{sink}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of the stream; False when someone still holds the pipe open."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _pump(self) -> None:
        try:
            while chunk := os.read(self._source, _BLOCK_BYTES):
                self._pass(chunk)
                for find in self._scanner.feed(chunk):
                    self._on_oom(find)
        finally:
            os.close(self._source)

    def _pass(self, chunk: bytes) -> None:
        view = memoryview(chunk)
        try:
            while view:
                view = view[os.write(self._sink, view) :]
        except BlockingIOError:
            os.set_blocking(self._sink, True)  # someone made the shared terminal non-blocking
            self._pass(bytes(view))
            return
        except OSError:
            self.lost_bytes += len(view)
        self.passed_bytes += len(chunk) - len(view)
