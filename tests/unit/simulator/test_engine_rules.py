"""What must hold on any machine, whatever the jobs: nothing over-allocated, nobody early, limits enforced; and the kernel's starts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ischeduler.core.jobs import JobState
from ischeduler.simulator import reference
from ischeduler.simulator.engine.cluster_sim import ClusterSim
from ischeduler.simulator.engine.jobs import Dependency, Job, JobRequest
from ischeduler.simulator.engine.machine import Machine, SimNode, SimPartition, SimQos
from ischeduler.simulator.engine.nodes import members
from ischeduler.simulator.engine.options import PriorityOptions, SchedulerOptions
from ischeduler.simulator.engine.trace import replay, run_trace

NODES = (
    SimNode("a1", 8, 1000, {"v100": 2}, ("v100",)),
    SimNode("a2", 8, 1000, {"v100": 2, "a100": 1}),
    SimNode("a3", 4, 500, weight=2),
    SimNode("a4", 4, 500),
    SimNode("a5", 4),
)
MACHINE = Machine(
    "mixed", NODES,
    (
        SimPartition("gpu", ("a1", "a2"), 600.0, priority_tier=2),
        SimPartition("all", tuple(n.name for n in NODES), 900.0, preempt_mode="REQUEUE"),
        SimPartition("whole", ("a3", "a4", "a5"), exclusive=True, preempt_mode="CANCEL"),
    ),
    (SimQos("low", 1, preempt_mode="REQUEUE"), SimQos("high", 10, ("low",), max_jobs_per_user=2)),
)  # fmt: skip
QUICK = SchedulerOptions(
    priority=PriorityOptions(age=1000, fair_share=500, size=100, partition=100, qos=1000, max_age_s=600, half_life_s=300, calc_period_s=30),
    bf_interval_s=5, bf_resolution_s=5, bf_window_s=3600, requeue_delay_s=7,
)  # fmt: skip


@st.composite
def requests(draw: st.DrawFn) -> list[JobRequest]:
    made: list[JobRequest] = []
    for i in range(draw(st.integers(1, 25))):
        partition = draw(st.sampled_from(["gpu", "all", "whole"]))
        gpus = draw(st.integers(0, 2)) if partition == "gpu" else 0
        limit_s = float(draw(st.integers(1, 60)) * 10)
        after = draw(st.sampled_from([None, *made])) if made else None
        made.append(
            JobRequest(
                str(i), submit_s=float(draw(st.integers(0, 300))), limit_s=limit_s, run_s=float(draw(st.integers(0, 700))),
                nodes=draw(st.integers(1, 2)), cores=draw(st.integers(1, 4)), memory_mb=draw(st.integers(0, 400)), gpus=gpus,
                gpu_type=draw(st.sampled_from(["", "v100"])) if gpus else "", partition=partition,
                qos=draw(st.sampled_from(["", "low", "high"])), user=draw(st.sampled_from("xy")), exclusive=draw(st.booleans()),
                array=f"A{partition}" if draw(st.booleans()) else "", array_limit=draw(st.sampled_from([None, 2])),
                dependencies=(Dependency(draw(st.sampled_from(["after", "afterany", "afterok"])), after.job_id),) if after else (),
                requeue=draw(st.booleans()),
            )
        )  # fmt: skip
    return made


class Watch:
    """Checks each start and stop as it happens, from its own books."""

    def __init__(self) -> None:
        self.sim: ClusterSim | None = None
        self.on: dict[Job, tuple[int, ...]] = {}
        self.lives: list[tuple[Job, float, float]] = []
        self.begun: dict[str, float] = {}

    def started(self, job: Job) -> None:
        assert self.sim is not None
        self.on[job] = tuple(members(job.mask))
        self.begun[job.job_id] = self.sim.now_s
        assert len(self.on[job]) == job.nodes
        assert self.sim.now_s >= job.request.submit_s
        self.check()
        for dependency in job.request.dependencies:
            self.check_dependency(dependency)

    def check(self) -> None:
        assert self.sim is not None
        for i, node in enumerate(NODES):
            here = [j for j, where in self.on.items() if i in where]
            whole = [j for j in here if j.shape.whole]
            assert not whole or len(here) == 1
            assert sum(j.request.cores for j in here) <= node.cores
            assert node.memory_mb == 0 or sum(j.request.memory_mb for j in here) <= node.memory_mb
            assert sum(j.request.gpus for j in here) <= sum(node.gpus.values())
            for kind, count in node.gpus.items():
                assert sum(n for j in here for k, t, n in j.gpus_taken if (k, t) == (i, kind)) <= count

    def check_dependency(self, dependency: Dependency) -> None:
        assert self.sim is not None
        other = self.sim.jobs[dependency.job_id]
        if dependency.kind == "after":
            assert other.job_id in self.begun or other.state.ended
        else:
            assert other.state.ended
            assert dependency.kind == "afterany" or other.state is JobState.COMPLETED

    def signalled(self, job: Job, name: str) -> bool:
        return False

    def stopped(self, job: Job) -> None:
        assert self.sim is not None
        del self.on[job]
        self.lives.append((job, job.start_s or 0.0, self.sim.now_s))


@given(requests(), st.sampled_from(["slurm", "fcfs", "easy"]), st.sampled_from(["", "qos", "partition_prio"]), st.booleans(), st.data())
@settings(max_examples=150, deadline=None)
def test_nothing_is_over_allocated_nobody_is_early_and_limits_hold(
    jobs: list[JobRequest], scheduler: str, preempt: str, idle: bool, data: st.DataObject
) -> None:
    options = replace(QUICK, scheduler=scheduler, preempt=preempt if scheduler == "slurm" else "", preempt_mode="REQUEUE")
    watch = Watch()
    sim = ClusterSim(MACHINE, options, observer=watch)
    watch.sim = sim
    for request in sorted(jobs, key=lambda r: int(r.job_id)):
        sim.submit(request)
    if data.draw(st.booleans(), label="a node fails"):
        sim.at(100.0, sim.node_down, "a4")
        sim.at(150.0, sim.drain, "a1")
        sim.at(400.0, sim.node_up, "a4")
        sim.at(500.0, sim.node_up, "a1")
    sim.run()
    assert sim.pool.occupied == 0
    assert sim.pool.cores == [n.cores for n in NODES]
    for job, start_s, end_s in watch.lives:
        assert end_s - start_s <= job.limit_s
    for job in sim.jobs.values():
        if job.state is JobState.COMPLETED:
            assert job.end_s is not None
            assert job.start_s is not None
            assert job.end_s - job.start_s == job.request.run_s
        if job.state is JobState.TIMEOUT:
            assert job.request.run_s is None or job.request.run_s > job.limit_s
    assert not any(j.state is JobState.PENDING and not j.request.dependencies for j in sim.jobs.values())


@st.composite
def traces(draw: st.DrawFn) -> tuple[int, list[int], list[int], list[int], list[int]]:
    capacity = draw(st.integers(1, 8))
    count = draw(st.integers(1, 30))
    submit = sorted(draw(st.lists(st.integers(0, 60), min_size=count, max_size=count)))
    units = draw(st.lists(st.integers(1, capacity), min_size=count, max_size=count))
    limit = draw(st.lists(st.integers(1, 30), min_size=count, max_size=count))
    run = [min(r, lim) for r, lim in zip(draw(st.lists(st.integers(0, 30), min_size=count, max_size=count)), limit, strict=True)]
    return capacity, submit, units, run, limit


@pytest.mark.parametrize("scheduler", ["fcfs", "easy", "conservative"])
@given(trace=traces())
@settings(max_examples=300, deadline=None)
def test_with_equal_whole_nodes_the_textbook_schedulers_give_the_kernels_starts(scheduler: str, trace: tuple[int, list[int], list[int], list[int], list[int]]) -> None:
    capacity, submit, units, run, limit = trace
    expected = reference.starts(
        submit, units, run, limit, capacity, scheduler=scheduler, fixed_start_s=[-1] * len(submit), until_s=10**9, rank=list(range(len(submit)))
    )
    columns = {"submit_s": submit, "req_units": units, "run_s": run, "req_walltime_s": limit}
    assert run_trace(columns, capacity, SchedulerOptions(scheduler=scheduler)) == expected


@given(jobs=requests(), seed=st.integers(0, 5))
@settings(max_examples=20, deadline=None)
def test_the_same_jobs_give_the_same_starts(jobs: list[JobRequest], seed: int) -> None:
    assert replay(jobs, MACHINE, QUICK)[1] == replay(jobs, MACHINE, QUICK)[1]


@given(jobs=requests())
@settings(max_examples=30, deadline=None)
def test_cutting_the_plan_short_changes_no_start(jobs: list[JobRequest]) -> None:
    """Backfill that goes on to jobs which cannot start now, for their expected starts, starts the same jobs at the same times."""
    assert replay(jobs, MACHINE, QUICK)[1] == replay(jobs, MACHINE, replace(QUICK, estimates=True))[1]
