"""Water filling against the definition, hierarchies by weight and rule, compositions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from policy_worlds import best_level, most_sum, used, world, worlds

from ischeduler.core.errors import BadInput
from ischeduler.policies.problem import Accelerators, Job, Jobs, Throughputs, even_rates, rates
from ischeduler.policies.registry import allocate, objective_of

CLUSTER = Accelerators.of({"v100": 6.0})
TABLE = Throughputs.of({"model|1": {"v100": 2.0}}, ("v100",))


def _filled(norm, size, count, weight):
    """The leximin by its definition: raise the level, then ask for every job by itself whether it could have more."""
    jobs = len(norm)
    reached, rising = np.zeros(jobs), np.ones(jobs, dtype=bool)
    while rising.any():
        need = np.where(rising, weight / size, 0.0)
        level = best_level(norm, size, count, need, reached * (1 - 1e-9))
        reached = reached + level * need
        stuck = []
        for j in np.flatnonzero(rising):
            only = np.zeros_like(norm)
            only[j] = norm[j]
            if most_sum(only, size, count, reached * (1 - 1e-8), norm) <= reached[j] * (1 + 1e-5) + 1e-9:
                stuck.append(j)
        assert stuck
        rising[stuck] = False
    return reached * size / weight


@settings(max_examples=12, deadline=None)
@given(worlds(most_jobs=7))
def test_water_filling_is_the_leximin(problem):
    jobs, table, cluster = problem
    rate = rates(jobs, table, cluster, objective_of("max_min_fairness_water_filling_perf"))
    norm = rate / even_rates(rate, cluster)[:, None]
    found = allocate(jobs, table, cluster, "max_min_fairness_water_filling_perf", 0.0)
    assert found.score == pytest.approx(_filled(norm, jobs.accelerators, cluster.count, jobs.weight), rel=1e-3)


def _teams(**number):
    rows = [Job(f"{team}{i}", "model|1", 1e5, arrived_s=float(i), entity=team) for team, n in number.items() for i in range(n)]
    return Jobs.of(rows, TABLE, CLUSTER, {"big": 2.0, "small": 1.0})


def test_entities_share_by_weight_not_by_number_of_jobs():
    jobs = _teams(big=8, small=30)
    share = allocate(jobs, TABLE, CLUSTER, "hierarchical_perf", 0.0).share[:, 0]
    assert share[:8].sum() == pytest.approx(4.0, rel=1e-4)
    assert share[8:].sum() == pytest.approx(2.0, rel=1e-4)


def test_within_a_fifo_entity_the_first_are_served():
    jobs = _teams(big=8, small=8)
    share = allocate(jobs, TABLE, CLUSTER, objective_of("hierarchical_perf", options={"within": {"big": "fifo"}}), 0.0).share[:, 0]
    assert share[:4] == pytest.approx(1.0, rel=1e-4)
    assert share[4:8] == pytest.approx(0.0, abs=1e-3)
    assert share[8:] == pytest.approx(0.25, rel=1e-3)


def test_what_an_entity_leaves_goes_to_the_others():
    jobs = _teams(big=1, small=9)
    share = allocate(jobs, TABLE, CLUSTER, "hierarchical_perf", 0.0).share[:, 0]
    assert share[0] == pytest.approx(1.0, rel=1e-4)
    assert share[1:].sum() == pytest.approx(5.0, rel=1e-4)


def test_a_composition_gives_each_entity_its_slice_and_its_own_policy():
    jobs = _teams(big=8, small=8)
    found = allocate(jobs, TABLE, CLUSTER, objective_of("composed", options={"within": {"big": "fifo_perf", "": "max_min_fairness_perf"}}), 0.0)
    share = found.share[:, 0]
    assert share[:8] == pytest.approx([1, 1, 1, 1, 0, 0, 0, 0], abs=1e-6)
    assert share[8:] == pytest.approx(0.25, rel=1e-4)
    assert set(found.memory) == {"big", "small"}


@settings(max_examples=12, deadline=None)
@given(worlds(entities=3))
def test_a_composition_serves_at_least_the_slices(problem):
    jobs, table, cluster = problem
    found = allocate(jobs, table, cluster, "composed", 0.0)
    load, time = used(found, jobs)
    assert (load <= cluster.count * (1 + 1e-6)).all()
    assert (time <= 1 + 1e-6).all()
    for e in np.unique(jobs.entity):
        rows = np.flatnonzero(jobs.entity == e)
        own = replace(cluster, count=cluster.count / len(np.unique(jobs.entity)), whole=cluster.count)
        alone = allocate(jobs.take(rows), table, own, "max_min_fairness_perf", 0.0)
        rate = rates(jobs, table, cluster, objective_of("composed"))[rows]
        assert ((rate * found.share[rows]).sum(axis=1) >= (rate * alone.share).sum(axis=1) * (1 - 1e-6)).all()


def test_compositions_do_not_nest_and_rules_have_names():
    jobs = _teams(big=1, small=1)
    with pytest.raises(BadInput, match="within a composition"):
        allocate(jobs, TABLE, CLUSTER, objective_of("composed", options={"within": "composed"}), 0.0)
    with pytest.raises(BadInput, match="'fairness' or 'fifo'"):
        allocate(jobs, TABLE, CLUSTER, objective_of("hierarchical", options={"within": "lottery"}), 0.0)


def test_a_level_is_not_promised_beyond_what_the_solution_gives():
    """A world in which the second level asked for a hair more than the first had left, and no shares came at all."""
    rng = np.random.default_rng(2475)
    count = rng.integers(4, 13, int(rng.integers(1, 4)))
    jobs, table, cluster = world(rng, int(rng.integers(1, 13)), count, sizes=(1, 1, 2, 4), weights=(1.0, 1.0, 5.0), holes=True, entities=2)
    found = allocate(jobs, table, cluster, "max_min_fairness_water_filling_perf", 60000.0)
    load, time = used(found, jobs)
    assert (load <= cluster.count * (1 + 1e-9)).all()
    assert (time <= 1 + 1e-9).all()
    first = allocate(jobs, table, cluster, "max_min_fairness_perf", 60000.0)
    assert found.value == pytest.approx(first.value, rel=1e-6)
