"""Predicted against actual: a pure comparison of a run's plan with what its attempts and events say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ischeduler.core.durations import format_slurm
from ischeduler.core.estimate import Estimate
from ischeduler.core.event import Event
from ischeduler.core.history import HistoryRecord
from ischeduler.core.jobs import Cause
from ischeduler.core.run import Attempt, Run, RunState
from ischeduler.core.sizes import GIB
from ischeduler.plane.availability import Availability, availability

MARGIN = 1.15
"""What is added to a measured figure before it is asked for next time."""


@dataclass(frozen=True, slots=True)
class Line:
    """One quantity. ``actual`` is None where it was not observed; ``error`` is (actual - p50) / p50."""

    name: str
    unit: str
    predicted: Estimate | None
    actual: float | None

    @property
    def inside(self) -> bool | None:
        """Whether the truth lay within p10 and p90; None where one of both is missing."""
        if self.predicted is None or self.actual is None:
            return None
        return self.predicted.p10 <= self.actual <= self.predicted.p90

    @property
    def error(self) -> float | None:
        """Relative error of the median, None where it makes no sense."""
        if self.predicted is None or self.actual is None or self.predicted.p50 == 0:
            return None
        return (self.actual - self.predicted.p50) / self.predicted.p50


@dataclass(frozen=True, slots=True)
class Report:
    """A run's lines, the flags to ask for next time, and how many similar runs the history holds now. ``service``: how much it was up."""

    run_id: str
    state: str
    lines: tuple[Line, ...]
    next_time: tuple[str, ...]
    similar: int
    attempts: int
    notes: tuple[str, ...] = ()
    service: Availability | None = None


def report_of(run: Run, history: Sequence[HistoryRecord], now: float, events: Sequence[Event] = ()) -> Report:
    """Compare. ``history`` is this family's evidence of kind 'run'; ``events``, the run's log, are read for a service only."""
    plan = run.first_plan or run.plan
    peak_gpu, peak_rss = run.progress.peak_gpu_bytes or None, run.progress.peak_rss_bytes or None
    used = run_time_s(run, now)
    endless = run.plan.workload.service is not None
    lines = [Line("run", "s", None if endless else plan.run, used)]
    if plan.resources.gpus_per_node:
        lines.append(Line("gpu memory", "bytes", plan.needs.gpu_memory, peak_gpu))
    lines.append(Line("memory", "bytes", plan.needs.host_memory, peak_rss))
    lines.append(Line("wait", "s", plan.wait, wait_s(run)))
    lines.append(Line("cost", plan.cost.unit, plan.cost, run.spent))
    notes = []
    if not run.state.ended:
        notes.append("the run goes on; figures so far")
    if run.first_plan and run.first_plan.where != run.plan.where:
        notes.append(f"predicted for {run.first_plan.where}; moved to {run.plan.where}")
    return Report(
        run.id,
        run.state.value,
        tuple(lines),
        next_flags(run, used) if run.state is RunState.COMPLETED and not endless else (),
        len(history),
        len(run.attempts),
        tuple(notes),
        None if run.plan.workload.service is None else availability(run, events, now),
    )


def run_time_s(run: Run, now: float) -> float | None:
    """Seconds that jobs of the run really ran, in all; None before the first start."""
    spans = [s for a in run.attempts if (s := _span(a, now)) is not None]
    return sum(spans) if spans else None


def _span(attempt: Attempt, now: float) -> float | None:
    if attempt.started_at is None:
        return None
    end = attempt.ended_at if attempt.ended_at is not None else now
    return max(0.0, end - attempt.started_at)


def _stayed(run: Run) -> list[Attempt]:
    return [a for a in run.attempts if a.cause is not Cause.RETURNED]


def wait_s(run: Run) -> float | None:
    """Seconds that jobs of the run waited in queues, in all, those that gave their allocation back left out; None before the first start."""
    waits = [
        max(0.0, a.started_at - a.submitted_at) for a in _stayed(run) if a.started_at is not None and a.submitted_at is not None
    ]
    return sum(waits) if waits else None


def next_flags(run: Run, used_s: float | None) -> tuple[str, ...]:
    """``--mem`` and ``--time`` for the next run of this kind, measured figures plus a margin; none where nothing was measured."""
    flags: list[str] = []
    if run.progress.peak_rss_bytes:
        need = run.progress.peak_rss_bytes * MARGIN
        flags.append(f"--mem={math.ceil(need / GIB)}G" if need > GIB else f"--mem={math.ceil(need / 2**20 / 64) * 64}M")
    started = [a for a in _stayed(run) if a.started_at is not None]
    if used_s and len(started) == 1:
        flags.append(f"--time={format_slurm(_rounded(used_s * MARGIN))}")
    elif len(started) > 1:
        flags.append(f"--time={format_slurm(run.plan.resources.walltime_s)} x {len(started)}")
    return tuple(flags)


def _rounded(seconds: float) -> float:
    step = 300.0 if seconds > 1800 else 60.0
    return math.ceil(seconds / step) * step
