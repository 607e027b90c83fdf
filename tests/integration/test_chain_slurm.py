"""Two segments of a training in a loaded real Slurm: reactive, by the quantile of the estimated wait, and with a hand-over that roll-outs time."""

from __future__ import annotations

from collections.abc import Iterator

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
def loaded(slurm_host: None) -> Iterator[Sandbox]:
    sandbox = Sandbox(chain_spec(RULES, 1), sandbox_name("c"))
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
