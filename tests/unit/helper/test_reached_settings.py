"""Batch systems behind a network, picked from the configuration: what is missing is said in one sentence, what is there is used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ischeduler.batch.agent import AgentBatch, AgentRunFiles
from ischeduler.batch.run_files import SharedRunFiles
from ischeduler.batch.slurm_rest import SlurmRest
from ischeduler.batch.slurm_rest_files import JobSideRunFiles
from ischeduler.core.errors import ConfigError, IschedError
from ischeduler.helper.centre_batches import directory_of
from ischeduler.helper.config import load_config
from ischeduler.wiring import Services, wire

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdW4iOiJhbGljZSJ9.c2ln"


def services(folder: Path, **settings: str) -> Services:
    names = {f"ISCHED_{k.upper()}": v for k, v in settings.items()}
    own = {
        "ISCHED_PATHS_STATE": str(folder / "state"),
        "ISCHED_PATHS_DATA": str(folder / "data"),
        "ISCHED_SYSTEM_CONFIG": "/dev/null",
    }
    return wire(load_config(directory=folder, environment={**own, "XDG_CONFIG_HOME": str(folder / "c"), **names}))


def secret(folder: Path, name: str, text: str, mode: int = 0o600) -> str:
    path = folder / name
    path.touch(mode=mode)
    path.chmod(mode)
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"batch_kind": "slurmrest"}, "slurmrest.url"),
        ({"batch_kind": "slurmrest", "slurmrest_url": "http://h:1"}, "batch.cluster|slurmrest.token"),
        ({"batch_kind": "slurmrest", "slurmrest_url": "http://h:1", "batch_cluster": "c"}, "slurmrest.token_file"),
        (
            {"batch_kind": "slurmrest", "slurmrest_url": "ftp://h", "batch_cluster": "c", "slurmrest_token_file": "/t"},
            "address of a slurmrestd",
        ),
        (
            {
                "batch_kind": "slurmrest",
                "slurmrest_url": "http://h:1",
                "batch_cluster": "c",
                "slurmrest_token_command": "scontrol,token",
            },
            "must name",
        ),
        ({"batch_kind": "tapis"}, "batch.cluster"),
        ({"batch_kind": "tapis", "batch_cluster": "c"}, "tapis.system"),
        ({"batch_kind": "tapis", "batch_cluster": "c", "tapis_system": "s"}, "tapis.scripts"),
        ({"batch_kind": "tapis", "batch_cluster": "c", "tapis_system": "s", "tapis_scripts": "w"}, "tapis.url"),
        ({"batch_kind": "agent"}, "batch.cluster"),
    ],
)
def test_what_is_missing_is_said(tmp_path: Path, settings: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        _ = services(tmp_path, **settings).batches


def test_slurmrest_for_one_person(tmp_path: Path) -> None:
    made = services(
        tmp_path,
        batch_kind="slurmrest",
        batch_cluster="c",
        slurmrest_url="http://h:1",
        slurmrest_token_file=secret(tmp_path, "t", JWT),
        slurmrest_user="ab12",
    )
    batch: Any = made.batches["c"]
    assert isinstance(batch, SlurmRest)
    assert batch.user == "ab12"
    assert isinstance(made.files, JobSideRunFiles)
    shared = services(tmp_path, batch_kind="slurmrest", slurmrest_shared_files="true")
    assert isinstance(shared.files, SharedRunFiles)


def test_slurmrest_for_a_centre_acts_as_each_user(tmp_path: Path) -> None:
    for account in ("ab12", "bob", "watcher"):
        secret(tmp_path, f"{account}.jwt", JWT)
    made = services(
        tmp_path, batch_kind="slurmrest", batch_cluster="c", slurmrest_url="http://h:1", slurmrest_observer="watcher", serve_accounts="alice=ab12",
        slurmrest_token_file=str(tmp_path / "{user}.jwt"),
    )  # fmt: skip
    directory = directory_of(made)
    accounts = [getattr(directory.of(owner)["c"], "user", "") for owner in ("alice", "bob")]
    assert accounts == ["ab12", "bob"]
    assert getattr(directory.observer("c"), "user", "") == "watcher"
    assert directory.observer("other") is None
    assert directory.of("bob")["c"] is directory.of("bob")["c"], "the back-off and the version are kept"


def test_agents_for_a_centre(tmp_path: Path) -> None:
    made = services(tmp_path, batch_kind="agent", batch_cluster="c")
    assert isinstance(directory_of(made).of("alice")["c"], AgentBatch)
    assert isinstance(made.files, AgentRunFiles)
    with pytest.raises(IschedError, match="no agent of"):
        made.batches["c"].snapshot()


def test_tapis_takes_its_secrets_from_closed_files_alone(tmp_path: Path) -> None:
    given = {
        "batch_kind": "tapis",
        "batch_cluster": "vista",
        "tapis_url": "https://dev.tapis.io",
        "tapis_tenant": "dev",
        "tapis_system": "s",
        "tapis_scripts": "w",
    }
    open_file = secret(tmp_path, "open", "pw", 0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        _ = services(tmp_path, **given, tapis_password_file=open_file).batches
    closed = secret(tmp_path, "alice.pw", "pw")
    made = services(tmp_path, **given, tapis_user="alice", tapis_password_file=str(tmp_path / "{user}.pw"))
    batch: Any = made.batches["vista"]
    assert (batch.client.login.user, batch.client.login.password) == ("alice", "pw")
    assert (batch.site.profile, batch.site.gpus) == ("tacc", "none"), "what is known of Vista"
    assert "pw" not in repr(batch.client.login)
    assert closed
    directory = directory_of(services(tmp_path, **given, tapis_password_file=str(tmp_path / "{user}.pw")))
    with pytest.raises(ConfigError, match="password_file"):
        directory.of("bob")


@pytest.mark.parametrize(
    ("kind", "key"), [("slurmrest", "slurmrest_token_file"), ("tapis", "tapis_password_file"), ("tapis", "tapis_token_file")]
)
def test_a_service_never_acts_for_everybody_with_one_secret(tmp_path: Path, kind: str, key: str) -> None:
    given = {
        "batch_kind": kind,
        "batch_cluster": "c",
        "slurmrest_url": "http://h:1",
        "tapis_url": "https://t",
        "tapis_tenant": "t",
        "tapis_system": "s",
        "tapis_scripts": "w",
    }
    with pytest.raises(ConfigError, match="with their own"):
        directory_of(services(tmp_path, **given, **{key: secret(tmp_path, "one", JWT)}))
