"""Chances of a start from the quantiles of a wait."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ischeduler.core.estimate import Estimate
from ischeduler.core.waits import probability_left, probability_within

WAIT = Estimate(60.0, 600.0, 6000.0, "s", "x@1")


def test_the_quantiles_are_met() -> None:
    assert [probability_within(WAIT, q) for q in (60.0, 600.0, 6000.0)] == pytest.approx([0.1, 0.5, 0.9])


def test_who_has_waited_to_the_median_has_half_of_the_rest_before_the_last_tenth() -> None:
    assert probability_left(WAIT, 5400.0, 600.0) == pytest.approx(0.8)
    assert probability_left(WAIT, 600.0, 0.0) == probability_within(WAIT, 600.0)


@given(st.floats(1, 1e5), st.floats(1, 10), st.floats(1, 10), st.floats(0, 1e6), st.floats(1, 1e6), st.floats(1, 100))
def test_what_is_left_is_a_chance_that_grows_with_time(low: float, first: float, second: float, waited: float, seconds: float, more: float) -> None:
    wait = Estimate(low, low * first, low * first * second, "s", "x@1")
    assert 0 <= probability_left(wait, seconds, waited) <= probability_left(wait, seconds * more, waited) < 1
