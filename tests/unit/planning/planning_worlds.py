"""Random worlds for the planner: clusters, queues and needs that are internally consistent but otherwise arbitrary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hypothesis import strategies as st
from planning_scenes import A100, HOUR, NOW, OSC_RULE, V100, seconds

from ischeduler.core.cluster import Access, ChargePolicy, Cluster, NodeType, Partition
from ischeduler.core.estimate import Estimate
from ischeduler.core.plan import Needs
from ischeduler.core.sizes import GIB
from ischeduler.core.snapshot import NodeCounts, QueuedJob, QueueSnapshot
from ischeduler.core.workload import Workload
from ischeduler.planning.candidates import CandidateKey, candidates

NODES = (
    NodeType("cpu", cores=40, memory_bytes=192 * GIB, count=200),
    NodeType("v100", cores=48, memory_bytes=363 * GIB, accelerator=V100, accelerators_per_node=2, count=40),
    NodeType("a100", cores=128, memory_bytes=900 * GIB, accelerator=A100, accelerators_per_node=4, count=20),
)
CHARGES = (
    OSC_RULE,
    ChargePolicy("node-hours-used", "SU", usd_per_unit=0.1),
    ChargePolicy("reserved-share", "SU"),
    ChargePolicy(),
)
limits = st.none() | st.sampled_from([0.25, 0.5, 1, 2, 4, 24, 48, 168]).map(lambda h: h * HOUR)


@dataclass(frozen=True)
class World:
    """All that the planner is told."""

    workload: Workload
    clusters: tuple[Cluster, ...]
    snapshots: Mapping[str, QueueSnapshot]
    needs: Mapping[CandidateKey, Needs]


def intervals(low: float, high: float) -> st.SearchStrategy[Estimate]:
    """An estimate of a time between two bounds."""
    return st.lists(st.floats(low, high), min_size=3, max_size=3).map(lambda q: seconds(*sorted(q)))


def memories() -> st.SearchStrategy[Estimate]:
    """An estimate of memory around what cards have."""
    return st.floats(1, 40).map(lambda gib: Estimate.spread(gib * GIB, 0.1, "bytes", "memory@1"))


def rarely(strategy: st.SearchStrategy, usual: object, one_in: int = 8) -> st.SearchStrategy:
    """Mostly the usual value; random worlds in which nearly everything is closed prove little."""
    return st.integers(1, one_in).flatmap(lambda n: strategy if n == one_in else st.just(usual))


partitions = st.builds(
    Partition,
    name=st.sampled_from(["batch", "gpu", "debug", "long"]),
    node_types=st.lists(st.sampled_from(["cpu", "v100", "a100"]), min_size=1, max_size=2, unique=True).map(tuple),
    max_walltime_s=limits, max_nodes=rarely(st.integers(1, 4), None), min_nodes=rarely(st.just(2), 1),
    max_gpus_user=rarely(st.integers(0, 4), None), chaining_allowed=rarely(st.just(False), True), preemptible=st.booleans(),
    whole_node=st.booleans(), state=rarely(st.sampled_from(["DOWN", "DRAIN"]), "UP"), restricted=rarely(st.just(True), False),
    access=rarely(st.sampled_from([Access(True, "", NOW), Access(False, "Invalid account", NOW)]), None),
)  # fmt: skip

needs_of = st.builds(
    Needs, step_time=st.none() | intervals(0.01, 2), startup=st.none() | intervals(0, 120), checkpoint=st.none() | intervals(0, 60),
    run=st.integers(1, 10).flatmap(lambda n: st.none() if n == 10 else intervals(60, 10 * HOUR * n)),
    wait=st.integers(1, 10).flatmap(lambda n: st.none() if n == 10 else intervals(0, 5 * HOUR * n)),
    gpu_memory=st.none() | memories(), host_memory=st.none() | memories(),
)  # fmt: skip


@st.composite
def snapshots(draw: st.DrawFn, cluster: Cluster) -> QueueSnapshot:
    """A queue of that cluster, with a few jobs."""
    nodes = tuple(
        NodeCounts(p.name, t, idle=draw(st.integers(0, 3)), allocated=draw(st.integers(0, 9)), down=draw(st.integers(0, 2)), idle_gpus=draw(st.integers(0, 4)))
        for p in cluster.partitions for t in p.node_types
    )
    starts = st.none() | st.floats(NOW, NOW + 10 * HOUR)
    jobs = tuple(
        QueuedJob(str(i), p.name, draw(st.sampled_from(["PENDING", "RUNNING"])), start_s=draw(starts), mine=draw(st.booleans()))
        for i, p in enumerate(cluster.partitions)
    )
    return QueueSnapshot(cluster.name, NOW - draw(st.floats(0, 3600)), nodes, jobs)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Up to three clusters with up to four partitions each."""
    clusters = tuple(
        Cluster(
            name, centre=name.upper(), charge=draw(st.sampled_from(CHARGES)), node_types=NODES, accounts=("lab",),
            partitions=tuple(draw(st.lists(partitions, min_size=2, max_size=4, unique_by=lambda p: p.name))),
        )
        for name in draw(st.sampled_from([("ant",), ("ant", "bee"), ("ant", "bee", "cat")]))
    )
    workload = Workload(
        samples=10_000, epochs=10, batch_size=draw(st.sampled_from([32, (32, 64)])), gpus=draw(rarely(st.sampled_from([0, 1, 2]), None, 4)),
        checkpoints=draw(rarely(st.just(False), True)),
    )
    queues = {c.name: draw(snapshots(c)) for c in clusters if draw(st.booleans())}
    needs = {c.key: draw(needs_of) for c in candidates(workload, clusters) if draw(rarely(st.just(False), True))}
    return World(workload, clusters, queues, needs)
