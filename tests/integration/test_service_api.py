"""The API as a client meets it, over the real backend on SQLite and the local batch system."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the service's libraries are not installed")

from fastapi.testclient import TestClient

from ischeduler.testing.service import FIGURES, WORKLOAD, TestService, make_service


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> TestService:
    return make_service(tmp_path_factory.mktemp("service"))


@pytest.fixture(scope="module")
def client(service: TestService) -> Iterator[TestClient]:
    with TestClient(service.app, raise_server_exceptions=False) as found:
        yield found


@pytest.fixture(scope="module")
def alice(service: TestService) -> dict[str, str]:
    return service.add_user("alice")


@pytest.fixture(scope="module")
def plan(client: TestClient, alice: dict[str, str]) -> dict[str, Any]:
    answer = client.post("/v1/plans", json={"workload": WORKLOAD, "assume": FIGURES}, headers=alice)
    assert answer.status_code == 201, answer.text
    return answer.json()


def submit(client: TestClient, who: dict[str, str], plan_id: str, key: str | None = None, **more: Any) -> Any:
    headers = who | ({"Idempotency-Key": key} if key else {})
    return client.post("/v1/runs", json={"plan": plan_id, **more}, headers=headers)


def test_health_needs_no_one(client: TestClient):
    assert client.get("/healthz").json()["status"] == "alive"
    assert client.get("/readyz").json() == {"status": "ready", "problems": []}


def test_a_stranger_is_told_how_to_sign_in(client: TestClient):
    answer = client.get("/v1/runs")
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/problem+json"
    assert set(answer.json()) == {"type", "title", "status", "detail", "fix"}
    assert answer.headers["www-authenticate"] == "Bearer"


def test_a_plan_is_the_command_lines_document(client: TestClient, alice: dict[str, str], plan: dict[str, Any]):
    assert plan["schema"] == "isched.plan/1"
    assert plan["plans"][0]["run"]["p50"] == 600.0
    assert plan["plans"][0]["run"]["reason"] == "declared in the request's figures"
    assert client.get(f"/v1/plans/{plan['id']}", headers=alice).json() == plan
    script = client.get(f"/v1/plans/{plan['id']}/script", headers=alice).json()
    assert script["script"].startswith("#!/bin/bash")


def test_the_same_key_is_the_same_run_and_another_body_is_refused(client: TestClient, alice: dict[str, str], plan: dict[str, Any]):
    first, again = (submit(client, alice, plan["id"], "once") for _ in range(2))
    assert first.status_code == again.status_code == 201
    assert first.json() == again.json()
    assert again.headers["idempotent-replayed"] == "true"
    assert again.headers["location"] == first.headers["location"]
    other = submit(client, alice, plan["id"], "once", choice="1")
    assert (other.status_code, other.json()["type"]) == (422, "urn:ischeduler:problem:key-reused")


def test_a_key_makes_one_run_even_where_the_answer_was_lost(
    service: TestService, client: TestClient, alice: dict[str, str], plan: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    from ischeduler.store.requests import AnswersByKey

    with monkeypatch.context() as killed:
        killed.setattr(AnswersByKey, "finish", lambda *_: (_ for _ in ()).throw(RuntimeError("killed here")))
        assert submit(client, alice, plan["id"], "lost").status_code == 500
    clock = service.centre.clock
    assert submit(client, alice, plan["id"], "lost").status_code == 409  # the first may still be at work
    later = clock.now() + 600
    monkeypatch.setattr(type(clock), "now", lambda _: later)
    answer = submit(client, alice, plan["id"], "lost")
    assert answer.status_code == 201
    made = [r for r in service.centre.store.list_runs(owner="alice") if r.id == answer.json()["run"]["id"]]
    assert len(made) == 1


def test_versions_and_conditions(client: TestClient, alice: dict[str, str], plan: dict[str, Any]):
    run = submit(client, alice, plan["id"])
    path, tag = run.headers["location"], run.headers["etag"]
    assert client.get(path, headers=alice | {"If-None-Match": tag}).status_code == 304
    stale = client.post(f"{path}/cancel", headers=alice | {"If-Match": '"old"'})
    assert (stale.status_code, stale.json()["type"]) == (412, "urn:ischeduler:problem:changed")
    done = client.post(f"{path}/cancel", headers=alice | {"If-Match": tag})
    assert done.json()["run"]["cancel_requested"] is True
    assert done.headers["etag"] != tag
    assert [e["kind"] for e in client.get(f"{path}/events", headers=alice).json()["events"]] == ["cancel_asked"]
    assert client.get(f"{path}/control", headers=alice).json()["word"] == "stop"


def test_pages_hold_every_run_once(service: TestService, client: TestClient):
    who = service.add_user("pager")
    made = {service.run("pager") for _ in range(7)}
    seen: list[str] = []
    cursor = None
    while True:
        page = client.get("/v1/runs", params={"limit": 3} | ({"cursor": cursor} if cursor else {}), headers=who)
        seen += [r["id"] for r in page.json()["runs"]]
        cursor = page.json()["next"]
        assert ("link" in page.headers) == (cursor is not None)
        if cursor is None:
            break
    assert len(seen) == 7
    assert set(seen) == made
    assert client.get("/v1/runs", params={"cursor": "nonsense"}, headers=who).status_code == 422


def test_what_a_run_tells(client: TestClient, alice: dict[str, str], plan: dict[str, Any]):
    path = submit(client, alice, plan["id"]).headers["location"]
    assert client.get(f"{path}/why", headers=alice).json()["words"].startswith("PLANNED")
    assert client.get(f"{path}/report", headers=alice).json()["report"]["state"] == "planned"
    missing = client.get(f"{path}/logs", headers=alice)
    assert (missing.status_code, missing.json()["type"]) == (404, "urn:ischeduler:problem:not-found")


def test_saved_workloads_are_planned_by_their_id(client: TestClient, alice: dict[str, str]):
    saved = client.post("/v1/workloads", json={"name": "nightly", "workload": WORKLOAD}, headers=alice)
    assert saved.status_code == 201
    again = client.post("/v1/workloads", json={"name": "nightly", "workload": WORKLOAD}, headers=alice)
    assert again.status_code == 409
    workload_id = saved.json()["workload"]["id"]
    plan = client.post("/v1/plans", json={"saved": workload_id, "assume": FIGURES}, headers=alice)
    assert plan.json()["workload"]["command"] == ["python", "train.py"]
    assert client.delete(f"/v1/workloads/{workload_id}", headers=alice).status_code == 204
    assert client.get(f"/v1/workloads/{workload_id}", headers=alice).status_code == 404


def test_clusters_queue_forecast_and_estimators(client: TestClient, alice: dict[str, str]):
    found = client.get("/v1/clusters", headers=alice).json()
    assert "pitzer" in {c["name"] for c in found["clusters"]}
    assert found["live"] == ["local"]
    assert client.get("/v1/clusters/local/queue", headers=alice).json()["queue"]["cluster"] == "local"
    assert client.get("/v1/clusters/pitzer/queue", headers=alice).status_code == 404
    forecast = client.get("/v1/clusters/local/forecasts", headers=alice).json()
    assert forecast["forecasts"][0]["wait"]["unit"] == "s"
    assert client.get("/v1/estimators", headers=alice).json()["estimators"][0]["name"] == "given"


def test_bad_requests_are_sentences(client: TestClient, alice: dict[str, str]):
    for body in ({}, {"workload": {"epochs": 0}}, {"workload": {"epoch": 3}}, {"workload": {"command": ["x"], "directory": "rel"}}, []):
        answer = client.post("/v1/plans", json=body, headers=alice)
        assert answer.status_code == 422, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
    assert client.post("/v1/plans", content=b"{", headers=alice | {"Content-Type": "application/json"}).status_code == 422
    assert client.get("/v1/nothing", headers=alice).json()["type"] == "urn:ischeduler:problem:http-404"
    assert client.delete("/v1/runs", headers=alice).json()["status"] == 405


def test_every_answer_is_of_its_own_schema(client: TestClient, alice: dict[str, str], plan: dict[str, Any]):
    import jsonschema

    described = client.get("/v1/openapi.json").json()
    assert described["openapi"].startswith("3.1")
    path = submit(client, alice, plan["id"]).headers["location"]
    for url in (path, "/v1/runs", f"{path}/events", f"{path}/report", f"{path}/why", "/v1/clusters", "/v1/estimators", "/v1/me", "/v1/tokens"):
        body = client.get(url, headers=alice).json()
        name = re.sub("/", ".", body["schema"])
        schema = {"$ref": f"#/components/schemas/{name}", "components": described["components"]}
        jsonschema.Draft202012Validator(schema).validate(body)


def test_bodies_have_a_limit(client: TestClient, alice: dict[str, str]):
    answer = client.post("/v1/plans", content=b"x" * (1 << 20) + b"x", headers=alice)
    assert (answer.status_code, answer.json()["type"]) == (413, "urn:ischeduler:problem:too-large")

    def pieces() -> Iterator[bytes]:
        for _ in range(20):
            yield b"x" * (1 << 16)

    assert client.post("/v1/plans", content=pieces(), headers=alice).status_code == 413


def test_the_limit_of_requests_says_when_to_come_again(tmp_path: Path):
    service = make_service(tmp_path, rate=0.001, burst=3.0)
    who = service.add_user("hasty")
    with TestClient(service.app) as client:
        answers = [client.get("/v1/me", headers=who) for _ in range(4)]
    assert [a.status_code for a in answers] == [200, 200, 200, 429]
    assert int(answers[-1].headers["retry-after"]) > 100
