"""A plan for every partition of ten clusters is a matter of a fraction of a second."""

from __future__ import annotations

import time
from dataclasses import replace

from planning_scenes import CPU_NODE, GPU_NODE, HOUR, NOW, OSC_RULE, RESNET, memory, seconds

from ischeduler.core.cluster import Cluster, Partition
from ischeduler.core.plan import Needs
from ischeduler.core.snapshot import NodeCounts, QueuedJob, QueueSnapshot
from ischeduler.planning.candidates import candidates
from ischeduler.planning.planner import plan


def test_ten_clusters_of_25_partitions_and_two_batch_sizes_take_less_than_a_fifth_of_a_second() -> None:
    workload = replace(RESNET, batch_size=(32, 64))
    clusters = [
        Cluster(f"c{i}", charge=OSC_RULE, node_types=(CPU_NODE, GPU_NODE), partitions=tuple(
            Partition(f"p{j}", ("v100x2" if j % 2 else "cpu",), max_walltime_s=(j % 5 + 1) * HOUR, restricted=j % 7 == 0) for j in range(25)
        )) for i in range(10)
    ]  # fmt: skip
    snapshots = {
        c.name: QueueSnapshot(
            c.name, NOW, tuple(NodeCounts(p.name, p.node_types[0], allocated=9) for p in c.partitions),
            tuple(QueuedJob(str(k), f"p{k % 25}", "PENDING", start_s=NOW + k) for k in range(2000)),
        ) for c in clusters
    }  # fmt: skip
    needs = {
        c.key: Needs(
            run=seconds(2 * HOUR, (2 + i % 9) * HOUR, 12 * HOUR), wait=seconds(60, 600 + 60 * (i % 50), 9000),
            startup=seconds(10, 30, 120), gpu_memory=memory(20 + i % 20), host_memory=memory(8),
        ) for i, c in enumerate(candidates(workload, clusters))
    }  # fmt: skip
    assert len(needs) == 500
    taken_s: list[float] = []
    for _ in range(3):
        started = time.process_time()
        found = plan(workload, clusters, snapshots, needs, NOW)
        taken_s.append(time.process_time() - started)
    assert len(found.plans) > 200
    assert len(found.refusals) > 50
    assert min(taken_s) < 0.2, taken_s
