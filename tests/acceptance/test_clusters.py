"""``isched clusters`` on the real CI database: read, correct, take back, move as text."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ischeduler.core.errors import BadInput
from ischeduler.helper.config import load_config
from ischeduler.helper.session import Session


@pytest.fixture
def isched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    variables = {
        "ISCHED_PATHS_STATE": str(tmp_path / "state"),
        "ISCHED_PATHS_DATA": str(tmp_path / "data"),
        "ISCHED_BATCH_KIND": "local",
    }
    for name, value in {**variables, "XDG_CONFIG_HOME": str(tmp_path), "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    from ischeduler.cli.root import app

    return lambda *words: CliRunner().invoke(app, list(words))


def price(isched: Callable[..., Result], name: str = "pitzer") -> float | None:
    document = json.loads(isched("clusters", name, "--json").stdout)
    return document["clusters"][0]["charge"]["usd_per_unit"]


def test_the_list_names_every_shipped_cluster(isched: Callable[..., Result]) -> None:
    rows = isched("clusters").stdout.splitlines()
    assert rows[0].split() == ["CLUSTER", "CENTRE", "KIND", "PARTITIONS", "NODES", "PRICE", "FACTS", "FROM"]
    assert {"pitzer", "ascend", "cardinal", "frontera", "lonestar6", "vista", "stampede3", "delta", "anvil", "expanse"} <= {
        r.split()[0] for r in rows
    }


def test_a_fact_is_set_shown_with_its_origin_and_taken_back(isched: Callable[..., Result]) -> None:
    before = price(isched)
    assert isched("clusters", "edit", "pitzer", "--fact", "charge.usd_per_unit=0.004").exit_code == 0
    assert price(isched) == 0.004
    origin = next(
        r for r in isched("clusters", "pitzer", "--origin").stdout.splitlines() if r.strip().startswith("charge.usd_per_unit")
    )
    assert "edited by user" in origin
    assert isched("clusters", "revert", "pitzer").exit_code == 0
    assert price(isched) == before


@pytest.mark.parametrize(
    ("fact", "words"),
    [
        ("charge.usd_per_unt=1", "expected one of rule, unit, usd_per_unit"),
        ("charge.usd_per_unit=lots", "cannot be 'lots'"),
        ("charge.usd_per_unit", "--fact expects PATH=VALUE"),
        ("partitions.nope.max_walltime_s=2h", "has no partition 'nope'"),
    ],
)
def test_a_wrong_fact_changes_nothing(isched: Callable[..., Result], fact: str, words: str) -> None:
    before = price(isched)
    result = isched("clusters", "edit", "pitzer", "--fact", fact)
    assert result.exit_code == 2
    assert words in result.stderr
    assert price(isched) == before


def test_the_editor_changes_what_was_changed_in_the_text(isched: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDITOR", "sed -i s/usd_per_unit:.*/usd_per_unit:\\ 0.005/")
    result = isched("clusters", "edit", "pitzer")
    assert "charge.usd_per_unit set by you" in result.stdout
    assert price(isched) == 0.005
    monkeypatch.setenv("EDITOR", "true")
    assert "nothing changed" in isched("clusters", "edit", "pitzer").stdout


def test_a_mistake_in_the_editor_keeps_the_text(
    isched: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("EDITOR", "sed -i s/usd_per_unit/usd_per_nit/")
    result = isched("clusters", "edit", "pitzer")
    assert result.exit_code == 2
    assert f"Your text is kept in {tmp_path / 'state' / 'pitzer.yaml'}." in result.stderr
    assert "usd_per_nit" in (tmp_path / "state" / "pitzer.yaml").read_text()


@pytest.mark.parametrize(
    ("editor", "words"), [("", "no editor is set"), ("false", "ended with code 1"), ("/no/such/editor", "cannot be started")]
)
def test_editors_that_do_not_work(
    isched: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, editor: str, words: str
) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", editor)
    assert words in isched("clusters", "edit", "pitzer").stderr


def test_export_and_import(isched: Callable[..., Result], tmp_path: Path) -> None:
    text = isched("clusters", "export", "pitzer").stdout
    (tmp_path / "mine.yaml").write_text(text.replace("name: pitzer\n", "name: mine\n", 1))
    assert isched("clusters", "import", "mine.yaml").exit_code == 0
    assert price(isched, "mine") == price(isched)
    missing = isched("clusters", "import", "none.yaml")
    assert missing.exit_code == 2
    assert "No such file" in missing.stderr


def test_sync_reads_the_live_one_with_anothers_prices(isched: Callable[..., Result]) -> None:
    assert isched("clusters", "sync", "--like", "pitzer").exit_code == 0
    assert price(isched, "local") == price(isched)
    assert isched("clusters", "sync", "pitzer").exit_code == 2


def test_init_writes_a_file_that_reads_back_and_keeps_an_old_one(isched: Callable[..., Result], tmp_path: Path) -> None:
    assert "Wrote" in isched("init").stdout
    path = tmp_path / "ischeduler.toml"
    assert load_config(directory=tmp_path, environment={"XDG_CONFIG_HOME": str(tmp_path)})["batch.kind"] == "local"
    path.write_text('[plan]\ngoal = "cheapest"\n')
    assert "Kept" in isched("init").stdout
    assert "cheapest" in path.read_text()
    assert "Wrote" in isched("init", "--force").stdout


def test_init_without_any_batch_system_says_so(tmp_path: Path) -> None:
    from ischeduler.helper.initialise import initialise

    session = Session(
        load_config(directory=tmp_path, environment={"XDG_CONFIG_HOME": str(tmp_path), "ISCHED_BATCH_KIND": "local"})
    )
    session.services.__dict__["batches"] = {}
    with pytest.raises(BadInput, match="no batch system answers here"):
        initialise(session)
