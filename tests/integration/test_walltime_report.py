"""``isched report --estimators`` end to end on fakes: runs, accounting, JSON under its schema."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner, Result

sys.path.insert(0, str(Path(__file__).parent.parent / "unit" / "helper"))

from helper_builders import T0, attempt, run
from helper_world import World

from ischeduler.core.errors import BatchUnavailable
from ischeduler.core.jobs import Cause
from ischeduler.estimators.learning import sacct
from ischeduler.helper import documents
from ischeduler.helper.config import Value
from ischeduler.wiring import Finished


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path)
    monkeypatch.setattr("ischeduler.helper.session.Session", lambda config=None: made.session)
    monkeypatch.chdir(tmp_path)
    return made


@pytest.fixture
def isched(world: World) -> Callable[[str], Result]:
    from ischeduler.cli.root import app

    return lambda line: CliRunner().invoke(app, shlex.split(line))


def fill(world: World, slower: float = 1.0, n: int = 10) -> None:
    """Ten completed runs as predicted, then as many that take ``slower`` times as long."""
    for i in range(2 * n):
        factor = slower if i >= n else 1.0
        done = run(id=f"r-{i}", attempts=(attempt(1, ran_s=7200 * factor, cause=Cause.FINISHED),), ended_at=T0 + i * 86400.0)
        world.store.create_run(replace(done, created_at=T0 + i))


def accounting(world: World, monkeypatch: pytest.MonkeyPatch, answer: Finished | Exception) -> list[tuple[str, ...]]:
    """Lets the fake site have Slurm, whose sacct answers so; the questions asked."""
    asked: list[tuple[str, ...]] = []

    def ask(argv: tuple[str, ...], timeout_s: float = 30.0) -> Finished:
        asked.append(tuple(argv))
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(type(world.session.services), "batch_kind", property(lambda self: "slurm"))
    monkeypatch.setattr(world.session.services, "ask", ask)
    values: Any = world.session.config.values
    values["learning.accounting"] = Value(True, "flag")
    return asked


def rows(*names: str) -> str:
    start = [str(int(T0) - 5000 + 100 * i) for i in range(len(names))]
    return "\n".join(
        sacct.SEPARATOR.join(
            (str(i), "me", "gpu", "COMPLETED", s, s, str(int(s) + 60), str(int(s) + 90), "60", "1", "8", "", "", name)
        ) for i, (s, name) in enumerate(zip(start, names, strict=True))
    )  # fmt: skip


def test_errors_and_coverage_by_estimator_and_place(world: World, isched: Callable[[str], Result]) -> None:
    fill(world)
    told = isched("report --estimators")
    assert told.exit_code == 0
    line = next(words for words in told.stdout.splitlines() if words.startswith("run time"))
    assert [line.split()[i] for i in (2, 3, 4, 5)] == ["test@1", "pitzer/gpu", "timm:resnet50", "20"]
    assert "Evidence: 20 finished runs, 0 finished jobs." in told.stdout
    assert "Drift" not in told.stdout


def test_a_drift_is_told_with_its_day_and_size(world: World, isched: Callable[[str], Result]) -> None:
    fill(world, slower=1.6)
    told = isched("report --estimators").stdout
    drifts = [words for words in told.splitlines() if words.startswith("Drift:") and "run time" in words]
    assert len(drifts) == 1
    assert "+60% against what test@1 predicts" in drifts[0]
    assert "since 2027-01-25" in drifts[0]


def test_the_json_keeps_its_schema(world: World, isched: Callable[[str], Result]) -> None:
    fill(world, slower=1.6)
    document = json.loads(isched("report --estimators --json").stdout)
    jsonschema.validate(document, documents.schema_of("estimator-report"))
    shipped = json.loads((documents.SCHEMAS / "estimator-report.1.json").read_text())
    assert shipped == json.loads(json.dumps(documents.schema_of("estimator-report")))
    quantities = {a["quantity"] for a in document["report"]["accuracies"]}
    assert {"run_time", "queue_wait", "gpu_memory", "host_memory", "cost"} <= quantities


def test_nothing_yet_is_said_so_and_a_run_beside_it_is_refused(isched: Callable[[str], Result]) -> None:
    assert isched("report --estimators").stdout == "Evidence: 0 finished runs, 0 finished jobs.\n"
    refused = isched("report r-1 --estimators")
    assert refused.exit_code != 0
    assert "leave the run's id out" in str(refused.exception) + refused.output


def test_the_accounting_teaches_once_and_only_where_allowed(
    world: World, isched: Callable[[str], Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = accounting(world, monkeypatch, Finished(0, rows(*["mine"] * 8, "isched-r-1"), ""))
    told = isched("report --estimators").stdout
    assert "8 finished jobs, 8 of them new from the accounting." in told
    assert "queue@1 (past waits, replayed)" in told
    assert "new from the accounting" not in isched("report --estimators").stdout
    assert len(asked) == 2
    values: Any = world.session.config.values
    values["learning.accounting"] = Value(False, "flag")
    isched("report --estimators")
    assert len(asked) == 2


@pytest.mark.parametrize("answer", [BatchUnavailable("no sacct here"), Finished(1, "", "Slurm accounting storage is disabled")])
def test_an_accounting_that_is_silent_is_a_note(
    world: World, isched: Callable[[str], Result], monkeypatch: pytest.MonkeyPatch, answer: Finished | Exception
) -> None:
    accounting(world, monkeypatch, answer)
    told = isched("report --estimators")
    assert told.exit_code == 0
    assert "Note: the accounting of lab" in told.stdout


def test_without_slurm_the_setting_is_explained(world: World, isched: Callable[[str], Result], monkeypatch: pytest.MonkeyPatch) -> None:
    accounting(world, monkeypatch, Finished(0, "", ""))
    monkeypatch.setattr(type(world.session.services), "batch_kind", property(lambda self: "local"))
    assert "no Slurm here to ask" in isched("report --estimators").stdout
