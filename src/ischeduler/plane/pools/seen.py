"""What a pool is told at a tick, and what it may answer. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ischeduler.core.pilots import MemberJob, PilotSign
from ischeduler.core.run import Run
from ischeduler.plane.attempts import alive
from ischeduler.plane.pools.sizes import declared_size, sizes_of
from ischeduler.policies.stragglers import Straggler

UNKNOWN_STEPS = 1e6
"""Steps left of a training that has not said how many it has."""


@dataclass(frozen=True, slots=True)
class MemberSeen:
    """A member's run: accelerators it asks for, whether it goes on, steps left and in all, and its newest step time with its date.

    ``sizes``: for an elastic training, the numbers of accelerators that its owner allows, and what a step on so many is worth in steps on
    the number it was declared with, ``declared``. ``restarts``: how often it has started, less one.
    """

    run_id: str
    gpus: int
    going: bool
    steps_left: float
    total_steps: float
    arrived_s: float
    step_time_s: float | None = None
    measured_at: float | None = None
    deadline_s: float = float("inf")
    sizes: Mapping[int, float] = field(default_factory=dict[int, float])
    declared: int = 0
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class PilotRun:
    """A pilot's run: whether it goes on, whether it waits in the queue, the names of its incarnations that are over, and why it ended."""

    run_id: str
    going: bool
    waiting: bool
    over: tuple[str, ...] = ()
    message: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything at one tick. ``slow``: by member, nodes on which it crawls."""

    signs: tuple[PilotSign, ...] = ()
    jobs: tuple[MemberJob, ...] = ()
    members: Mapping[str, MemberSeen] = field(default_factory=dict[str, MemberSeen])
    pilots: Mapping[str, PilotRun] = field(default_factory=dict[str, PilotRun])
    slow: Mapping[str, tuple[Straggler, ...]] = field(default_factory=dict[str, tuple[Straggler, ...]])


@dataclass(frozen=True, slots=True)
class AskPilot:
    """Delegate a run that holds accelerators of the type. Idempotent: the id is the run's."""

    run_id: str
    type: str


@dataclass(frozen=True, slots=True)
class ReleasePilot:
    """Give a pilot back: cancel its run."""

    run_id: str
    why: str


@dataclass(frozen=True, slots=True)
class ClosePilot:
    """The batch job behind a pilot's report has ended."""

    name: str


@dataclass(frozen=True, slots=True)
class Steps:
    """What a pilot shall run: job id -> seconds at most."""

    pilot: str
    steps: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Resize:
    """Let a member's run save and go on with so many accelerators."""

    run_id: str
    gpus: int


PoolAction = AskPilot | ReleasePilot | ClosePilot | Resize | Steps


def member_seen(run: Run) -> MemberSeen:
    """A member's run as the pool sees it."""
    p, w = run.progress, run.plan.workload
    total = float(p.steps or (w.steps if w.samples else 0) or UNKNOWN_STEPS)
    going = not run.state.ended and run.verdict is None and not run.cancel_requested
    deadline_s = float("inf") if run.caps.deadline is None else run.caps.deadline
    return MemberSeen(
        run.id, max(1, run.plan.resources.gpus_per_node), going, max(1.0, total - p.step), total, run.created_at, p.step_time_s, p.at, deadline_s,
        sizes_of(w), declared_size(w), max(0, len(run.attempts) - 1),
    )  # fmt: skip


def pilot_run(run: Run) -> PilotRun:
    """A pilot's run as the pool sees it."""
    over = tuple(f"{run.id}-{a.number}.{r}" for a in run.attempts for r in range(a.restarts + 1) if not alive(a) or r < a.restarts)
    going = not run.state.ended and run.verdict is None
    waiting = going and not any(alive(a) and a.started_at is not None for a in run.attempts)
    return PilotRun(run.id, going, waiting, over, run.message)


def run_of_pilot(name: str) -> str:
    """The run behind a pilot's name, RUN-ATTEMPT.RESTART."""
    return name.rpartition("-")[0]
