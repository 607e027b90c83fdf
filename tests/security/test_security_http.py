"""Paths that lead outside, bodies that are too much, words sent twice, what browsers are told, and where secrets may not be."""

from __future__ import annotations

import json
import logging
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from security_scene import Scene

from ischeduler.core.errors import NotFound
from ischeduler.core.jobs import Resources
from ischeduler.core.run import Attempt
from ischeduler.helper.centre_logs import read_tail
from ischeduler.testing.service import FIGURES, KEY, WORKLOAD, make_service

OUTSIDE = ("../../../../etc/passwd", "..%2f..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e/etc/passwd", "....//....//etc/passwd", "/etc/passwd", "a%00b")


@pytest.mark.parametrize("text", OUTSIDE)
def test_no_path_leads_outside(scene: Scene, text: str):
    who = scene.people["another user"]
    for url in (f"/v1/runs/{text}", f"/v1/plans/{text}", f"/static/{text}", f"/v1/clusters/{text}", f"/v1/runs/x/logs?attempt={text}", f"/{text}"):
        answer = scene.client.get(url, headers=who)
        assert answer.status_code in (303, 400, 404, 422), f"{url}: {answer.status_code}"
        assert "root:" not in answer.text


def test_a_log_is_read_from_its_runs_folder_alone(tmp_path: Path):
    run = tmp_path / "run"
    (run / "logs").mkdir(parents=True)
    (run / "logs" / "1.out").write_text("one\ntwo\nthree\n")
    assert read_tail(run, ("logs", "1.out"), "nobody-of-here", 2) == "two\nthree\n"
    assert read_tail(run, ("logs", "7.out"), "nobody-of-here", 2) == ""
    secret = tmp_path / "secret"
    secret.write_text("key")
    (run / "logs" / "2.out").symlink_to(secret)
    os.mkfifo(run / "logs" / "3.out")
    (run / "logs" / "4.out").mkdir()
    for name in ("2.out", "3.out", "4.out"):
        with pytest.raises(NotFound):
            read_tail(run, ("logs", name), "nobody-of-here", 2)
    (tmp_path / "other" / "logs").mkdir(parents=True)
    (tmp_path / "other" / "logs" / "1.out").write_text("key")
    (tmp_path / "planted").mkdir()
    (tmp_path / "planted" / "logs").symlink_to(tmp_path / "other" / "logs")
    with pytest.raises(NotFound):
        read_tail(tmp_path / "planted", ("logs", "1.out"), "nobody-of-here", 2)


@pytest.mark.skipif(os.getuid() != 0, reason="a file of another account can be made by root only: not here")
def test_a_log_belongs_to_its_runs_owner(tmp_path: Path):
    (tmp_path / "logs").mkdir()
    file = tmp_path / "logs" / "1.out"
    file.write_text("root's")
    with pytest.raises(NotFound):
        read_tail(tmp_path, ("logs", "1.out"), "daemon", 2)
    os.chown(file, 1, 1)
    assert read_tail(tmp_path, ("logs", "1.out"), "daemon", 2) == "root's"


def test_a_log_comes_through_the_api(scene: Scene):
    store, run_id = scene.service.centre.store, scene.things["run_id"]
    run = store.get_run(run_id)
    attempt = Attempt(1, f"{run_id}-1", "local", "main", Resources(), 32)
    store.save_run(replace(run, attempts=(attempt,)))
    folder = Path(run.directory) / "logs"
    folder.mkdir(parents=True)
    (folder / "1.out").write_text("epoch 1\nepoch 2\n")
    victim = scene.people["victim"]
    assert scene.client.get(f"/v1/runs/{run_id}/logs?lines=1", headers=victim).json()["text"] == "epoch 2\n"
    assert scene.client.get(f"/v1/runs/{run_id}/logs", headers=scene.people["another user"]).status_code == 404
    store.save_run(replace(store.get_run(run_id), attempts=()))


def event(run_id: str, seq: int, **change: Any) -> dict[str, Any]:
    return {"v": 1, "run": run_id, "token": "1.0", "seq": seq, "t": time.time(), "kind": "progress", "data": {"epoch": 1}} | change


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"run":1}', b'{"events":{}}', b'{"events":[1,2]}', b'{"events":' + b"[" * 20_000, b"1" * 5000,
        json.dumps({"events": [{"v": 1}]}).encode(), json.dumps({"run": "../x", "events": []}).encode(), b'{"events":[{"seq":1e400}]}',
    ],
    ids=range(13),
)  # fmt: skip
def test_malformed_events_are_no_accident(scene: Scene, body: bytes):
    run_id = scene.service.run("mallory")
    text, _ = scene.service.gate.tokens.make_for_job("mallory", run_id, 600)
    headers = {"Authorization": f"Bearer {text}", "Content-Type": "application/json"}
    answer = scene.client.post(f"/v1/runs/{run_id}/events", content=body, headers=headers)
    assert answer.status_code < 500, answer.text
    assert "Traceback" not in answer.text


def test_oversized_events_are_refused_and_the_service_lives(scene: Scene):
    run_id = scene.service.run("mallory")
    text, _ = scene.service.gate.tokens.make_for_job("mallory", run_id, 600)
    headers = {"Authorization": f"Bearer {text}", "Content-Type": "application/json"}
    url = f"/v1/runs/{run_id}/events"
    assert scene.client.post(url, content=b"x" * (9 << 20), headers=headers).status_code == 413
    big = {"run": run_id, "events": [event(run_id, 1, data={"text": "x" * 200_000})]}
    assert scene.client.post(url, json=big, headers=headers).status_code < 500
    assert scene.client.get("/healthz").status_code == 200


def test_events_sent_again_or_for_another_run_change_nothing(scene: Scene):
    service = scene.service
    mine, victims = service.run("mallory"), scene.things["run_id"]
    text, row = service.gate.tokens.make_for_job("mallory", mine, 600)
    headers = {"Authorization": f"Bearer {text}"}
    body = {"run": mine, "events": [event(mine, n) for n in (1, 2)]}
    answers = [scene.client.post(f"/v1/runs/{mine}/events", json=body, headers=headers) for _ in range(3)]
    assert {a.status_code for a in answers} == {200}
    archive = scene.service.app.state.desk.backend.engine
    from ischeduler.store.ingest_read import EventArchive

    assert len(EventArchive(archive).curve_events(mine)) == 2
    forged = {"run": victims, "events": [event(victims, 1)]}
    for url in (f"/v1/runs/{mine}/events", f"/v1/runs/{victims}/events"):
        scene.client.post(url, json=forged, headers=headers)
    assert EventArchive(archive).curve_events(victims) == []
    service.gate.credentials.revoke(row.id)
    service.app.state.ingest._admitted.clear()  # a credential is trusted for some seconds before it is looked at again
    assert scene.client.post(f"/v1/runs/{mine}/events", json=body, headers=headers).status_code == 401


def test_what_browsers_are_told(scene: Scene):
    for url in ("/v1/runs", "/v1/openapi.json", "/healthz", "/login", "/nothing"):
        headers = scene.client.get(url).headers
        assert headers["x-content-type-options"] == "nosniff", url
        assert headers["x-frame-options"] == "DENY", url
        assert "frame-ancestors 'none'" in headers["content-security-policy"], url
        assert "unsafe" not in headers["content-security-policy"], url
        assert headers["referrer-policy"] in ("no-referrer", "same-origin"), url
        assert "server" not in headers, url


def test_other_origins_read_nothing_unless_they_are_listed(tmp_path: Path, scene: Scene):
    asked = {"Origin": "https://evil.example", "Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "authorization"}
    assert "access-control-allow-origin" not in scene.client.options("/v1/runs", headers=asked).headers
    service = make_service(tmp_path, origins=("https://good.example",), public_url="https://isched.example")
    with TestClient(service.app, base_url="https://isched.example") as client:
        good = client.options("/v1/runs", headers=asked | {"Origin": "https://good.example"}).headers
        assert good["access-control-allow-origin"] == "https://good.example"
        assert "access-control-allow-credentials" not in good
        evil = client.options("/v1/runs", headers=asked)
        assert "access-control-allow-origin" not in evil.headers
        assert client.get("/healthz").headers["strict-transport-security"].startswith("max-age=")


def test_no_secret_is_in_a_log_or_an_answer(scene: Scene, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]):
    service, client = scene.service, scene.client
    who = service.add_user("quiet")
    token = who["Authorization"].removeprefix("Bearer ")
    told: list[str] = []
    with caplog.at_level(logging.DEBUG):
        made = client.post("/v1/tokens", json={"label": "x"}, headers=who)
        hook = service.app.state.desk.webhooks.add("h-00000000000000aa", "quiet", "https://quiet.example/", [])
        from ischeduler.service.webhooks import secret_of

        secrets = [token, made.json()["secret"], secret_of(service.gate.derived, hook.id), KEY.decode()]
        run_id = service.run("quiet")
        for url in ("/v1/tokens", "/v1/webhooks", f"/v1/webhooks/{hook.id}", "/v1/me", f"/v1/runs/{run_id}", "/v1/nothing", f"/v1/me?token={token}"):
            told.append(client.get(url, headers=who).text)
        told.append(client.post("/v1/plans", json={"workload": {"epochs": token}}, headers=who).text)
        told.append(client.post("/v1/plans", content=token.encode(), headers=who | {"Content-Type": "application/json"}).text)
        told.append(client.get("/v1/me", headers={"Authorization": f"Bearer {token}x"}).text)
    out, err = capfd.readouterr()
    ours = [r.getMessage() for r in caplog.records if not r.name.startswith("http")]  # the test's own client logs what it asks
    said = [*told, *ours, out, err]
    for secret in secrets:
        assert not any(secret in text for text in said)
    audit = json.dumps([a.detail | {"about": a.about, "what": a.what} for a in service.gate.log.lines(limit=1000)])
    assert not any(secret in audit for secret in secrets)


def test_a_token_in_the_url_is_no_credential(scene: Scene):
    token = scene.people["victim"]["Authorization"].removeprefix("Bearer ")
    for name in ("token", "access_token", "authorization"):
        assert scene.client.get("/v1/me", params={name: token}).status_code == 401


def test_guesses_are_slowed_down(tmp_path: Path):
    service = make_service(tmp_path, stranger_rate=0.01, stranger_burst=5.0)
    with TestClient(service.app) as client:
        answers = [client.get("/v1/me", headers={"Authorization": f"Bearer isc_{n:016x}_{'A' * 43}"}).status_code for n in range(8)]
    assert answers == [401] * 5 + [429] * 3


def test_a_plan_kept_for_one_is_submitted_by_nobody_else(scene: Scene):
    plan_id, _ = scene.service.centre.plan("victim", WORKLOAD, assume=FIGURES)
    answer = scene.client.post("/v1/runs", json={"plan": plan_id}, headers=scene.people["another user"])
    assert answer.status_code == 404
    theirs, _ = scene.service.centre.plan("mallory", WORKLOAD, assume=FIGURES)
    answer = scene.client.post("/v1/runs", json={"plan": theirs, "project": "secretproject"}, headers=scene.people["another user"])
    assert answer.status_code == 403
