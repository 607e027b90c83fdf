"""Everything one page says of one run: its row, curves, Gantt, figures predicted beside actual, attempts and events. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ischeduler.core.durations import human
from ischeduler.core.estimate import Estimate
from ischeduler.core.event import Event
from ischeduler.core.run import Run
from ischeduler.core.sizes import GIB, human_size
from ischeduler.service.dashboard.views.curves import Curve, Limit, busy_curve, loss_curve, losses, memory_curve, quality_curve
from ischeduler.service.dashboard.views.runs import RunRow, run_row
from ischeduler.service.dashboard.views.timeline import Timeline, timeline
from ischeduler.service.dashboard.words import NOT_KNOWN, ago, amount, clock, interval, machine_time, signed

NEWEST_EVENTS = 60
QUIET = ("heartbeat", "progress", "performance", "utilisation")
"""Kinds that come by the hundred; curves show them."""
MOST_DATA = 240


class ReportLine(Protocol):
    """One quantity of a report (:class:`ischeduler.helper.report.Line` is one)."""

    @property
    def name(self) -> str:
        """What."""
        ...

    @property
    def unit(self) -> str:
        """Of both figures."""
        ...

    @property
    def predicted(self) -> Estimate | None:
        """Before the run."""
        ...

    @property
    def actual(self) -> float | None:
        """Observed; so far, for a run that goes on."""
        ...

    @property
    def inside(self) -> bool | None:
        """Whether the truth lay within p10 and p90."""
        ...

    @property
    def error(self) -> float | None:
        """(actual - p50) / p50."""
        ...


class RunReport(Protocol):
    """What is read of a report (:class:`ischeduler.helper.report.Report` is one)."""

    @property
    def lines(self) -> Sequence[ReportLine]:
        """One a quantity."""
        ...

    @property
    def next_time(self) -> Sequence[str]:
        """Flags to ask for next time."""
        ...

    @property
    def similar(self) -> int:
        """Similar runs in the history."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """Remarks."""
        ...


@dataclass(frozen=True, slots=True)
class Compared:
    """Predicted beside actual. Places on the line are shares of ``axis``; None where a figure is missing."""

    name: str
    predicted: str
    median: str
    actual: str
    verdict: str
    tone: str
    low: float | None
    middle: float | None
    high: float | None
    truth: float | None
    source: str


@dataclass(frozen=True, slots=True)
class EventRow:
    """One event of the log, with what it carries in a few words."""

    kind: str
    source: str
    at: str
    stamp: str
    age: str
    data: str


@dataclass(frozen=True, slots=True)
class RunPage:
    """One run. ``why`` are lines for people; ``losses`` the newest ones, for a sparkline."""

    row: RunRow
    facts: tuple[tuple[str, str], ...]
    why: tuple[str, ...]
    line: Timeline
    curves: tuple[Curve, ...]
    losses: tuple[float, ...]
    compared: tuple[Compared, ...]
    next_time: str
    notes: tuple[str, ...]
    similar: int
    events: tuple[EventRow, ...]
    events_hidden: int
    can_cancel: bool
    cancelling: bool


def run_page(
    run: Run, events: Sequence[Event], report: RunReport | None, why: str, now: float, *, count: int | None = None
) -> RunPage:
    """The page of a run from its row, its log of events and the answers of ``report`` and ``why``.

    ``events`` may be a choice of the run's ``count`` events, as long as the newest that are told are among them.
    """
    told = [e for e in events if e.kind not in QUIET]
    curves = (loss_curve(events), memory_curve(events, run.created_at, _limits(run)), busy_curve(events, run.created_at), quality_curve(events, run.created_at))
    return RunPage(
        run_row(run, now), tuple(_facts(run, now)), tuple(line for line in why.splitlines() if line.strip()),
        timeline(run, events, now), tuple(c for c in curves if not c.empty), losses(events),
        tuple(_compared(line, run.state.ended) for line in report.lines) if report else (), " ".join(report.next_time) if report else "",
        tuple(report.notes) if report else (), report.similar if report else 0,
        tuple(_event(e, now) for e in reversed(told[-NEWEST_EVENTS:])), max(0, (len(events) if count is None else count) - min(len(told), NEWEST_EVENTS)),
        not run.state.ended and not run.cancel_requested, run.cancel_requested and not run.state.ended,
    )  # fmt: skip


def _limits(run: Run) -> list[Limit]:
    needs = (run.first_plan or run.plan).needs
    named = (("host predicted", needs.host_memory), ("GPU predicted", needs.gpu_memory))
    return [Limit(name, e.p10 / GIB, e.p90 / GIB) for name, e in named if e is not None]


def _facts(run: Run, now: float) -> list[tuple[str, str]]:
    """What a person wants to know next to the state, only what is known."""
    p, w, a = run.progress, run.plan.workload, run.attempt
    facts = [("Batch", f"{w.batch}{f' × {w.grad_accum} accumulated' if w.grad_accum > 1 else ''}")]
    if p.loss is not None:
        facts.append(("Loss", f"{p.loss:.4g}"))
    if p.step_time_s is not None:
        facts.append(("Step", f"{p.step_time_s * 1000:.0f} ms" if p.step_time_s < 1 else f"{p.step_time_s:.2f} s"))
    if p.checkpoint_at is not None:
        facts.append(("Checkpoint", f"{ago(p.checkpoint_at, now)}, epoch {p.checkpoint_epoch}"))
    if a is not None and a.started_at is not None and not a.state.ended:
        facts.append(("Limit in", human(max(0.0, a.started_at + a.resources.walltime_s - now))))
    if p.peak_gpu_bytes:
        facts.append(("GPU memory", human_size(p.peak_gpu_bytes)))
    if p.peak_rss_bytes:
        facts.append(("Memory", human_size(p.peak_rss_bytes)))
    facts.append(("Made", f"{ago(run.created_at, now)} ({clock(run.created_at)})"))
    return facts


def _compared(line: ReportLine, ended: bool) -> Compared:
    e, actual = line.predicted, line.actual
    top = max((v for v in (e.p90 if e else None, actual) if v is not None), default=0.0) * 1.15
    low, middle, high = (_place(v, top) for v in ((e.p10, e.p50, e.p90) if e else (None, None, None)))
    verdict, tone = _verdict(line, ended)
    return Compared(
        line.name, interval(e) if e else NOT_KNOWN, amount(e.p50, line.unit) if e else NOT_KNOWN,
        "not observed" if actual is None else amount(actual, line.unit), verdict, tone, low, middle, high, _place(actual, top),
        e.source if e else "",
    )  # fmt: skip


def _place(value: float | None, top: float) -> float | None:
    return None if value is None or top <= 0 else min(1.0, max(0.0, value / top))


def _verdict(line: ReportLine, ended: bool) -> tuple[str, str]:
    """A figure of a run under way may still grow: below its interval it says nothing yet."""
    error = f", {signed(line.error)}" if line.error is not None else ""
    if not ended and line.predicted is not None and line.actual is not None and line.actual < line.predicted.p10:
        return "so far", "idle"
    if line.inside is None:
        return NOT_KNOWN, "idle"
    return (f"inside{error}", "good") if line.inside else (f"outside{error}", "warn")


def _event(event: Event, now: float) -> EventRow:
    words = ", ".join(f"{k} {_short(v)}" for k, v in event.data.items())
    cut = words if len(words) <= MOST_DATA else words[: MOST_DATA - 1] + "…"
    return EventRow(event.kind.replace("_", " "), event.source, clock(event.at), machine_time(event.at), ago(event.at, now), cut)


def _short(value: object) -> str:
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value, default=str)
    return f"{value:.6g}" if isinstance(value, float) else str(value)
