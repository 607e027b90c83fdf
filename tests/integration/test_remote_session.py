"""The Helper and the commands over a service: the same objects and documents as without one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the service's libraries are missing: pip install 'ischeduler[service]'")
pytest.importorskip("httpx2", reason="the client's library is missing: pip install 'ischeduler[client]'")

import httpx2
from fastapi.testclient import TestClient

from ischeduler.core.errors import BadInput, ConfigError, NoFeasiblePlan, NotFound, ServiceUnavailable
from ischeduler.core.run import RunState
from ischeduler.core.workload import Workload
from ischeduler.helper.config import load_config
from ischeduler.helper.remote import Line, read_token
from ischeduler.helper.remote_session import RemoteSession
from ischeduler.helper.session import Session, open_session
from ischeduler.testing.service import BASE_URL, FIGURES, make_service

TRAINING = {"command": ("python", "train.py"), "directory": "/tmp", "samples": 1000, "epochs": 2}


class Wire(httpx2.BaseTransport):
    """Carries requests to the application in this process; ``broken`` says for how many of them the network is away."""

    def __init__(self, client: TestClient) -> None:
        self.client, self.broken, self.seen = client, 0, list[str]()

    def handle_request(self, request: Any) -> Any:
        self.seen.append(f"{request.method} {request.url.raw_path.decode()}")
        if self.broken:
            self.broken -= 1
            raise httpx2.ConnectError("no network")
        sent = {k: v for k, v in request.headers.items() if k not in ("host", "content-length")}
        answer = self.client.request(request.method, request.url.raw_path.decode(), content=request.read(), headers=sent)
        kept = [(k, v) for k, v in answer.headers.items() if k not in ("content-length", "content-encoding")]
        return httpx2.Response(answer.status_code, headers=kept, content=answer.content)


class Place:
    """A service, and people with a session each over it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.service = folder, make_service(folder / "centre")
        self.wires: dict[str, Wire] = {}

    def session(self, user: str, token: str = "") -> RemoteSession:
        home = self.folder / user
        home.mkdir(exist_ok=True)
        (home / "short.toml").write_text(FIGURES)
        if not token:
            token = self.service.add_user(user)["Authorization"].removeprefix("Bearer ")
        environment = {"ISCHED_PATHS_STATE": str(home / "state"), "ISCHED_SERVICE_URL": BASE_URL, "ISCHED_SYSTEM_CONFIG": "/dev/null"}
        config = load_config(directory=home, environment=environment)
        wire = self.wires[user] = Wire(TestClient(self.service.app, base_url=BASE_URL, raise_server_exceptions=False))
        return RemoteSession(config, Line(BASE_URL, token, transport=wire, sleep=lambda _: None))

    def plans(self, here: RemoteSession) -> Any:
        request = here.request(Workload(**TRAINING), assume=str(here.config.directory / "short.toml"))
        return here.plan(request)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_plan_is_made_kept_scripted_and_delegated(place: Place) -> None:
    here = place.session("alice")
    plans = place.plans(here)
    assert plans["soonest"].plan.where == "local/main"
    assert "local/main" in plans.table()
    last, _ = here.last_plans()
    assert last["1"].script().startswith("#!/bin/bash")
    handle = last["1"].submit(max_attempts=3)
    run = handle.status()
    assert (run.owner, run.state, run.caps.max_attempts) == ("alice", RunState.PLANNED, 3)
    assert [r.id for r in here.runs()] == [run.id]
    assert here.run(run.id[:5]).id == run.id
    assert here.run(None).id == run.id
    assert run.id in here.explain(run) or "plan" in here.explain(run).lower()
    assert handle.report().run_id == run.id
    assert handle.events() == ()
    handle.cancel()
    assert handle.status().cancel_requested


def test_estimates_clusters_and_forecast(place: Place) -> None:
    here = place.session("alice")
    rows = here.estimates(here.request(Workload(**TRAINING), assume=str(here.config.directory / "short.toml")))
    assert rows[0].needs.run is not None
    assert rows[0].needs.run.p50 == 600
    assert here.cluster("local").batch == "local"
    assert "local" in here.live
    with pytest.raises(NotFound, match="knows no cluster"):
        here.cluster("nowhere")


def test_nobody_elses_run_is_there(place: Place) -> None:
    alice, bob = place.session("alice"), place.session("bob")
    run = place.plans(alice)["1"].submit()
    for asked in (run.id, run.id[:6], "../alice", "../../v1/admin/users", "r-%2e%2e"):
        with pytest.raises(NotFound, match="you have no run"):
            bob.run(asked)
    assert bob.runs() == []


def test_a_lost_answer_delegates_once(place: Place) -> None:
    here = place.session("alice")
    option = place.plans(here)["1"]
    wire = place.wires["alice"]

    passed = Wire.handle_request

    def lose_the_first(request: Any) -> Any:
        answer = passed(wire, request)
        if request.url.path == "/v1/runs" and request.method == "POST" and wire.seen.count("POST /v1/runs") == 1:
            raise httpx2.ReadTimeout("the answer was lost")
        return answer

    wire.handle_request = lose_the_first  # type: ignore[method-assign]
    option.submit()
    assert wire.seen.count("POST /v1/runs") == 2
    assert len(here.runs()) == 1


def test_a_network_that_comes_back_is_waited_for_and_one_that_does_not_is_told(place: Place) -> None:
    here = place.session("alice")
    place.wires["alice"].broken = 2
    assert here.runs() == []
    place.wires["alice"].broken = 99
    with pytest.raises(ServiceUnavailable, match="does not answer"):
        here.runs()


def test_errors_are_the_houses_own(place: Place) -> None:
    here = place.session("alice")
    with pytest.raises(NoFeasiblePlan):
        here.plan(here.request(Workload(**TRAINING, gpus=64), assume=str(here.config.directory / "short.toml")))["1"]
    with pytest.raises(BadInput):
        here.plan(here.request(Workload(**{**TRAINING, "directory": "not/whole"})))
    with pytest.raises(ConfigError, match="does not know your token"):
        place.session("mallory", token="isc_nobody_nothing").runs()


def test_the_token_must_be_private(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("isc_x\n")
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_token(str(file))
    file.chmod(0o600)
    assert read_token(str(file)) == "isc_x"
    with pytest.raises(ConfigError, match=r"service\.token_file"):
        read_token("")
    with pytest.raises(ConfigError, match="no address"):
        Line("ftp://x", "t")


def test_without_a_url_the_session_is_this_machines(tmp_path: Path) -> None:
    config = load_config(directory=tmp_path, environment={"ISCHED_PATHS_STATE": str(tmp_path), "ISCHED_SYSTEM_CONFIG": "/dev/null"})
    assert type(open_session(config)) is Session


def test_commands_print_the_same_documents(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import import_module

    from typer.testing import CliRunner

    here = place.session("alice")
    run = place.plans(here)["1"].submit()
    for command, words, name in (
        ("status", [run.id], "run"), ("runs", [], "runs"), ("why", [run.id], "why"), ("events", [run.id], "events"),
        ("clusters", [], "clusters"), ("report", [run.id], "report"), ("cancel", [run.id], "run"),
    ):  # fmt: skip
        module = import_module(f"ischeduler.cli.{command}")
        monkeypatch.setattr(module, "session", lambda flags=None: here)
        answer = CliRunner().invoke(module.app, [*words, "--json"])
        assert answer.exit_code == 0, (command, answer.output)
        assert json.loads(answer.output[answer.output.index('{"schema"') :])["schema"] == f"isched.{name}/1"
