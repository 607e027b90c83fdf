"""What must hold in any world the planner is shown."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from planning_scenes import HOUR, NOW
from planning_worlds import World, worlds

from ischeduler.core.blocker import KINDS
from ischeduler.core.plan import GOALS, PlanSet
from ischeduler.planning.candidates import candidates
from ischeduler.planning.goals import Goal
from ischeduler.planning.planner import plan

any_world = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
goals = st.sampled_from([
    Goal("soonest"), Goal("cheapest"), Goal("fewest-interruptions"), Goal("deadline", deadline=NOW + 6 * HOUR),
    Goal("deadline", deadline=NOW + 100 * HOUR), Goal("budget", budget=1.0), Goal("budget", budget=50.0), Goal("budget", budget=40.0, unit="SU"),
])  # fmt: skip


def planned(world: World, goal: Goal | str = "soonest") -> PlanSet:
    return plan(world.workload, world.clusters, world.snapshots, world.needs, NOW, goal=goal)


@any_world
@given(worlds(), goals, st.randoms(use_true_random=False))
def test_the_order_of_the_input_changes_nothing(world: World, goal: Goal, random) -> None:
    def mixed(items):
        items = list(items)
        random.shuffle(items)
        return items

    clusters = [replace(c, partitions=tuple(mixed(c.partitions)), node_types=tuple(mixed(c.node_types))) for c in mixed(world.clusters)]
    queues = {
        k: replace(world.snapshots[k], nodes=tuple(mixed(world.snapshots[k].nodes)), jobs=tuple(mixed(world.snapshots[k].jobs)))
        for k in mixed(world.snapshots)
    }
    needs = {k: world.needs[k] for k in mixed(world.needs)}
    assert planned(replace(world, clusters=tuple(clusters), snapshots=queues, needs=needs), goal) == planned(world, goal)


@any_world
@given(worlds(), goals)
def test_every_candidate_is_planned_or_refused_with_a_fix(world: World, goal: Goal) -> None:
    found = planned(world, goal)
    planned_keys = {(p.cluster, p.partition, p.node_type, p.workload.batch) for p in found.plans}
    refused_keys = {(r.cluster, r.partition, r.node_type, r.batch_size) for r in found.refusals}
    assert planned_keys | refused_keys == {tuple(c.key) for c in candidates(world.workload, world.clusters)}
    assert not planned_keys & refused_keys
    for refusal in found.refusals:
        assert refusal.blockers
        assert all(b.kind in KINDS and b.have and b.fix for b in refusal.blockers)


@any_world
@given(worlds(), goals)
def test_numbers_are_finite_ordered_and_consistent(world: World, goal: Goal) -> None:
    found = planned(world, goal)
    assert [p.number for p in found.plans] == list(range(1, len(found.plans) + 1))
    for option in found.plans:
        for estimate in (option.run, option.wait, option.finish, option.cost):
            assert all(math.isfinite(q) and q >= 0 for q in (estimate.p10, estimate.p50, estimate.p90))
        assert option.resources.walltime_s == option.segments[0].walltime_s
        startup_s = option.needs.startup.p50 if option.needs.startup else 0.0
        assert option.needs.run is not None
        assert sum(s.useful_s for s in option.segments) + startup_s >= option.needs.run.p90 * (1 - 1e-9) - 1e-3


@any_world
@given(worlds(), goals)
def test_no_plan_breaks_a_rule_of_its_place(world: World, goal: Goal) -> None:
    clusters = {c.name: c for c in world.clusters}
    for option in planned(world, goal).plans:
        place = clusters[option.cluster].partition(option.partition)
        node = clusters[option.cluster].node_type(option.node_type)
        assert place.state == "UP"
        assert place.access is None or place.access.allowed
        assert place.min_nodes <= option.resources.nodes <= (place.max_nodes or option.resources.nodes)
        assert all(s.walltime_s <= (place.max_walltime_s or math.inf) for s in option.segments)
        assert len(option.segments) == 1 or (place.chaining_allowed and option.workload.checkpoints)
        assert option.resources.gpus_per_node <= node.accelerators_per_node
        assert option.resources.cpus_per_node <= (node.cores or 0)
        if option.resources.gpus_per_node and option.needs.gpu_memory and node.accelerator:
            assert option.needs.gpu_memory.p90 <= node.accelerator.memory_bytes
        if option.resources.memory_bytes and node.memory_bytes:
            assert option.resources.memory_bytes <= node.memory_bytes


@any_world
@given(worlds(), st.data())
def test_removing_an_option_never_improves_the_best(world: World, data: st.DataObject) -> None:
    found = planned(world)
    if len(found.plans) < 2:
        return
    gone = data.draw(st.sampled_from(found.plans))
    key = (gone.cluster, gone.partition, gone.node_type, gone.workload.batch)
    fewer = planned(replace(world, needs={k: n for k, n in world.needs.items() if tuple(k) != key}))
    for goal in ("soonest", "cheapest"):
        before, after = planned(world, goal).plans[0], [p for p in fewer.plans if goal in p.tags]
        if after and goal == "soonest":
            assert after[0].finish.p50 >= before.finish.p50
        if after and goal == "cheapest" and after[0].cost.unit == before.cost.unit:
            assert after[0].cost.p50 >= before.cost.p50


@any_world
@given(worlds(), st.floats(1.0, 5.0))
def test_a_longer_training_never_costs_less(world: World, factor: float) -> None:
    longer = {k: replace(n, run=n.run.scaled(factor)) if n.run else n for k, n in world.needs.items()}
    slow = planned(replace(world, snapshots={}, needs=longer))
    costs = {(p.where, p.node_type, p.workload.batch): p.cost for p in planned(replace(world, snapshots={})).plans}
    for option in slow.plans:
        before = costs[option.where, option.node_type, option.workload.batch]
        assert option.cost.p50 >= before.p50 * (1 - 1e-9)
        assert option.cost.p90 >= before.p90 * (1 - 1e-9)


@any_world
@given(worlds(), goals)
def test_each_tag_is_given_once_and_is_true(world: World, goal: Goal) -> None:
    found = planned(world, goal)
    if not found.plans:
        return
    tags = [t for p in found.plans for t in p.tags]
    assert sorted(tags) == ["cheapest", "goal", "ideal", "soonest"]
    assert "goal" in found.plans[0].tags
    assert goal.name in GOALS
    soonest = next(p for p in found.plans if "soonest" in p.tags)
    assert soonest.finish.p50 == min(p.finish.p50 for p in found.plans)
    assert not any(p.hidden and p.tags for p in found.plans)


@any_world
@given(worlds())
def test_hidden_options_are_beaten_and_shown_ones_are_not(world: World) -> None:
    found = planned(world)

    def respects(p):
        interruptions = len(p.segments) - 1 + any("preempted" in n for n in p.notes)
        return (p.finish.p50, p.finish.p90, p.cost.p50, p.cost.p90, interruptions)

    for option in found.plans:
        better = [
            p for p in found.plans
            if (p.workload.batch, p.cost.unit) == (option.workload.batch, option.cost.unit) and respects(p) != respects(option)
            and all(a <= b for a, b in zip(respects(p), respects(option), strict=True))
        ]  # fmt: skip
        assert bool(better) == option.hidden or (better and option.tags)
    numbers = [p.hidden for p in found.plans]
    assert numbers == sorted(numbers)
    assert found.shown == tuple(p for p in found.plans if not p.hidden)


@any_world
@given(worlds(), goals)
def test_a_deadline_or_budget_that_one_option_keeps_is_kept_by_the_first(world: World, goal: Goal) -> None:
    found, free = planned(world, goal), planned(world)
    if goal.name == "deadline" and goal.deadline is not None:
        keeps = [p for p in free.plans if p.finish.p90 <= goal.deadline - NOW]
        kept = found.plans and found.plans[0].finish.p90 <= goal.deadline - NOW
    elif goal.name == "budget" and goal.budget is not None:
        keeps = [p for p in free.plans if p.cost.unit == goal.unit and p.cost.p90 <= goal.budget]
        kept = found.plans and found.plans[0].cost.p90 <= goal.budget and found.plans[0].cost.unit == goal.unit
    else:
        return
    assert bool(keeps) == bool(kept)
    if free.plans and not keeps:
        assert not found.plans
        assert goal.name in {b.kind for r in found.refusals for b in r.blockers}
