"""The service on PostgreSQL: requests at once, and what only its locks and triggers can show."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the service's libraries are not installed")

from fastapi.testclient import TestClient

from ischeduler.store.centre_tables import AUDIT
from ischeduler.store.webhooks import Webhooks
from ischeduler.testing.postgres import PostgresMissing, throwaway_postgres
from ischeduler.testing.service import FIGURES, WORKLOAD, TestService, make_service

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestService]:
    try:
        with throwaway_postgres() as server:
            found = make_service(tmp_path_factory.mktemp("pg"), database=server.new_database())
            yield found
            found.centre.engine.dispose()
    except PostgresMissing as missing:
        if os.environ.get("CI"):
            pytest.fail(f"CI must run the PostgreSQL tests, but {missing}", pytrace=False)
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def client(service: TestService) -> Iterator[TestClient]:
    with TestClient(service.app, raise_server_exceptions=False) as found:
        yield found


def at_once(count: int, work: Any) -> list[Any]:
    """The same thing from several threads that begin together."""
    ready, answers = threading.Barrier(count), list[Any]()

    def one() -> None:
        ready.wait()
        answers.append(work())

    threads = [threading.Thread(target=one) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def test_the_same_request_eight_times_at_once_is_one_run(service: TestService, client: TestClient):
    who = service.add_user("alice")
    plan = client.post("/v1/plans", json={"workload": WORKLOAD, "assume": FIGURES}, headers=who).json()["id"]
    answers = at_once(8, lambda: client.post("/v1/runs", json={"plan": plan}, headers=who | {"Idempotency-Key": "eight"}))
    assert {a.status_code for a in answers} <= {201, 409}
    made = {a.json()["run"]["id"] for a in answers if a.status_code == 201}
    assert len(made) == 1
    again = client.post("/v1/runs", json={"plan": plan}, headers=who | {"Idempotency-Key": "eight"})
    assert (again.status_code, again.headers["idempotent-replayed"]) == (201, "true")
    assert {r.id for r in service.centre.store.list_runs(owner="alice")} == made


def test_a_run_is_cancelled_once_however_many_ask(service: TestService, client: TestClient):
    who = service.add_user("bob")
    run_id = service.run("bob")
    tag = client.get(f"/v1/runs/{run_id}", headers=who).headers["etag"]
    answers = at_once(6, lambda: client.post(f"/v1/runs/{run_id}/cancel", headers=who | {"If-Match": tag}).status_code)
    assert set(answers) <= {200, 412}
    kinds = [e.kind for _, e in service.centre.store.events(run_id)]
    assert kinds == ["cancel_asked"]


def test_pages_and_isolation_hold_here_too(service: TestService, client: TestClient):
    carol, dave = service.add_user("carol"), service.add_user("dave")
    made = [service.run("carol") for _ in range(3)]
    page = client.get("/v1/runs?limit=2", headers=carol).json()
    rest = client.get("/v1/runs", params={"limit": 2, "cursor": page["next"]}, headers=carol).json()
    assert [r["id"] for r in page["runs"] + rest["runs"]] == made[::-1]
    assert client.get("/v1/runs", headers=dave).json()["runs"] == []
    assert client.get(f"/v1/runs/{made[0]}", headers=dave).status_code == 404


def test_a_webhook_is_served_by_one_process_at_a_time(service: TestService):
    service.add_user("erin")
    hooks = Webhooks(service.centre.engine, clock=lambda: time.time() + 3600.0)  # the service, which serves too, finds none due
    for number in range(10):
        hooks.add(f"h-{number:016x}", "erin", "https://example.org/", [])
    claimed = [h.id for part in at_once(4, lambda: hooks.claim_due(30.0)) for h in part]
    assert len(claimed) == len(set(claimed)) == 10


@pytest.mark.parametrize("statement", ["UPDATE audit SET who = 'x'", "DELETE FROM audit", "TRUNCATE audit"])
def test_the_audit_log_only_grows(service: TestService, statement: str):
    service.add_user(f"u{abs(hash(statement)) % 10**6}")
    with service.centre.engine.begin() as connection:
        connection.execute(AUDIT.insert().values(at=0, who="w", token_id="", origin="", what="x", about="", outcome="done", detail={}))
    with pytest.raises(Exception, match="append-only"), service.centre.engine.begin() as connection:
        connection.exec_driver_sql(statement)


def test_a_database_that_is_behind_is_not_ready(tmp_path: Path, service: TestService, client: TestClient):
    assert client.get("/readyz").status_code == 200
    empty = make_service(tmp_path, more={"ISCHED_DATABASE_URL": str(tmp_path / "x.db")})
    assert not empty.centre.problems()
