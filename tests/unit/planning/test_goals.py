"""Deadlines and budgets: who keeps them, with what chance, and what is said when nobody does."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planning_scenes import HOUR, NOW, RESNET, idle_cpus, paper_needs, pitzer, seconds

from ischeduler.core.cluster import ChargePolicy
from ischeduler.core.durations import parse_human
from ischeduler.core.errors import BadInput
from ischeduler.core.estimate import Estimate
from ischeduler.core.plan import PlanSet
from ischeduler.planning.candidates import CandidateKey
from ischeduler.planning.goals import Goal, chance_by
from ischeduler.planning.planner import plan


def planned(goal: Goal | str) -> PlanSet:
    return plan(RESNET, [pitzer()], {"pitzer": idle_cpus()}, paper_needs(), NOW, goal=goal)


def first(goal: Goal | str) -> str:
    return planned(goal).plans[0].where


def test_each_goal_has_its_own_best() -> None:
    assert first("soonest") == "pitzer/cpu"
    assert first("cheapest") == "pitzer/gpu"
    assert first("fewest-interruptions") == "pitzer/cpu"


def test_the_cheapest_that_keeps_the_deadline_comes_first() -> None:
    assert first(Goal("deadline", deadline=NOW + 11 * HOUR)) == "pitzer/cpu"
    assert first(Goal("deadline", deadline=NOW + 13 * HOUR)) == "pitzer/gpudebug"
    assert first(Goal("deadline", deadline=NOW + 40 * HOUR)) == "pitzer/gpu"


def test_the_soonest_within_the_budget_comes_first() -> None:
    assert first(Goal("budget", budget=0.90)) == "pitzer/cpu"
    assert first(Goal("budget", budget=0.45)) == "pitzer/gpudebug"
    assert first(Goal("budget", budget=0.436)) == "pitzer/gpu"


@pytest.mark.parametrize("left_s", [8 * HOUR, 1.0, -HOUR])
def test_a_deadline_that_nothing_keeps_is_refused_with_one_that_can_be_kept(left_s: float) -> None:
    found = planned(Goal("deadline", deadline=NOW + left_s))
    assert not found.plans
    assert len(found.refusals) == 3
    fix = found.refusals[0].blockers[0].fix
    advised = fix.split("deadline=")[1].split()[0]
    again = planned(Goal("deadline", deadline=NOW + parse_human(advised)))
    assert again.plans[0].where == "pitzer/cpu"


def test_a_budget_that_nothing_keeps_is_refused_with_one_that_is_enough() -> None:
    found = planned(Goal("budget", budget=0.10))
    assert {b.kind for r in found.refusals for b in r.blockers} == {"budget"}
    advised = float(found.refusals[0].blockers[0].fix.split("budget=")[1].split()[0])
    assert planned(Goal("budget", budget=advised)).plans[0].where == "pitzer/gpu"


def test_a_budget_in_dollars_where_no_price_is_known() -> None:
    unpriced = replace(pitzer(), charge=ChargePolicy("core-gpu-hours", "RU"))
    found = plan(RESNET, [unpriced], {}, paper_needs(), NOW, goal=Goal("budget", budget=5.0))
    assert {b.fix for r in found.refusals for b in r.blockers} == {"set a price: isched clusters edit NAME"}
    in_units = plan(RESNET, [unpriced], {}, paper_needs(), NOW, goal=Goal("budget", budget=300.0, unit="RU"))
    assert in_units.plans[0].where == "pitzer/cpu"


def test_a_wait_without_a_bound_promises_no_deadline() -> None:
    needs = {k: replace(n, wait=Estimate(0, 60, math.inf, "s", "wait@1")) for k, n in paper_needs().items()}
    found = plan(RESNET, [pitzer()], {}, needs, NOW, goal=Goal("deadline", deadline=NOW + 20 * HOUR))
    assert "no deadline can be promised" in found.refusals[0].blockers[0].fix


intervals = st.lists(st.floats(0, 1e6), min_size=3, max_size=3).map(lambda q: seconds(*sorted(q)))


@given(intervals, st.floats(0, 1e6), st.floats(0, 1e6))
def test_a_chance_is_a_probability_and_grows_with_time(estimate: Estimate, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert 0 <= chance_by(estimate, low) <= chance_by(estimate, high) <= 1


def test_a_chance_meets_the_quantiles() -> None:
    estimate = seconds(60, 100, 500)
    assert [round(chance_by(estimate, q), 6) for q in (60, 100, 500)] == [0.1, 0.5, 0.9]
    assert [chance_by(seconds(100, 100, 100), q) for q in (99, 100)] == [0.0, 1.0]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": "quickest"}, "goal 'quickest' is unknown; expected one of soonest"),
        ({"name": "deadline"}, "goal deadline needs a time"), ({"name": "deadline", "deadline": math.inf}, "needs a time"),
        ({"name": "budget"}, "goal budget needs an amount"), ({"name": "budget", "budget": 0.0}, "above zero"),
    ],
)  # fmt: skip
def test_goals_that_say_nothing_are_refused(fields: dict[str, object], words: str) -> None:
    with pytest.raises(BadInput) as error:
        Goal(**fields)  # type: ignore[arg-type]
    assert words in str(error.value)


def test_costs_in_different_units_are_not_compared_and_it_is_said() -> None:
    unpriced = replace(pitzer(), name="owens", charge=ChargePolicy("node-hours-used", "SU"))
    needs = {**paper_needs(), **{CandidateKey("owens", *k[1:]): n for k, n in paper_needs().items()}}
    found = plan(RESNET, [pitzer(), unpriced], {}, needs, NOW, goal="cheapest")
    assert found.plans[0].cost.unit == "usd"
    assert any("costs in different units (SU, usd) are not compared" in w for w in found.warnings)


def test_options_that_miss_the_deadline_follow_by_their_chance() -> None:
    found = planned(Goal("deadline", deadline=NOW + 11 * HOUR))
    assert [p.where for p in found.plans] == ["pitzer/cpu", "pitzer/gpudebug", "pitzer/gpu"]
