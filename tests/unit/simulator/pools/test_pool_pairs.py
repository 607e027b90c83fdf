"""Pairs in our own rounds: two jobs on one accelerator at the rates measured for the pair, and what becomes of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pool_worlds import cluster, jobs, table

from ischeduler.core.errors import BadInput
from ischeduler.policies.problem import Accelerators, Throughputs
from ischeduler.policies.registry import NAMES, objective_of
from ischeduler.policies.rounds import Rules, Standing, settle
from ischeduler.policies.together import Pairs, joins, units
from ischeduler.simulator.pools.compare import Asked, Setting, simulate_pool
from ischeduler.simulator.pools.engine import Pool
from ischeduler.simulator.pools.readers import throughputs_of
from ischeduler.simulator.pools.workload import JobRow, Workload

PAIRED = tuple(n for n in NAMES if objective_of(n).sharing)


def two(part: float) -> Throughputs:
    """One type, one job type of a step a second; two together keep ``part`` of it each."""
    return throughputs_of({"v100": {"('even', 1)": {"null": 1.0, "('even', 1)": [part, part]}}}, "a test")


def pair(steps: tuple[float, float], part: float, policy: str = "max_min_fairness_packed", restart_s: float = 0.0):
    table_ = two(part)
    workload = Workload.of([JobRow("a", "even", 1, 0.0, steps[0]), JobRow("b", "even", 1, 0.0, steps[1])], table_)
    return simulate_pool(policy, workload, table_, Accelerators.of({"v100": 1}), Setting(restart_s=restart_s))


@pytest.mark.parametrize("policy", ["max_min_fairness_packed", "srpt_packed", "sjf_packed", "tiresias_packed", "allox_packed", "hierarchical_packed", "fifo_packed"])
def test_two_run_together_and_the_one_that_stays_speeds_up(policy: str) -> None:
    run = pair((900.0, 1800.0), 0.9, policy)
    # Together at .9 until the first ends at 1,000 s; the other then has 900 of 1,800 steps left, alone at 1.
    assert run.jct_s.tolist() == pytest.approx([1000.0, 1900.0])
    assert run.utilisation == pytest.approx(1.0)
    assert run.received_s is not None
    assert run.received_s.sum(axis=1).tolist() == pytest.approx([1000.0, 1900.0])


def test_a_pair_that_does_not_pay_takes_turns() -> None:
    run = pair((900.0, 900.0), 0.45)
    assert sorted(run.jct_s.tolist()) == pytest.approx([1620.0, 1800.0], abs=180.1)
    assert max(run.jct_s) == pytest.approx(1800.0)


def test_the_one_that_joins_pays_the_restart_and_the_host_does_not() -> None:
    table_ = two(0.8)
    rows = [JobRow("host", "even", 1, 0.0, 5000.0), JobRow("guest", "even", 1, 100.0, 800.0)]
    workload = Workload.of(rows, table_)
    run = simulate_pool("fifo_packed", workload, table_, Accelerators.of({"v100": 1}), Setting(restart_s=40.0))
    assert run.restarts.tolist() == [1, 1]
    # The guest starts when it comes, in the middle of a round: 40 s to start, 1,000 s beside the host.
    assert run.jct_s[1] == pytest.approx(1040.0)
    # The host: 60 s alone (100 less its start), 1,040 s at .8, the rest alone.
    assert run.jct_s[0] == pytest.approx(1140.0 + (5000.0 - 60.0 - 0.8 * 1040.0))


def test_pairs_are_worth_what_they_were_measured_at() -> None:
    """More steps in all, sooner, than the same policy without pairs, where pairs keep 60 % each."""
    workload, accelerators = jobs(40, gap_s=100), cluster()
    setting = Setting(restart_s=10.0)
    for name in ("max_min_fairness", "srpt_fair", "srpt", "fifo", "min_total_duration"):
        alone = simulate_pool(name if name == "srpt_fair" else f"{name}_perf", workload, table(), accelerators, setting)
        packed = Asked(objective_of(f"{name}_packed", options={"packing_threshold": 1.0}))
        together = simulate_pool(f"{name}_packed", workload, table(), accelerators, setting, packed)
        assert together.makespan_s < alone.makespan_s


@pytest.mark.parametrize("policy", PAIRED)
def test_all_jobs_end_and_nothing_is_given_twice(policy: str) -> None:
    workload, accelerators = jobs(18, several=not policy.startswith("allox"), gap_s=300), cluster()
    accelerators = Accelerators(accelerators.types, accelerators.count, accelerators.per_node, np.array([3.0, 2.0, 1.0]))
    run = simulate_pool(policy, workload, table(), accelerators, Setting())
    assert np.isfinite(run.jct_s).all()
    assert (run.timeline[:, 2:] <= accelerators.count + 1e-9).all()
    best = workload.total_steps / table().on(accelerators).rate[workload.job_class].max(axis=1)
    assert (run.jct_s >= best - 1e-6).all()


class Watched(Pool):
    """Checks the floor after every decision."""

    def _decide(self, *, whole: bool) -> None:
        super()._decide(whole=whole)
        f = self.fleet
        hosts: dict[int, int] = {}
        for i, job in enumerate(f.job.tolist()):
            if f.on[i] < 0:
                assert job not in f.spot
                assert job not in f.mate
                continue
            mate = f.mate.get(job)
            if mate is not None:
                assert f.mate[mate] == job
                assert f.spot[mate] == f.spot[job]
                if mate < job:
                    continue
            for node, n in f.spot[job].nodes:
                key = (int(f.on[i]), node)
                hosts[key] = hosts.get(key, 0) + n
        for (kind, node), n in hosts.items():
            assert n <= self.nodes[kind][node]
        together = {frozenset(p) for p, on in zip(f.pair.tolist(), f.pair_on, strict=True) if on >= 0}
        assert together == {frozenset((a, b)) for a, b in f.mate.items()}


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(["max_min_fairness_packed", "srpt_packed", "finish_time_fairness_packed", "srpt_bounded_packed", "gandiva"]))
def test_the_floor_holds_at_every_moment(seed: int, policy: str) -> None:
    workload, accelerators = jobs(14, seed, several=True, gap_s=200), cluster()
    pool = Watched(workload, table(), accelerators, Asked(objective_of(policy)), Rules(restart_s=15.0), np.ones(14, np.bool_))
    pool.run()
    assert np.isfinite(pool.jct).all()


def test_promised_pairs_come_to_their_shares() -> None:
    """Three jobs on one accelerator: each pair a quarter of the time, the first alone the rest."""
    share, pairs = np.array([[0.25], [0.0], [0.0]]), np.array([[0, 1], [0, 2], [1, 2]])
    pair_share, owed, pair_owed = np.full((3, 1), 0.25), np.zeros((3, 1)), np.zeros((3, 1))
    on, pair_on, rules = np.full(3, -1), np.full(3, -1), Rules(restart_s=0.0)
    got, rounds = np.zeros(4), 48
    for _ in range(rounds):
        jobs_ = Standing(share, owed, np.ones((3, 1)), np.ones(3, np.int64), on, np.zeros(3, np.bool_), np.arange(3.0))
        unit = units(jobs_, Pairs(pairs, pair_share, pair_owed, pair_on, np.full((3, 1), 1.5)), rules, parted=True)
        due = np.maximum(unit.standing.owed_s + unit.standing.share * rules.round_s, 0.0)[:, 0]
        top = int(np.argmax(due))  # one accelerator: the unit that is due most has it
        pair_on, on = np.full(3, -1), np.full(3, -1)
        on[unit.first[top]] = 0
        if unit.pair[top] >= 0:
            pair_on[unit.pair[top]] = on[unit.second[top]] = 0
            got[1 + unit.pair[top]] += 1
        else:
            got[0] += 1
        owed = settle(owed, share, np.where(pair_on.max() >= 0, -1, on), rules.round_s, rules)
        pair_owed = settle(pair_owed, pair_share, pair_on, rules.round_s, rules)
    np.testing.assert_allclose(got / rounds, 0.25, atol=0.05)


def test_sharing_without_a_measured_pair_is_refused_and_the_rest_runs() -> None:
    bare = throughputs_of({"v100": {"('even', 1)": {"null": 1.0}}}, "a test")
    workload = Workload.of([JobRow("a", "even", 1, 0.0, 100.0)], bare)
    for policy in ("max_min_fairness_packed", "srpt_packed", "gandiva"):
        with pytest.raises(BadInput, match="no throughput of a pair is known; measure pairs or choose one without sharing"):
            simulate_pool(policy, workload, bare, Accelerators.of({"v100": 1}), Setting())
    assert simulate_pool("srpt", workload, bare, Accelerators.of({"v100": 1}), Setting(restart_s=0.0)).jct_s[0] == pytest.approx(100.0)


def test_only_who_waits_joins_and_only_where_the_pair_was_measured() -> None:
    pairs = Pairs(np.array([[0, 1], [0, 2]]), np.array([[0.5, 0.0], [0.2, 0.2]]), np.array([[9.0, 0.0], [0.0, 0.0]]), np.array([-1, -1]),
                  np.array([[1.6, 1.6], [0.0, 1.6]]))  # fmt: skip
    nobody = np.array([-1, -1, -1])
    assert joins(np.array([0, -1, -1]), nobody, pairs) == [0]
    assert joins(np.array([1, -1, -1]), nobody, pairs) == [1]  # nothing is promised to the first pair there
    assert joins(np.array([0, 0, -1]), nobody, pairs) == []
    assert joins(np.array([-1, -1, -1]), nobody, pairs) == []
