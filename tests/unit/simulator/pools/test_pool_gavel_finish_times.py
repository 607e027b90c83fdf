"""The finish-time programme against the solver that Gavel was run with: the same ratio, and the same shares where many are best."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ischeduler.policies.problem import Accelerators
from ischeduler.simulator.pools.gavel.allocators import Scene, columns
from ischeduler.simulator.pools.gavel.programmes import FinishTime, nearest_shares

CLUSTER = Accelerators.of({"v100": 4, "p100": 3, "k80": 3})


def scene(jobs: int, seed: int) -> tuple[Scene, Any]:
    """Jobs that are partly done, and the seconds they would need alone; the first is so late that it sets the ratio."""
    lot = np.random.default_rng(seed)
    rate = lot.uniform(0.5, 5.0, (jobs, 3))
    left, since = lot.uniform(1e3, 1e5, jobs), lot.uniform(0.0, 2e4, jobs)
    isolated = lot.uniform(0.2, 1.0, jobs) * since + left / (rate.mean(axis=1) * min(1.0, 10 / jobs))
    since[0], isolated[0] = 40.0 * isolated[0], isolated[0] / 2.0
    none = np.zeros((0, 2), np.int64)
    return Scene(
        0.0, np.arange(jobs), rate, np.ones(jobs, np.int64), left, since, np.ones(jobs), np.zeros(jobs, np.int64), none,
        np.zeros((0, 2, 3)), np.arange(jobs), np.zeros(0, np.int64),
    ), isolated  # fmt: skip


def by_ecos(at: Scene, isolated: Any) -> tuple[Any, float]:
    """Gavel's own statement of the programme, by its solver."""
    cp = pytest.importorskip("cvxpy", reason="cvxpy is not installed; install the dev extra")
    pytest.importorskip("ecos", reason="ecos is not installed; install the dev extra")
    order = columns(CLUSTER)
    rate, (jobs, kinds) = at.rate[:, order], at.rate.shape
    x = cp.Variable((jobs, kinds))
    ratios = [(at.since_s[j] + at.steps_left[j] * cp.inv_pos(rate[j] @ x[j])) / isolated[j] for j in range(jobs)]
    problem = cp.Problem(cp.Minimize(cp.maximum(*ratios)), [x >= 0, cp.sum(x, axis=0) <= CLUSTER.count[order], cp.sum(x, axis=1) <= 1])
    problem.solve(solver="ECOS")
    share = np.zeros(at.rate.shape)
    share[:, order] = np.asarray(x.value)
    return share, float(np.asarray(problem.value))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("jobs", "seed"), [(6, 0), (15, 1), (40, 2)])
def test_the_shares_are_those_of_gavels_solver(jobs: int, seed: int) -> None:
    at, isolated = scene(jobs, seed)
    share, ratio, found = nearest_shares(CLUSTER, at, at.rate, isolated)
    theirs, least = by_ecos(at, isolated)
    assert found
    assert ratio == pytest.approx(least, rel=1e-6)
    assert np.abs(share - theirs).max() < 2e-3


def test_shares_are_feasible_and_every_job_keeps_the_least_ratio() -> None:
    at, isolated = scene(25, 3)
    share, ratio, found = nearest_shares(CLUSTER, at, at.rate, isolated)
    assert found
    assert share.min() >= 0.0
    assert share.sum(axis=1).max() <= 1.0 + 1e-6
    assert (share.sum(axis=0) <= CLUSTER.count + 1e-5).all()
    assert ((at.since_s + at.steps_left / (at.rate * share).sum(axis=1)) / isolated <= ratio * (1.0 + 1e-5)).all()


def test_without_the_cones_the_ratio_is_the_same() -> None:
    at, isolated = scene(25, 4)
    _, ratio, _ = nearest_shares(CLUSTER, at, at.rate, isolated)
    policy = FinishTime(CLUSTER)
    policy._linear(at, at.rate, isolated)  # pyright: ignore[reportPrivateUsage]
    assert policy.last == pytest.approx(ratio, rel=1e-6)
