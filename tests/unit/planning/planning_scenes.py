"""Clusters, snapshots and needs for the planner's tests. The Pitzer-like figures are those of the paper's example."""

from __future__ import annotations

from collections.abc import Mapping

from ischeduler.core.cluster import Accelerator, ChargePolicy, Cluster, NodeType, Partition
from ischeduler.core.estimate import Estimate
from ischeduler.core.memory_model import MemoryModel
from ischeduler.core.plan import Needs, Plan, PlanSet
from ischeduler.core.sizes import GIB
from ischeduler.core.snapshot import NodeCounts, QueuedJob, QueueSnapshot
from ischeduler.core.workload import Workload
from ischeduler.planning.candidates import CandidateKey

NOW = 1_800_000_000.0
HOUR = 3600.0
V100 = Accelerator("v100-32g", 32 * GIB, gres="v100")
A100 = Accelerator("a100-80g", 80 * GIB, gres="a100")
CPU_NODE = NodeType("cpu", cores=40, memory_bytes=192 * GIB, count=224)
GPU_NODE = NodeType("v100x2", cores=48, memory_bytes=363 * GIB, accelerator=V100, accelerators_per_node=2, count=74)
OSC_RULE = ChargePolicy("core-gpu-hours", "RU", usd_per_unit=0.003, params={"gpu_weight": 30.0})
RESNET = Workload(model="timm:resnet50", samples=20_000, epochs=50, batch_size=32, cpus=28)


def seconds(p10: float, p50: float, p90: float, source: str = "paper@1") -> Estimate:
    """An estimate of a time."""
    return Estimate(p10, p50, p90, "s", source, basis="given")


def memory(gib: float) -> Estimate:
    """An exact amount of memory."""
    return Estimate.exact(gib * GIB, "bytes", "paper@1")


def pitzer() -> Cluster:
    """CPU, GPU and GPU-debug partitions, charged by core- and GPU-hours."""
    return Cluster(
        "pitzer", centre="OSC", charge=OSC_RULE, accounts=("PAS0001",), default_account="PAS0001",
        node_types=(CPU_NODE, GPU_NODE),
        partitions=(
            Partition("cpu", ("cpu",), max_walltime_s=168 * HOUR, max_nodes=36),
            Partition("gpu", ("v100x2",), max_walltime_s=168 * HOUR, max_nodes=36),
            Partition("gpudebug", ("v100x2",), max_walltime_s=1 * HOUR, max_nodes=2, debug=True),
        ),
    )


def idle_cpus() -> QueueSnapshot:
    """30 idle CPU nodes, no idle GPU."""
    return QueueSnapshot(
        "pitzer", NOW - 5,
        nodes=(
            NodeCounts("cpu", "cpu", idle=30, allocated=194),
            NodeCounts("gpu", "v100x2", allocated=74, total_gpus=148),
            NodeCounts("gpudebug", "v100x2", allocated=3, drained=1, total_gpus=8),
        ),
        jobs=(QueuedJob("1", "gpu", "PENDING"),),
    )


def paper_needs(batch: int = 32) -> dict[CandidateKey, Needs]:
    """The paper's own times: 9 h on 28 cores, 2 h on a GPU after 26 h in the queue."""
    cpu = Needs(run=seconds(9 * HOUR, 9 * HOUR, 9 * HOUR + 4200), wait=seconds(0, 0, 600), host_memory=memory(21))
    gpu = Needs(
        run=seconds(2 * HOUR, 2 * HOUR, 2.5 * HOUR), wait=seconds(24 * HOUR, 26 * HOUR, 31 * HOUR),
        gpu_memory=memory(24), host_memory=memory(16), startup=seconds(30, 60, 90), checkpoint=seconds(1, 2, 4),
    )
    debug = Needs(
        run=gpu.run, wait=seconds(1 * HOUR, 2.5 * HOUR, 4 * HOUR), gpu_memory=memory(24), host_memory=memory(16),
        startup=gpu.startup, checkpoint=gpu.checkpoint,
    )
    return {
        CandidateKey("pitzer", "cpu", "cpu", batch): cpu,
        CandidateKey("pitzer", "gpu", "v100x2", batch): gpu,
        CandidateKey("pitzer", "gpudebug", "v100x2", batch): debug,
    }


BATCH_64_MODEL = MemoryModel(4.0 * GIB, 37 / 64 * GIB)
"""41 GiB at batch 64, 31.75 GiB at batch 48."""


def with_need(needs: Mapping[CandidateKey, Needs], key: CandidateKey, changed: Needs) -> dict[CandidateKey, Needs]:
    """The same needs with one replaced."""
    return {**needs, key: changed}


def by_tag(plans: PlanSet, tag: str) -> Plan:
    """The plan that carries a tag."""
    return next(p for p in plans.plans if tag in p.tags)


def at(plans: PlanSet, where: str) -> Plan:
    """The first plan at a place."""
    return next(p for p in plans.plans if p.where == where)
