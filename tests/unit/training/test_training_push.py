"""HTTP push: in order, at least once, with back-off, and with a secret that others cannot read."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ischeduler.training.push import Pusher, PushRefused, pusher_from_environ, read_push_token
from ischeduler.training.spool import SpoolWriter
from ischeduler.training.token import Token


def pusher(run_dir: Path, post, secret: str | None = None) -> Pusher:
    return Pusher("http://plane.example/events", run_dir, "r-1", Token(1), secret=secret, every_s=5.0, post=post)


def spool(run_dir: Path, count: int = 3) -> SpoolWriter:
    made = SpoolWriter(run_dir / "events" / "1.0.jsonl", "r-1", Token(1))
    for number in range(count):
        made.emit("progress", n=number)
    return made


def test_each_event_arrives_once_while_all_is_well(tmp_path: Path) -> None:
    bodies: list[dict] = []
    sender = pusher(tmp_path, lambda url, body, headers: bodies.append(json.loads(body)) or 200)
    made = spool(tmp_path, 450)
    assert sender.push_once()
    made.emit("exit", code=0)
    assert sender.push_once()
    assert [len(body["events"]) for body in bodies] == [200, 200, 50, 1]
    assert [event["seq"] for body in bodies for event in body["events"]] == list(range(1, 452))
    assert sender.sent == 451


def test_a_body_stays_as_small_as_a_service_takes(tmp_path: Path) -> None:
    bodies: list[bytes] = []
    made = SpoolWriter(tmp_path / "events" / "1.0.jsonl", "r-1", Token(1))
    for size in (300_000, 300_000, 700_000, 10, 10):
        made.emit("oom", text="x" * size)
    sender = pusher(tmp_path, lambda url, body, headers: bodies.append(body) or 200)
    assert sender.push_once()
    assert [[e["seq"] for e in json.loads(body)["events"]] for body in bodies] == [[1], [2], [3], [4, 5]]


def test_an_unreachable_service_backs_off_and_loses_nothing(tmp_path: Path) -> None:
    answers: list[int | OSError] = [OSError("refused"), 503, 429, 200]
    seen: list[int] = []

    def post(url: str, body: bytes, headers: object) -> int:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        seen.extend(event["seq"] for event in json.loads(body)["events"]) if answer == 200 else None
        return answer

    spool(tmp_path)
    sender = pusher(tmp_path, post)
    waits = []
    for _ in range(3):
        assert not sender.push_once()
        waits.append(sender.wait_s())
    assert all(1.0 * 2**n <= wait <= 2.0 * 2**n for n, wait in enumerate(waits))
    assert sender.push_once()
    assert seen == [1, 2, 3]
    assert sender.wait_s() == 5.0
    sender.failures = 10**6
    assert sender.wait_s() <= 300.0


def test_a_refusal_ends_pushing(tmp_path: Path) -> None:
    spool(tmp_path)
    with pytest.raises(PushRefused, match="403"):
        pusher(tmp_path, lambda *_: 403).push_once()


def test_only_this_incarnation_is_pushed(tmp_path: Path) -> None:
    SpoolWriter(tmp_path / "events" / "2.0.jsonl", "r-1", Token(2)).emit("started")
    sender = pusher(tmp_path, lambda *_: 200)
    sender.push_once()
    assert sender.sent == 0


def test_the_secret_must_be_private(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "token"
    file.write_text("s3cret\n")
    file.chmod(0o640)
    with pytest.raises(PermissionError, match="chmod 600"):
        read_push_token(file)
    env = {"ISCHED_PUSH_URL": "http://x", "ISCHED_PUSH_TOKEN_FILE": str(file)}
    assert pusher_from_environ(env, tmp_path, "r", Token(1), 5.0) is None
    assert "chmod 600" in capsys.readouterr().err
    file.chmod(0o600)
    assert read_push_token(file) == "s3cret"
    assert pusher_from_environ(env, tmp_path, "r", Token(1), 5.0) is not None
    assert pusher_from_environ({}, tmp_path, "r", Token(1), 5.0) is None
    assert pusher_from_environ({"ISCHED_PUSH_URL": "file:///etc/passwd"}, tmp_path, "r", Token(1), 5.0) is None


@pytest.fixture
def service() -> Iterator[tuple[str, list[tuple[str | None, dict]]]]:
    got: list[tuple[str | None, dict]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path == "/moved":
                self.send_response(302)
                self.send_header("Location", "/events")
            else:
                got.append((self.headers["Authorization"], body))
                self.send_response(204)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", got
    server.shutdown()


def test_over_real_http(tmp_path: Path, service) -> None:
    url, got = service
    spool(tmp_path)
    sender = Pusher(f"{url}/events", tmp_path, "r-1", Token(1), secret="s3cret", every_s=60.0)
    sender.start()
    sender.finish(10.0)
    assert got[0][0] == "Bearer s3cret"
    assert [event["seq"] for event in got[0][1]["events"]] == [1, 2, 3]


def test_a_redirect_does_not_carry_the_secret_on(tmp_path: Path, service) -> None:
    url, got = service
    spool(tmp_path)
    sender = Pusher(f"{url}/moved", tmp_path, "r-1", Token(1), secret="s3cret", every_s=60.0)
    assert not sender.push_once()
    assert got == []


def test_nobody_listening(tmp_path: Path) -> None:
    spool(tmp_path)
    sender = Pusher("http://127.0.0.1:9/events", tmp_path, "r-1", Token(1), secret=None, every_s=60.0)
    assert not sender.push_once()
    assert sender.failures == 1
