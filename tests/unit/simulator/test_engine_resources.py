"""What a job takes of a node, and the rarer options of backfill, with figures worked out by hand."""

from __future__ import annotations

from dataclasses import replace

from ischeduler.simulator.engine.cluster_sim import ClusterSim
from ischeduler.simulator.engine.jobs import JobRequest
from ischeduler.simulator.engine.machine import Machine, SimNode, SimPartition, whole_nodes
from ischeduler.simulator.engine.options import SchedulerOptions
from ischeduler.simulator.engine.trace import replay

QUICK = SchedulerOptions(bf_interval_s=10, bf_resolution_s=1, bf_window_s=7200, requeue_delay_s=5)
NODES = (SimNode("a1", 8, 1000, {"a100": 2}, ("fast",)), SimNode("v1", 8, 1000, {"v100": 4}), SimNode("c1", 8, 4000, weight=0))
MIXED = Machine("c", NODES, (SimPartition("all", ("a1", "v1", "c1")), SimPartition("gpu", ("a1", "v1"))))


def on_nodes(*requests: JobRequest) -> dict[str, tuple[float, tuple[str, ...]]]:
    """Start and nodes of each job."""
    sim, starts = replay(requests, MIXED, QUICK)
    return {r.job_id: (s, sim.node_names(sim.jobs[r.job_id].last_mask)) for r, s in zip(requests, starts, strict=True)}


def ask(job_id: str, **wish: object) -> JobRequest:
    return JobRequest(job_id, **{"submit_s": 0, "limit_s": 100, "run_s": 100, "partition": "all", **wish})  # type: ignore[arg-type]


def test_gpus_have_types_and_are_counted_one_by_one() -> None:
    found = on_nodes(
        ask("v3", gpus=3, gpu_type="v100"), ask("a2", gpus=2, gpu_type="a100"), ask("v1", gpus=1, gpu_type="v100"),
        ask("a1", gpus=1, gpu_type="a100"), ask("any2", gpus=2, submit_s=1),
    )  # fmt: skip
    assert found["v3"] == (0, ("v1",))
    assert found["v1"] == (0, ("v1",)), "one of four was left"
    assert found["a2"] == (0, ("a1",))
    assert found["a1"] == (100, ("a1",)), "both were taken"
    assert found["any2"][0] == 100


def test_memory_and_cores_are_shared_until_one_runs_out() -> None:
    found = on_nodes(
        ask("big", memory_mb=3000, cores=1), ask("more", memory_mb=1500, cores=1), ask("little", memory_mb=900, cores=7), ask("late", memory_mb=1, cores=2),
    )  # fmt: skip
    assert found["big"] == (0, ("c1",)), "the light node comes first"
    assert found["more"] == (100, ("c1",)), "only c1 has so much memory, and 1000 MB are left of it"
    assert found["little"] == (0, ("a1",)), "backfilled beside the one that waits for c1"
    assert found["late"] == (0, ("v1",)), "7 of a1's 8 cores are in use"


def test_shared_nodes_of_two_partitions_are_one_pool() -> None:
    found = on_nodes(ask("all", nodes=3, cores=8), ask("gpu", partition="gpu"))
    assert found == {"all": (0, ("a1", "v1", "c1")), "gpu": (100, ("a1",))}


def test_features_exclusions_and_whole_nodes() -> None:
    found = on_nodes(
        ask("fast", features=("fast",)), ask("not", exclude=("c1", "a1")), ask("alone", exclusive=True), ask("whole", exclusive=True, exclude=("c1", "v1")),
    )  # fmt: skip
    assert found["fast"] == (0, ("a1",))
    assert found["not"] == (0, ("v1",))
    assert found["alone"] == (0, ("c1",))
    assert found["whole"] == (100, ("a1",)), "a core of it is in use"


def test_a_begin_time_is_kept_and_completing_nodes_are_not_free() -> None:
    later = JobRequest("later", 0, 50, 50, begin_s=70)
    first, second = JobRequest("first", 0, 30, 30), JobRequest("second", 1, 10, 10)
    assert replay([later], whole_nodes(1), QUICK)[1] == [70]
    assert replay([first, second], whole_nodes(1), QUICK)[1] == [0, 30]
    assert replay([first, second], whole_nodes(1), replace(QUICK, release_s=4))[1] == [0, 34]


def test_backfill_starts_only_so_many_in_a_cycle() -> None:
    asked = [JobRequest("run", 0, 1000, 1000, 3), JobRequest("head", 1, 100, 100, 6), *(JobRequest(f"s{i}", 1, 500, 500) for i in range(3))]
    free, one = (replay(asked, whole_nodes(6), replace(QUICK, bf_max_job_start=n))[1][2:] for n in (0, 1))
    assert len(set(free)) == 1
    assert [s - one[0] for s in one] == [0, 10, 20]


def test_young_jobs_are_promised_nothing() -> None:
    asked = [JobRequest("run", 0, 1000, 1000, 3), JobRequest("head", 1, 100, 100, 4), JobRequest("long", 2, 2000, 2000)]
    assert replay(asked, whole_nodes(4), QUICK)[1] == [0, 1000, 1100]
    assert replay(asked, whole_nodes(4), replace(QUICK, bf_min_age_reserve_s=600))[1] == [0, 2002, 2]


def test_a_linear_window_promises_sooner_than_a_doubling_one() -> None:
    """Seven jobs end a minute apart from 600 s on; the head needs four nodes, which are free at 780 s."""
    asked = [JobRequest(f"r{i}", 0, 600 + 60 * i, 600 + 60 * i) for i in range(7)]
    asked.append(JobRequest("head", 1, 100, 100, 4))
    planned: list[float] = []
    for step_s in (0.0, 30.0):
        sim = ClusterSim(whole_nodes(7), replace(QUICK, bf_window_scale_s=step_s, estimates=True))
        for request in asked:
            sim.submit(request)
        sim.run_until(30)
        planned.append(sim.jobs["head"].expected_start_s or 0.0)
    assert 780 <= planned[1] <= planned[0]
    assert planned[0] > 780, "windows that double look past the earliest moment, as in the original"


def test_the_tightest_run_of_neighbours_is_taken_and_in_it_the_fullest_node() -> None:
    """As seen on a real Slurm: 3 + 3 + 3 free cores beside 2 + 2 + 4, so that the second run is the tighter one."""
    eight = tuple(f"c{i}" for i in range(1, 9))
    machine = Machine("c", tuple(SimNode(n, 4) for n in eight), (SimPartition("main", eight), SimPartition("low", eight[:4])))
    asked = [
        JobRequest("four", 0, 99, 99, 4, 1, partition="low"), JobRequest("c4", 0, 99, 99, 1, 2, exclude=tuple(n for n in eight if n != "c4")),
        JobRequest("c5", 0, 99, 99, 1, 4, exclude=tuple(n for n in eight if n != "c5")),
        JobRequest("pair", 0, 99, 99, 2, 2, exclude=(*eight[:5], "c8")),
        JobRequest("two", 1, 99, 99, 1, 2), JobRequest("one", 2, 99, 99, 1, 1), JobRequest("three", 3, 99, 99, 3, 2),
    ]  # fmt: skip
    sim, starts = replay(asked, machine, QUICK)
    found = {j: sim.node_names(sim.jobs[j].last_mask) for j in ("two", "one", "three")}
    assert starts == [0, 0, 0, 0, 1, 2, 3]
    assert found == {"two": ("c6",), "one": ("c7",), "three": ("c1", "c2", "c3")}


def test_gpu_jobs_go_where_most_gpus_are_free() -> None:
    nodes = ("g1", "g2")
    machine = Machine("c", tuple(SimNode(n, 8, gpus={"v100": 4}) for n in nodes), (SimPartition("main", nodes),))
    sim, _ = replay([JobRequest(str(i), i, 99, 99, cores=1, gpus=n) for i, n in enumerate((1, 1, 2, 1))], machine, QUICK)
    assert [sim.node_names(sim.jobs[str(i)].last_mask) for i in range(4)] == [("g1",), ("g2",), ("g1",), ("g2",)]


def test_the_schedulers_may_look_at_their_own_beats_only() -> None:
    asked = [JobRequest("first", 0.3, 50, 5.0), JobRequest("second", 1.5, 50, 5.0)]
    main = replace(QUICK, sched_tick_s=1.0, backfill=False)
    assert replay(asked, whole_nodes(1), main)[1] == [1.0, 6.0]
    assert replay(asked, whole_nodes(1), replace(main, sched_tick_s=2.0))[1] == [2.0, 8.0]
    both = replace(main, backfill=True, bf_interval_s=1.0, bf_first_s=-0.5)
    assert replay(asked, whole_nodes(1), both)[1] == [0.5, 5.5], "backfill looks first"
