"""The real clock."""

from __future__ import annotations

import time


class SystemClock:
    """Wall-clock time of this host."""

    def now(self) -> float:
        """Epoch seconds."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait that long."""
        time.sleep(max(0.0, seconds))
