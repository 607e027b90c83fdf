"""When a service's successor is queued: so early that it is surely ready before its predecessor's limit."""

from __future__ import annotations

from dataclasses import dataclass

from ischeduler.core.run import Run
from ischeduler.plane.provisioners.rules import segment_of
from ischeduler.plane.segments import startup_s
from ischeduler.ports import Provisioner

LOOK_S = 60.0
"""The plane looks at a running job at least so often."""
CAUTION = 1.5


@dataclass(frozen=True, slots=True)
class Standby:
    """Another rule's time or one's own, whichever comes first; at most ``longest_share`` of the segment before its end.

    The own one: the time to be ready and the longest wait of this run's jobs so far, half as much again, and one look. The
    predecessor leaves when the successor is ready, so that an early start costs a shorter segment and no overlap.
    """

    rule: Provisioner
    longest_share: float = 0.5

    def submit_at(self, run: Run, now: float) -> float | None:
        """When the successor should be queued; None before the running job has started."""
        segment = segment_of(run)
        if segment is None:
            return None
        start, end = segment
        lead_s = min(CAUTION * (startup_s(run) + longest_wait_s(run)) + LOOK_S, self.longest_share * (end - start))
        other = self.rule.submit_at(run, now)
        at = end - lead_s if other is None else min(other, end - lead_s)
        return max(now, at, end - self.longest_share * (end - start))


def longest_wait_s(run: Run) -> float:
    """Seconds: the longest wait that a job of the run has had, on the batch system's clock; the plan's p90 before the first."""
    waits = [a.started_at - a.submitted_at for a in run.attempts if a.started_at is not None and a.submitted_at is not None]
    if len(waits) > 1:
        return max(0.0, *waits)
    planned = run.plan.needs.wait or run.plan.wait
    return max(0.0, planned.p90, *waits)
