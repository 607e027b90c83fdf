"""Leaving a troubled controller alone: after each failure the next question waits longer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Backoff:
    """Doubles from ``first_s`` to ``longest_s`` with each failure in a row; one success forgets them all.

    Deterministic on purpose: ticks of many planes are already spread, and a test can name the next moment.
    """

    first_s: float = 2.0
    longest_s: float = 120.0
    failures: int = 0
    until: float = float("-inf")
    message: str = ""

    def waits(self, now: float) -> float:
        """Seconds until the next question may be asked; 0 when it may be asked now."""
        return max(0.0, self.until - now)

    def failed(self, now: float, message: str) -> None:
        """Count a failure and stay away for a while."""
        self.until = now + min(self.longest_s, self.first_s * 2.0**self.failures)
        self.failures = min(self.failures + 1, 30)
        self.message = message

    def succeeded(self) -> None:
        """The controller answers again."""
        self.failures, self.until, self.message = 0, float("-inf"), ""
