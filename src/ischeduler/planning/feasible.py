"""Blockers that need estimates: memory, walltime, chaining, progress, and estimates that are missing."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ischeduler.core.blocker import Blocker
from ischeduler.core.durations import human
from ischeduler.core.plan import Needs
from ischeduler.planning.candidates import Candidate
from ischeduler.planning.course import Timing, jobs_at_p90
from ischeduler.planning.memory import AllNeeds, gpu_memory_blockers, host_memory_blockers
from ischeduler.planning.offers import Offers

MAX_SEGMENTS = 50
"""More jobs than this in one cascade is refused: the plane's default cap on attempts is the same."""


def limit_s(c: Candidate) -> float:
    """The longest job there; infinity where the limit is unknown or unlimited."""
    return math.inf if c.partition.max_walltime_s is None else c.partition.max_walltime_s


def may_chain(c: Candidate) -> bool:
    """Whether a run may be cut into several jobs there."""
    return c.workload.checkpoints and c.partition.chaining_allowed


def blockers(c: Candidate, needs: AllNeeds, offers: Offers, max_segments: int = MAX_SEGMENTS) -> tuple[Blocker, ...]:
    """Everything that forbids a structurally possible place once its needs are known."""
    missing = tuple(_missing(c, needs.get(c.key, Needs())))
    if c.key not in needs:
        return missing
    found = [*gpu_memory_blockers(c, needs, offers), *host_memory_blockers(c, needs, offers)]
    return (*found, *(missing or _time_blockers(c, needs, offers, max_segments)))


def _missing(c: Candidate, needs: Needs) -> Iterator[Blocker]:
    profile = f"isched estimate says why; profile a step on {c.node_type.name}, or give its card's FLOP/s"
    look = f"look at the queue first: isched clusters sync {c.cluster.name}"
    for value, what, fix in ((needs.run, "run time", profile), (needs.wait, "queue wait", look)):
        if value is None:
            yield Blocker("estimate", f"no estimator could say the {what}", "", fix)
        elif not math.isfinite(value.p50) or (what == "run time" and not math.isfinite(value.p90)):
            yield Blocker("estimate", f"the {what} is not finite ({value.source})", "", fix)


def _time_blockers(c: Candidate, needs: AllNeeds, offers: Offers, max_segments: int) -> Iterator[Blocker]:
    timing, limit = Timing.of(needs[c.key]), limit_s(c)
    if not may_chain(c):
        if timing.run.p90 > limit:
            yield _too_long(c, timing, needs, offers)
        return
    step = needs[c.key].step_time
    least_s = step.p90 if step else 0.0
    useful_s = timing.useful_s(limit)
    if useful_s <= least_s:
        yield _no_progress(c, timing, limit, least_s, needs, offers)
    elif (count := jobs_at_p90(timing, limit)) > max_segments:
        fix = _longer(c, needs, offers, max_segments) or f"allow more than {max_segments} jobs (caps.max_attempts)"
        yield Blocker("chaining", f"at most {max_segments} are queued for one run", f"{count} jobs of {human(limit)}", fix)


def _too_long(c: Candidate, timing: Timing, needs: AllNeeds, offers: Offers) -> Blocker:
    where = _longer(c, needs, offers, 1)
    excess, need = f"limit is {human(limit_s(c))}, {human(timing.run.p90 - limit_s(c))} more needed", human(timing.run.p90)
    if c.workload.checkpoints:
        fix = where or "fewer epochs, more GPUs, or a partition that allows chaining"
        return Blocker("chaining", f"{excess}, and {c.partition.name} prohibits job chaining", need, fix)
    own = "save checkpoints, so that it can be cut into several jobs"
    fix = f"{where}, or {own}" if where else own
    return Blocker("walltime", f"{excess}, and the training has no checkpoints", need, fix)


def _no_progress(c: Candidate, timing: Timing, limit: float, step_s: float, needs: AllNeeds, offers: Offers) -> Blocker:
    spent = f"start-up {human(timing.startup_p90_s)}, checkpoint {human(timing.checkpoint_p90_s)} and the margin"
    useful_s = timing.useful_s(limit)
    left = f"{human(useful_s)} is left and one step takes {human(step_s)}" if step_s and useful_s else "nothing is left"
    fix = _longer(c, needs, offers, MAX_SEGMENTS) or "a faster start-up or checkpoint, or a longer limit"
    return Blocker("walltime", f"limit is {human(limit)}: after {spent} {left}", "", fix)


def _longer(c: Candidate, needs: AllNeeds, offers: Offers, jobs: int) -> str:
    """``pitzer/gpu allows 168h`` of the nearest place that finishes in at most that many jobs."""

    def would_do(other: Candidate) -> bool:
        known = needs.get(other.key)
        if known is None or known.run is None or known.wait is None or not math.isfinite(known.run.p90):
            return False
        if known.run.p90 <= limit_s(other):
            return True
        timing, limit = Timing.of(known), limit_s(other)
        return jobs > 1 and may_chain(other) and timing.useful_s(limit) > 0 and jobs_at_p90(timing, limit) <= jobs

    found = offers.nearest(c, would_do, limit_s)
    if found is None:
        return ""
    limit = limit_s(found)
    return f"{found.where} has no limit" if math.isinf(limit) else f"{found.where} allows {human(limit)}"
