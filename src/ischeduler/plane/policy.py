"""The plane's patience, in one place. All in seconds of the plane's own clock unless said."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Policy:
    """How long the plane waits before it believes or repeats something.

    ``settle_s``: a missing job is believed absent when a complete answer lacks it that long. ``in_flight_s``: the same for an
    unanswered submission, which may arrive late; longer than every adapter lets a request live, so that none is sent twice.
    ``vanish_s``: the same where the accounting does not answer. ``evidence_s``: what an ended job may still write (network file
    systems cache for seconds). ``unknown_after``: failed queries before the state is shown as unknown. ``nudge_s``: before an
    unheeded cancel or signal is repeated. ``soft_s``: before a job that was asked to stop is cancelled.
    ``relay``: a job that has saved and said so gets its successor at once, queued behind its end; for planes that are driven by
    the jobs themselves, who can look only while they live.
    ``stuck_s``: before a job that the batch system says cannot start is taken as stuck.
    ``pending_max``: how many successors of a running job may wait in the queue at once, where waits are longer than segments.
    """

    settle_s: float = 20.0
    in_flight_s: float = 90.0
    vanish_s: float = 180.0
    evidence_s: float = 10.0
    unknown_after: int = 3
    nudge_s: float = 45.0
    soft_s: float = 240.0
    stuck_s: float = 300.0
    retry_s: float = 5.0
    retry_max_s: float = 600.0
    site_limit_s: float = 15.0
    replan_first_s: float = 900.0
    replan_every_s: float = 3600.0
    excluded_nodes_max: int = 4
    relay: bool = False
    pending_max: int = 1

    def backoff_s(self, first_s: float, count: int) -> float:
        """``first_s`` doubled with each repetition after the first, up to ``retry_max_s``."""
        return min(self.retry_max_s, first_s * 2.0 ** min(16, max(0, count - 1)))


DEFAULT = Policy()
