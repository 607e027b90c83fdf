"""A run's jobs on one axis of time: waits, runs, checkpoints, and what ended each. Pure.

Places on the axis are shares of its length (0 to 1). The batch system's clock is used for jobs, the job's host's for its checkpoints,
so a mark may lie a little beside its bar.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ischeduler.core.durations import human
from ischeduler.core.event import Event
from ischeduler.core.jobs import Cause, JobState
from ischeduler.core.run import Attempt, Run
from ischeduler.service.dashboard.views.curves import thinned
from ischeduler.service.dashboard.words import plural

CAUSE_TONES: dict[Cause, str] = {
    Cause.FINISHED: "good", Cause.WALLTIME: "warn", Cause.MOVED: "warn", Cause.PREEMPTED: "warn", Cause.SUPERSEDED: "idle",
    Cause.CANCELLED: "warn", Cause.RETURNED: "idle",
}  # fmt: skip
"""Every other cause is a failure ('bad')."""
MOST_MARKS = 150
PLANNED = (Cause.FINISHED, Cause.SUPERSEDED, Cause.CANCELLED, Cause.RETURNED)
"""Ends that interrupt nothing: a superseded job handed over to its successor, a cancelled run was not to go on, and beside a job that gave
its allocation back another ran."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A stretch of time on the axis, ``start`` <= ``end``, of a kind: 'wait', 'run'."""

    kind: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Lane:
    """One job: its bars, its checkpoints (of ``saves`` at most some hundred), what ended it and how that looks, and the same in words."""

    number: int
    job: str
    where: str
    state: str
    bars: tuple[Bar, ...]
    checkpoints: tuple[float, ...]
    saves: int
    end_tone: str
    ended_by: str
    waited: str
    ran: str
    nodes: str
    reason: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A label of the axis."""

    at: float
    words: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """Lanes over ``length_s`` seconds from ``start``. ``now`` and the promised end (p10, p50, p90) where they lie on the axis."""

    start: float
    length_s: float
    lanes: tuple[Lane, ...]
    ticks: tuple[Tick, ...]
    now: float | None
    promised: tuple[float, float, float] | None
    words: str


def timeline(run: Run, events: Sequence[Event], now: float) -> Timeline:
    """The Gantt of a run, from its making until it ended (or now, and the end that was promised where that is near)."""
    start = run.created_at
    end = run.ended_at if run.ended_at is not None else now
    plan = run.first_plan or run.plan
    promise = (plan.finish.p10, plan.finish.p50, plan.finish.p90)
    length = max(60.0, end - start, *(p for p in promise if p <= 3 * max(60.0, end - start) or not run.attempts))
    lanes = tuple(_lane(a, events, start, length, now) for a in run.attempts)
    return Timeline(
        start, length, lanes, _ticks(length), _place(now, start, length) if not run.state.ended else None,
        _promised(promise, length), _words(run, now),
    )  # fmt: skip


def _promised(promise: tuple[float, float, float], length: float) -> tuple[float, float, float] | None:
    low, middle, high = promise
    return (low / length, middle / length, min(1.0, high / length)) if middle <= length else None


def _lane(a: Attempt, events: Sequence[Event], start: float, length: float, now: float) -> Lane:
    queued = a.submitted_at if a.submitted_at is not None else a.created_at or None
    end = a.ended_at if a.ended_at is not None else (None if a.state.ended else now)
    bars: list[Bar] = []
    waited_until = a.started_at if a.started_at is not None else end
    if queued is not None and waited_until is not None:
        bars.append(Bar("wait", _place(queued, start, length), _place(max(queued, waited_until), start, length)))
    if a.started_at is not None and end is not None:
        bars.append(Bar("run", _place(a.started_at, start, length), _place(max(a.started_at, end), start, length)))
    saved = [e.at for e in events if e.kind == "checkpoint" and e.token.split(".")[0] == str(a.number)]
    return Lane(
        a.number, a.job_id or "", f"{a.cluster}/{a.partition}", a.state.value.replace("_", " "), tuple(bars),
        tuple(_place(at, start, length) for at in thinned(saved, MOST_MARKS)), len(saved), _tone(a), _ended_by(a), _span(queued, waited_until),
        _span(a.started_at, end), ", ".join(a.nodes), a.reason,
    )  # fmt: skip


def _tone(a: Attempt) -> str:
    if a.cause is None:
        return "live" if a.state is JobState.RUNNING else "idle"
    return CAUSE_TONES.get(a.cause, "bad")


def _ended_by(a: Attempt) -> str:
    if a.cause is not None:
        return a.cause.value.replace("_", " ")
    return "" if not a.state.ended else "not known yet"


def _span(start: float | None, end: float | None) -> str:
    return human(max(0.0, end - start)) if start is not None and end is not None else "–"


def _place(at: float, start: float, length: float) -> float:
    return min(1.0, max(0.0, (at - start) / length))


def _ticks(length: float) -> tuple[Tick, ...]:
    """Four to eight round times."""
    steps = (60, 300, 600, 1800, 3600, 7200, 3 * 3600, 6 * 3600, 12 * 3600, 86400, 2 * 86400, 7 * 86400, 28 * 86400, 364 * 86400)
    step = next((s for s in steps if length / s <= 6), steps[-1])
    return tuple(Tick(i * step / length, human(i * step) if i else "0") for i in range(int(length // step) + 1))


def _words(run: Run, now: float) -> str:
    """The Gantt as a sentence: ``3 jobs, 2 interruptions (walltime, preempted); 2h00 training, 25m waiting.``"""
    if not run.attempts:
        return "No job has been submitted yet."
    cuts = [a.cause.value.replace("_", " ") for a in run.attempts if a.cause is not None and a.cause not in PLANNED]
    broken = f"{plural(len(cuts), 'interruption')} ({', '.join(dict.fromkeys(cuts))})" if cuts else "no interruption"
    ran = sum(max(0.0, (a.ended_at if a.ended_at is not None else now) - a.started_at) for a in run.attempts if a.started_at is not None)
    waited = sum(max(0.0, a.started_at - a.submitted_at) for a in run.attempts if a.started_at is not None and a.submitted_at is not None)
    return f"{plural(len(run.attempts), 'job')}, {broken}; {human(ran)} in jobs, {human(waited)} in queues."
