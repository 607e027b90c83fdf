"""``isched provisioner``: what it prints of a model file, and one sentence for whatever is wrong with its input."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightgbm", reason="LightGBM is not installed")
pytest.importorskip("numba", reason="numba is not installed")

from ischeduler.cli.main import run
from ischeduler.helper.provisioning import model_file

FIGURES = {"episodes": 9, "interruption_h": 1.25, "overlap_h": 0.5, "sum_h": 1.75, "zero_share": 0.5, "segment_h": 48.0}
ABOUT: dict[str, Any] = {
    "data": {
        "trace": "jobs.csv", "jobs": 1234, "first_s": 0, "last_s": 864000, "sha256": "ab" * 32, "train_until_s": 604800, "units": 76,
        "protocol": "corrected",
    },
    "method": "blend", "code": "ischeduler 9", "seed": 3, "segment_units": 8, "segment_s": 172800, "training_episodes": 40,
    "validation": {"reactive": FIGURES, "blend": FIGURES, "reduction": {"value": 0.4, "low": 0.1, "high": 0.6}},
}  # fmt: skip


@pytest.fixture
def model(tmp_path: Path) -> Path:
    body = {
        "format": model_file.FORMAT, "about": ABOUT, "tuning": {"window": 2, "tuned": [[0.5, 0.4]]}, "margin_s": 0.0, "forecaster": {"kind": "twin"},
    }  # fmt: skip
    law = {"boosters": [], "blend": 0.25, "until_s": 5, "seed": 3, "validation": {}}
    path = tmp_path / "model.json"
    path.write_text(json.dumps(body | {"law": law}))
    return path


def isched(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command line."""
    with pytest.raises(SystemExit) as left:
        run(list(arguments))
    said = capsys.readouterr()
    return (left.value.code if isinstance(left.value.code, int) else 0), said.out, said.err


def test_show_says_data_code_and_validation(capsys: pytest.CaptureFixture[str], model: Path):
    code, said, _ = isched(capsys, "provisioner", "show", str(model))
    assert code == 0
    for words in ("jobs.csv, 1,234 jobs from 1970-01-01 until 1970-01-08", "ischeduler 9, seed 3", "8 units", "blend", "1.25", "40% below", "9 episodes"):
        assert words in said


def test_show_as_json_is_what_the_file_says(capsys: pytest.CaptureFixture[str], model: Path):
    code, said, _ = isched(capsys, "provisioner", "show", str(model), "--json")
    document = json.loads(said)
    assert code == 0
    assert document["schema"] == "isched.provisioner/1"
    assert document["about"] == ABOUT


def test_a_model_that_was_never_judged_says_so(capsys: pytest.CaptureFixture[str], model: Path):
    body = json.loads(model.read_text())
    body["about"]["validation"] = {}
    model.write_text(json.dumps(body))
    code, said, err = isched(capsys, "provisioner", "show", str(model))
    assert code == 0
    assert "Too few episodes lie after training's end" in said + err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["show", "none.json"], "none.json is not here: make one with isched provisioner train"),
        (["train", "--trace", "none.csv", "--units", "8"], "none.csv is not here"),
        (["train", "--trace", "short.csv", "--units", "8", "--method", "magic"], "no method 'magic' to train; choose one of blend, "),
        (["train", "--trace", "short.csv", "--units", "8", "--network-width", "0"], "--network-width 0 and --network-decisions 40000 must be 1 or more"),
        (["train", "--trace", "short.csv", "--units", "8"], "holds 1 usable jobs"),
        (["train", "--trace", "other.csv", "--units", "8"], "the trace has no column"),
    ],
)
def test_wrong_input_is_one_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
):
    monkeypatch.chdir(tmp_path)
    Path("short.csv").write_text("submit_s,start_s,run_s,req_units,req_walltime_s\n0,0,1,1,1\n")
    Path("other.csv").write_text("a,b\n0,0\n")
    code, _, err = isched(capsys, "provisioner", *arguments)
    assert code != 0
    assert words in err
    assert "Traceback" not in err


@pytest.mark.parametrize(("method", "module"), [("dqn", "stable_baselines3"), ("mixture_value", "torch"), ("xgboost", "xgboost")])
def test_a_missing_library_is_said_before_anything_is_read(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, method: str, module: str):
    found = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *more: None if name == module else found(name, *more))
    code, _, err = isched(capsys, "provisioner", "train", "--trace", "none.csv", "--units", "8", "--method", method)
    assert code == 2
    assert f"{method} needs {module}, which is not installed: pip install 'ischeduler[" in err
