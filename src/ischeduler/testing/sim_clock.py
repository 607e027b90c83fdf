"""Time that moves only when told: the Clock of unit tests and simulations."""

from __future__ import annotations


class SimClock:
    """Starts at ``start_s`` (epoch seconds). ``sleep`` moves the time on and returns at once."""

    def __init__(self, start_s: float = 1_800_000_000.0) -> None:
        self._now_s = start_s

    def now(self) -> float:
        """Epoch seconds."""
        return self._now_s

    def sleep(self, seconds: float) -> None:
        """Move on by that much; a negative time is no sleep, as with a real clock."""
        self._now_s += max(0.0, seconds)

    def advance(self, seconds: float) -> float:
        """Move on and return the new time; ValueError on a step back, which a test never means."""
        if seconds < 0:
            raise ValueError(f"time cannot go back by {-seconds} s")
        self.sleep(seconds)
        return self._now_s
