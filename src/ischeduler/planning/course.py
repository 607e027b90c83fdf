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


@dataclass(frozen=True, slots=True)
class _Cut:
    """How a run is cut: useful seconds of the first and of each later job, and the number of jobs at p10, p50, p90."""

    first_useful_s: float
    useful_s: float
    counts: tuple[int, int, int]


def one_job(timing: Timing, limit_s: float) -> Course:
    """The whole run in one job that may not be continued by another: the walltime covers the run's p90, capped by the limit."""
    lead_s = signal_lead_s(limit_s, timing.checkpoint_p90_s)
    work_s = timing.work_s[2]
    walltime_s = round_walltime_s(max(timing.run.p90, timing.startup_p90_s + work_s) + lead_s, limit_s)
    useful_s = max(work_s, timing.useful_s(walltime_s))
    return _course(timing, _Cut(math.inf, math.inf, (1, 1, 1)), ((walltime_s, useful_s),), timing.wait)


def cascade(timing: Timing, limit_s: float, first: First | None = None) -> Course:
    """As many jobs as the run's p90 needs, each within the limit. ValueError when a job makes no progress."""
    first_limit_s = first.limit_s if first else limit_s
    first_useful_s, useful_s = timing.useful_s(first_limit_s), timing.useful_s(limit_s)
    if first_useful_s <= 0:
        raise ValueError("the first job has no useful time")
    low, middle, high = (_jobs(work, first_useful_s, useful_s) for work in timing.work_s)
    cut = _Cut(first_useful_s, useful_s, (low, middle, high))
    return _course(timing, cut, _jobs_of(timing, first_limit_s, limit_s, high), first.wait if first else timing.wait)


def jobs_at_p90(timing: Timing, limit_s: float) -> int:
    """Jobs that the run's p90 needs under a limit. ValueError when a job makes no progress."""
    return segments_needed(timing.work_s[2], timing.useful_s(limit_s))


def _jobs(work_s: float, first_useful_s: float, useful_s: float) -> int:
    if work_s <= first_useful_s * (1 + 1e-9):
        return 1
    return 1 + segments_needed(work_s - first_useful_s, useful_s)


def _jobs_of(timing: Timing, first_limit_s: float, limit_s: float, count: int) -> tuple[tuple[float, float], ...]:
    """(walltime, useful time) of each job: the limit, except for the last, which asks for what is left."""
    first = (first_limit_s, timing.useful_s(first_limit_s))
    later = (limit_s, timing.useful_s(limit_s))
    before = () if count == 1 else (first, *(later for _ in range(count - 2)))
    left_s = max(0.0, timing.work_s[2] - sum(useful for _, useful in before))
    most_s = first_limit_s if count == 1 else limit_s
    walltime_s = next_walltime_s(left_s, most_s, timing.startup_p90_s, timing.checkpoint_p90_s)
    return (*before, (walltime_s, timing.useful_s(walltime_s)))


def _course(timing: Timing, cut: _Cut, jobs: tuple[tuple[float, float], ...], first_wait: Estimate) -> Course:
    quantiles = (timing.run.p10, timing.run.p50, timing.run.p90)
    low, middle, high = (
        _used(timing, cut, run_s, work_s, n) for run_s, work_s, n in zip(quantiles, timing.work_s, cut.counts, strict=True)
    )
    segments = tuple(
        Segment(i, walltime_s, useful_s, first_wait if i == 0 else timing.wait) for i, (walltime_s, useful_s) in enumerate(jobs)
    )
    run = replace(timing.run, p10=sum(low), p50=sum(middle), p90=sum(high), unit="s")
    wait = _waits(first_wait, timing.wait, cut.counts, (0.0, 0.0, 0.0))
    finish = _waits(first_wait, timing.wait, cut.counts, (run.p10, run.p50, run.p90))
    return Course(
        segments, run, _described(wait, [first_wait, timing.wait], f"{len(jobs)} wait(s), independent of one another"),
        _described(finish, [run, first_wait, timing.wait], f"{human(run.p50)} in {_job_words(cut)} + {human(wait[1])} waiting"),
        (low, middle, high), signal_lead_s(jobs[0][0], timing.checkpoint_p90_s),
    )


def _used(timing: Timing, cut: _Cut, run_s: float, work_s: float, count: int) -> tuple[float, ...]:
    """Each job's length when the training takes ``work_s`` and ``count`` jobs."""
    if count == 1:
        return (run_s,)
    overhead_s = timing.startup_s + timing.checkpoint_s
    last_s = timing.startup_s + max(0.0, work_s - cut.first_useful_s - (count - 2) * cut.useful_s)
    return (overhead_s + cut.first_useful_s, *(overhead_s + cut.useful_s for _ in range(count - 2)), last_s)


def _waits(
    first: Estimate, later: Estimate, counts: tuple[int, int, int], in_jobs: tuple[float, float, float],
) -> tuple[float, float, float]:
    """p10, p50, p90 of the time in jobs plus all waits (see the module's formula)."""
    medians = [job_s + first.p50 + (n - 1) * later.p50 for job_s, n in zip(in_jobs, counts, strict=True)]
    below = math.hypot(medians[1] - medians[0], first.p50 - first.p10, math.sqrt(counts[1] - 1) * (later.p50 - later.p10))
    above = math.hypot(medians[2] - medians[1], first.p90 - first.p50, math.sqrt(counts[2] - 1) * (later.p90 - later.p50))
    return max(0.0, medians[1] - below), medians[1], medians[1] + above


def _described(quantiles: tuple[float, float, float], parts: list[Estimate], reason: str) -> Estimate:
    """The quantiles with unit, weakest basis, sources and oldest date of their parts."""
    told = total([replace(p, unit="s") for p in parts], reason=reason)
    return replace(told, p10=quantiles[0], p50=quantiles[1], p90=quantiles[2], source=f"{SOURCE}({told.source})")


def _job_words(cut: _Cut) -> str:
    low, middle, high = cut.counts
    if high == 1:
        return "1 job"
    return f"{high} jobs" if low == high else f"{low}-{high} jobs ({middle} expected)"
