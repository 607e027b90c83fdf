"""Provisioners of two traces and two seeds trained as one array of jobs on a real Slurm; what is there already is not made again."""

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
MODELS = ["jobs-1n-seed0", "jobs-1n-seed1", "others-1n-seed0", "others-1n-seed1"]


@pytest.fixture
def folder(slurm: Sandbox) -> Iterator[Path]:
    """A folder of alice's with two small traces of sixty days."""
    home = Path(slurm.home("alice"))
    for name, seed in (("jobs", 4), ("others", 5)):
        write_trace(home / f"{name}.csv", np.random.default_rng(seed))
    yield home
    slurm.run(["scancel", f"--user={slurm.system_user('alice')}"], check=False)


def write_trace(path: Path, rng: np.random.Generator) -> None:
    count = 1500
    submit = np.sort(rng.integers(0, 60 * DAY, count))
    limit = rng.choice([2 * HOUR, 8 * HOUR, 16 * HOUR], count)
    columns = {
        "submit_s": submit, "start_s": submit + rng.integers(0, 2 * HOUR, count), "run_s": (limit * rng.uniform(0.1, 1, count)).astype(int),
        "req_units": rng.integers(1, 4, count), "req_walltime_s": limit, "user": rng.integers(0, 9, count),
    }  # fmt: skip
    rows = [",".join(columns), *(",".join(str(v) for v in row) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(rows) + "\n")


def train(slurm: Sandbox, home: Path) -> dict[str, Any]:
    words = (
        f"provisioner train --trace {home}/jobs.csv --trace {home}/others.csv --units 12 --segment 12h --seeds 2 --training 24 --episodes 4 --rolls 8 "
        f"--on testbed/cpu --time 5m --memory 1500M --out {home}/models --json"
    )
    environment = {"ISCHED_PATHS_STATE": f"{home}/state", "ISCHED_PATHS_DATA": f"{home}/data", "ISCHED_BATCH_KIND": "slurm"}
    done = slurm.run([str(slurm.python), "-m", "ischeduler.cli.main", *words.split()], user="alice", env=environment, check=False, timeout_s=420.0)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_an_array_trains_every_trace_and_seed_once(slurm: Sandbox, folder: Path) -> None:
    answer = train(slurm, folder)
    assert sorted(answer["models"]) == MODELS
    assert {n: m["seed"] for n, m in answer["models"].items()} == dict(zip(MODELS, (0, 1, 0, 1), strict=True))
    user = slurm.system_user("alice")
    rows = slurm.run(["sacct", "-X", "-n", "-P", "-u", user, "-o", "JobID,JobName,State"]).stdout.split()
    array = [r for r in rows if "provisioners-" in r]
    assert {r.split("|")[0].split("_")[1] for r in array} == {"0", "1", "2", "3"}, rows
    assert len({r.split("_")[0] for r in array}) == 1, "one array"
    (folder / "models" / "others-1n-seed1.json").unlink()
    again = train(slurm, folder)
    assert sorted(again["models"]) == MODELS
    rows = slurm.run(["sacct", "-X", "-n", "-P", "-u", user, "-o", "JobID,JobName,State"]).stdout.split()
    assert len([r for r in rows if "provisioners-" in r]) == 5
