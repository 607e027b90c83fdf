"""What the CI database knows about machines, limits and prices. Unknown is None, never a guess."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a fact comes from: ``source`` (document or command), ``as_of`` (epoch seconds), ``confidence`` in words."""

    source: str
    as_of: float
    confidence: str = "official"


@dataclass(frozen=True, slots=True)
class Accelerator:
    """A device type: ``name`` is our key (``v100-32g``), ``gres`` Slurm's type (``v100``, None when untyped).

    Peaks are datasheet figures in FLOP/s (dense, on matrix units where the type has them) and bytes/s; None where unknown
    or not supported. ``memory_bytes`` 0 means unknown.
    """

    name: str
    memory_bytes: int
    vendor: str = "nvidia"
    gres: str | None = None
    fp32_flops: float | None = None
    bf16_flops: float | None = None
    bandwidth_bytes_s: float | None = None
    fp16_flops: float | None = None
    tf32_flops: float | None = None


@dataclass(frozen=True, slots=True)
class NodeType:
    """One hardware type. ``memory_bytes`` is what jobs may use; ``count`` is the number of such nodes."""

    name: str
    cores: int | None = None
    memory_bytes: int | None = None
    accelerator: Accelerator | None = None
    accelerators_per_node: int = 0
    count: int | None = None
    cpu_model: str | None = None
    features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Access:
    """Whether this user may use a partition, as the batch system itself answered at ``as_of``."""

    allowed: bool
    reason: str
    as_of: float


@dataclass(frozen=True, slots=True)
class Partition:
    """A queue and its limits. None means unknown (then it does not block) except where infinity is said."""

    name: str
    node_types: tuple[str, ...]
    max_walltime_s: float | None = None
    default_walltime_s: float | None = None
    min_nodes: int = 1
    max_nodes: int | None = None
    max_cores_per_node: int | None = None
    max_memory_bytes: int | None = None
    max_jobs_user: int | None = None
    max_submit_user: int | None = None
    max_gpus_user: int | None = None
    charge_factor: float = 1.0
    chaining_allowed: bool = True
    preemptible: bool = False
    debug: bool = False
    restricted: bool = False
    whole_node: bool = False
    state: str = "UP"
    allow_accounts: tuple[str, ...] = ()
    allow_qos: tuple[str, ...] = ()
    access: Access | None = None
    note: str = ""


_Named = TypeVar("_Named", Partition, NodeType)


@dataclass(frozen=True, slots=True)
class ChargePolicy:
    """How a centre charges. ``rule`` names a charging rule of :mod:`ischeduler.core.charging`; ``params`` are its numbers.

    ``unit`` is the centre's own unit (RU, SU); ``usd_per_unit`` is None where no price is published.
    """

    rule: str = "free"
    unit: str = "node-hour"
    usd_per_unit: float | None = None
    params: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True)
class Cluster:
    """A system as its user sees it. ``provenance`` maps a fact's path (``partitions.gpu.max_walltime_s``) to its origin."""

    name: str
    centre: str = ""
    batch: str = "slurm"
    version: str | None = None
    partitions: tuple[Partition, ...] = ()
    node_types: tuple[NodeType, ...] = ()
    charge: ChargePolicy = ChargePolicy()
    accounts: tuple[str, ...] = ()
    default_account: str | None = None
    user_max_submit: int | None = None
    provenance: Mapping[str, Provenance] = field(default_factory=dict[str, Provenance])
    as_of: float | None = None

    def partition(self, name: str) -> Partition:
        """The partition of that name; KeyError when there is none."""
        return next_named(self.partitions, name)

    def node_type(self, name: str) -> NodeType:
        """The node type of that name; KeyError when there is none."""
        return next_named(self.node_types, name)


def next_named(items: tuple[_Named, ...], name: str) -> _Named:
    """The item of that name; KeyError when there is none."""
    for item in items:
        if item.name == name:
            return item
    raise KeyError(name)
