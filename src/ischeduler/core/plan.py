"""Execution options: what could be done, in what order, with what expectations; and what was refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ischeduler.core.blocker import Blocker
from ischeduler.core.estimate import Estimate
from ischeduler.core.jobs import Resources
from ischeduler.core.memory_model import MemoryModel
from ischeduler.core.workload import Workload

GOALS = ("soonest", "cheapest", "fewest-interruptions", "deadline", "budget")


@dataclass(frozen=True, slots=True)
class Segment:
    """One batch job of a plan. ``useful_s`` is what training gets of ``walltime_s`` after start-up, checkpoint and margin."""

    index: int
    walltime_s: float
    useful_s: float
    wait: Estimate


@dataclass(frozen=True, slots=True)
class Needs:
    """What a workload will need at one place. None where nothing could answer; ``wait`` is for one job of the plan's size.

    ``run`` is the whole training in one uninterrupted job: one start-up, steps, evaluation and checkpoints, no waits.
    ``memory_model`` says how GPU memory grows with the batch size, for the advice of what would fit.
    """

    step_time: Estimate | None = None
    startup: Estimate | None = None
    run: Estimate | None = None
    gpu_memory: Estimate | None = None
    host_memory: Estimate | None = None
    checkpoint: Estimate | None = None
    wait: Estimate | None = None
    notes: tuple[str, ...] = ()
    memory_model: MemoryModel | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """An execution option: segments in order, with what is expected of it. ``number`` is its place in the shown list.

    ``workload`` has one batch size. ``run`` is training time without waits, ``wait`` the sum over segments, ``finish`` from now
    to the end; ``cost`` is in US dollars where the price is known, else in the centre's unit.
    ``tags`` are among 'ideal', 'soonest', 'cheapest', 'goal'; ``hidden`` plans are in no respect better than a shown one.
    ``node_memory_bytes`` and ``max_walltime_s`` are the most one job may ask for there, None where unknown.
    """

    number: int
    cluster: str
    partition: str
    node_type: str
    workload: Workload
    resources: Resources
    segments: tuple[Segment, ...]
    needs: Needs
    run: Estimate
    wait: Estimate
    finish: Estimate
    cost: Estimate
    account: str | None = None
    qos: str | None = None
    signal_lead_s: int = 60
    tags: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    node_memory_bytes: int | None = None
    max_walltime_s: float | None = None
    hidden: bool = False

    @property
    def where(self) -> str:
        """``pitzer/gpu``: how people name the option."""
        return f"{self.cluster}/{self.partition}"


@dataclass(frozen=True, slots=True)
class Refusal:
    """An option that cannot be, with every reason."""

    cluster: str
    partition: str
    node_type: str
    batch_size: int
    blockers: tuple[Blocker, ...]

    @property
    def where(self) -> str:
        """``pitzer/gpu``."""
        return f"{self.cluster}/{self.partition}"


@dataclass(frozen=True, slots=True)
class PlanSet:
    """All options, best for the goal first, and all refusals."""

    workload: Workload
    goal: str
    made_at: float
    plans: tuple[Plan, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    warnings: tuple[str, ...] = ()
    estimators: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def shown(self) -> tuple[Plan, ...]:
        """The short list: options worth a look; the others are numbered after them."""
        return tuple(p for p in self.plans if not p.hidden)
