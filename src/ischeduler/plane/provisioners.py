"""When a segment's successor is queued. Learned and hand-over policies are further implementations of the port."""

from __future__ import annotations

from dataclasses import dataclass

from ischeduler.core.run import Run


@dataclass(frozen=True, slots=True)
class Reactive:
    """Only when the running attempt has ended: never two jobs, at the price of one whole queue wait a segment."""

    def submit_at(self, run: Run, now: float) -> float | None:
        """Always None."""
        return None


REACTIVE = Reactive()
