"""``isched estimator`` from new to rollback, on the process runtime: what is printed, what is stored, how it ends."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner, Result

from ischeduler.core.history import HistoryRecord
from ischeduler.estimators.conformance import example
from ischeduler.helper import documents
from ischeduler.helper.session import Session

Isched = Callable[[str], Result]


@pytest.fixture
def isched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Isched:
    """The command line in an empty home of its own."""
    for name in [n for n in os.environ if n.startswith("ISCHED_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home" / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home" / "state"))
    monkeypatch.setenv("ISCHED_BATCH_KIND", "local")
    monkeypatch.chdir(tmp_path)
    from ischeduler.cli.root import app

    return lambda line: CliRunner().invoke(app, shlex.split(line))


def body(result: Result, name: str) -> dict[str, object]:
    found = json.loads(result.stdout)
    jsonschema.validate(found, json.loads((documents.SCHEMAS / f"{name}.1.json").read_text()))
    return found


def changed(tmp_path: Path, old: str, new: str) -> None:
    model = tmp_path / "per-image" / "src" / "per_image" / "model.py"
    model.write_text(model.read_text().replace(old, new))


def test_from_new_to_rollback(isched: Isched, tmp_path: Path) -> None:
    assert len(body(isched("estimator new per-image --json"), "estimator-new")["files"]) == 10  # pyright: ignore[reportArgumentType]
    checked = isched("estimator check per-image --runtime process")
    assert (checked.exit_code, checked.stdout.splitlines()[-1]) == (0, "per-image conforms.")
    added = isched("estimator add per-image --runtime process")
    assert "trusted code: it runs with all your rights." in added.stdout
    assert "It answers step_time from now on." in added.stdout
    changed(tmp_path, '"step_time": 0.01', '"step_time": 0.02')
    again = isched("estimator add per-image --runtime process")
    assert "It runs in shadow" in again.stdout
    rows = body(isched("estimator list --json"), "estimators")["plugins"]
    assert [r["role"] for r in rows] == ["active", "shadow"]  # pyright: ignore[reportGeneralTypeIssues, reportIndexIssue, reportArgumentType, reportCallIssue]
    first, second = [r["digest"] for r in rows]  # pyright: ignore[reportGeneralTypeIssues, reportIndexIssue, reportArgumentType, reportCallIssue]
    assert second[:19] in isched("estimator promote per-image").stdout
    assert isched("estimator promote per-image").exit_code == 2
    assert first[:19] in isched("estimator rollback per-image").stdout
    assert isched("estimator rollback per-image").exit_code == 2
    trees = Session().config.data_dir / "estimators" / "trees"
    assert len(list(trees.iterdir())) == 2
    assert isched("estimator remove per-image").exit_code == 0
    assert list(trees.iterdir()) == []
    assert body(isched("estimator list --json"), "estimators")["plugins"] == []


def test_it_is_asked_in_estimates_and_named_with_its_digest(isched: Isched, tmp_path: Path) -> None:
    isched("estimator new per-image")
    changed(tmp_path, '"basis": "analytic"', '"basis": "history"')
    digest = json.loads(isched("estimator add per-image --runtime process --json").stdout)["plugin"]["digest"]
    estimators = Session().services.estimators()
    assert estimators.sources()["step_time"].split(" > ")[:2] == ["given@1", "per-image@1"]
    answer, notes = estimators.registry.answer(example("step_time"))
    assert answer.source == f"per-image@1+{digest[:19]}"
    assert notes == ()


def test_two_are_compared_on_finished_runs(isched: Isched, tmp_path: Path) -> None:
    isched("estimator new per-image --quantity run_time")
    isched("estimator add per-image --runtime process")
    changed(tmp_path, '"run_time": 0.01', '"run_time": 0.02')
    isched("estimator add per-image --runtime process")
    session = Session()
    for number in range(1, 6):
        session.services.store.record(HistoryRecord(
            f"r-{number}", "run", session.owner, "timm:resnet18", "lab", "gpu", "v100", 1e9 + 1e5 * number, batch_size=32, samples=1000,
            epochs=number, gpus=1, run_s=0.02 * 1000 * number, cause="finished",
        ))
    found = body(isched("estimator compare per-image --json"), "estimator-compare")["comparison"]
    errors = [s["error"] for s in found["scores"]]  # pyright: ignore[reportIndexIssue, reportCallIssue, reportArgumentType]
    assert errors == [pytest.approx(0.5), pytest.approx(0.0)]
    shown = isched("estimator compare per-image history")
    assert "per-image@1" in shown.stdout
    assert "errs less" in shown.stdout


def test_a_command_after_two_dashes_is_a_process(isched: Isched, tmp_path: Path) -> None:
    isched("estimator new per-image")
    main = tmp_path / "per-image" / "src" / "per_image" / "__main__.py"
    main.write_text(f"import sys\nsys.path.insert(0, {str(main.parents[1])!r})\n" + main.read_text())
    added = isched(f"estimator add --runtime process -- python3 {main}")
    assert added.exit_code == 0, added.stderr
    assert "process" in added.stdout


@pytest.mark.parametrize(("line", "words"), [
    ("estimator add", "Name what to add"), ("estimator add nowhere --runtime process", "no program 'nowhere'"),
    ("estimator add x --runtime magic", "no runtime 'magic'"), ("estimator promote per-image", "No plug-in 'per-image' was added"),
    ("estimator rollback per-image", "No plug-in"), ("estimator remove per-image", "No plug-in"), ("estimator compare history", "No plug-in"),
    ("estimator compare history history --quantity cost", "nothing that finished runs tell"), ("estimator publish x y.org/z", "No plug-in"),
    ("estimator build", "no estimator.toml"), ("estimator check nobody", "no estimator 'nobody'"), ("estimator new 'Per Image'", "cannot be"),
    ("estimator add x --runtime process --time-limit 0s", "no use"), ("estimator add http://example.org", "without encryption"),
    ("estimator add walltime@1 --runtime tapis", "no Tapis tenant is connected"), ("estimator compare history@2 history", "no plug-in that you added"),
    ("estimator add x --runtime container --engine lxc", "no container engine 'lxc'"),
])
def test_every_mistake_is_one_sentence(isched: Isched, line: str, words: str) -> None:
    done = isched(line)
    assert done.exit_code == 2
    assert words in done.stderr
    assert done.stderr.startswith("isched: ")
    assert done.stderr.count("\n") == 1


def test_a_plug_in_that_breaks_the_contract_exits_with_one(isched: Isched, tmp_path: Path) -> None:
    isched("estimator new per-image")
    changed(tmp_path, '"unit": "s"', '"unit": "fortnights"')
    done = isched("estimator check per-image --runtime process")
    assert done.exit_code == 1
    assert "expected 's'" in done.stdout


def test_a_name_of_the_packages_own_is_not_taken(isched: Isched, tmp_path: Path) -> None:
    isched("estimator new history")
    done = isched("estimator add history --runtime process")
    assert done.exit_code == 2
    assert "give this one another name" in done.stderr


def test_a_damaged_register_does_not_stop_the_list(isched: Isched, tmp_path: Path) -> None:
    folder = Session().config.data_dir / "estimators"
    folder.mkdir(parents=True)
    (folder / "register.json").write_text("{")
    done = isched("estimator list")
    assert done.exit_code == 0
    assert "register.json cannot be read" in done.stderr
