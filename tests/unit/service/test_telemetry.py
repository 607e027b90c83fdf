"""Metrics, traces and logs of the service: every name is registered, every request is told of, no secret shows."""

from __future__ import annotations

import ast
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, generate_latest

from ischeduler.core import meters
from ischeduler.service.telemetry import TelemetrySettings, install, logs, traces
from ischeduler.service.telemetry.metrics import LOOKED_UP, METRICS, DatabaseCollector, PrometheusRecorder
from ischeduler.service.telemetry.redact import HIDDEN, Redactor
from ischeduler.store.engine import open_engine
from ischeduler.store.sql_store import SqlStore

SOURCE = Path(__file__).resolve().parents[3] / "src" / "ischeduler"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.c2lnbmF0dXJl"
SECRETS = {
    "personal token": "isc_Zm9vYmFyYmF6cXV4",
    "job token": "isj_0123456789abcdef",
    "web token": JWT,
    "bearer": "Bearer q7Lk2-plain_opaque",
    "munge": "MUNGE:AwQFAACTtR2x:",
    "url": "postgresql+psycopg://isched:hunter2pw@db/centre",
    "callback": "/auth/callback?code=SplxlOBeZQQYbYS6WxSbIA&state=af0ifjsldkj",
    "assignment": "password=correct-horse",
    "key": "-----BEGIN PRIVATE KEY-----\nMIIEvQ==\n-----END PRIVATE KEY-----",
}
PLAIN = ["Zm9vYmFyYmF6cXV4", "0123456789abcdef", "c2lnbmF0dXJl", "q7Lk2-plain", "AwQFAACTtR2x", "hunter2pw", "SplxlOBeZQQ", "af0ifjsldkj", "correct-horse", "MIIEvQ"]  # fmt: skip


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """Logging and meters are the process's own; other tests find them as before."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level
    structlog.reset_defaults()
    meters.listen()


def calls_of_meters() -> list[tuple[str, int, str, frozenset[str]]]:
    """Every ``meters.count("name", ..., label=...)`` of the source: file, line, name, labels."""
    found: list[tuple[str, int, str, frozenset[str]]] = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            function = getattr(node, "func", None)
            if not (isinstance(node, ast.Call) and isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name)):
                continue
            if function.value.id == "meters" and function.attr in ("count", "observe", "gauge", "timed") and node.args:
                name = node.args[0].value if isinstance(node.args[0], ast.Constant) else "(not a literal)"
                labels = frozenset(k.arg or "**" for k in node.keywords) - {"amount", "value"}
                found.append((str(path.relative_to(SOURCE)), node.lineno, str(name), labels))
    return found


def test_everything_that_is_counted_is_registered_with_its_labels() -> None:
    calls = calls_of_meters()
    assert len(calls) >= 2
    wrong = [c for c in calls if c[2] not in METRICS or c[3] != frozenset(METRICS[c[2]].labels)]
    assert wrong == []


def test_meters_cost_nothing_and_say_nothing_without_a_listener() -> None:
    meters.count("isched_lease_events_total", event="lost")
    with meters.timed("isched_worker_tick_seconds", worker="w"):
        pass


def test_a_recorder_takes_the_figures_and_drops_what_it_does_not_know() -> None:
    registry = CollectorRegistry()
    meters.listen(PrometheusRecorder(registry))
    meters.count("isched_lease_events_total", 3, event="lost")
    meters.count("isched_lease_events_total", 3, surprise="x")
    meters.count("no_such_thing")
    meters.gauge("isched_worker_runs", 7, worker="w1")
    with pytest.raises(ValueError, match="inside"), meters.timed("isched_controller_call_seconds", cluster="c", call="observe"):
        raise ValueError("inside")
    assert registry.get_sample_value("isched_lease_events_total", {"event": "lost"}) == 3.0
    assert registry.get_sample_value("isched_worker_runs", {"worker": "w1"}) == 7.0
    assert registry.get_sample_value("isched_controller_call_seconds_count", {"cluster": "c", "call": "observe"}) == 1.0


def test_the_database_is_asked_for_runs_leases_and_its_pool(tmp_path: Path) -> None:
    store = SqlStore(tmp_path / "c.db")
    store.acquire_lease("one", "me", 1000.0, 1000.0)
    store.acquire_lease("two", "me", 10.0, 1000.0)
    now = [1100.0]
    registry = CollectorRegistry()
    registry.register(DatabaseCollector(store.engine, clock=lambda: now[0]))
    assert registry.get_sample_value("isched_database_up") == 1.0
    assert registry.get_sample_value("isched_runs", {"state": "running"}) == 0.0
    assert registry.get_sample_value("isched_leases", {"state": "held"}) == 1.0
    assert registry.get_sample_value("isched_leases", {"state": "late"}) == 1.0
    assert registry.get_sample_value("isched_database_pool_connections", {"state": "in_use"}) == 0.0
    store.close()


def test_a_database_that_is_away_shows_as_that(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    registry.register(DatabaseCollector(open_engine(f"sqlite:///{tmp_path}/empty.db")))
    assert registry.get_sample_value("isched_database_up") == 0.0
    assert registry.get_sample_value("isched_runs", {"state": "running"}) is None


def app_with(settings: TelemetrySettings, stream: io.StringIO) -> FastAPI:
    app = FastAPI()
    app.state.backend = None

    @app.get("/v1/runs/{run}")
    def show(run: str, request: Request) -> dict[str, str]:
        request.state.principal = SimpleNamespace(user="alice")
        if run == "broken":
            raise RuntimeError(f"with {SECRETS['url']} and isc_Zm9vYmFyYmF6cXV4")
        structlog.get_logger("test").info("inside", headers=dict(request.headers), token="isj_0123456789abcdef")
        return {"run": run, "id": request.state.request_id}

    @app.get("/auth/callback")
    def callback() -> PlainTextResponse:
        return PlainTextResponse("ok")

    install(app, settings)
    logs.configure(secrets=settings.secrets, stream=stream)
    return app


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_request_has_an_id_a_measure_and_a_line() -> None:
    stream = io.StringIO()
    app = app_with(TelemetrySettings(metrics_token="m" * 32), stream)
    client = TestClient(app, raise_server_exceptions=False)
    answer = client.get("/v1/runs/r-1?verbose=1", headers={"x-request-id": "proxy-gave-1"})
    assert answer.headers["x-request-id"] == "proxy-gave-1" == answer.json()["id"]
    other = client.get("/v1/runs/r-2", headers={"x-request-id": "bad id\t"})
    assert len(other.headers["x-request-id"]) == 16
    client.get("/nowhere/at/all")
    inside, told, *_ = lines(stream)
    assert inside["request_id"] == told["request_id"] == "proxy-gave-1"
    assert (told["method"], told["path"], told["route"], told["status"], told["user"]) == ("GET", "/v1/runs/r-1", "/v1/runs/{run}", 200, "alice")
    text = client.get("/metrics", headers={"authorization": "Bearer " + "m" * 32}).text
    assert 'isched_http_request_seconds_count{method="GET",route="/v1/runs/{run}",status="2xx"} 2.0' in text
    assert 'route="(none)",status="4xx"' in text
    assert "r-1" not in text
    assert client.get("/metrics").status_code == 404
    app.state.telemetry.close()


def test_metrics_are_not_there_without_a_token() -> None:
    app = app_with(TelemetrySettings(), io.StringIO())
    assert TestClient(app).get("/metrics", headers={"authorization": "Bearer "}).status_code == 404


def test_an_app_inside_another_program_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """Only settings of its own make it log: stdout may be somebody's JSON."""
    app = FastAPI()
    app.state.backend = None
    telemetry = install(app, SimpleNamespace(extra={}))
    assert TestClient(app).get("/nowhere").status_code == 404
    telemetry.close()
    assert capfd.readouterr().out == ""


def test_no_secret_shows_in_a_log_whatever_way_it_comes() -> None:
    stream = io.StringIO()
    client = TestClient(app_with(TelemetrySettings(secrets=("the-servers-own-key",)), stream), raise_server_exceptions=False)
    client.get(SECRETS["callback"], headers={"authorization": SECRETS["bearer"], "cookie": "session=abcdefgh12345"})
    client.get("/v1/runs/r-1?token=correct-horse", headers={"authorization": SECRETS["bearer"], "cookie": "session=abcdefgh12345"})
    client.get("/v1/runs/broken")
    log = structlog.get_logger("test")
    for name, secret in SECRETS.items():
        log.info("mixed", words=f"here: {secret} there", nested={"deep": [secret, {"more": secret}]}, **{name.replace(" ", "_"): secret})
        logging.getLogger("sqlalchemy.engine").warning("connecting to %s", secret)
    log.info("by name", password="short", client_secret="x1", authorization="Basic Zm9vOmJhcg==", key="the-servers-own-key", token=17)
    text = stream.getvalue()
    shown = [p for p in [*PLAIN, "abcdefgh12345", "short", "x1", "Zm9vOmJhcg", "the-servers-own-key"] if p in text.replace('"key"', "")]
    assert shown == []
    assert text.count(HIDDEN) > 20
    assert lines(stream)[-1]["token"] == 17, "a fencing token is a number and no secret"
    assert any("RuntimeError" in line.get("exception", "") for line in lines(stream)), "the story of a failure is still told"


@given(st.text(alphabet="abcdefghijklmnopqrstuvwxyzABCDEF0123456789_-", min_size=12, max_size=40), st.text(max_size=20), st.text(max_size=20))
def test_a_token_is_hidden_wherever_it_stands(body: str, before: str, after: str) -> None:
    hidden = Redactor().text(f"{before} isc_{body} {after}")
    assert f"isc_{body}" not in hidden


@given(st.recursive(st.text(max_size=8) | st.integers() | st.none() | st.binary(max_size=4), lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner), max_leaves=12))
def test_any_structure_can_be_cleaned(value: Any) -> None:
    json.dumps(Redactor().value(value))


def test_traces_name_routes_and_statements_and_no_value(tmp_path: Path) -> None:
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    store = SqlStore(tmp_path / "c.db")
    app = FastAPI()

    @app.get("/v1/runs/{run}")
    def show(run: str) -> dict[str, int]:
        with meters.timed("isched_controller_call_seconds", cluster="c", call="observe"):
            return {"runs": len(store.list_runs(owner="secret-owner"))}

    @app.get("/auth/callback")
    def callback() -> None: ...

    traces.trace_app(app, provider)
    traces.trace_engine(store.engine, provider)
    meters.listen(traces.SpanRecorder(provider))
    client = TestClient(app)
    client.get("/v1/runs/r-1?token=correct-horse", headers={"authorization": "Bearer isc_abcdefgh"})
    client.get("/auth/callback?code=SplxlOBeZQQ")
    spans = {span.name: dict(span.attributes or {}) for span in kept.get_finished_spans()}
    everything = repr(spans)
    assert any(name.startswith("GET /v1/runs/{run}") for name in spans)
    assert any("SELECT" in name for name in spans)
    assert spans["controller_call"] == {"isched.cluster": "c", "isched.call": "observe"}
    assert [s for s in ("correct-horse", "isc_abcdefgh", "secret-owner", "SplxlOBeZQQ") if s in everything] == []
    store.close()


def test_no_metric_is_both_counted_and_looked_up() -> None:
    assert not set(METRICS) & set(LOOKED_UP)
    registry = CollectorRegistry()
    PrometheusRecorder(registry)
    assert generate_latest(registry).count(b"# HELP isched_") >= len(METRICS)
