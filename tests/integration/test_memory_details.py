"""``isched estimate --memory-parts`` on real traces: what a card would hold, and what would make a batch fit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ischeduler.helper import documents

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.slow]


def details(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "ischeduler.cli.main", "estimate", *arguments, "--memory-parts", "--json"]
    env = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "ISCHED_BATCH_KIND": "local"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False)
    answer = json.loads(done.stdout)
    jsonschema.validate(answer, json.loads((documents.SCHEMAS / "estimate.1.json").read_text()))
    return answer["memory"]


def test_parts_add_up_and_changes_are_tried_only_where_it_does_not_fit(tmp_path: Path) -> None:
    arguments = ("--model", "timm:resnet18", "--optimizer", "adamw", "--clusters", "pitzer", "--batch-size", "16,4096", "--samples", "1000")
    found = {(d["accelerator"], d["batch_size"]): d for d in details(tmp_path, *arguments)}
    small, large = found["v100-16g", 16], found["v100-16g", 4096]
    parts = sum(small[f"{name}_bytes"] for name in ("weights", "gradients", "optimizer", "activations"))
    assert parts == small["allocated_bytes"] <= small["reserved_bytes"]
    assert small["optimizer_bytes"] == pytest.approx(2 * small["gradients_bytes"], rel=0.01)
    assert (small["fits"], small["changes"]) == (True, [])
    assert not large["fits"]
    assert 16 < large["largest_batch"] < 4096
    tried = {c["name"]: c for c in large["changes"]}
    assert any(name.startswith("accumulation") and c["fits"] for name, c in tried.items())
    assert {"activation checkpointing", "bf16", "8-bit optimizer"} <= tried.keys()
    assert tried["8-bit optimizer"]["total"]["p50"] <= large["total"]["p50"]
    assert tried["bf16"]["total"]["p50"] < 0.7 * large["total"]["p50"]


def test_the_planners_advice_is_the_batch_that_fits(tmp_path: Path) -> None:
    arguments = ["--model", "timm:resnet18", "--clusters", "pitzer", "--partition", "gpu-exp", "--batch-size", "4096", "--samples", "9000"]
    exact = next(d["largest_batch"] for d in details(tmp_path, *arguments) if d["accelerator"] == "v100-32g")
    command = [sys.executable, "-m", "ischeduler.cli.main", "plan", *arguments, "--all"]
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "ISCHED_BATCH_KIND": "local"}
    told = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False).stdout
    assert f"batch {exact} fits" in told, told
