"""Specs to start from: the demo's, and one shaped after a CI-database entry. Pure functions."""

from __future__ import annotations

import re

from ischeduler.core.cluster import Cluster, NodeType, Partition
from ischeduler.core.errors import BadInput
from ischeduler.sandbox.spec import SandboxAccount, SandboxNode, SandboxPartition, SandboxQos, SandboxSpec, validate

MAX_NODES_PER_TYPE = 3
UNKNOWN_CORES, UNKNOWN_MEMORY_BYTES, UNKNOWN_WALLTIME_S = 4, 4 * 2**30, 24 * 3600.0


def demo_spec(
    *, cluster_name: str = "demo", debug_min: int = 1, gpu_min: int = 2, cpu_min: int = 10, accounting: bool = True
) -> SandboxSpec:
    """A small cluster for the demo: ``gpudebug`` (1 node), ``gpu`` (2 nodes) and ``cpu`` (2 nodes), limits in minutes."""
    gpu = tuple(SandboxNode(f"g{i:02d}", cpus=8, memory_mb=16000, gres="gpu:v100:2", features=("v100",)) for i in (1, 2))
    debug = SandboxNode("d01", cpus=8, memory_mb=16000, gres="gpu:v100:2", features=("v100",))
    cpu = tuple(SandboxNode(f"c{i:02d}", cpus=16, memory_mb=32000, features=("cpu",)) for i in (1, 2))
    return SandboxSpec(
        cluster_name=cluster_name,
        nodes=(debug, *gpu, *cpu),
        partitions=(
            SandboxPartition("gpudebug", (debug.name,), max_time_min=debug_min, max_nodes=1),
            SandboxPartition("gpu", tuple(n.name for n in gpu), max_time_min=gpu_min),
            SandboxPartition("cpu", tuple(n.name for n in cpu), max_time_min=cpu_min, default=True),
        ),
        accounting=accounting,
    )


def spec_from_cluster(cluster: Cluster, *, minutes_per_hour: float = 1.0) -> SandboxSpec:
    """A sandbox that looks like ``cluster`` from a job's side, made small and quick.

    Each node type becomes 1 to 3 nodes (a type with n nodes gets min(n, 3)), GPUs keep type and count per node, and an
    hour of walltime becomes ``minutes_per_hour`` minutes (at least one whole minute). What the entry leaves unknown is
    filled with 4 cores, 4 GiB and 24 hours: a sandbox must have some value, and claims nothing about the real machine.
    Node types with the same name in several partitions share their nodes, as on the real machine.
    """
    used = tuple(t for t in cluster.node_types if any(t.name in p.node_types for p in cluster.partitions))
    if not used:
        raise BadInput(f"cluster '{cluster.name}' has no partition with known node types; sync or edit it first.")
    nodes = {t.name: _nodes(t, index) for index, t in enumerate(used)}
    partitions = [p for p in cluster.partitions if any(t in nodes for t in p.node_types)]
    default = next((p.name for p in partitions if not (p.debug or p.restricted)), partitions[0].name)
    return validate(
        SandboxSpec(
            cluster_name=_clean(cluster.name),
            nodes=tuple(n for group in nodes.values() for n in group),
            partitions=tuple(_partition(p, nodes, minutes_per_hour, p.name == default) for p in partitions),
            accounts=_accounts(cluster),
            qos=_qos(cluster),
            preempt=any(p.preemptible for p in partitions),
        )
    )


def _nodes(node_type: NodeType, index: int) -> tuple[SandboxNode, ...]:
    count = min(max(node_type.count or 1, 1), MAX_NODES_PER_TYPE)
    memory_bytes = node_type.memory_bytes or UNKNOWN_MEMORY_BYTES
    gpu, gres = node_type.accelerator, ""
    if gpu is not None and node_type.accelerators_per_node > 0:
        gres = f"gpu:{_clean(gpu.gres or gpu.name)}:{node_type.accelerators_per_node}"
    prefix = re.sub(r"[^a-z0-9]", "", node_type.name.lower())[:10] or "n"
    features = tuple(dict.fromkeys(_clean(f) for f in (*node_type.features, node_type.name)))
    return tuple(
        SandboxNode(f"{prefix}-{index}{i:02d}", node_type.cores or UNKNOWN_CORES, memory_bytes // 2**20, gres, features)
        for i in range(1, count + 1)
    )


def _partition(
    partition: Partition, nodes: dict[str, tuple[SandboxNode, ...]], minutes_per_hour: float, default: bool
) -> SandboxPartition:
    names = tuple(n.name for t in partition.node_types for n in nodes.get(t, ()))
    walltime_s = partition.max_walltime_s or UNKNOWN_WALLTIME_S
    default_s = partition.default_walltime_s
    max_min = _scaled_minutes(walltime_s, minutes_per_hour)
    return SandboxPartition(
        name=_clean(partition.name),
        nodes=names,
        max_time_min=max_min,
        default_time_min=None if default_s is None else min(_scaled_minutes(default_s, minutes_per_hour), max_min),
        default=default,
        max_nodes=None if partition.max_nodes is None else min(partition.max_nodes, len(names)),
        allow_accounts=tuple(_clean(a) for a in partition.allow_accounts),
        qos=_qos_name(partition) if _limited(partition) else "",
        preempt_mode="REQUEUE" if partition.preemptible else "",
        priority_tier=1 if partition.preemptible else 2,
        exclusive=partition.whole_node,
    )


def _scaled_minutes(walltime_s: float, minutes_per_hour: float) -> int:
    """Whole minutes, at least one: Slurm counts walltime limits in minutes."""
    if minutes_per_hour <= 0:
        raise BadInput(f"minutes_per_hour is {minutes_per_hour}; expected a number above 0.")
    return max(1, round(min(walltime_s / 3600 * minutes_per_hour, 365 * 24 * 60.0)))


def _accounts(cluster: Cluster) -> tuple[SandboxAccount, ...]:
    """The user's accounts, open to all; accounts a partition demands but the user lacks exist with carol as member."""
    own = tuple(dict.fromkeys(_clean(a) for a in cluster.accounts)) or ("research",)
    asked = dict.fromkeys(_clean(a) for p in cluster.partitions for a in p.allow_accounts)
    return tuple(SandboxAccount(a) for a in own) + tuple(SandboxAccount(a, ("carol",)) for a in asked if a not in own)


def _limited(partition: Partition) -> bool:
    return partition.max_jobs_user is not None or partition.max_submit_user is not None


def _qos_name(partition: Partition) -> str:
    return f"part-{_clean(partition.name)}"


def _qos(cluster: Cluster) -> tuple[SandboxQos, ...]:
    """A partition QOS carries each partition's per-user limits, as sites do it."""
    return tuple(
        SandboxQos(_qos_name(p), max_jobs_per_user=p.max_jobs_user, max_submit_per_user=p.max_submit_user)
        for p in cluster.partitions
        if _limited(p)
    )


def _clean(name: str) -> str:
    """A name Slurm takes, as near to ``name`` as can be."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", name).strip("-._") or "x"
