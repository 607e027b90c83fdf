"""Bad input is one clear sentence and never a solver's traceback."""

from __future__ import annotations

import numpy as np
import pytest

from ischeduler.core.errors import BadInput, IschedError
from ischeduler.policies.problem import Accelerators, Job, Jobs, Throughputs
from ischeduler.policies.program import NoShares
from ischeduler.policies.registry import allocate, objective_of

CLUSTER = Accelerators.of({"v100": 2.0, "k80": 2.0})
TABLE = Throughputs.of({"ResNet-50|1": {"v100": 10.0, "k80": 2.0}, "nothing|1": {}, "ResNet-50|8": {"v100": 70.0}}, CLUSTER.types)


def _one(**changes):
    return Jobs.of([Job(**{"id": "j", "job_class": "ResNet-50|1", "steps_left": 3600.0, **changes})], TABLE, CLUSTER)


@pytest.mark.parametrize(("changes", "words"), [
    ({"job_class": "ResNet50|1"}, "Nobody measured the job type 'ResNet50|1'; did you mean 'ResNet-50|1'"),
    ({"weight": 0.0}, "has the weight 0; weights are above zero"),
    ({"weight": float("nan")}, "weights are above zero"),
    ({"accelerators": 0}, "ask for at least one"),
    ({"steps_left": -1.0}, "has -1 steps left"),
    ({"min_accelerators": 4, "max_accelerators": 2}, "elastic from 4 to 2"),
])
def test_jobs(changes, words):
    with pytest.raises(BadInput, match=words):
        _one(**changes)


def test_two_jobs_of_one_name():
    with pytest.raises(BadInput, match="Two jobs are called 'j'"):
        Jobs.of([Job("j", "ResNet-50|1", 1.0)] * 2, TABLE, CLUSTER)


@pytest.mark.parametrize("count", [{}, {"v100": 0.0}])
def test_an_empty_cluster(count):
    with pytest.raises(BadInput, match="has no accelerators"):
        Accelerators.of(count)


def test_a_negative_count():
    with pytest.raises(BadInput, match="-1 accelerators of type 'v100'"):
        Accelerators.of({"v100": -1.0, "k80": 2.0})


@pytest.mark.parametrize("name", ["max_min_fairness_perf", "max_min_fairness", "fifo", "allox", "min_total_duration_perf", "sia", "composed", "srpt_fair", "srpt_bounded"])
def test_zero_throughput_everywhere(name):
    with pytest.raises(BadInput, match="makes no progress"):
        allocate(_one(job_class="nothing|1"), TABLE, CLUSTER, name, 0.0)


def test_a_gang_that_is_larger_than_every_type():
    with pytest.raises(BadInput, match="8 accelerators"):
        allocate(_one(job_class="ResNet-50|8", accelerators=8), TABLE, CLUSTER, "max_min_fairness_perf", 0.0)


@pytest.mark.parametrize("value", [float("nan"), -3.0, float("inf")])
def test_throughputs_that_are_no_numbers(value):
    with pytest.raises(BadInput, match="'x' is not a number of zero or more"):
        Throughputs.of({"x": {"v100": value}}, ("v100",))


def test_an_entity_of_no_weight():
    with pytest.raises(BadInput, match="weight of entity 'ops'"):
        Jobs.of([Job("j", "ResNet-50|1", 1.0, entity="ops")], TABLE, CLUSTER, {"ops": 0.0})


def test_a_deadline_that_cannot_be_met_alone():
    priced = Accelerators.of({"v100": 2.0, "k80": 2.0}, price_per_h=1.0)
    for name in ("min_cost_SLOs", "max_sum_throughput_normalized_by_cost_SLOs"):
        with pytest.raises(NoShares, match=r"cannot meet its deadline in 10 s: it needs 360 s on its fastest type even alone"):
            allocate(_one(deadline_s=10.0), TABLE, priced, name, 0.0)


def test_deadlines_that_cannot_be_met_together_and_what_relaxing_does():
    priced = Accelerators.of({"v100": 1.0, "k80": 1.0}, price_per_h=1.0)
    jobs = Jobs.of([Job(f"j{i}", "ResNet-50|1", 3600.0, deadline_s=400.0) for i in range(4)], TABLE, priced)
    with pytest.raises(NoShares, match=r"The deadlines cannot all be met: the best split reaches \d+\.\d% of the pace"):
        allocate(jobs, TABLE, priced, "min_cost_SLOs", 0.0)
    relaxed = allocate(jobs, TABLE, priced, objective_of("min_cost_SLOs", options={"relax": True}), 0.0)
    assert np.ptp(relaxed.score) < 1e-3 * relaxed.score.max()


def test_a_budget_nothing_can_be_bought_for():
    priced = Accelerators.of({"v100": 2.0, "k80": 2.0}, price_per_h=2.0)
    with pytest.raises(NoShares, match=r"costs at least 0\.20 to finish and its budget is 0\.10"):
        allocate(_one(budget=0.1), TABLE, priced, "min_cost", 0.0)


@pytest.mark.parametrize(("name", "words"), [
    ("min_cost", "needs a price above zero for every type"),
    ("max_min_fairness_packed", "no throughput of a pair is known"),
    ("gandiva", "no throughput of a pair is known"),
])
def test_what_a_policy_needs_and_has_not(name, words):
    with pytest.raises(BadInput, match=words):
        allocate(_one(), TABLE, CLUSTER, name, 0.0)


def test_allox_says_that_it_places_single_accelerators():
    with pytest.raises(BadInput, match="one accelerator each, and job 'j' uses 2"):
        allocate(_one(accelerators=2), TABLE, CLUSTER, "allox", 0.0)


@pytest.mark.parametrize(("name", "options", "words"), [
    ("srpt_fair", {"guard": 2.0}, "from 0 to 1"), ("srpt_bounded", {"bound": 0.0}, "above zero"), ("srpt_bounded", {"laxity": 2.0}, "at most 1"),
    ("srpt_bounded", {"power": -1.0}, "zero or more"), ("min_cost", {"worth": 0.5}, "must be above 1"),
])
def test_options_out_of_range(name, options, words):
    priced = Accelerators.of({"v100": 2.0, "k80": 2.0}, price_per_h=2.0)
    with pytest.raises(BadInput, match=words):
        allocate(_one(), TABLE, priced, objective_of(name, options=options), 0.0)


def test_an_unknown_policy_names_its_neighbours():
    with pytest.raises(IschedError, match="did you mean max_min_fairness"):
        objective_of("max_min_fairnes")
