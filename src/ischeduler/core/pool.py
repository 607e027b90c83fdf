"""A pool: runs of one group that share accelerators of several types by an allocation policy, and what each was promised and got.

``mode`` is 'pilots' (the pool holds allocations of its own and runs members as job steps in them, by rounds) or 'steer' (members are
batch jobs of their own; the pool steers them while they wait and moves them at checkpoints).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ischeduler.core.estimate import Estimate

MODES = ("pilots", "steer")
ANY = "any"
"""The partition of a member that takes whatever type the policy gives it; a type's name confines it to that type."""
PREFIX = "pool-"


def cluster_of(pool: str) -> str:
    """The name under which the plane knows a pool with pilots: as a cluster whose partitions are its types."""
    return PREFIX + pool


class PoolState(StrEnum):
    """ACTIVE schedules; DRAINING lets members save and gives the pilots back; DRAINED holds nothing; its members wait."""

    ACTIVE = "active"
    DRAINING = "draining"
    DRAINED = "drained"


@dataclass(frozen=True, slots=True)
class PoolPlace:
    """A type of accelerators that the pool uses, and where its batch system keeps it. One pilot is one node.

    ``count`` pilots at most; in mode 'steer' nodes. ``memory_bytes`` None: a share of the node as large as its accelerators'.
    ``gres`` as in :class:`~ischeduler.core.jobs.Resources`; ``price_per_h`` of one accelerator.
    """

    type: str
    cluster: str
    partition: str
    node_type: str = ""
    gpus_per_node: int = 1
    cpus_per_node: int = 1
    memory_bytes: int | None = None
    gres: str | None = None
    features: tuple[str, ...] = ()
    walltime_s: float = 4 * 3600.0
    count: int = 1
    account: str | None = None
    qos: str | None = None
    price_per_h: float = 0.0


@dataclass(frozen=True, slots=True)
class RateFigure:
    """What one source says of a member's speed on a type: steps/s."""

    type: str
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a member is to run until its lease ends: the type, and with pilots the pilot, its node and on how many accelerators (0: its plan's)."""

    type: str
    pilot: str = ""
    node: str = ""
    since: float = 0.0
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class Member:
    """A run of the pool. Seconds are by type: ``share`` promised of all time, ``owed_s`` the account, ``promised_s`` and ``received_s`` totals.

    ``preemptible`` False: keeps its place once it runs (interactive, or not able to checkpoint). ``world_sizes``: the numbers of
    accelerators it may run on, () for the plan's own. ``service``: never ends by itself. ``figures`` are what its owner or an estimator said of its
    speed, ``observed`` what was seen of it by type, ``scaled`` by 'TYPE|N' on other numbers of accelerators than declared.
    ``due_s``: what it was due at the last round's start; ``ahead``: who was served before it then.
    ``note``: nodes on which it is slower than elsewhere, in words.
    ``nice`` and ``site_factor``: what its waiting job ``nice_of`` was given last (mode 'steer').
    """

    run_id: str
    weight: float = 1.0
    preemptible: bool = True
    world_sizes: tuple[int, ...] = ()
    service: bool = False
    entity: str = ""
    joined_at: float = 0.0
    figures: tuple[RateFigure, ...] = ()
    observed: Mapping[str, Estimate] = field(default_factory=dict[str, Estimate])
    scaled: Mapping[str, Estimate] = field(default_factory=dict[str, Estimate])
    share: Mapping[str, float] = field(default_factory=dict[str, float])
    owed_s: Mapping[str, float] = field(default_factory=dict[str, float])
    promised_s: Mapping[str, float] = field(default_factory=dict[str, float])
    received_s: Mapping[str, float] = field(default_factory=dict[str, float])
    due_s: Mapping[str, float] = field(default_factory=dict[str, float])
    ahead: tuple[str, ...] = ()
    seat: Seat | None = None
    starts: int = 0
    note: str = ""
    nice: int = 0
    nice_of: str = ""
    site_factor: int = 0


@dataclass(frozen=True, slots=True)
class Pilot:
    """A run that holds accelerators for the pool. ``idle_since``: since when nobody uses it, or waits for it; None while somebody does."""

    run_id: str
    type: str
    asked_at: float
    idle_since: float | None = None
    released: str = ""


@dataclass(frozen=True, slots=True)
class Pool:
    """Everything a pool knows, one row of the store. ``version`` grows with each save (compare and swap).

    ``idle_s``: the longest that the pool keeps accelerators nobody uses. ``round_s`` seconds a round; ``restart_s`` what a move costs a member.
    ``site_factor``: what a waiting job whose turn it is gets of Slurm's SiteFactor (mode 'steer', an operator's right; 0: nothing).
    ``accounted_to``: until when the accounts are kept. ``trouble`` is what stops the pool, in one sentence.
    """

    name: str
    owner: str
    policy: str
    places: tuple[PoolPlace, ...]
    directory: str
    created_at: float
    mode: str = "pilots"
    round_s: float = 360.0
    restart_s: float = 30.0
    idle_s: float = 600.0
    state: PoolState = PoolState.ACTIVE
    members: tuple[Member, ...] = ()
    pilots: tuple[Pilot, ...] = ()
    asked: int = 0
    round: int = 0
    round_since: float | None = None
    next_round_at: float | None = None
    accounted_to: float | None = None
    not_before: Mapping[str, float] = field(default_factory=dict[str, float])
    trouble: str = ""
    version: int = 0
    site_factor: int = 0

    @property
    def types(self) -> tuple[str, ...]:
        """Its types of accelerators in the order given."""
        return tuple(p.type for p in self.places)

    def place(self, type_: str) -> PoolPlace:
        """The place of one of its types."""
        return next(p for p in self.places if p.type == type_)

    def member(self, run_id: str) -> Member | None:
        """The member that is this run."""
        return next((m for m in self.members if m.run_id == run_id), None)
