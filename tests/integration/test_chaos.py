"""A few episodes of ``python -m tests.chaos`` on the real parts, and the proof that it notices a centre that loses or doubles."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.chaos.__main__ import together
from tests.chaos.slurm import SlurmCentre, episode

from ischeduler.sandbox import Sandbox

ROOT = Path(__file__).parents[2]


def chaos(*words: str) -> tuple[int, dict[str, Any]]:
    argv = [sys.executable, "-m", "tests.chaos", *words]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    if done.returncode == 2:
        if os.environ.get("CI"):
            pytest.fail(f"CI must run the chaos test, but {done.stderr.strip()}", pytrace=False)
        pytest.skip(done.stderr.strip())
    assert done.stdout.strip(), done.stderr
    return done.returncode, json.loads(done.stdout.strip().splitlines()[-1])


@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.parametrize("transport", ["spool", "kafka"])
def test_a_few_faults_lose_and_double_nothing(transport: str) -> None:
    code, told = chaos("--episodes", "4", "--seed", "20", "--transport", transport)
    assert told["broken"] == []
    assert (code, told["metrics"]["episodes"], told["metrics"]["runs"]) == (0, 4, 20)
    assert told["metrics"]["events"] > 0


@pytest.mark.postgres
@pytest.mark.slow
def test_a_centre_without_leases_and_fences_is_found_out() -> None:
    code, told = chaos("--episodes", "8", "--seed", "3", "--mutation", "blind")
    assert code == 1
    assert told["metrics"]["invariants_broken"] > 0


@pytest.mark.postgres
@pytest.mark.slurm
@pytest.mark.slow
def test_slurmctld_is_restarted_under_the_workers(slurm: Sandbox) -> None:
    centre = SlurmCentre(slurm)
    try:
        faults, broken = episode(centre, 0, random.Random("slurm"))
    finally:
        centre.close()
    assert "restart_slurmctld" in faults
    assert broken == []


def test_the_figures_of_lanes_are_put_together() -> None:
    lane = {"seed": 1, "metrics": {"episodes": 2, "seconds": 5.0, "longest_episode_s": 3.0}, "faults": {"kill_worker": 1}, "broken": ["x"]}
    other = {**lane, "metrics": {"episodes": 3, "seconds": 4.0, "longest_episode_s": 4.0}, "faults": {"skew_clock": 2}, "broken": []}
    told = together([lane, other])
    assert told["metrics"] == {"episodes": 5, "seconds": 5.0, "longest_episode_s": 4.0}
    assert told["faults"] == {"kill_worker": 1, "skew_clock": 2}
    assert (told["broken"], told["lanes"]) == (["x"], 2)
