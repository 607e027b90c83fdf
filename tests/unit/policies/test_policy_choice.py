"""Sia's programme: exact against HiGHS's whole one, never over count, and what the formula says of restarts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

from ischeduler.core.errors import BadInput
from ischeduler.policies.choice import choose
from ischeduler.policies.goodput import Batches, StepTime, best_goodput, efficiency
from ischeduler.policies.problem import Accelerators, Job, Jobs, Throughputs
from ischeduler.policies.registry import allocate, objective_of
from ischeduler.policies.sia import assign, configurations, costs

CLUSTER = Accelerators.of({"a100": 8.0, "v100": 8.0}, per_node={"a100": 8, "v100": 4})


def _exact(gain, use, kind, count):
    job, column = np.nonzero(gain > 0)
    if len(job) == 0:
        return 0.0
    rows = np.zeros((len(gain) + len(count), len(job)))
    rows[job, np.arange(len(job))] = 1
    rows[len(gain) + kind[column], np.arange(len(job))] = use[column]
    limit = np.concatenate([np.ones(len(gain)), count])
    found = milp(-gain[job, column], constraints=LinearConstraint(rows, ub=limit), bounds=Bounds(0, 1), integrality=np.ones(len(job)), options={"mip_rel_gap": 0.0})
    return -found.fun


def _instance(seed, jobs):
    rng = np.random.default_rng(seed)
    use, kind = np.array([1, 2, 4, 8, 1, 2, 4, 8, 16]), np.array([0, 0, 0, 0, 1, 1, 1, 1, 1])
    good = rng.uniform(0.2, 1, (jobs, 2))[:, kind] * use ** rng.uniform(0.2, 0.95, (jobs, 1))
    good[rng.random(good.shape) < 0.2] = 0.0
    good[:, 0] = np.maximum(good[:, 0], 0.05)
    cost = costs(good, np.full(jobs, -1), np.full(jobs, 1e4), np.zeros(jobs), np.full(jobs, 30.0))
    gain = np.where(np.isfinite(cost), 1.1 - cost, -1.0)
    return gain, use, kind, rng.integers(1, 4 * jobs + 2, 2).astype(float)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 25))
def test_choice_is_exact_and_fits(seed, jobs):
    gain, use, kind, count = _instance(seed, jobs)
    best = _exact(gain, use, kind, count)
    found = choose(gain, use, kind, count)
    taken = found.chosen[found.chosen >= 0]
    assert (np.bincount(kind[taken], use[taken], 2) <= count).all()
    assert found.value == pytest.approx(best, rel=1e-6, abs=1e-9)
    assert found.bound >= best - 1e-6
    quick = choose(gain, use, kind, count, exact=False)
    assert quick.value <= best + 1e-6
    assert quick.bound >= best - 1e-6


def test_sias_objective_is_within_1e4_of_the_exact_one_on_100_jobs():
    gain, use, kind, _ = _instance(5, 100)
    count = np.array([40.0, 64.0])
    best = 110.0 - _exact(gain, use, kind, count)
    cost = np.where(gain > 0, 1.1 - gain, np.inf)
    configs = configurations(Accelerators.of({"a": 40.0}, per_node=8))
    found = assign(cost, type(configs)(kind, np.ones_like(kind), use), count)
    assert 110.0 - found.value <= best * (1 + 1e-4)


def test_when_the_clock_runs_out_the_repaired_relaxation_stands():
    gain, use, kind, count = _instance(7, 60)
    found = choose(gain, use, kind, np.round(count / 3) + 1, time_limit_s=0.0)
    taken = found.chosen[found.chosen >= 0]
    assert (np.bincount(kind[taken], use[taken], 2) <= np.round(count / 3) + 1).all()
    assert found.value <= found.bound
    assert found.value > 0.9 * found.bound


def test_a_restart_costs_what_is_left_of_the_jobs_time():
    good = np.array([[1.0, 4.0]])
    cost = costs(good, np.array([0]), np.array([570.0]), np.array([1.0]), np.array([30.0]), decimals=None)
    assert cost[0] == pytest.approx([1.0, (4.0 * 540.0 / 600.0) ** -0.5])
    young = costs(good, np.array([0]), np.array([20.0]), np.array([0.0]), np.array([30.0]))
    assert young[0, 1] == 0.5


def test_configurations_are_powers_of_two_in_a_node_then_whole_nodes():
    found = configurations(CLUSTER)
    assert [(int(k), int(m), int(n)) for k, m, n in zip(found.kind, found.nodes, found.accelerators, strict=True)] == [
        (0, 1, 1), (0, 1, 2), (0, 1, 4), (0, 1, 8), (1, 1, 1), (1, 1, 2), (1, 1, 4), (1, 2, 8)]


def test_elastic_jobs_grow_into_an_empty_cluster_and_shrink_in_a_full_one():
    scaling = {f"net|{n}": {"a100": 4.0 * n**0.9, "v100": 2.0 * n**0.9} for n in (1, 2, 4, 8)}
    table = Throughputs.of(scaling, CLUSTER.types)
    for number, least in ((2, 8), (16, 1)):
        jobs = Jobs.of([Job(f"j{i}", "net|1", 1e6, min_accelerators=1, max_accelerators=8) for i in range(number)], table, CLUSTER)
        # At Sia's 1.1 one of two jobs waits while the other has two accelerators; at 2 nobody waits.
        sia = objective_of("sia", options={"unserved": 2.0})
        found = allocate(jobs, table, CLUSTER, sia, 1e4)
        assert found.accelerators.min() == least
        kept = allocate(jobs, table, CLUSTER, sia, 1e4 + 60, found)
        assert (kept.accelerators == found.accelerators).all()


def test_goodputs_of_the_wrong_shape_are_one_sentence():
    table = Throughputs.of({"net|1": {"a100": 1.0}}, CLUSTER.types)
    jobs = Jobs.of([Job("j", "net|1", 1.0)], table, CLUSTER)
    with pytest.raises(BadInput, match="expected 1 rows"):
        allocate(jobs, table, CLUSTER, objective_of("sia", options={"goodput": np.ones((2, 2))}), 0.0)


def test_a_noisier_gradient_wants_larger_batches():
    step, batches = StepTime(0.02, 0.001, 0.05, 0.01, 0.01, 0.005, 1.6), Batches(128, 8192, 512)
    nodes, replicas = np.array([1, 1, 2, 4]), np.array([1, 4, 8, 16])
    quiet, local_quiet, more_quiet = best_goodput(step, batches, 100.0, nodes, replicas)
    noisy, local_noisy, more_noisy = best_goodput(step, batches, 1e5, nodes, replicas)
    assert (noisy >= quiet).all()
    assert (local_noisy * (more_noisy + 1) >= local_quiet * (more_quiet + 1)).all()
    assert efficiency(np.array([128.0]), 128.0, 1000.0) == pytest.approx(1.0)
    assert np.diff(noisy).min() > 0


def test_a_base_batch_above_the_largest_is_one_sentence():
    with pytest.raises(BadInput, match="base batch 64"):
        best_goodput(StepTime(1, 1), Batches(64, 32, 8), 1.0, np.array([1]), np.array([1]))
