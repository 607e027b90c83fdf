"""Calibration with labels that arrive late: censored scores, coverage in a queue that changes, no look ahead."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba", reason="numba is not installed")

from ischeduler.estimators.queuewait.conformal import FEWEST, Scale, kaplan_meier, past_scores, rolling

LEVELS = (0.5, 0.9, 0.95)
SCALE = Scale(LEVELS)
Z = NormalDist().inv_cdf


def test_without_censoring_it_is_the_quantile() -> None:
    scores = np.arange(100.0)
    found = kaplan_meier(scores, np.ones(100, bool), np.ones(100), (0.5, 0.95))
    assert found == (49.0, 94.0)


def test_pending_jobs_push_the_bound_up() -> None:
    scores = np.arange(100.0)
    ended = np.ones(100, bool)
    ended[10:60:2] = False
    pushed = kaplan_meier(scores, ended, np.ones(100), (0.5,))[0]
    left_out = kaplan_meier(scores[ended], np.ones(75, bool), np.ones(75), (0.5,))[0]
    assert pushed > left_out
    assert kaplan_meier(np.array([1.0, 2.0]), np.array([True, False]), np.ones(2), (0.9,)) == (math.inf,)


@given(st.lists(st.floats(0, 12), min_size=3, max_size=3), st.floats(0, 15))
@settings(max_examples=60, deadline=None)
def test_score_and_value_are_inverse(told: list[float], value: float) -> None:
    quantiles = SCALE.ordered(np.sort(np.array([told]), axis=1))
    deviate = SCALE.score(quantiles, np.array([value]))
    if abs(deviate[0]) < 7.9:
        assert SCALE.value(quantiles, deviate)[0] == pytest.approx(value, abs=1e-6)


def shifted(count: int = 4000, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Quantiles that are too low by far in the second half, when waits grow tenfold."""
    rng = np.random.default_rng(seed)
    submit = np.sort(rng.uniform(0, 4e6, count))
    wait = np.exp(rng.normal(7, 1, count)) * np.where(np.arange(count) > count // 2, 10, 1)
    quantiles = SCALE.ordered(np.tile([7.0, 7.0 + Z(0.9), 7.0 + Z(0.95)], (count, 1)))
    sizes = np.column_stack([rng.integers(0, 4, count), np.full(count, 12)]).astype(float)
    return quantiles, submit, submit + wait, sizes


def test_bounds_hold_again_soon_after_the_queue_has_changed() -> None:
    quantiles, submit, start, sizes = shifted()
    told = rolling(SCALE, quantiles, submit, start, sizes, (0.95,))[:, 0]
    held = np.log1p(start - submit) <= told
    assert held[500:2000].mean() == pytest.approx(0.95, abs=0.015)
    assert held[3300:].mean() == pytest.approx(0.95, abs=0.03)
    assert (np.log1p(start - submit) <= quantiles[:, 2])[2500:].mean() < 0.5  # what it would have been


def test_a_later_start_changes_no_earlier_bound() -> None:
    quantiles, submit, start, sizes = shifted(1200)
    now = submit[700]
    other = np.where(start >= now, start + np.random.default_rng(3).uniform(0, 1e6, len(start)), start)
    one, two = (rolling(SCALE, quantiles, submit, s, sizes, LEVELS) for s in (start, other))
    np.testing.assert_array_equal(one[:701], two[:701])
    assert not np.array_equal(one, two)


def test_few_scores_leave_the_model_its_own_levels() -> None:
    quantiles, submit, start, sizes = shifted(FEWEST - 1)
    past = past_scores(SCALE, quantiles, submit, start, sizes, math.inf)
    assert past.deviates(1.0, 12.0, (0.5, 0.95)) == (Z(0.5), Z(0.95))


def test_scores_at_hand_ask_for_more_where_bounds_were_short() -> None:
    quantiles, submit, start, sizes = shifted()
    past = past_scores(SCALE, quantiles, submit, start, sizes, math.inf)
    assert past.deviates(1.0, 12.0, (0.95,))[0] > Z(0.95) + 1
    assert past.deviates(1.0, 12.0, (0.5, 0.9, 0.95)) == tuple(sorted(past.deviates(1.0, 12.0, (0.5, 0.9, 0.95))))
