"""Provisioners of two seeds trained as one array of jobs on a real Slurm; what is there already is not made again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ischeduler.sandbox import Sandbox

pytestmark = [pytest.mark.slurm, pytest.mark.slow]
pytest.importorskip("lightgbm", reason="LightGBM is not installed")
pytest.importorskip("numba", reason="numba is not installed")

DAY, HOUR = 86400, 3600


@pytest.fixture
def folder(slurm: Sandbox) -> Iterator[Path]:
    """A folder of alice's with a small trace of sixty days."""
    rng = np.random.default_rng(4)
    count = 1500
    submit = np.sort(rng.integers(0, 60 * DAY, count))
    limit = rng.choice([2 * HOUR, 8 * HOUR, 16 * HOUR], count)
    columns = {
        "submit_s": submit, "start_s": submit + rng.integers(0, 2 * HOUR, count), "run_s": (limit * rng.uniform(0.1, 1, count)).astype(int),
        "req_units": rng.integers(1, 4, count), "req_walltime_s": limit, "user": rng.integers(0, 9, count),
    }  # fmt: skip
    home = Path(slurm.home("alice"))
    rows = [",".join(columns), *(",".join(str(v) for v in row) for row in zip(*columns.values(), strict=True))]
    (home / "jobs.csv").write_text("\n".join(rows) + "\n")
    yield home
    slurm.run(["scancel", f"--user={slurm.system_user('alice')}"], check=False)


def train(slurm: Sandbox, home: Path) -> dict[str, Any]:
    words = (
        f"provisioner train --trace {home}/jobs.csv --units 12 --segment 12h --seeds 2 --training 24 --episodes 4 --rolls 8 "
        f"--on testbed/cpu --time 5m --memory 1500M --out {home}/models --json"
    )
    environment = {"ISCHED_PATHS_STATE": f"{home}/state", "ISCHED_PATHS_DATA": f"{home}/data", "ISCHED_BATCH_KIND": "slurm"}
    done = slurm.run([str(slurm.python), "-m", "ischeduler.cli.main", *words.split()], user="alice", env=environment, check=False, timeout_s=300.0)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_an_array_trains_every_seed_once(slurm: Sandbox, folder: Path) -> None:
    answer = train(slurm, folder)
    assert sorted(answer["models"]) == ["jobs-1n-seed0", "jobs-1n-seed1"]
    assert [m["seed"] for m in answer["models"].values()] == [0, 1]
    user = slurm.system_user("alice")
    rows = slurm.run(["sacct", "-X", "-n", "-P", "-u", user, "-o", "JobID,JobName,State"]).stdout.split()
    array = [r for r in rows if "provisioners-" in r]
    assert len(array) == 2, rows
    assert {r.split("|")[0].split("_")[1] for r in array} == {"0", "1"}
    (folder / "models" / "jobs-1n-seed1.json").unlink()
    again = train(slurm, folder)
    assert [m["seed"] for m in again["models"].values()] == [0, 1]
    rows = slurm.run(["sacct", "-X", "-n", "-P", "-u", user, "-o", "JobID,JobName,State"]).stdout.split()
    assert len([r for r in rows if "provisioners-" in r]) == 3
