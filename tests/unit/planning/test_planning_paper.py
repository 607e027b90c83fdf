"""The paper's example, given the paper's own times: ideal is 28 h for $0.348, soonest is 9 h for $0.756."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planning_scenes import BATCH_64_MODEL, HOUR, NOW, RESNET, at, by_tag, idle_cpus, memory, paper_needs, pitzer, seconds

from ischeduler.core.plan import PlanSet
from ischeduler.planning.candidates import CandidateKey
from ischeduler.planning.planner import plan


@pytest.fixture
def plans() -> PlanSet:
    return plan(RESNET, [pitzer()], {"pitzer": idle_cpus()}, paper_needs(), NOW)


def test_ideal_is_the_gpu_queue(plans: PlanSet) -> None:
    ideal = by_tag(plans, "ideal")
    assert ideal.where == "pitzer/gpu"
    assert ideal.finish.p50 == 28 * HOUR
    assert ideal.cost.p50 == pytest.approx(0.348)
    assert ideal.cost.unit == "usd"
    assert len(ideal.segments) == 1
    assert "cheapest" in ideal.tags


def test_soonest_is_the_idle_cpu_nodes(plans: PlanSet) -> None:
    soonest = by_tag(plans, "soonest")
    assert soonest.where == "pitzer/cpu"
    assert soonest.finish.p50 == 9 * HOUR
    assert soonest.cost.p50 == pytest.approx(0.756)
    assert soonest.number == 1
    assert "goal" in soonest.tags


def test_the_debug_partition_is_a_cascade_of_three_with_its_interval(plans: PlanSet) -> None:
    debug = at(plans, "pitzer/gpudebug")
    assert [s.walltime_s for s in debug.segments] == [HOUR, HOUR, 2100.0]
    assert debug.run.p50 == 2 * HOUR + 2 * (60 + 2)
    assert debug.wait.p50 == 3 * 2.5 * HOUR
    assert debug.finish.p50 == debug.run.p50 + debug.wait.p50
    assert debug.finish.p10 < debug.finish.p50 < debug.finish.p90
    independent = 3**0.5 * 1.5 * HOUR
    assert debug.finish.p90 - debug.finish.p50 == pytest.approx((independent**2 + 1800**2) ** 0.5)
    assert by_tag(plans, "ideal").finish.p50 > debug.finish.p50 > by_tag(plans, "soonest").finish.p50
    assert not debug.hidden


def test_a_short_debug_queue_is_the_soonest() -> None:
    key = CandidateKey("pitzer", "gpudebug", "v100x2", 32)
    needs = paper_needs()
    needs[key] = replace(needs[key], wait=seconds(60, 300, 2400))
    plans = plan(RESNET, [pitzer()], {"pitzer": idle_cpus()}, needs, NOW)
    assert by_tag(plans, "soonest").where == "pitzer/gpudebug"


def test_batch_64_is_refused_with_what_would_fit() -> None:
    needs = {**paper_needs(32), **paper_needs(64)}
    for partition in ("gpu", "gpudebug"):
        key = CandidateKey("pitzer", partition, "v100x2", 64)
        needs[key] = replace(needs[key], gpu_memory=memory(41), memory_model=BATCH_64_MODEL)
    workload = replace(RESNET, batch_size=(32, 64))
    plans = plan(workload, [pitzer()], {"pitzer": idle_cpus()}, needs, NOW)
    assert {(r.where, r.batch_size) for r in plans.refusals} == {("pitzer/gpu", 64), ("pitzer/gpudebug", 64)}
    for refusal in plans.refusals:
        (blocker,) = refusal.blockers
        assert blocker.kind == "gpu_memory"
        assert blocker.sentence() == "needs 41 GB, card has 32 GB, 9 GB more needed: batch 48 fits, or gradient accumulation 2"
    assert {(p.where, p.workload.batch) for p in plans.plans} >= {("pitzer/cpu", 64), ("pitzer/gpu", 32)}


def test_every_number_says_where_it_came_from(plans: PlanSet) -> None:
    for option in plans.plans:
        for estimate in (option.run, option.wait, option.finish, option.cost):
            assert estimate.source
        for estimate in (option.run, option.wait, option.finish):
            assert "paper@1" in estimate.source
    assert plans.estimators == {"memory": "paper@1", "run": "paper@1", "wait": "paper@1"}


def test_one_gpu_takes_its_fair_share_of_cores_unless_told() -> None:
    untold = replace(RESNET, cpus=None)
    plans = plan(untold, [pitzer()], {"pitzer": idle_cpus()}, paper_needs(), NOW)
    assert at(plans, "pitzer/gpu").resources.cpus_per_node == 24
    assert at(plans, "pitzer/cpu").resources.cpus_per_node == 40
