"""Every place a workload might run, sized for it, before anything is known of memory or time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ischeduler.core.cluster import Cluster, NodeType, Partition
from ischeduler.core.jobs import Resources
from ischeduler.core.workload import Workload

NO_NODES = "(no node type)"
DEFAULT_WALLTIME_S = 3600.0


class CandidateKey(NamedTuple):
    """What tells one candidate from another; estimates are handed to the planner under it."""

    cluster: str
    partition: str
    node_type: str
    batch_size: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """One batch size at one (cluster, partition, node type), with what one job would ask for there.

    ``resources.walltime_s`` is the partition's limit where it is finite and known: the most one job may take. ``account_given``
    says that the user named the account, so that no other may be taken. ``swept`` are all batch sizes asked about. ``key`` is
    what its :class:`~ischeduler.core.plan.Needs` are looked up under.
    """

    cluster: Cluster
    partition: Partition
    node_type: NodeType
    workload: Workload
    resources: Resources
    account: str | None = None
    qos: str | None = None
    account_given: bool = False
    swept: tuple[int, ...] = ()
    key: CandidateKey = field(init=False)

    def __post_init__(self) -> None:
        key = CandidateKey(self.cluster.name, self.partition.name, self.node_type.name, self.workload.batch)
        object.__setattr__(self, "key", key)

    @property
    def where(self) -> str:
        """``pitzer/gpu``."""
        return f"{self.cluster.name}/{self.partition.name}"

    @property
    def node_memory_bytes(self) -> int | None:
        """The most one job may have of a node's memory there; None where unknown."""
        known = [m for m in (self.node_type.memory_bytes, self.partition.max_memory_bytes) if m is not None]
        return min(known) if known else None

    @property
    def gpus(self) -> int:
        """GPUs over all nodes."""
        return self.resources.nodes * self.resources.gpus_per_node

    @property
    def card_memory_bytes(self) -> int | None:
        """One card's memory; None where the card or its memory is unknown (the CI database says 0 then)."""
        return (self.node_type.accelerator.memory_bytes or None) if self.node_type.accelerator else None


def candidates(
    workload: Workload, clusters: Iterable[Cluster], *,
    accounts: Mapping[str, str] | None = None, qos: Mapping[str, str] | None = None,
) -> tuple[Candidate, ...]:
    """Every (cluster, partition, node type, batch size), in a fixed order whatever the order of the input.

    ``accounts`` and ``qos`` name, by cluster, what the user asked for.
    """
    variants = workload.variants()
    found = (
        candidate
        for cluster in clusters
        for partition in cluster.partitions
        for node in _node_types(cluster, partition)
        for candidate in _at(cluster, partition, node, variants, accounts or {}, qos or {})
    )
    return tuple(sorted(found, key=lambda c: c.key))


def _node_types(cluster: Cluster, partition: Partition) -> Iterator[NodeType]:
    known = {n.name: n for n in cluster.node_types}
    for name in partition.node_types or (NO_NODES,):
        yield known.get(name, NodeType(name))


def _at(
    cluster: Cluster, partition: Partition, node: NodeType, variants: tuple[Workload, ...],
    accounts: Mapping[str, str], qos: Mapping[str, str],
) -> Iterator[Candidate]:
    account, swept = accounts.get(cluster.name), tuple(v.batch for v in variants)
    for workload in variants:
        yield Candidate(
            cluster, partition, node, workload, sized(workload, cluster, partition, node),
            account=account or _account(cluster, partition), qos=qos.get(cluster.name) or _qos(partition),
            account_given=account is not None, swept=swept,
        )


def sized(workload: Workload, cluster: Cluster, partition: Partition, node: NodeType) -> Resources:
    """What one job asks for: GPUs as asked (one by default), a fair share of cores, at least the partition's nodes."""
    nodes = max(workload.nodes, partition.min_nodes)
    whole = partition.whole_node or partition.min_nodes > 1
    gpus = 0 if not node.accelerators_per_node else (1 if workload.gpus is None else workload.gpus)
    limit_s = partition.max_walltime_s
    return Resources(
        nodes=nodes, cpus_per_node=_cpus(workload, partition, node, gpus, whole), memory_bytes=workload.memory_bytes,
        gpus_per_node=gpus, gres=node.accelerator.gres if gpus and node.accelerator else None,
        walltime_s=limit_s if limit_s is not None and limit_s < float("inf") else DEFAULT_WALLTIME_S,
        features=_telling_features(cluster, partition, node), whole_node=whole,
    )


def allowed_cores(partition: Partition, node: NodeType) -> int | None:
    """Cores one job may have of a node; None where neither the node's nor the partition's figure is known."""
    known = [c for c in (node.cores, partition.max_cores_per_node) if c is not None]
    return min(known) if known else None


def _cpus(workload: Workload, partition: Partition, node: NodeType, gpus: int, whole: bool) -> int:
    cores = allowed_cores(partition, node)
    if whole and cores:
        return cores
    if workload.cpus is not None:
        return workload.cpus
    if not cores:
        return max(1, (workload.workers + 1) * max(1, gpus))
    if gpus:
        return max(1, min(cores, cores * gpus // node.accelerators_per_node))
    return cores


def _telling_features(cluster: Cluster, partition: Partition, node: NodeType) -> tuple[str, ...]:
    """A feature that only this node type has, where the request could otherwise land on another type of the partition."""
    same = [n for n in _node_types(cluster, partition) if n.name != node.name and _gres(n) == _gres(node)]
    taken = {f for other in same for f in other.features}
    return tuple(f for f in node.features if f not in taken)[:1] if same else ()


def _gres(node: NodeType) -> str | None:
    if not node.accelerators_per_node:
        return None
    return (node.accelerator.gres if node.accelerator else None) or "gpu"


def open_to(partition: Partition, account: str) -> bool:
    """Whether the partition's list of accounts, where it has one, names this account."""
    return not partition.allow_accounts or account in partition.allow_accounts or "ALL" in partition.allow_accounts


def _account(cluster: Cluster, partition: Partition) -> str | None:
    own = [a for a in (cluster.default_account, *sorted(cluster.accounts)) if a]
    return next((a for a in own if open_to(partition, a)), own[0] if own else None)


def _qos(partition: Partition) -> str | None:
    """The only QOS that a partition takes; None (the user's default) where there is a choice or the default was accepted."""
    proven = partition.access is not None and partition.access.allowed
    return partition.allow_qos[0] if len(partition.allow_qos) == 1 and partition.allow_qos[0] != "ALL" and not proven else None
