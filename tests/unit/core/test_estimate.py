"""Estimates keep their order, and sums of them stay honest."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ischeduler.core.estimate import BASES, Estimate, total

amounts = st.floats(0, 1e9)


@st.composite
def estimates(draw: st.DrawFn, unit: str = "s") -> Estimate:
    low, middle, high = sorted(draw(st.lists(amounts, min_size=3, max_size=3)))
    as_of = draw(st.none() | st.floats(0, 2e9))
    return Estimate(low, middle, high, unit, draw(st.sampled_from(["a@1", "b@2"])), draw(st.sampled_from(BASES)), as_of)


parts_lists = st.lists(estimates(), min_size=1, max_size=6)


@given(st.floats(0.001, 1e9), st.floats(0, 10))
def test_spread_is_symmetric_in_the_logarithm(value: float, relative: float) -> None:
    e = Estimate.spread(value, relative, "s", "x@1")
    assert 0 < e.p10 <= e.p50 <= e.p90
    assert e.p10 * e.p90 == pytest.approx(value**2)


@given(parts_lists, st.booleans())
def test_a_sum_keeps_order_and_median(parts: list[Estimate], independent: bool) -> None:
    summed = total(parts, independent=independent)
    assert summed.p10 <= summed.p50 <= summed.p90
    assert summed.p50 == pytest.approx(sum(p.p50 for p in parts))
    assert summed.p10 >= -1e-3


@given(parts_lists)
def test_independent_parts_never_spread_wider_than_dependent_ones(parts: list[Estimate]) -> None:
    apart, together = total(parts, independent=True), total(parts)
    assert together.p10 - 1e-3 <= apart.p10 * (1 + 1e-9) + 1e-3
    assert apart.p90 <= together.p90 * (1 + 1e-9) + 1e-3


@given(parts_lists)
def test_a_sum_is_as_weak_and_as_old_as_its_weakest_part(parts: list[Estimate]) -> None:
    summed = total(parts)
    assert BASES.index(summed.basis) == max(BASES.index(p.basis) for p in parts)
    dates = [p.as_of for p in parts if p.as_of is not None]
    assert summed.as_of == (min(dates) if dates else None)


@given(parts_lists, st.randoms(use_true_random=False))
def test_the_order_of_parts_does_not_matter(parts: list[Estimate], random) -> None:
    mixed = list(parts)
    random.shuffle(mixed)
    one, other = total(parts, source="s", independent=True), total(mixed, source="s", independent=True)
    assert (one.p10, one.p50, one.p90) == pytest.approx((other.p10, other.p50, other.p90))


def test_one_exact_part_moves_the_interval_without_widening_it() -> None:
    wait = Estimate(60, 600, 1200, "s", "wait@1")
    summed = total([wait, Estimate.exact(100, "s", "given@1")], independent=True)
    assert (summed.p10, summed.p50, summed.p90) == (160, 700, 1300)


def test_an_unbounded_part_makes_an_unbounded_sum_and_not_a_failure() -> None:
    endless = Estimate(0, math.inf, math.inf, "s", "x@1")
    for independent in (False, True):
        summed = total([endless, Estimate(1, 2, 3, "s", "y@1")], independent=independent)
        assert summed.p50 == math.inf
        assert summed.p10 <= summed.p50


@given(estimates(), st.floats(0, 100))
def test_scaling(estimate: Estimate, factor: float) -> None:
    scaled = estimate.scaled(factor, unit="usd")
    assert scaled.unit == "usd"
    assert scaled.p90 == pytest.approx(estimate.p90 * factor)


def test_nothing_of_something_unbounded_is_nothing() -> None:
    assert Estimate(0, 1, math.inf, "s", "x@1").scaled(0).p90 == 0


@pytest.mark.parametrize("quantiles", [(2, 1, 3), (1, 3, 2), (math.nan, 1, 2), (1, 2, math.nan)])
def test_what_is_no_interval_is_refused(quantiles: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match=r"x@1"):
        Estimate(*quantiles, "s", "x@1")


def test_units_are_not_mixed_and_nothing_is_not_summed() -> None:
    with pytest.raises(ValueError, match="units differ"):
        total([Estimate.exact(1, "s", "x@1"), Estimate.exact(1, "usd", "x@1")])
    with pytest.raises(ValueError, match="nothing to add"):
        total([])


def test_age() -> None:
    estimate = Estimate(1, 2, 3, "s", "x@1", as_of=100.0)
    assert [estimate.age_s(t) for t in (160.0, 50.0)] == [60.0, 0.0]
    assert Estimate.exact(1, "s", "x@1").age_s(5.0) is None


@given(st.lists(estimates(), min_size=2, max_size=5))
def test_adding_a_part_never_brings_the_median_down(parts: list[Estimate]) -> None:
    medians = [total(parts[: n + 1], independent=True).p50 for n in range(len(parts))]
    assert all(a <= b for a, b in pairwise(medians))
