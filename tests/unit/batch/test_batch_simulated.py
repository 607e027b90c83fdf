"""The simulated cluster as a batch system: what the port shows beyond its contract."""

from __future__ import annotations

from ischeduler.batch.simulated import Fixed, SimulatedBatch
from ischeduler.core.cluster import Accelerator, Cluster, NodeType, Partition
from ischeduler.core.jobs import JobRef, JobSpec, JobState, Resources
from ischeduler.simulator.engine.jobs import JobRequest
from ischeduler.simulator.engine.machine import machine_of
from ischeduler.simulator.engine.options import SchedulerOptions
from ischeduler.testing.sim_clock import SimClock

CLUSTER = Cluster(
    "demo",
    partitions=(Partition("gpu", ("v100x2",), 3600.0), Partition("all", ("v100x2", "plain"), 7200.0, whole_node=True)),
    node_types=(
        NodeType("v100x2", 16, 64 * 2**30, Accelerator("v100-32g", 32 * 2**30, gres="v100"), 2, 2),
        NodeType("plain", 32, 128 * 2**30, count=3),
    ),
)  # fmt: skip


def spec(key: str, partition: str = "gpu", **resources: object) -> JobSpec:
    return JobSpec(key, "test", partition, Resources(**{"walltime_s": 600.0, **resources}), ("true",), "/d", f"/d/{key}")  # type: ignore[arg-type]


def cluster() -> tuple[SimClock, SimulatedBatch]:
    clock = SimClock(1_000_000.0)
    options = SchedulerOptions(estimates=True, bf_interval_s=10, bf_resolution_s=1)
    return clock, SimulatedBatch(machine_of(CLUSTER), clock, options, programs=lambda s: Fixed(400.0))


def test_a_known_cluster_is_built_node_for_node() -> None:
    machine = machine_of(CLUSTER)
    assert [n.name for n in machine.nodes] == ["v100x2-0000", "v100x2-0001", "plain-0000", "plain-0001", "plain-0002"]
    assert [(p.name, len(p.nodes), p.max_time_s, p.exclusive) for p in machine.partitions] == [("gpu", 2, 3600.0, False), ("all", 5, 7200.0, True)]
    assert machine.nodes[0].gpus == {"v100": 2}


def test_a_snapshot_counts_nodes_by_state_and_gpus_by_allocation() -> None:
    _, batch = cluster()
    batch.submit(spec("a", gpus_per_node=1, gres="v100", cpus_per_node=4))
    batch.sim.node_down("plain-0000")
    batch.sim.drain("plain-0001")
    seen = batch.snapshot()
    (gpu,) = seen.counts("gpu")
    assert (gpu.idle, gpu.mixed, gpu.idle_gpus, gpu.total_gpus) == (1, 1, 3, 4)
    plain = next(c for c in seen.counts("all") if c.total_gpus == 0)
    assert (plain.idle, plain.down, plain.drained, plain.usable) == (1, 1, 1, 1)
    batch.submit(spec("b", "all", nodes=1, gpus_per_node=2))
    assert sum(c.idle_gpus for c in batch.snapshot().counts("all")) == 1


def test_other_peoples_jobs_are_in_the_queue_and_not_mine() -> None:
    clock, batch = cluster()
    batch.background(JobRequest(f"x{i}", clock.now() + i, 3600, 1000, 1, 16, gpus=2, partition="gpu", user="u") for i in range(3))
    clock.advance(5)
    batch.submit(spec("mine", cpus_per_node=16))
    clock.advance(20)
    jobs = {j.job_id: j for j in batch.snapshot().jobs}
    assert [j.state for j in jobs.values()] == ["RUNNING", "RUNNING", "PENDING", "PENDING"]
    assert [j.job_id for j in jobs.values() if j.mine] == ["1"]
    (status,) = batch.observe([JobRef("mine")]).jobs["mine"]
    assert status.reason in ("Resources", "Priority")
    assert status.expected_start_s is not None
    assert status.expected_start_s >= clock.now()


def test_a_probe_knows_the_running_jobs_limits() -> None:
    clock, batch = cluster()
    now = clock.now()
    assert batch.probe(spec("a", nodes=2)).start_s == now
    batch.background([JobRequest("x", now, 3000, 100, 2, 16, partition="gpu")])
    clock.advance(1)
    answer = batch.probe(spec("a"))
    assert answer.accepted
    assert answer.start_s == now + 3000
    refused = batch.probe(spec("a", walltime_s=9999.0))
    assert not refused.accepted
    assert "limit of gpu" in refused.reason
    assert len(batch.sim.jobs) == 1


def test_excluded_nodes_and_memory_are_respected() -> None:
    clock, batch = cluster()
    job = spec("a", memory_bytes=60 * 2**30)
    batch.submit(job)
    (first,) = batch.observe([JobRef("a")]).jobs["a"]
    batch.submit(spec("b", memory_bytes=10 * 2**30))
    (second,) = batch.observe([JobRef("b")]).jobs["b"]
    assert first.nodes != second.nodes
    clock.advance(1000)
    (ended,) = batch.observe([JobRef("a")]).jobs["a"]
    assert (ended.state, ended.nodes) == (JobState.COMPLETED, first.nodes)
