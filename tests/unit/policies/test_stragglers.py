"""Slow nodes: found when they are, never by one slow step, in any unit."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ischeduler.core.errors import BadInput
from ischeduler.policies.stragglers import Look, avoided, stragglers

times = st.lists(st.floats(0.9, 1.1), min_size=8, max_size=20)


def looks(job: str, node: str, seconds: list[float], factor: float = 1.0) -> list[Look]:
    return [Look(job, "v100", node, factor * t) for t in seconds]


@given(times, times, st.floats(1.6, 20))
def test_a_node_that_is_slow_all_the_time_is_found_and_no_other(here: list[float], there: list[float], factor: float):
    found = stragglers([*looks("a", "n1", there), *looks("a", "n2", here, factor)])
    assert [(s.job, s.node) for s in found] == [("a", "n2")]
    assert found[0].ratio > 1.2
    assert "n2" in found[0].words


@given(times, times, st.floats(10, 1000), st.integers(0, 7))
def test_one_slow_step_makes_no_straggler(here: list[float], there: list[float], jump: float, at: int):
    here[at] *= jump
    assert stragglers([*looks("a", "n1", there), *looks("a", "n2", here)]) == ()


@given(times, times, st.floats(0.2, 3), st.floats(1e-4, 1e4), st.randoms())
def test_neither_the_unit_nor_the_order_matters(here: list[float], there: list[float], factor: float, unit: float, chance: random.Random):
    some = [*looks("a", "n1", there), *looks("a", "n2", here, factor)]
    mixed = [Look(x.job, x.type, x.node, unit * x.step_time_s) for x in some]
    chance.shuffle(mixed)
    assert [(s.job, s.node) for s in stragglers(some)] == [(s.job, s.node) for s in stragglers(mixed)]


@given(times, times)
def test_jobs_are_compared_with_themselves_and_types_with_their_own(quick: list[float], slow: list[float]):
    assert stragglers([*looks("quick", "n1", quick), *looks("slow", "n2", slow, 10.0)]) == ()
    old = [Look("a", "k80", "n2", 10 * t) for t in slow]
    assert stragglers([*looks("a", "n1", quick), *old]) == ()


def test_a_few_looks_judge_nothing():
    assert stragglers([*looks("a", "n1", [1.0] * 3), *looks("a", "n2", [9.0] * 9)]) == ()
    assert stragglers([*looks("a", "n1", [1.0] * 9), *looks("a", "n2", [9.0] * 3)]) == ()


def test_a_node_is_avoided_by_whom_it_slows_and_by_all_when_two_agree():
    some = [*looks("a", "n1", [1.0] * 8), *looks("a", "n2", [2.0] * 8), *looks("b", "n1", [5.0] * 8), *looks("b", "n2", [9.0] * 8)]
    both = stragglers(some)
    assert avoided(both, "a") == avoided(both, "c") == ("n2",)
    alone = stragglers(some[:16])
    assert avoided(alone, "a") == ("n2",)
    assert avoided(alone, "c") == ()


def test_what_cannot_be_is_one_sentence():
    with pytest.raises(BadInput, match="above 1"):
        stragglers([], ratio=1.0)
    with pytest.raises(BadInput, match="above zero"):
        stragglers([Look("a", "v100", "n1", 0.0)])
