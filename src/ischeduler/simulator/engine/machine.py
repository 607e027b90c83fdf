"""The simulated cluster as data: nodes, partitions over shared nodes, qualities of service, accounts.

Nodes are numbered in their order; a set of nodes is an ``int`` whose bit ``i`` stands for node ``i``, so that a set operation on
thousands of nodes costs a microsecond. Sources: slurm.conf(5), sacctmgr(1) of Slurm 22.05 for what each word means.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ischeduler.core.cluster import Cluster
from ischeduler.core.errors import BadInput

INFINITE_S = float("inf")
PREEMPT_MODES = ("", "OFF", "CANCEL", "REQUEUE")


@dataclass(frozen=True, slots=True)
class SimNode:
    """One node. ``memory_mb`` 0 means that memory is not counted. ``gpus`` maps a type to how many; lower ``weight`` is taken first."""

    name: str
    cores: int = 1
    memory_mb: int = 0
    gpus: Mapping[str, int] = field(default_factory=dict[str, int])
    features: tuple[str, ...] = ()
    weight: int = 1


@dataclass(frozen=True, slots=True)
class SimPartition:
    """A queue over nodes, which it may share with others. ``preempt_mode`` is '', OFF, CANCEL or REQUEUE."""

    name: str
    nodes: tuple[str, ...]
    max_time_s: float = INFINITE_S
    default_time_s: float | None = None
    max_nodes: int | None = None
    priority_tier: int = 1
    priority_factor: int = 1
    preempt_mode: str = ""
    exclusive: bool = False
    allow_accounts: tuple[str, ...] = ()
    allow_qos: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SimQos:
    """A quality of service: whose jobs it may push out (``preempt``), and limits of one user."""

    name: str
    priority: int = 0
    preempt: tuple[str, ...] = ()
    preempt_mode: str = ""
    max_wall_s: float | None = None
    max_jobs_per_user: int | None = None
    max_submit_per_user: int | None = None


@dataclass(frozen=True, slots=True)
class Account:
    """A branch of the fair-share tree: ``parent`` '' is the root; ``users`` maps its members to their shares."""

    name: str
    parent: str = ""
    shares: int = 1
    users: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class Machine:
    """A whole cluster. BadInput when a name is given twice or unknown. ``accounts`` empty: every user is a branch of its own."""

    name: str
    nodes: tuple[SimNode, ...]
    partitions: tuple[SimPartition, ...]
    qos: tuple[SimQos, ...] = ()
    accounts: tuple[Account, ...] = ()

    def __post_init__(self) -> None:
        if not self.nodes or not self.partitions:
            raise BadInput(f"the simulated cluster '{self.name}' needs at least one node and one partition.")
        known = _unique(self.name, "node", (n.name for n in self.nodes))
        _unique(self.name, "partition", (p.name for p in self.partitions))
        for partition in self.partitions:
            unknown = sorted(set(partition.nodes) - known)
            if unknown:
                raise BadInput(f"partition '{partition.name}' names the unknown node '{unknown[0]}'.")
            if partition.preempt_mode not in PREEMPT_MODES:
                raise BadInput(f"partition '{partition.name}' has preempt_mode '{partition.preempt_mode}', expected OFF, CANCEL or REQUEUE.")

    @property
    def cores(self) -> int:
        """All cores."""
        return sum(n.cores for n in self.nodes)


def whole_nodes(count: int, *, name: str = "cluster", partition: str = "main", max_time_s: float = INFINITE_S) -> Machine:
    """``count`` equal nodes of one unit each in one partition: what traces with a column of units need."""
    if count < 1:
        raise BadInput(f"a simulated cluster needs at least one node, {count} were asked for.")
    nodes = tuple(SimNode(f"n{i:05d}") for i in range(count))
    return Machine(name, nodes, (SimPartition(partition, tuple(n.name for n in nodes), max_time_s),))


def machine_of(cluster: Cluster, *, default_nodes: int = 1, default_cores: int = 1) -> Machine:
    """A known cluster, node for node. Unknown counts and sizes are filled with the given defaults; node types are shared by name."""
    names: dict[str, tuple[str, ...]] = {}
    nodes: list[SimNode] = []
    for kind in cluster.node_types:
        gpu = kind.accelerator
        gpus = {gpu.gres or gpu.name: kind.accelerators_per_node} if gpu and kind.accelerators_per_node else {}
        made = [
            SimNode(f"{kind.name}-{i:04d}", kind.cores or default_cores, (kind.memory_bytes or 0) // 2**20, gpus, (*kind.features, kind.name))
            for i in range(kind.count or default_nodes)
        ]
        names[kind.name] = tuple(n.name for n in made)
        nodes += made
    partitions = tuple(
        SimPartition(
            p.name, tuple(n for t in p.node_types for n in names.get(t, ())), p.max_walltime_s or INFINITE_S, p.default_walltime_s,
            p.max_nodes, exclusive=p.whole_node, allow_accounts=p.allow_accounts, allow_qos=p.allow_qos,
        )
        for p in cluster.partitions
        if any(t in names for t in p.node_types)
    )  # fmt: skip
    return Machine(cluster.name, tuple(nodes), partitions)


def _unique(machine: str, kind: str, names: Iterable[str]) -> set[str]:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise BadInput(f"the simulated cluster '{machine}' has the {kind} '{name}' twice.")
        seen.add(name)
    return seen
