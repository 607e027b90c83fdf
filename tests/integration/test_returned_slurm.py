"""Successors that start too early give their allocation back on the real Slurm; the fourth stays, and no step is done twice."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from carried import Carried

from ischeduler.plane.provisioners import RETURNS_MAX
from ischeduler.sandbox import Sandbox

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(400)]
WALLTIME_S = 120.0


@pytest.fixture
def carried(slurm: Sandbox) -> Iterator[Carried]:
    made = Carried(
        slurm, f"returned{os.getpid()}", epochs=6, steps=14, step_s=1.5, partition="cpu", node_type="cpu-4c-8g", memory_bytes=None,
        walltime_s=WALLTIME_S,
    )  # fmt: skip
    yield made
    made.stop()


def test_an_idle_cluster_s_early_starts_are_given_back(carried: Carried) -> None:
    carried.start(foresight={"wait_s": 100.0, "keep_s": 5.0}, policy={"retry_s": 1.0, "evidence_s": 1.0})
    run = carried.ended(300.0)
    assert run["state"] == "completed", carried.story()
    assert carried.right(), carried.story()
    first, *back, last = run["attempts"]
    assert [a["cause"] for a in back] == ["returned"] * RETURNS_MAX
    for attempt in back:
        assert attempt["exit_code"] == 88
        assert attempt["ended_at"] - attempt["started_at"] < 15
        assert first["started_at"] < attempt["started_at"] < attempt["keep_from"]
        assert attempt["ended_at"] <= first["ended_at"], "the predecessor trained on"
    assert last["keep_from"] is None
    assert last["start_step"] == first["checkpoint_step"] > 0
    assert first["ended_at"] - first["started_at"] < WALLTIME_S, "it handed over to the one that stayed"
    logs = carried.sandbox.run(["cat", f"{carried.run_directory}/logs/2.out"], user="alice").stdout
    assert "gives its allocation back" in logs
