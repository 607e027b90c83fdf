"""Conformal margins and drift."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ischeduler.estimators.learning.conformal import FEWEST, Margins, lower_quantile, margins, shrunk, upper_quantile
from ischeduler.estimators.learning.drift import last_drift


@given(st.lists(st.floats(-5, 5), min_size=FEWEST, max_size=60))
def test_at_least_nine_tenths_of_the_scores_lie_below_the_upper_margin(scores: list[float]) -> None:
    found = margins(scores)
    assert found is not None
    assert sum(s <= found.high for s in scores) >= 0.9 * len(scores)
    assert sum(s >= found.low for s in scores) >= 0.9 * len(scores)
    assert found.low <= found.high


def test_a_new_score_exceeds_the_upper_margin_one_time_in_ten() -> None:
    rng = random.Random(2)
    beyond = 0
    for _ in range(3000):
        scores = [rng.expovariate(1) for _ in range(29)]
        beyond += rng.expovariate(1) > upper_quantile(scores, 0.9)
    assert 0.08 <= beyond / 3000 <= 0.12


def test_ranks_by_hand() -> None:
    scores = [float(i) for i in range(1, 30)]
    assert upper_quantile(scores, 0.9) == 27
    assert lower_quantile(scores, 0.1) == 3
    assert upper_quantile([1.0, 2.0], 0.9) == 2.0
    assert margins(scores[: FEWEST - 1]) is None


def test_an_interval_keeps_its_median_between_its_ends() -> None:
    assert Margins(-1.0, 2.0, 30).interval(10.0, 0.1) == pytest.approx((10 * math.exp(-0.1), 10.0, 10 * math.exp(0.2)))
    assert Margins(0.5, 2.0, 30).interval(10.0)[0] == 10.0
    assert Margins(-2.0, -1.0, 30).interval(10.0)[2] == 10.0
    assert shrunk(0.2, 1, 0.1) < shrunk(0.2, 100, 0.1) < 0.2


def steady(n: int, level: float = 0.0, noise: float = 0.1, seed: int = 0) -> list[float]:
    rng = random.Random(seed)
    return [rng.gauss(level, noise) for _ in range(n)]


def test_steady_figures_raise_no_alarm() -> None:
    alarms = sum(last_drift(steady(100, 0.2, noise, seed)) is not None for seed in range(100) for noise in (0.02, 0.1, 0.3))
    assert alarms <= 9
    assert last_drift([]) is None
    assert last_drift([3.0]) is None


@pytest.mark.parametrize("shift", [math.log(2), -math.log(2)])
def test_a_doubling_is_noticed_at_once_and_a_single_odd_run_is_not(shift: float) -> None:
    found = last_drift(steady(12, noise=0.03) + steady(3, shift, noise=0.03, seed=1))
    assert found is not None
    assert found.index == pytest.approx(12, abs=1)
    assert found.factor == pytest.approx(math.exp(shift), rel=0.15)
    assert last_drift([*steady(12, noise=0.03), shift, *steady(6, noise=0.03, seed=2)]) is None


def test_the_last_of_several_shifts_counts() -> None:
    found = last_drift(steady(15, noise=0.03) + steady(15, 0.7, 0.03, 1) + steady(15, 0.0, 0.03, 2))
    assert found is not None
    assert found.index == pytest.approx(30, abs=1)
    assert found.factor == pytest.approx(0.5, rel=0.15)
