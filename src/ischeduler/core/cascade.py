"""The arithmetic of cutting a training into batch jobs ("segments") that each fit a walltime limit.

One job's time is spent so: ``start-up | training | lead``. The lead is the time between SIGUSR2 and the limit; it holds one
checkpoint and a safety margin, because the training stops at the first step boundary after the signal::

    useful = limit - start-up - checkpoint - margin      with   checkpoint + margin = lead

Both the planner (before a run) and the plane (between two attempts) use these functions, so that a plan and what is then
submitted agree. Everything is in seconds; an unlimited partition has the limit ``math.inf``.
"""

from __future__ import annotations

import math

MIN_LEAD_S = 10.0
COMFORTABLE_LEAD_S = 30.0
LEAD_SHARE = 1 / 3
"""The lead is never more than this share of the limit."""


def signal_lead_s(limit_s: float, checkpoint_s: float = 0.0, step_s: float = 0.0) -> int:
    """How long before the limit SIGUSR2 should come, in whole seconds, for a checkpoint that takes ``checkpoint_s`` (its p90).

    Twice the checkpoint, two steps where their time is known (the save waits for a step's end), and five seconds; at least
    30 s (a sixth of the limit, but not under 10 s, where the limit is short), at most a third of the limit, never less than 1 s.
    """
    return max(1, math.floor(_lead_s(limit_s, checkpoint_s, step_s)))


def _lead_s(limit_s: float, checkpoint_s: float, step_s: float = 0.0) -> float:
    least = min(COMFORTABLE_LEAD_S, max(MIN_LEAD_S, limit_s / 6))
    wanted = max(least, 2.0 * max(0.0, checkpoint_s) + 2.0 * max(0.0, step_s) + 5.0)
    return min(wanted, limit_s * LEAD_SHARE)


def margin_s(limit_s: float, checkpoint_s: float = 0.0) -> float:
    """What the lead holds beyond the checkpoint itself; zero where a slow checkpoint fills the lead."""
    return max(0.0, _lead_s(limit_s, checkpoint_s) - max(0.0, checkpoint_s))


def useful_time_s(limit_s: float, startup_s: float = 0.0, checkpoint_s: float = 0.0, margin: float | None = None) -> float:
    """What training gets of a job with that limit; zero when nothing is left (then no progress is possible).

    ``margin`` is :func:`margin_s` where not given.
    """
    spare = margin_s(limit_s, checkpoint_s) if margin is None else margin
    return max(0.0, limit_s - startup_s - checkpoint_s - spare)


def segments_needed(work_s: float, useful_s: float) -> int:
    """Jobs needed for that much training, at least one. ValueError when a job makes no progress."""
    if work_s <= 0:
        return 1
    if useful_s <= 0:
        raise ValueError("a job that has no useful time makes no progress, however many are queued")
    if math.isinf(useful_s):
        return 1
    return max(1, math.ceil(work_s / useful_s - 1e-9))


def rounding_step_s(limit_s: float) -> float:
    """The step a requested walltime is rounded up to: 5 min; 1 min where the limit is below an hour; 1 s below a minute."""
    if limit_s >= 3600.0:
        return 300.0
    return 60.0 if limit_s >= 60.0 else 1.0


def round_walltime_s(seconds: float, limit_s: float = math.inf) -> float:
    """``seconds`` rounded up to a sensible request, capped by the limit. Never zero."""
    step = rounding_step_s(limit_s)
    return min(limit_s, max(step, math.ceil(seconds / step - 1e-9) * step))


def next_walltime_s(work_s: float, limit_s: float, startup_s: float = 0.0, checkpoint_s: float = 0.0) -> float:
    """The walltime to ask for when ``work_s`` of training (its p90) is left: all of it where that fits, else the limit."""
    return round_walltime_s(startup_s + max(0.0, work_s) + max(_lead_s(limit_s, checkpoint_s), checkpoint_s), limit_s)


def segment_walltimes_s(
    work_s: float, limit_s: float, startup_s: float = 0.0, checkpoint_s: float = 0.0,
) -> tuple[float, ...]:
    """Every job's walltime for ``work_s`` of training (its p90): the limit each, and what is left for the last.

    ValueError when the limit leaves no useful time.
    """
    useful_s = useful_time_s(limit_s, startup_s, checkpoint_s)
    count = segments_needed(work_s, useful_s)
    if count == 1:
        return (next_walltime_s(work_s, limit_s, startup_s, checkpoint_s),)
    last_s = next_walltime_s(work_s - (count - 1) * useful_s, limit_s, startup_s, checkpoint_s)
    return (*(limit_s for _ in range(count - 1)), last_s)
