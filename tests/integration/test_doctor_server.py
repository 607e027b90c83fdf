"""``isched doctor --server`` on a real database and broker: what is well is said to be, and each trouble has its fix."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ischeduler.helper.config import load_config
from ischeduler.helper.doctor import Check
from ischeduler.helper.doctor_server import examine_server
from ischeduler.helper.session import Session
from ischeduler.service.auth.secrets import make_key
from ischeduler.store.engine import open_engine
from ischeduler.store.identities import Identities
from ischeduler.store.migrate import migrate
from ischeduler.testing.broker import Broker, BrokerMissing, throwaway_broker
from ischeduler.testing.postgres import PostgresMissing, throwaway_postgres

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    try:
        with throwaway_postgres() as server:
            url = server.new_database()
            migrate(open_engine(url))
            yield url
    except PostgresMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    try:
        with throwaway_broker() as started:
            yield started
    except BrokerMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def session(tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> Session:
    """A centre's configuration with everything in place but a running service and workers."""
    for name in [n for n in os.environ if n.startswith("ISCHED_")]:
        monkeypatch.delenv(name)
    make_key(tmp_path / "server.key")
    settings = {
        "DATABASE_URL": database, "PATHS_STATE": tmp_path / "state", "PATHS_DATA": tmp_path / "data", "BATCH_KIND": "local",
        "SERVE_KEY_FILE": tmp_path / "server.key", "SERVE_PORT": 9,
    }  # fmt: skip
    for name, value in settings.items():
        monkeypatch.setenv(f"ISCHED_{name}", str(value))
    monkeypatch.chdir(tmp_path)
    return Session(load_config())


def changed(session: Session, monkeypatch: pytest.MonkeyPatch, **settings: object) -> Session:
    for name, value in settings.items():
        monkeypatch.setenv(f"ISCHED_{name}", str(value))
    return Session(load_config())


def checks(session: Session) -> dict[str, Check]:
    return {check.name: check for check in examine_server(session)}


def test_what_is_well_is_said_to_be(session: Session) -> None:
    found = checks(session)
    for name in ("database", "database: connections", "database: clock", "server's key", "broker", "messages", "cluster local", "state folder"):
        assert found[name].level == "ok", found[name]
    assert found["service"].level == "warn"
    assert found["plane workers"].level == "warn"
    assert all(check.fix for check in found.values() if check.level != "ok")


def test_workers_show_by_their_signs_of_life(session: Session) -> None:
    store = session.services.store
    now = store.now()
    from ischeduler.ports import WorkerSign

    sign = WorkerSign("host:1:abc", "host", 1, now - 100, now, carried=7)
    store.sign(sign)
    assert checks(session)["plane workers"].text.startswith("only one")
    store.sign(replace(sign, name="host:2:def", pid=2))
    found = checks(session)
    assert "plane workers" not in found
    assert "carries 7 run(s)" in found["worker host:1"].text


def test_files_that_others_can_read_are_bad(session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "server.key").chmod(0o640)
    (tmp_path / "urls").write_text("json://u:p4ssw0rd@h/")
    found = checks(changed(session, monkeypatch, NOTIFY_URLS_FILE=tmp_path / "urls"))
    assert found["server's key"].level == "bad"
    assert found["notify.urls_file"].level == "bad"
    assert "p4ssw0rd" not in repr(found)


def test_slurm_tokens_missing_open_and_old(session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    people = Identities(session.services.engine, clock=time.time)
    for name in ("ann", "ben", "cem"):
        people.add_user(name)

    def token(name: str, lives_s: float, mode: int = 0o600) -> None:
        body = base64.urlsafe_b64encode(json.dumps({"exp": time.time() + lives_s}).encode()).decode().rstrip("=")
        path = tmp_path / f"{name}.jwt"
        path.write_text(f"eyJhbGciOiJIUzI1NiJ9.{body}.c2lnbmF0dXJl")
        path.chmod(mode)

    token("ann", 9 * 3600)
    token("ben", 600)
    token("cem", 9 * 3600, 0o644)
    here = changed(
        session, monkeypatch, BATCH_KIND="slurmrest", BATCH_CLUSTER="testbed", SLURMREST_URL="http://127.0.0.1:9",
        SLURMREST_TOKEN_FILE=tmp_path / "{user}.jwt",
    )  # fmt: skip
    said = [c for c in examine_server(here) if c.name == "Slurm tokens"]
    assert [(c.level, c.text.rpartition(": ")[2]) for c in said] == [("bad", "cem"), ("warn", "ben")]
    assert next(c for c in examine_server(here) if c.name == "batch system").level == "bad", "slurmrestd does not answer there"


def test_the_broker_and_its_topics(session: Session, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    here = changed(session, monkeypatch, KAFKA_SERVERS=broker.servers)
    found = checks(here)["broker"]
    assert (found.level, found.fix) == ("bad", "isched ingest --make-topics 8")
    from ischeduler.helper.ingest import make_topics

    make_topics(here.config, 2)
    assert checks(here)["broker"].level == "ok"
    away = checks(changed(session, monkeypatch, KAFKA_SERVERS="127.0.0.1:9"))["broker"]
    assert (away.level, "does not answer" in away.text) == ("bad", True)


def test_tokens_in_clear_over_the_network_are_bad(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    import http.server
    import threading

    class Ready(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *words: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Ready)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        here = changed(session, monkeypatch, SERVE_PORT=server.server_port, SERVE_PUBLIC_URL="http://ischeduler.example.edu")
        found = checks(here)
        assert found["service"].level == "ok"
        assert found["service: TLS"].level == "bad"
    finally:
        server.shutdown()
        server.server_close()


def test_a_database_without_tables_is_bad(session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = checks(changed(session, monkeypatch, DATABASE_URL=tmp_path / "empty.db"))
    assert (found["database"].level, found["database"].fix) == ("bad", "isched db upgrade")
    assert found["database: kind"].level == "warn"
