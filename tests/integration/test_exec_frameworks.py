"""The callbacks of Lightning, HF Trainer and Keras in real fits: stopped at any step and resumed, the weights are the same."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest
from exec_runs import Exec, environ

pytestmark = [pytest.mark.torch, pytest.mark.slow]

SCRIPT = str(Path(__file__).with_name("exec_frameworks.py"))
MEND = "from ischeduler.estimators.memory.torch_private import mend_torchvision; mend_torchvision(); "
NEEDS = {
    "lightning": "import lightning.pytorch",
    "hf": "from transformers import Trainer, TrainingArguments; TrainingArguments(output_dir='/nowhere')",
    "keras": "import keras; assert keras.backend.backend() == 'torch'",
}


@functools.cache
def why_not(framework: str) -> str:
    """Why a framework cannot be used in this environment; empty when it can."""
    env = {**os.environ, "KERAS_BACKEND": "torch"}
    done = subprocess.run([sys.executable, "-c", MEND + NEEDS[framework]], env=env, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


@pytest.fixture(params=list(NEEDS))
def framework(request: pytest.FixtureRequest) -> str:
    reason = why_not(request.param)
    if reason:
        pytest.skip(f"{request.param} cannot be used here: {reason}")
    return request.param


def test_stopped_and_resumed_equals_straight(tmp_path: Path, framework: str) -> None:
    env = {"KERAS_BACKEND": "torch", "HF_HUB_OFFLINE": "1"}
    straight = tmp_path / "straight"
    local = environ(tmp_path / "none", None, **env)
    del local["ISCHED_RUN_DIR"]
    subprocess.run([sys.executable, SCRIPT, framework, str(straight), "3", "0"], env=local, cwd=tmp_path, check=True)
    assert list((tmp_path / "checkpoints").glob("e00003-*.json"))
    codes, out = [], tmp_path / "digest"
    for attempt, stop in enumerate((3, 8, 13, 23, 0), start=1):
        with Exec(tmp_path / "run", sys.executable, SCRIPT, framework, str(out), "3", str(stop), attempt=attempt, **env) as run:
            code, _, err = run.finish(300)
        assert code == (85 if stop else 0), err[-3000:]
        codes.append(code)
    assert out.read_text() == straight.read_text()
    resumed = [e.data["step"] for e in run.events("resumed")]
    assert resumed == [0, 3, 8, 13, 23]
    assert [e.data["reason"] for e in run.events("exit")] == ["checkpointed"] * 4 + ["completed"]
    (finished,) = run.events("finished")
    assert (finished.data["epochs"], finished.data["steps"]) == (3, 24)
    ends = [e.data for e in run.events("progress") if "epoch_time_s" in e.data]
    assert [(e["epoch"], e["epochs"], e["steps"]) for e in ends] == [(1, 3, 24), (2, 3, 24), (3, 3, 24)]
