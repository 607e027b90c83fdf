"""What a service needs at a place: it never ends, so places are compared by a day of it; the plane queues as many jobs as it takes."""

from __future__ import annotations

from ischeduler.core.cascade import useful_time_s
from ischeduler.core.estimate import Estimate
from ischeduler.core.plan import Needs
from ischeduler.planning.candidates import Candidate
from ischeduler.planning.feasible import limit_s

DAY_S = 24 * 3600.0
"""Also the longest job: a longer one waits longer, and a hand-over costs next to nothing."""
SHOWN_JOBS = 40
"""A partition with short limits is shown with so many jobs at most, which is less than a day there."""
SOURCE = "service@1"


def service_needs(c: Candidate, wait: Estimate | None) -> Needs:
    """A day of it, or as long as it is to be up, in jobs as long as the partition allows. Memory is as the user says."""
    service = c.workload.service
    wanted_s = service.for_s if service is not None and service.for_s is not None else DAY_S
    limit = limit_s(c)
    seconds = min(DAY_S, wanted_s, SHOWN_JOBS * useful_time_s(limit) if limit < DAY_S else DAY_S)
    run = Estimate.exact(seconds, "s", SOURCE, reason="a day of a service, or as long as it is to be up; each job is queued ahead")
    zero = Estimate.exact(0.0, "s", SOURCE)
    return Needs(run=run, wait=wait, startup=zero, checkpoint=zero)
