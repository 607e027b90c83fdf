"""Successors that start too early give their allocation back on the real Slurm; one stays in the end, and no step is done twice."""

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
    first, *later = run["attempts"]
    back = [a for a in later if a["cause"] == "returned"]
    assert 1 <= len(back) <= RETURNS_MAX, "how many come before the limit is a matter of the machine"
    assert later[: len(back)] == back
    for attempt in back:
        assert attempt["exit_code"] == 88
        assert first["started_at"] < attempt["started_at"] < attempt["keep_from"]
        assert attempt["ended_at"] <= first["ended_at"], "the predecessor trained on"
    stayed = later[len(back)]
    assert stayed["start_step"] == first["checkpoint_step"] > 0
    assert stayed["keep_from"] is None or len(back) < RETURNS_MAX
    logs = carried.sandbox.run(["cat", f"{carried.run_directory}/logs/2.out"], user="alice").stdout
    assert "gives its allocation back" in logs
