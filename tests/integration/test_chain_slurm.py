"""Two segments of a training in a loaded real Slurm: reactive, by the quantile of the estimated wait, with a hand-over that roll-outs time, and
by models of Mirage's methods."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from benchmarks.chain import Other, chain_spec, chains

from conftest import sandbox_name
from ischeduler.sandbox import Sandbox

pytestmark = [pytest.mark.slurm, pytest.mark.slow]
pytest.importorskip("numba", reason="numba is not installed")
RULES = ("reactive", "quantile", "hand-over")
BUSY = [Other(20.0 * i, 2, 1, 36.0) for i in range(40)]
"""Each takes one of the two nodes for 36 s, three come a minute, and the training takes a node, too: there is always somebody waiting."""


@pytest.fixture
def loaded(request: pytest.FixtureRequest, slurm_host: None) -> Iterator[Sandbox]:
    sandbox = Sandbox(chain_spec(getattr(request, "param", RULES), 1), sandbox_name("c"))
    sandbox.up()
    try:
        yield sandbox
    finally:
        sandbox.down()


def test_a_successor_is_queued_ahead_and_nothing_is_done_twice(loaded: Sandbox) -> None:
    reactive, quantile, ahead = chains(loaded, RULES, BUSY, segments=2, minutes=1)
    for one in (reactive, quantile, ahead):
        assert (one.state, one.right, one.lost_steps) == ("completed", True, 0), one
        assert len(one.gaps_s) >= 1
        assert not [t for t in one.troubles if "no forecast" in t]
    assert reactive.ahead == 0
    assert min(reactive.gaps_s) >= 0
    assert quantile.ahead >= 1, "the queue is full: the estimated wait says so"
    assert ahead.ahead >= 1, "the queue is full: its wait is foreseen"
    assert max(-g for g in ahead.gaps_s) <= 15, "two jobs at once only while the older saves and leaves"


def trained(method: str, out: Path) -> Path:
    """A model of segments of a minute among such jobs as :data:`BUSY`, three days of them."""
    from ischeduler.estimators.jobruntime.table import job_table
    from ischeduler.helper.provisioning.methods import Effort
    from ischeduler.helper.provisioning.setting import Setting
    from ischeduler.helper.provisioning.training import Order, train
    from ischeduler.simulator.kernel import starts

    rng = np.random.default_rng(5)
    submit = np.sort(rng.integers(0, 3 * 86400, 13_000))
    ones, run, limit = np.ones(len(submit), int), rng.integers(30, 42, len(submit)), np.full(len(submit), 60)
    table = job_table({
        "submit_s": submit, "start_s": starts(submit, ones, run, limit, 2), "run_s": run, "req_units": ones, "req_walltime_s": limit,
        "user": np.full(len(submit), "bob", object),
    })  # fmt: skip
    setting = Setting(table, 2, 258_000, segment_s=60, look_s=5, every_s=900, horizon_s=3600, source="made up")
    train(setting, Order(training=40, validation=0, stride=1, rolls=2, looks=800, method=method, effort=Effort(decisions=2000)), out)
    return out


@pytest.mark.parametrize("loaded", [("random_forest", "dqn")], indirect=True)
def test_mirage_s_methods_decide_live(loaded: Sandbox, tmp_path: Path) -> None:
    pytest.importorskip("lightgbm", reason="LightGBM is not installed")
    pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")
    models = {name: trained(name, tmp_path / f"{name}.json") for name in ("random_forest", "dqn")}
    forest, agent = chains(loaded, list(models), BUSY, segments=2, minutes=1, models=models)
    for one in (forest, agent):
        assert (one.state, one.right, one.lost_steps) == ("completed", True, 0), one
        assert len(one.gaps_s) >= 1
        blind = [t for t in one.troubles if "no forecast" in t]
        assert all("does not run in the queue" in t for t in blind), blind
        assert len(blind) <= len(one.gaps_s), "only where a job had ended and the plane did not know it yet, and never for all of them"
    assert forest.ahead >= 1, "the queue is full: the forest says so"
