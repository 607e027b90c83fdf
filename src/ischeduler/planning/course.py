"""What a plan's jobs will look like in time: segments, waits, and when the training is done, each with its interval.

Notation: at quantile q the training has ``work_q`` seconds to do and takes ``n_q`` jobs. The time in jobs is
``J_q = run_q + (n_q - 1) x (start-up + checkpoint)``, and the end comes at ``J_q`` plus the waits of ``n_q`` jobs. Waits are
taken as independent of one another and of the run, so deviations from the median add by root sum of squares; the number of jobs
is decided by the run alone, so its waits' medians belong to the run's deviation::

    f_q  = J_q + n_q x wait_50                 finish_50 = f_50
    finish_90 = f_50 + sqrt((f_90 - f_50)^2 + n_90 x (wait_90 - wait_50)^2)        (and likewise below)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ischeduler.core.cascade import next_walltime_s, round_walltime_s, segments_needed, signal_lead_s, useful_time_s
from ischeduler.core.durations import human
from ischeduler.core.estimate import Estimate, total
from ischeduler.core.plan import Needs, Segment

SOURCE = "cascade@1"


@dataclass(frozen=True, slots=True)
class Timing:
    """The figures the arithmetic needs, in seconds: overheads at p90 for what must fit, at p50 for what is expected.

    ``work_s`` is training alone (p10, p50, p90): the run minus a typical start-up.
    """

    run: Estimate
    wait: Estimate
    startup_s: float
    startup_p90_s: float
    checkpoint_s: float
    checkpoint_p90_s: float

    @classmethod
    def of(cls, needs: Needs) -> Timing:
        """ValueError where run or wait is unknown; start-up and checkpoints count as zero where unknown."""
        if needs.run is None or needs.wait is None:
            raise ValueError("run and wait must be known")
        start, save = needs.startup, needs.checkpoint
        return cls(
            needs.run, needs.wait, start.p50 if start else 0.0, start.p90 if start else 0.0,
            save.p50 if save else 0.0, save.p90 if save else 0.0,
        )

    @property
    def work_s(self) -> tuple[float, float, float]:
        """Training alone at p10, p50, p90."""
        low, middle, high = (max(0.0, q - self.startup_s) for q in (self.run.p10, self.run.p50, self.run.p90))
        return low, middle, high

    def useful_s(self, limit_s: float) -> float:
        """What training gets of a job of that length."""
        return useful_time_s(limit_s, self.startup_p90_s, self.checkpoint_p90_s)

    def single_need_s(self) -> float:
        """The least limit under which the whole run fits one job at p90, found by growing the lead with the limit."""
        bare = self.startup_p90_s + self.work_s[2]
        return next_walltime_s(bare, math.inf, 0.0, self.checkpoint_p90_s)


@dataclass(frozen=True, slots=True)
class First:
    """A first job unlike the others: one that fits a hole in the queue. ``limit_s`` its longest walltime, ``wait`` its own."""

    limit_s: float
    wait: Estimate


@dataclass(frozen=True, slots=True)
class Course:
    """Segments in order and what they add up to. ``used_s`` are the jobs' lengths at p10, p50 and p90, for charging."""

    segments: tuple[Segment, ...]
    run: Estimate
    wait: Estimate
    finish: Estimate
    used_s: tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]
    signal_lead_s: int


def one_job(timing: Timing, limit_s: float) -> Course:
    """The whole run in one job that may not be continued by another: the walltime covers the run's p90, capped by the limit."""
    lead_s = signal_lead_s(limit_s, timing.checkpoint_p90_s)
    walltime_s = round_walltime_s(max(timing.run.p90, timing.startup_p90_s + timing.work_s[2]) + lead_s, limit_s)
    return _course(timing, (walltime_s,), (timing.work_s[2],), (1, 1, 1), math.inf, timing.wait)


def cascade(timing: Timing, limit_s: float, first: First | None = None) -> Course:
    """As many jobs as the run's p90 needs, each within the limit. ValueError when a job makes no progress."""
    first_limit_s = first.limit_s if first else limit_s
    first_useful_s, useful_s = timing.useful_s(first_limit_s), timing.useful_s(limit_s)
    if first_useful_s <= 0:
        raise ValueError("the first job has no useful time")
    counts = tuple(_jobs(work, first_useful_s, useful_s) for work in timing.work_s)
    walltimes, useful = _walltimes(timing, first_limit_s, limit_s, counts[2])
    return _course(timing, walltimes, useful, (counts[0], counts[1], counts[2]), first_useful_s, (first or First(0, timing.wait)).wait)


def _jobs(work_s: float, first_useful_s: float, useful_s: float) -> int:
    if work_s <= first_useful_s:
        return 1
    return 1 + segments_needed(work_s - first_useful_s, useful_s)


def _walltimes(timing: Timing, first_limit_s: float, limit_s: float, count: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Walltime and useful time of each job: the limit, except for the last, which asks for what is left."""
    left_s = timing.work_s[2]
    walltimes: list[float] = []
    useful: list[float] = []
    for index in range(count):
        most_s = first_limit_s if index == 0 else limit_s
        last = index == count - 1
        walltime_s = next_walltime_s(left_s, most_s, timing.startup_p90_s, timing.checkpoint_p90_s) if last else most_s
        walltimes.append(walltime_s)
        useful.append(timing.useful_s(walltime_s))
        left_s = max(0.0, left_s - useful[-1])
    return tuple(walltimes), tuple(useful)


def _course(
    timing: Timing, walltimes: tuple[float, ...], useful: tuple[float, ...], counts: tuple[int, int, int],
    first_useful_s: float, first_wait: Estimate,
) -> Course:
    used = tuple(
        _used(timing, total_s, work_s, n, first_useful_s, useful[0] if len(useful) < 2 else timing.useful_s(walltimes[1]) if len(useful) > 2 else useful[0])
        for total_s, work_s, n in zip((timing.run.p10, timing.run.p50, timing.run.p90), timing.work_s, counts, strict=True)
    )
    raise NotImplementedError
