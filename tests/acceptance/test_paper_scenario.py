"""The paper's scenario with its own figures: a 26-hour GPU queue against idle CPU nodes, on the shipped definition of Pitzer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ASSUME = Path(__file__).parent / "paper" / "assume.toml"
HOUR = 3600.0


def plan(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("ISCHED_", "SLURM"))}
    env |= {"HOME": str(folder), "XDG_STATE_HOME": str(folder / "state"), "XDG_CONFIG_HOME": str(folder / "config")}
    command = [
        sys.executable, "-m", "ischeduler.cli.main", "plan", "--model", "timm:resnet50", "--samples", "20000", "--epochs", "50",
        "--batch-size", "32,64", "--clusters", "pitzer", "--partition", "serial-40core,gpu-exp", "--cpus", "28", "--assume", str(ASSUME), *more,
    ]  # fmt: skip
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    done = plan(tmp_path_factory.mktemp("paper"), "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def tagged(document: dict[str, Any], tag: str) -> dict[str, Any]:
    return next(p for p in document["plans"] if tag in p["tags"])


def test_soonest_is_the_idle_cpu_nodes(document: dict[str, Any]) -> None:
    best = tagged(document, "soonest")
    assert best["partition"] == "serial-40core"
    assert best["finish"]["p50"] == 9 * HOUR
    assert best["cost"]["p50"] == pytest.approx(0.756, abs=0.0005)
    assert best["cost"]["unit"] == "usd"


def test_ideal_and_cheapest_is_the_gpu_after_its_queue(document: dict[str, Any]) -> None:
    for tag in ("ideal", "cheapest"):
        best = tagged(document, tag)
        assert best["partition"] == "gpu-exp"
        assert best["run"]["p50"] == 2 * HOUR
        assert best["wait"]["p50"] == 26 * HOUR
        assert best["finish"]["p50"] == 28 * HOUR
        assert best["cost"]["p50"] == pytest.approx(0.348, abs=0.0005)


def test_batch_64_is_refused_on_the_gpu_with_what_would_fit(document: dict[str, Any]) -> None:
    refused = next(r for r in document["refusals"] if r["partition"] == "gpu-exp" and r["batch_size"] == 64)
    blocker = refused["blockers"][0]
    assert blocker["kind"] == "gpu_memory"
    assert blocker["need"] == "41 GB"
    assert "fits" in blocker["fix"]


def test_every_number_says_where_it_comes_from(document: dict[str, Any]) -> None:
    for option in document["plans"]:
        for name in ("run", "wait", "finish", "cost"):
            assert option[name]["source"]
        assert option["needs"]["run"]["basis"] == "given"
        assert str(ASSUME) in option["needs"]["run"]["reason"]


def test_the_page_people_read(tmp_path: Path) -> None:
    done = plan(tmp_path)
    rows = [line.split() for line in done.stdout.splitlines()]
    soonest = next(r for r in rows if "soonest" in r)
    ideal = next(r for r in rows if "ideal," in r)
    assert soonest[1] == "pitzer/serial-40core"
    assert "9h00" in soonest
    assert "$0.756" in soonest
    assert ideal[1] == "pitzer/gpu-exp"
    assert "28h00" in ideal
    assert "$0.348" in ideal
    assert "does not fit: needs 41 GB" in done.stdout
