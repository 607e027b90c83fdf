"""Slurm's own behaviour, one rule at a time, with figures worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ischeduler.core.errors import BadInput, SubmitRefused
from ischeduler.core.jobs import JobState
from ischeduler.simulator.engine.cluster_sim import ClusterSim
from ischeduler.simulator.engine.failures import Outage, apply_outages, draw_outages
from ischeduler.simulator.engine.fairshare import FairShare
from ischeduler.simulator.engine.jobs import Dependency, Job, JobRequest, array_tasks, parse_dependencies
from ischeduler.simulator.engine.machine import Account, Machine, SimNode, SimPartition, SimQos, whole_nodes
from ischeduler.simulator.engine.nodes import NodePool
from ischeduler.simulator.engine.options import PriorityOptions, SchedulerOptions
from ischeduler.simulator.engine.slurm_conf import read_slurm_conf
from ischeduler.simulator.engine.trace import replay, requests_of, run_trace

QUICK = SchedulerOptions(bf_interval_s=10, bf_resolution_s=1, bf_window_s=7200, requeue_delay_s=5)


def job(job_id: str, at: float, run: float, limit: float | None = None, nodes: int = 1, **rest: object) -> JobRequest:
    return JobRequest(job_id, at, limit or run, run, nodes, **rest)  # type: ignore[arg-type]


def starts(requests: list[JobRequest], machine: Machine | int, options: SchedulerOptions = QUICK) -> dict[str, float]:
    made = whole_nodes(machine) if isinstance(machine, int) else machine
    return dict(zip([r.job_id for r in requests], replay(requests, made, options)[1], strict=True))


class Inside:
    """Notes what jobs feel; catches the signals named."""

    def __init__(self, *caught: str) -> None:
        self.caught, self.felt, self.sim = caught, list[tuple[str, str, float]](), None

    def started(self, job: Job) -> None:
        return None

    def signalled(self, job: Job, name: str) -> bool:
        assert isinstance(self.sim, ClusterSim)
        self.felt.append((job.job_id, name, self.sim.now_s))
        return name in self.caught

    def stopped(self, job: Job) -> None:
        return None


# -- priority -------------------------------------------------------------------------------------------------------------


def test_the_priority_is_the_weighted_sum_of_its_factors() -> None:
    partitions = (SimPartition("main", ("n1", "n2"), priority_factor=1), SimPartition("better", ("n1",), priority_factor=4))
    machine = Machine("c", (SimNode("n1", 8), SimNode("n2", 8)), partitions, (SimQos("normal", 20), SimQos("high", 80)))
    weights = PriorityOptions(age=1000, size=400, partition=100, qos=10_000, max_age_s=1000.0)
    sim = ClusterSim(machine, replace(QUICK, priority=weights))
    blocker = sim.submit(JobRequest("0", 0, 9000, 9000, 2, 8))
    sim.run_until(1)
    assert blocker.priority == int(400 * (2 / 2 + 16 / 16) / 2 + 100 * 1 / 4)
    waiting = sim.submit(JobRequest("1", 1, 60, 60, 1, 4, qos="normal", nice=7))
    sim.run_until(1)
    assert waiting.priority == int(400 * (1 / 2 + 4 / 16) / 2 + 25 + 10_000 * 20 / 80 - 7)
    sim.submit(JobRequest("2", 301, 60, 60, 1, 4, qos="high", partition="better"))
    sim.run_until(301)
    assert waiting.priority == int(1000 * 0.3 + 150 + 25 + 2500 - 7)
    assert sim.jobs["2"].priority == 150 + 100 + 10_000
    sim.submit(JobRequest("3", 2000, 60, 60))
    sim.run_until(2000)
    assert waiting.priority == (1000 + 150 + 25 + 2500 - 7)


def test_small_jobs_can_be_favoured_and_basic_priority_is_first_come() -> None:
    machine = whole_nodes(4)
    small = ClusterSim(machine, replace(QUICK, priority=PriorityOptions(size=100, favor_small=True)))
    assert [small.submit(JobRequest(str(n), 0, 60, 60, n)) for n in (1, 4)]
    small.run_until(0)
    assert [small.jobs[n].priority for n in ("1", "4")] == [75, 1]
    basic = ClusterSim(machine, replace(QUICK, priority=PriorityOptions(basic=True)))
    first, second = basic.submit(JobRequest("a", 0, 60, 60)), basic.submit(JobRequest("b", 0, 60, 60))
    basic.run_until(0)
    assert first.priority > second.priority


def test_usage_decays_with_its_half_life_and_the_classic_factor_follows_it() -> None:
    shares = FairShare([Account("lab", users={"a": 1, "b": 3})], PriorityOptions(fair_tree=False, half_life_s=100.0))
    assert shares.factors() == {("lab", "a"): 1.0, ("lab", "b"): 1.0}
    shares.charge(("lab", "a"), 3000.0)
    shares.decay(200.0)
    shares.charge(("lab", "b"), 250.0)
    used = {"a": 750 / 1000, "b": 250 / 1000}
    effective = {u: used[u] + (1.0 - used[u]) * s for u, s in (("a", 0.25), ("b", 0.75))}
    assert shares.factors() == pytest.approx({("lab", u): 2 ** (-effective[u] / s) for u, s in (("a", 0.25), ("b", 0.75))})


def test_fair_tree_ranks_accounts_before_users_and_merges_ties() -> None:
    accounts = [Account("x", shares=1, users={"x1": 1, "x2": 1}), Account("y", shares=1, users={"y1": 1, "y2": 1})]
    shares = FairShare(accounts, PriorityOptions(half_life_s=0.0))
    assert set(shares.factors().values()) == {1.0}
    shares.charge(("x", "x1"), 10.0)
    shares.charge(("y", "y1"), 100.0)
    assert shares.factors() == {("x", "x2"): 1.0, ("x", "x1"): 0.75, ("y", "y2"): 0.5, ("y", "y1"): 0.25}
    shares.charge(("x", "x1"), 90.0)
    assert shares.factors() == {("x", "x2"): 1.0, ("y", "y2"): 1.0, ("x", "x1"): 0.5, ("y", "y1"): 0.5}


def test_who_has_used_much_waits_longer() -> None:
    options = replace(QUICK, priority=PriorityOptions(fair_share=1000, calc_period_s=30.0))
    asked = [job("big", 0, 500, nodes=2, user="greedy")]
    asked += [job("g", 10, 100, nodes=2, user="greedy"), job("m", 20, 100, nodes=2, user="modest")]
    found = starts(asked, 2, options)
    assert (found["m"], found["g"]) == (500, 600)


# -- the two schedulers ---------------------------------------------------------------------------------------------------


def test_backfill_starts_what_delays_nobody_and_only_at_its_own_pace() -> None:
    asked = [job("run", 0, 1000, nodes=3), job("head", 1, 100, nodes=4), job("short", 5, 500), job("long", 5, 2000)]
    assert starts(asked, 4) == {"run": 0, "head": 1000, "short": 11, "long": 1100}
    none = starts(asked, 4, replace(QUICK, backfill=False))
    assert none["short"] == 1100


def test_promises_are_rounded_to_the_resolution() -> None:
    asked = [job("run", 0, 1000, nodes=3), job("head", 1, 100, nodes=4), job("short", 12, 950)]
    assert starts(asked, 4)["short"] < 100
    assert starts(asked, 4, replace(QUICK, bf_resolution_s=300))["short"] == 1100


def test_jobs_beyond_the_window_are_promised_nothing() -> None:
    asked = [job("run", 0, 5000, nodes=3), job("head", 1, 100, nodes=4), job("long", 12, 9000)]
    assert starts(asked, 4)["long"] == 5100
    assert starts(asked, 4, replace(QUICK, bf_window_s=3600))["long"] < 100


def test_only_so_many_jobs_are_tested() -> None:
    asked = [job("run", 0, 1000, nodes=3), *(job(f"w{i}", 1, 100, nodes=4) for i in range(3)), job("short", 12, 500)]
    assert starts(asked, 4)["short"] < 100
    assert starts(asked, 4, replace(QUICK, bf_max_job_test=3))["short"] >= 1000
    users = [replace(r, user="u") for r in asked]
    assert starts(users, 4, replace(QUICK, bf_max_job_user=3))["short"] >= 1000
    assert starts(users, 4, replace(QUICK, bf_max_job_part=3))["short"] >= 1000


def test_the_first_job_that_does_not_fit_closes_its_nodes_to_the_main_scheduler() -> None:
    nodes = ("n1", "n2")
    machine = Machine("c", tuple(SimNode(n) for n in nodes), (SimPartition("a", nodes, priority_tier=2), SimPartition("b", nodes)))
    asked = [job("run", 0, 100, partition="a"), job("wide", 1, 100, nodes=2, partition="a"), job("other", 2, 50, partition="b")]
    assert starts(asked, machine, replace(QUICK, backfill=False))["other"] == 200
    assert starts(asked, machine)["other"] < 100


def test_tiers_go_before_priorities() -> None:
    machine = Machine("c", (SimNode("n1"),), (SimPartition("low", ("n1",)), SimPartition("top", ("n1",), priority_tier=3)), (SimQos("high", 9),))
    asked = [job("run", 0, 100), job("q", 1, 10, qos="high", partition="low"), job("t", 2, 10, partition="top")]
    assert starts(asked, machine, replace(QUICK, priority=PriorityOptions(qos=1000))) == {"run": 0, "t": 100, "q": 110}


def test_a_short_pass_sees_only_the_first_jobs_and_a_full_one_all() -> None:
    machine = Machine("c", (SimNode("n1"), SimNode("n2")), (SimPartition("a", ("n1",)), SimPartition("b", ("n2",))))
    held = [job(f"h{i}", 1, 10, partition="a", qos="one", user="u") for i in range(5)]
    machine = replace(machine, qos=(SimQos("one", max_jobs_per_user=1),))
    asked = [job("run", 0, 1000, partition="a", qos="one", user="u"), *held, job("free", 2, 10, partition="b")]
    options = replace(QUICK, default_queue_depth=3, backfill=False, sched_interval_s=60)
    assert starts(asked, machine, options)["free"] == 60
    assert starts(asked, machine, replace(options, default_queue_depth=100))["free"] == 2


# -- dependencies and arrays ------------------------------------------------------------------------------------------------


def test_dependencies_wait_for_what_they_name() -> None:
    asked = [
        job("bad", 0, 100, exit_code=1), job("good", 0, 50), job("any", 1, 1, dependencies=(Dependency("afterany", "bad"),)),
        job("ok", 1, 1, dependencies=(Dependency("afterok", "good"),)), job("never", 1, 1, dependencies=(Dependency("afterok", "bad"),)),
        job("notok", 1, 1, dependencies=(Dependency("afternotok", "bad"),)), job("begun", 1, 1, dependencies=(Dependency("after", "bad", 30),)),
        job("both", 1, 1, dependencies=parse_dependencies("afterany:bad:good")),
    ]  # fmt: skip
    found = starts(asked, 20)
    assert found == {"bad": 0, "good": 0, "any": 100, "ok": 50, "never": -1, "notok": 100, "begun": 30, "both": 100}
    sim, _ = replay(asked, whole_nodes(20), QUICK)
    assert sim.jobs["never"].reason == "DependencyNeverSatisfied"


def test_a_singleton_waits_for_its_namesakes() -> None:
    alone = (Dependency("singleton"),)
    asked = [job("1", 0, 100, name="chain", dependencies=alone), job("2", 1, 50, name="chain", dependencies=alone), job("3", 2, 5, name="other")]
    assert starts(asked, 9) == {"1": 0, "2": 100, "3": 2}


def test_a_dependency_that_is_not_known_is_told() -> None:
    with pytest.raises(BadInput, match="expected one of after"):
        parse_dependencies("aftercorr:1")
    with pytest.raises(BadInput, match="any one of several"):
        parse_dependencies("afterok:1?afterok:2")


def test_an_array_runs_so_many_tasks_at_once_and_can_be_waited_for() -> None:
    tasks = array_tasks(job("7", 0, 10, 60), range(5), limit=2, run_s=[10, 20, 10, 10, 10])
    last = job("last", 1, 1, dependencies=(Dependency("afterok", "7"),))
    found = starts([*tasks, last], 9)
    assert [found[f"7_{t}"] for t in range(5)] == [0, 0, 10, 20, 20]
    assert found["last"] == 30


# -- nodes that fail, drain and are preempted -----------------------------------------------------------------------------------


def test_a_failed_node_sends_its_job_back_or_ends_it() -> None:
    sim = ClusterSim(whole_nodes(2), QUICK)
    again, dead = sim.submit(job("again", 0, 100)), sim.submit(job("dead", 0, 100, requeue=False))
    apply_outages(sim, [Outage("n00000", 30, 400), Outage("n00001", 40, 41)])
    sim.run()
    assert (again.restarts, again.start_s, again.state) == (1, 41, JobState.COMPLETED)
    assert (dead.state, dead.end_s) == (JobState.NODE_FAIL, 40)


def test_a_drained_node_finishes_its_job_and_takes_no_other() -> None:
    asked = [job("on", 0, 100), job("next", 10, 10)]
    sim = ClusterSim(whole_nodes(1), QUICK)
    apply_outages(sim, [Outage("n00000", 5, 500, drain=True)])
    for request in asked:
        sim.submit(request)
    sim.run_until(200)
    assert sim.jobs["on"].state is JobState.COMPLETED
    assert sim.jobs["next"].reason.startswith("ReqNodeNotAvail")
    sim.run()
    assert sim.jobs["next"].start_s == 500


def test_outages_are_seeded() -> None:
    machine = whole_nodes(20)
    drawn = [draw_outages(machine, seed=s, mean_between_s=5000, mean_repair_s=100, start_s=0, until_s=50_000) for s in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert 120 < len(drawn[0]) < 280


@pytest.mark.parametrize("mode", ["REQUEUE", "CANCEL"])
def test_a_better_qos_pushes_out_a_lesser_one(mode: str) -> None:
    machine = replace(whole_nodes(2), qos=(SimQos("low", 1, preempt_mode=mode), SimQos("high", 9, ("low",))))
    options = replace(QUICK, preempt="qos", priority=PriorityOptions(qos=1000))
    asked = [job("keep", 0, 100), job("low", 0, 100, qos="low"), job("high", 20, 50, qos="high"), job("late", 21, 10)]
    sim, found = replay(asked, machine, options)
    assert found[2] == 20
    low = sim.jobs["low"]
    assert (low.state, low.restarts) == ((JobState.COMPLETED, 1) if mode == "REQUEUE" else (JobState.PREEMPTED, 0))
    assert low.end_s == 20 if mode == "CANCEL" else (low.start_s or 0) >= 70


def test_a_young_job_is_spared_and_tiers_preempt_too() -> None:
    nodes = ("n1",)
    partitions = (SimPartition("low", nodes, preempt_mode="CANCEL"), SimPartition("top", nodes, priority_tier=9))
    machine = Machine("c", (SimNode("n1"),), partitions)
    options = replace(QUICK, preempt="partition_prio", preempt_exempt_s=60, bf_interval_s=5)
    found = starts([job("low", 0, 1000), job("top", 10, 50, partition="top")], machine, replace(options, idle_cycles=True))
    assert 60 <= found["top"] <= 66


def test_only_as_many_are_pushed_out_as_needed() -> None:
    machine = replace(whole_nodes(4), qos=(SimQos("low", 1, preempt_mode="CANCEL"), SimQos("high", 9, ("low",))))
    options = replace(QUICK, preempt="qos")
    asked = [job("wide", 0, 100, nodes=3, qos="low"), job("slim", 0, 100, qos="low"), job("high", 5, 10, qos="high")]
    sim, _ = replay(asked, machine, options)
    assert [sim.jobs[n].state for n in ("wide", "slim")].count(JobState.PREEMPTED) == 1


# -- limits -----------------------------------------------------------------------------------------------------------------


def test_the_warning_comes_first_then_sigterm_then_the_end() -> None:
    inside = Inside("TERM")
    sim = inside.sim = ClusterSim(whole_nodes(1), replace(QUICK, kill_wait_s=15), observer=inside)  # type: ignore[assignment]
    late = sim.submit(JobRequest("1", 0, 100, None, signal_lead_s=30))
    sim.run()
    assert inside.felt == [("1", "USR2", 70), ("1", "TERM", 100)]
    assert (late.state, late.end_s) == (JobState.TIMEOUT, 115)


def test_limits_are_looked_at_every_so_often() -> None:
    sim = ClusterSim(whole_nodes(1), replace(QUICK, timeout_poll_s=30))
    sim.submit(JobRequest("1", 5, 100, None))
    sim.run()
    assert sim.jobs["1"].end_s == 120


def test_a_users_limit_passes_the_job_over_without_blocking_others() -> None:
    machine = replace(whole_nodes(3), qos=(SimQos("one", max_jobs_per_user=1, max_submit_per_user=2, max_wall_s=200),))
    sim = ClusterSim(machine, QUICK)
    for name, user in (("a", "u"), ("b", "u"), ("c", "v")):
        sim.submit(job(name, 0, 100, qos="one", user=user))
    with pytest.raises(SubmitRefused) as refused:
        sim.submit(job("d", 0, 100, qos="one", user="u"))
    assert refused.value.kind == "site_limit"
    with pytest.raises(SubmitRefused, match="over the limit of QOS"):
        sim.submit(job("e", 0, 300, qos="one", user="w"))
    sim.run()
    assert [sim.jobs[n].start_s for n in "abc"] == [0, 100, 0]


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"nodes": 9}, "asks for 9 nodes"), ({"partition": "no"}, "no partition 'no'"), ({"qos": "no"}, "no QOS 'no'"),
        ({"limit_s": 9e9}, "over the limit"), ({"cores": 99}, "of its shape"), ({"nodes": 0}, "no node"), ({"gpus": 1}, "of its shape"),
    ],
)  # fmt: skip
def test_what_could_never_run_is_refused_in_a_sentence(wish: dict[str, float], words: str) -> None:
    sim = ClusterSim(whole_nodes(3, max_time_s=86400.0), QUICK)
    with pytest.raises(SubmitRefused, match=words):
        sim.submit(replace(JobRequest("1"), **wish))  # type: ignore[arg-type]
    assert not sim.jobs


def test_neighbours_are_kept_together_and_light_nodes_come_first() -> None:
    pool = NodePool(whole_nodes(10))
    assert pool.choose(0b0111100110, 2) == 0b0000000110
    assert pool.choose(0b0111100111, 5) == 0b0111100001
    weighted = NodePool(Machine("c", (SimNode("a", weight=5), SimNode("b"), SimNode("c")), (SimPartition("p", ("a", "b", "c")),)))
    assert weighted.choose(0b111, 2) == 0b110
    assert weighted.choose(0b101, 2) == 0b101


# -- configuration and traces --------------------------------------------------------------------------------------------------

CONF = """
ClusterName=real  # a comment
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=15,bf_window=2880,bf_max_job_test=77,bf_continue,default_queue_depth=9
PriorityType=priority/multifactor
PriorityWeightAge=5
PriorityWeightQOS=7
PriorityMaxAge=2-0
PriorityCalcPeriod=1
PreemptType=preempt/qos
PreemptMode=REQUEUE
AuthInfo=socket=/x,cred_expire=10
NodeName=DEFAULT RealMemory=1000
NodeName=a,b CPUs=8 Gres=gpu:v100:2 Feature=x,y
NodeName=c Sockets=2 CoresPerSocket=16 Weight=3
PartitionName=p Nodes=a,b MaxTime=1-00:00:00 PriorityTier=3 OverSubscribe=EXCLUSIVE MaxNodes=1 AllowAccounts=q,r
PartitionName=all Nodes=ALL MaxTime=UNLIMITED PreemptMode=CANCEL
"""


def test_a_slurm_conf_becomes_a_machine() -> None:
    machine, options = read_slurm_conf(CONF, qos=(SimQos("high"),))
    assert [(n.name, n.cores, n.memory_mb, dict(n.gpus), n.weight) for n in machine.nodes] == [
        ("a", 8, 1000, {"v100": 2}, 1), ("b", 8, 1000, {"v100": 2}, 1), ("c", 32, 1000, {}, 3),
    ]  # fmt: skip
    p, everything = machine.partitions
    assert (p.nodes, p.max_time_s, p.priority_tier, p.exclusive, p.max_nodes, p.allow_accounts) == (("a", "b"), 86400, 3, True, 1, ("q", "r"))
    assert (everything.nodes, everything.preempt_mode) == (("a", "b", "c"), "CANCEL")
    assert (options.bf_interval_s, options.bf_window_s, options.bf_max_job_test, options.default_queue_depth) == (15, 172_800, 77, 9)
    assert (options.preempt, options.preempt_mode, options.requeue_delay_s, options.bf_resolution_s) == ("qos", "REQUEUE", 11, 60)
    assert (options.priority.age, options.priority.qos, options.priority.max_age_s, options.priority.calc_period_s) == (5, 7, 172_800, 60)
    with pytest.raises(BadInput, match="not a number"):
        read_slurm_conf(CONF.replace("PriorityWeightAge=5", "PriorityWeightAge=five"))


def test_a_trace_is_known_by_its_columns() -> None:
    columns = {"submit_s": [5, 0], "run_s": [10, 10], "req_units": [1, 2], "req_walltime_s": [20, 20]}
    assert run_trace(columns, 2, QUICK) == [10, 0]
    assert run_trace({**columns, "req_units": [1, 3]}, 2, QUICK) == [5, -1]
    with pytest.raises(BadInput, match="no column 'run_s'"):
        requests_of({"submit_s": [1]}, whole_nodes(1))
    with pytest.raises(BadInput, match="not a scheduler"):
        SchedulerOptions(scheduler="sjf")
    with pytest.raises(BadInput, match="unknown node"):
        Machine("c", (SimNode("a"),), (SimPartition("p", ("b",)),))
