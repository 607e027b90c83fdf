"""Server-sent events and webhooks against a real server process-alike: uvicorn on a port of its own, in a thread."""

from __future__ import annotations

import http.server
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest

pytest.importorskip("fastapi", reason="the service's libraries are not installed")

import httpx2 as httpx
import uvicorn

from ischeduler.core.errors import BadInput
from ischeduler.core.event import Event
from ischeduler.core.run import RunState
from ischeduler.service.webhooks import is_outside, resolve, signature
from ischeduler.testing.service import TestService, make_service


@contextmanager
def served(service: TestService) -> Iterator[str]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(service.app, log_level="warning", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [taken]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.02)
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"
        server.should_exit = True
        thread.join(20)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> TestService:
    return make_service(tmp_path_factory.mktemp("live"), webhook_hosts=("127.0.0.1",))


@pytest.fixture(scope="module")
def url(service: TestService) -> Iterator[str]:
    with served(service) as found:
        yield found


def say(service: TestService, run_id: str, kind: str, **change: Any) -> None:
    from dataclasses import replace

    run = service.centre.store.get_run(run_id)
    service.centre.store.save_run(replace(run, **change), [Event(run_id, kind, time.time())])


def lines(answer: httpx.Response) -> Iterator[dict[str, str]]:
    """Events of a stream."""
    event: dict[str, str] = {}
    for line in answer.iter_lines():
        if not line:
            if event:
                yield event
            event = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            event[name] = value


def test_a_run_is_followed_resumed_and_ends(service: TestService, url: str):
    who = service.add_user("follower")
    run_id = service.run("follower")
    say(service, run_id, "first")
    path = f"{url}/v1/runs/{run_id}/stream"
    with httpx.stream("GET", path, headers=who, timeout=30) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        told = lines(answer)
        first = next(told)
        assert (first["event"], json.loads(first["data"])["kind"]) == ("event", "first")
        assert next(told)["event"] == "run"
        say(service, run_id, "second")
        second = next(told)
        assert json.loads(second["data"])["kind"] == "second"
    say(service, run_id, "third", state=RunState.CANCELLED)
    with httpx.stream("GET", path, headers=who | {"Last-Event-ID": second["id"]}, timeout=30) as answer:
        rest = list(lines(answer))
    assert [e["event"] for e in rest] == ["event", "run", "end"]
    assert json.loads(rest[0]["data"])["kind"] == "third"


def test_all_runs_of_one_and_of_nobody_else(service: TestService, url: str):
    who, _ = service.add_user("owner"), service.add_user("other")
    mine = service.run("owner")
    theirs = service.run("other")
    with httpx.stream("GET", f"{url}/v1/stream", headers=who, timeout=30) as answer:
        told = lines(answer)
        assert json.loads(next(told)["data"])["run_id"] == mine
        say(service, theirs, "quiet")
        say(service, mine, "loud", state=RunState.COMPLETED)
        event = next(told)
        assert json.loads(event["data"]) | {"state": "completed"} == json.loads(event["data"])
        assert json.loads(event["data"])["run_id"] == mine
    bad = httpx.get(f"{url}/v1/stream", headers=who | {"Last-Event-ID": "x"})
    assert bad.status_code == 422


def test_a_withdrawn_token_ends_its_stream(service: TestService, url: str):
    service.add_user("leaver")
    run_id = service.run("leaver")
    text, row = service.gate.tokens.make("leaver", scopes=("read",), ttl_s=600)
    with httpx.stream("GET", f"{url}/v1/runs/{run_id}/stream", headers={"Authorization": f"Bearer {text}"}, timeout=30) as answer:
        told = lines(answer)
        assert next(told)["event"] == "run"
        service.gate.credentials.revoke(row.id)
        say(service, run_id, "secret")
        assert list(told) == []


class Receiver(http.server.BaseHTTPRequestHandler):
    """Takes webhooks; refuses the first."""

    got: ClassVar[list[tuple[dict[str, str], bytes]]] = []
    refuse = 1

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        Receiver.got.append(({k.lower(): v for k, v in self.headers.items()}, body))
        self.send_response(500 if len(Receiver.got) <= Receiver.refuse else 204)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_webhooks_are_signed_and_sent_again_until_taken(service: TestService, url: str, monkeypatch: pytest.MonkeyPatch):
    from ischeduler.service import webhooks

    monkeypatch.setattr(webhooks, "FIRST_WAIT_S", 0.2)
    monkeypatch.setattr(webhooks, "SETTLED_S", 0.1)
    who = service.add_user("listener")
    run_id = service.run("listener")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    body = {"url": f"http://127.0.0.1:{server.server_port}/hook", "kinds": ["wanted"]}
    made = httpx.post(f"{url}/v1/webhooks", json=body, headers=who)
    assert made.status_code == 201, made.text
    secret, hook_id = made.json()["secret"], made.json()["webhook"]["id"]
    say(service, run_id, "unwanted")
    say(service, run_id, "wanted")
    until = time.monotonic() + 40
    while len(Receiver.got) < 2 and time.monotonic() < until:
        time.sleep(0.1)
    server.shutdown()
    (first, one), (second, two) = Receiver.got[:2]
    assert one == two
    assert first["webhook-id"] == second["webhook-id"]
    assert [e["kind"] for e in json.loads(two)["events"]] == ["wanted"]
    assert second["webhook-signature"] == signature(secret, second["webhook-id"], int(second["webhook-timestamp"]), two)
    shown = httpx.get(f"{url}/v1/webhooks/{hook_id}", headers=who).json()
    assert shown["secret"] == ""
    assert secret not in json.dumps(shown)


@pytest.mark.parametrize(
    "target",
    [
        "http://127.0.0.1/", "http://localhost:8642/", "http://[::1]/", "http://169.254.169.254/latest/meta-data", "http://10.0.0.1/", "http://0/",
        "http://[::ffff:127.0.0.1]/", "http://user@example.org/", "ftp://example.org/", "http://192.168.1.1:99999/", "http://2130706433/",
    ],
)  # fmt: skip
def test_a_webhook_reaches_nothing_inside(target: str):
    with pytest.raises(BadInput):
        resolve(target, ())


def test_addresses_outside():
    assert is_outside("93.184.216.34")
    assert not is_outside("fe80::1%eth0")
    assert not is_outside("100.64.0.1")
