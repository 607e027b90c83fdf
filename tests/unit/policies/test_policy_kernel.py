"""The solver's kernel: exact against HiGHS, the same in both forms, at its own word about the optimum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_worlds import best_level, most_sum

from ischeduler.policies import program
from ischeduler.policies.program import NoShares, most_gain, raise_level

quick = settings(max_examples=40, deadline=None)


def _numbers(seed, jobs, kinds):
    rng = np.random.default_rng(seed)
    speed = rng.lognormal(0, 1.5, (jobs, kinds))
    speed[rng.random(speed.shape) < 0.2] = 0.0
    speed[:, 0] = np.maximum(speed[:, 0], 0.01)
    return rng, speed, rng.choice([1.0, 2.0, 4.0, 8.0], jobs), rng.integers(8, 40, kinds).astype(float)


@quick
@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(1, 5))
def test_level_is_highs_in_both_forms(seed, jobs, kinds):
    rng, speed, size, count = _numbers(seed, jobs, kinds)
    need = rng.lognormal(0, 1, jobs)
    reference = best_level(speed, size, count, need)
    for twin in (False, True):
        found = raise_level(speed, size, count, need=need, twin=twin)
        assert found.level == pytest.approx(reference, rel=1e-6)
        assert (found.share.sum(axis=1) <= 1 + 1e-12).all()
        assert ((found.share * size[:, None]).sum(axis=0) <= count * (1 + 1e-12)).all()


@quick
@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 4))
def test_the_duals_prove_the_level(seed, jobs, kinds):
    _, speed, size, count = _numbers(seed, jobs, kinds)
    found = raise_level(speed, size, count)
    value = (found.worth[:, None] * speed - size[:, None] * found.price).max(axis=1)
    bound = (found.price @ count + np.maximum(value, 0).sum()) / found.worth.sum()
    assert found.level <= bound * (1 + 1e-12)
    assert bound == pytest.approx(found.level, rel=1e-6)


@quick
@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 4), st.floats(0.0, 0.95))
def test_most_gain_with_floors_is_highs(seed, jobs, kinds, part):
    rng, speed, size, count = _numbers(seed, jobs, kinds)
    gain = speed * rng.lognormal(0, 1, (jobs, 1))
    floor = np.full(jobs, part * raise_level(speed, size, count).level)
    for twin in (False, True):
        found = most_gain(gain, size, count, speed=speed, floor=floor, twin=twin)
        assert found.level == pytest.approx(most_sum(gain, size, count, floor, speed), rel=1e-6)
        assert ((speed * found.share).sum(axis=1) >= floor * (1 - 1e-6)).all()


def test_identical_jobs_are_merged_without_a_trace():
    rng, speed, size, count = _numbers(3, 10, 3)
    many = rng.integers(0, 10, 400)
    merged = raise_level(speed[many], size[many], count)
    assert np.unique(merged.share.round(9), axis=0).shape[0] <= 10
    assert merged.level == pytest.approx(best_level(speed[many], size[many], count), rel=1e-6)


def test_floors_that_cannot_hold_are_one_sentence():
    with pytest.raises(NoShares, match="do not fit into the cluster"):
        raise_level(np.ones((4, 1)), np.ones(4), np.array([1.0]), need=np.array([1.0, 0, 0, 0]), floor=np.array([0.0, 0.9, 0.9, 0.9]))


def test_types_without_accelerators_get_nothing():
    found = raise_level(np.ones((3, 2)), np.ones(3), np.array([2.0, 0.0]))
    assert found.level == pytest.approx(2 / 3)
    assert not found.share[:, 1].any()


def test_no_jobs_no_shares():
    assert raise_level(np.zeros((0, 2)), np.zeros(0), np.ones(2)).share.shape == (0, 2)


def test_both_forms_walk_the_same_way():
    if program.machine_code() is None:
        pytest.skip("numba is not installed here")
    _, speed, size, count = _numbers(11, 300, 3)
    one, other = raise_level(speed, size, count), raise_level(speed, size, count, twin=True)
    assert one.iterations == other.iterations
    assert one.share == pytest.approx(other.share, abs=1e-7)
