"""The doctor's findings and their fixes, and what wiring picks."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from helper_builders import run
from helper_world import World

from ischeduler.core.errors import BatchUnavailable, NotFound
from ischeduler.core.run import RunState
from ischeduler.helper import doctor
from ischeduler.helper.config import load_config
from ischeduler.wiring import Finished, LogNotifier, wire

CONFIG = """Configuration data as of 2027-01-15T08:05:00
AccountingStorageType   = accounting_storage/slurmdbd
ClusterName             = lab
MinJobAge               = 2 sec
SLURM_VERSION           = 19.05.1
"""


class Slurm:
    """Answers commands; counts them."""

    def __init__(self, config: str = CONFIG, sacct: int = 0) -> None:
        self.config, self.sacct, self.asked = config, sacct, 0

    def __call__(self, argv: Sequence[str], timeout_s: float = 30.0) -> Finished:
        self.asked += 1
        if argv[0] == "sacct":
            return Finished(self.sacct, "", "")
        return Finished(0 if self.config else 1, self.config, "slurm_load_conf: Unable to contact slurm controller")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path)
    monkeypatch.setattr("shutil.which", lambda name, **_: f"/usr/bin/{name}")
    monkeypatch.setenv("SLURM_CONF", "/somewhere/slurm.conf")
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    return made


def found(world: World, slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> dict[str, doctor.Check]:
    monkeypatch.setattr(world.session.services, "ask", slurm)
    return {check.name: check for check in doctor.examine(world.session)}


def test_each_trouble_has_a_fix(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = found(world, Slurm(sacct=1), monkeypatch)
    assert checks["Slurm version"].level == "warn"
    assert checks["MinJobAge"].level == "warn"
    assert checks["accounting (sacct)"].text == "does not answer"
    assert checks["clock"].level == "warn"
    assert all(c.fix for c in checks.values() if c.level == "bad")
    assert all(checks[name].fix for name in ("Slurm version", "MinJobAge", "accounting (sacct)", "clock"))


def test_accounting_that_is_off_is_said_so(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = found(world, Slurm(CONFIG.replace("slurmdbd", "none")), monkeypatch)
    assert checks["accounting (sacct)"].text == "is off"


def test_a_silent_controller_is_a_finding_not_a_crash(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = found(world, Slurm(""), monkeypatch)
    assert checks["batch system"].level == "bad"
    assert "slurmctld does not answer" in checks["batch system"].text
    assert checks["plane"].level == "ok"


def test_missing_commands_are_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name, **_: None if name == "scancel" else f"/usr/bin/{name}")
    checks = found(world, Slurm(), monkeypatch)
    assert checks["Slurm commands"].level == "bad"
    assert checks["Slurm commands"].text == "scancel not found"


def test_runs_without_a_plane_are_pointed_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.store.create_run(run(owner="me", state=RunState.RUNNING))
    checks = found(world, Slurm(), monkeypatch)
    assert checks["plane"].level == "warn"
    assert "isched plane run" in checks["plane"].fix


def test_a_folder_that_cannot_be_written(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.session.config.state_dir.parent.mkdir(parents=True, exist_ok=True)
    world.session.config.state_dir.write_text("a file, not a folder")
    checks = found(world, Slurm(), monkeypatch)
    assert checks["state folder"].level == "bad"
    assert "paths.state" in checks["state folder"].fix


def settings(tmp_path: Path, **variables: str):  # type: ignore[no-untyped-def]
    given = {
        "ISCHED_PATHS_STATE": str(tmp_path / "state"),
        "ISCHED_PATHS_DATA": str(tmp_path / "data"),
        "XDG_CONFIG_HOME": str(tmp_path),
    }
    return load_config(directory=tmp_path, environment={**given, **variables})


def test_auto_takes_slurm_only_where_it_is_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name, **_: f"/usr/bin/{name}")
    monkeypatch.setenv("SLURM_CONF", "/x/slurm.conf")
    assert wire(settings(tmp_path)).batch_kind == "slurm"
    assert wire(settings(tmp_path, ISCHED_BATCH_KIND="local")).batch_kind == "local"
    monkeypatch.setattr("shutil.which", lambda name, **_: None)
    assert wire(settings(tmp_path)).batch_kind == "local"


def test_the_live_name_is_asked_once_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = Slurm()
    for _ in range(3):
        services = wire(settings(tmp_path))
        monkeypatch.setattr(services, "ask", slurm)
        assert services.live_name() == "lab"
    assert slurm.asked == 1
    monkeypatch.setenv("SLURM_CONF", "/another/slurm.conf")
    services = wire(settings(tmp_path))
    monkeypatch.setattr(services, "ask", Slurm(CONFIG.replace("= lab", "= other")))
    assert services.live_name() == "other"


def test_a_controller_that_never_answered_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    services = wire(settings(tmp_path, ISCHED_BATCH_KIND="slurm"))
    monkeypatch.setattr(services, "ask", Slurm(""))
    with pytest.raises(BatchUnavailable, match="does not answer"):
        services.live_name()
    assert services.batches == {}
    assert "does not answer" in services.troubles[0]


def test_the_shipped_catalog_is_there_and_knows_centre_names(tmp_path: Path) -> None:
    services = wire(settings(tmp_path, ISCHED_BATCH_KIND="local"))
    assert {"pitzer", "delta", "anvil", "frontera"} <= {c.name for c in services.clusters()}
    assert services.cluster("osc-pitzer").name == "pitzer"
    with pytest.raises(NotFound, match="pitzer"):
        services.cluster("nowhere")


def test_notices_never_raise(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    LogNotifier(tmp_path / "file" / "notices.jsonl").notify(run(), "subject", "text")
    LogNotifier(tmp_path / "new" / "notices.jsonl").notify(run(), "subject", "text")
    assert '"run": "r-1"' in (tmp_path / "new" / "notices.jsonl").read_text()


def test_nothing_is_opened_before_it_is_used(tmp_path: Path) -> None:
    wire(settings(tmp_path, ISCHED_BATCH_KIND="local"))
    assert not os.path.exists(tmp_path / "state")
