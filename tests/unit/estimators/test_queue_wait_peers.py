"""The peers: each causal, each saying only what it can, with the statistics it is known for."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("lightgbm", reason="LightGBM is not installed")
pytest.importorskip("numba", reason="numba is not installed")

from queue_wait_worlds import shuffled_after, trace
from scipy.stats import binom

from ischeduler.estimators.queuewait.features import of_trace
from ischeduler.estimators.queuewait.learner import HORIZONS_S, Settings
from ischeduler.estimators.queuewait.model import CALIBRATED
from ischeduler.estimators.queuewait.peers import FEWEST_OBSERVED, PEERS, AtLimits, Bmbp, Forecaster, MeanOfLast, Trees
from ischeduler.estimators.queuewait.service import pinball
from ischeduler.simulator.kernel import rollouts

JOBS = trace(seed=2)
FROM_S = float(JOBS.submit_s[1000])
FEATURES = of_trace(JOBS, twin=rollouts)
LATER_S = float(JOBS.submit_s[1200])
OTHER = shuffled_after(JOBS, LATER_S)
OTHERS = of_trace(OTHER, twin=rollouts)
QUICK = Settings(rounds=12, leaves=15, least_in_leaf=30)
BOUND = CALIBRATED.index(0.95)


@pytest.mark.parametrize("peer", PEERS, ids=lambda p: p.name)
def test_another_future_changes_nothing_a_peer_says(peer: Forecaster) -> None:
    told, again = peer.told(JOBS, FEATURES, FROM_S), peer.told(OTHER, OTHERS, FROM_S)
    before = int((JOBS.submit_s[JOBS.submit_s >= FROM_S] <= LATER_S).sum())
    np.testing.assert_array_equal(told.log_waits[:before], again.log_waits[:before])
    np.testing.assert_array_equal(told.chances[:before], again.chances[:before])
    assert told.log_waits.shape == (int((JOBS.submit_s >= FROM_S).sum()), len(CALIBRATED))


def test_names_differ() -> None:
    assert len({p.name for p in PEERS}) == len(PEERS)


def test_the_bound_is_the_order_statistic_that_the_binomial_law_asks_for() -> None:
    told = Bmbp(last=200).told(JOBS, FEATURES, FROM_S)
    row = 1100
    known = np.sort(JOBS.start_s[JOBS.start_s < JOBS.submit_s[row]])[-200:]
    waits = np.sort([JOBS.wait_s[k] for s in known for k in np.flatnonzero(JOBS.start_s == s)][-200:])
    place = next(k for k in range(1, 201) if binom.cdf(k - 1, 200, 0.95) >= 0.95)
    assert np.expm1(told.log_waits[row - 1000, BOUND]) == pytest.approx(waits[place - 1], rel=0.02)
    assert binom.cdf(FEWEST_OBSERVED - 1, FEWEST_OBSERVED, 0.95) >= 0.95 > binom.cdf(FEWEST_OBSERVED - 2, FEWEST_OBSERVED - 1, 0.95)


def test_qbets_forgets_after_a_change() -> None:
    rng = np.random.default_rng(0)
    submit = np.arange(1500) * 600.0
    waits = np.where(np.arange(1500) < 900, rng.exponential(600, 1500), rng.exponential(60000, 1500))
    jobs = type(JOBS)(submit, submit + waits, submit + waits + 60, *(np.ones(1500) for _ in range(2)), *(np.zeros(1500, int) for _ in range(3)))
    quiet, quick = (p.told(jobs, np.empty((1500, 0)), float(submit[800])).log_waits[:, BOUND] for p in (Bmbp(), Bmbp(misses=3)))
    after = slice(300, 400)
    held = [(np.log1p(waits[800:][after]) <= bound[after]).mean() for bound in (quiet, quick)]
    assert held[1] > held[0]
    assert quick[after].mean() > quiet[after].mean() + 0.2


def test_the_mean_is_of_jobs_that_had_started() -> None:
    told = MeanOfLast(50).told(JOBS, FEATURES, FROM_S)
    known = np.argsort(JOBS.start_s, kind="stable")
    known = known[JOBS.start_s[known] < JOBS.submit_s[1000]][-50:]
    assert np.expm1(told.log_waits[0, CALIBRATED.index(0.5)]) == pytest.approx(JOBS.wait_s[known].mean())
    assert told.chances[0, 0] == pytest.approx((JOBS.wait_s[known] <= HORIZONS_S[0]).mean())


def test_ours_foretells_better_than_every_statistic_of_the_past() -> None:
    """Slurm's plan is apart: this cluster obeys the simulator that makes the plan."""
    truth = np.log1p(JOBS.wait_s[1000:])
    others = [p for p in PEERS if not isinstance(p, AtLimits)]
    losses = {p.name: np.nanmean(np.abs(p.told(JOBS, FEATURES, FROM_S).log_waits[:, 1] - truth)) for p in (Trees((QUICK,)), *others)}
    assert min(losses, key=lambda n: losses[n]) == "ours"


def test_pinball_charges_each_side_by_its_level() -> None:
    assert pinball(np.array([[1.0]]), np.array([2.0]), (0.9,)) == pytest.approx(0.9)
    assert pinball(np.array([[3.0]]), np.array([2.0]), (0.9,)) == pytest.approx(0.1)


@pytest.mark.torch
def test_the_network_learns_and_sees_no_future() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from ischeduler.estimators.queuewait.trout import Trout

    trout = Trout(epochs=3, refits=1)
    told = trout.told(JOBS, FEATURES, FROM_S)
    other = shuffled_after(JOBS, FROM_S)
    again = trout.told(other, of_trace(other, twin=rollouts), FROM_S)
    np.testing.assert_allclose(told.log_waits[0], again.log_waits[0], rtol=1e-4)
    quick = JOBS.wait_s[1000:] <= HORIZONS_S[0]
    assert told.chances[quick, 0].mean() > told.chances[~quick, 0].mean() + 0.2
    assert np.isnan(told.log_waits[:, BOUND]).all()
