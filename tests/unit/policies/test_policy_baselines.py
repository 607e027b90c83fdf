"""The policies without a programme, by worked examples; lots that draw as CPython does."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ischeduler.policies.lots import Lots
from ischeduler.policies.problem import Accelerators, Job, Jobs, Throughputs
from ischeduler.policies.registry import allocate, objective_of

CLUSTER = Accelerators.of({"v100": 2.0, "k80": 2.0}, price_per_h={"v100": 3.0, "k80": 0.5})
TABLE = Throughputs.of({"a|1": {"v100": 10.0, "k80": 2.0}, "b|1": {"v100": 10.0, "k80": 8.0}, "a|2": {"v100": 18.0, "k80": 3.0}}, CLUSTER.types)


def _jobs(*rows):
    return Jobs.of([Job(f"j{i}", c, steps, accelerators=int(c[-1]), arrived_s=float(i), **more) for i, (c, steps, more) in enumerate(rows)], TABLE, CLUSTER)


def _where(found):
    return ["".join(t[0] for t, x in zip(found.types, row, strict=True) if x > 0.5) for row in found.share]


@pytest.mark.parametrize("seed", [0, 1, 42, 2**32 - 1])
def test_lots_draw_as_cpython_does(seed):
    theirs, ours = random.Random(seed), Lots(seed)
    for i in range(400):
        n = i % 40 + 2
        drawn, ours = ours.below(n)
        assert drawn == theirs.randrange(n)
        one, other, ours = ours.two(n)
        assert [one, other] == theirs.sample(range(n), 2)


def test_fifo_keeps_what_runs_and_nobody_passes():
    jobs = _jobs(("a|1", 100, {}), ("a|2", 100, {}), ("a|2", 100, {}), ("b|1", 100, {}))
    found = allocate(jobs, TABLE, CLUSTER, "fifo_perf", 0.0)
    assert _where(found) == ["v", "k", "", ""]
    lots = allocate(jobs, TABLE, CLUSTER, objective_of("fifo", seed=3), 0.0)
    held = allocate(jobs, TABLE, CLUSTER, objective_of("fifo", seed=3), 360.0, lots)
    assert (held.share == lots.share).all()
    assert (allocate(jobs, TABLE, CLUSTER, objective_of("fifo", seed=3), 0.0).share == lots.share).all()


def test_shortest_first_lets_the_short_pass_and_srpt_moves_the_long_aside():
    jobs = _jobs(("a|2", 1e6, {}), ("a|2", 1e5, {}), ("b|1", 10, {}), ("b|1", 20, {}))
    assert _where(allocate(jobs, TABLE, CLUSTER, "sjf_perf", 0.0)) == ["", "k", "v", "v"]
    running = allocate(jobs.take(np.array([0])), TABLE, CLUSTER, "sjf_perf", 0.0)
    assert _where(allocate(jobs, TABLE, CLUSTER, "sjf_perf", 360.0, running))[0] == "v"
    moved = allocate(jobs.take(np.array([0])), TABLE, CLUSTER, "srpt_perf", 0.0)
    assert _where(allocate(jobs, TABLE, CLUSTER, "srpt_perf", 360.0, moved)) == ["", "k", "v", "v"]


def test_tiresias_serves_the_least_served_and_promotes_who_waits():
    old, starved = {"attained_s": 1e6}, {"attained_s": 4e4}
    jobs = _jobs(("b|1", 1e6, old), ("b|1", 1e6, old), ("b|1", 1e6, old), ("b|1", 1e6, old), ("b|1", 1e6, {}))
    assert _where(allocate(jobs, TABLE, CLUSTER, "tiresias", 1.1e6))[4] == "v"
    waiting = _jobs(*[("b|1", 1e6, old)] * 4, ("b|1", 1e6, starved))
    assert _where(allocate(waiting, TABLE, CLUSTER, "tiresias", 1e5))[4] == ""
    assert _where(allocate(waiting, TABLE, CLUSTER, "tiresias", 1e6))[4] == "v"


def test_allox_gives_the_fast_type_to_whom_it_helps():
    jobs = _jobs(("a|1", 1000, {}), ("b|1", 1000, {}), ("a|1", 1000, {}), ("b|1", 1000, {}))
    assert _where(allocate(jobs, TABLE, CLUSTER, "allox", 10.0)) == ["v", "k", "v", "k"]


def test_allox_is_the_least_sum_of_completion_times():
    rng = np.random.default_rng(2)
    cluster = Accelerators.of({"v100": 1.0, "k80": 1.0})
    table = Throughputs.of({f"m{i}|1": {"v100": float(rng.uniform(1, 9)), "k80": float(rng.uniform(1, 9))} for i in range(4)}, cluster.types)
    jobs = Jobs.of([Job(f"j{i}", f"m{i}|1", float(rng.uniform(100, 900))) for i in range(4)], table, cluster)
    time = jobs.steps_left[:, None] / table.rate[jobs.job_class]
    best, first = float("inf"), None
    for mask in range(16):
        lines = [[j for j in range(4) if (mask >> j & 1) == k] for k in range(2)]
        ordered = [sorted(line, key=lambda j: time[j, k]) for k, line in enumerate(lines)]
        total = sum((len(line) - i) * time[j, k] for k, line in enumerate(ordered) for i, j in enumerate(line))
        if total < best:
            best, first = total, {line[0]: k for k, line in enumerate(ordered) if line}
    found = allocate(jobs, table, cluster, "allox", 0.0)
    assert {j: int(row.argmax()) for j, row in enumerate(found.share) if row.any()} == first


def test_gandiva_pairs_only_under_pressure_and_parts_bad_pairs():
    together = np.full((3, 3, 2), 0.9) * TABLE.rate[:, None, :]
    table = Throughputs(TABLE.types, TABLE.classes, TABLE.rate, TABLE.spread, together)
    few = _jobs(("a|1", 100, {}), ("b|1", 100, {}))
    assert len(allocate(few, table, CLUSTER, "gandiva", 0.0).pairs) == 0
    many = _jobs(*[("b|1", 100, {})] * 8)
    paired = allocate(many, table, CLUSTER, "gandiva", 0.0)
    assert sorted(paired.pairs.ravel().tolist()) == list(range(8))
    assert (allocate(many, table, CLUSTER, "gandiva", 360.0, paired).pairs == paired.pairs).all()
    bad = Throughputs(TABLE.types, TABLE.classes, TABLE.rate, TABLE.spread, together / 9)
    assert sorted(map(tuple, allocate(many, bad, CLUSTER, "gandiva", 360.0, paired).pairs)) != sorted(map(tuple, paired.pairs))


def test_cost_buys_the_cheap_type_until_a_deadline_forbids_it():
    relaxed = _jobs(("b|1", 3600 * 8, {"deadline_s": 1e6}))
    assert _where(allocate(relaxed, TABLE, CLUSTER, "min_cost_SLOs", 0.0)) == ["k"]
    urgent = _jobs(("b|1", 3600 * 9, {"deadline_s": 3600.0}))
    share = allocate(urgent, TABLE, CLUSTER, "min_cost_SLOs", 0.0).share[0]
    assert TABLE.rate[1] @ share * 3600 == pytest.approx(3600 * 9, rel=1e-4)
    assert share == pytest.approx([0.5, 0.5], rel=1e-3)


def test_a_pair_that_gains_is_shared_and_one_that_loses_is_not():
    cluster = Accelerators.of({"v100": 1.0})
    rate = np.array([[4.0]])
    for factor, level in ((0.8, 0.8), (0.4, 0.5)):
        table = Throughputs(("v100",), ("m|1",), rate, rate, np.array([[[4.0 * factor]]]))
        jobs = Jobs.of([Job("x", "m|1", 1.0), Job("y", "m|1", 1.0)], table, cluster)
        assert allocate(jobs, table, cluster, "max_min_fairness_packed", 0.0).value == pytest.approx(level, rel=1e-5)


def test_no_jobs_is_an_empty_allocation():
    none = Jobs.of([], TABLE, CLUSTER)
    for name in ("max_min_fairness_perf", "min_total_duration_perf", "finish_time_fairness_perf", "fifo", "sjf", "allox", "tiresias", "srpt_fair", "srpt_bounded", "isolated",
                 "hierarchical", "composed", "sia", "min_cost", "max_sum_throughput"):
        assert allocate(none, TABLE, CLUSTER, name, 0.0).share.shape == (0, 2)
