"""Messages to people: to whom, how many, and that no address shows anywhere."""

from __future__ import annotations

import contextlib
import http.server
import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ischeduler.core.errors import ConfigError
from ischeduler.helper.notify import (
    EVERYBODY,
    MOST_AN_HOUR,
    VARIABLE,
    MessageNotifier,
    apprise_sender,
    read_addresses,
    with_messages,
)

SECRET = "hunter2-and-more"


class Kept:
    """A notifier that keeps."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def notify(self, run: Any, subject: str, text: str) -> None:
        self.told.append(subject)


class OneRun:
    def __init__(self, owner: str) -> None:
        self.id, self.owner = "r-1", owner


def private(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_addresses_by_owner(tmp_path: Path) -> None:
    path = private(tmp_path / "urls", "# people\nalice,bob=json://a/\n\ncarol = json://c/?x=1\njson://all/?to=ops\n")
    found = read_addresses(path, {VARIABLE: "json://env/"})
    assert found == {EVERYBODY: ["json://env/", "json://all/?to=ops"], "alice": ["json://a/"], "bob": ["json://a/"], "carol": ["json://c/?x=1"]}


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(ConfigError, match="chmod 600"):
        read_addresses(private(tmp_path / "urls", "json://a/", mode), {})


@pytest.mark.parametrize("text", [f"{SECRET}", f"alice={SECRET}", f"nosuchkind://u:{SECRET}@host/x"])
def test_what_is_no_address_is_told_without_being_shown(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        apprise_sender(read_addresses(private(tmp_path / "urls", text), {}))
    assert SECRET not in str(caught.value)


@given(st.text(alphabet="abc=/:,# \n?&é", max_size=60))
def test_any_text_is_addresses_or_a_sentence(text: str) -> None:
    with contextlib.suppress(ConfigError):
        assert all("://" in url for urls in read_addresses(None, {VARIABLE: text}).values() for url in urls)


def test_each_owner_is_sent_their_own_and_everybodys_goes_to_all() -> None:
    sent: list[tuple[str, str, str]] = []
    first = Kept()
    notifier = MessageNotifier(lambda *m: bool(sent.append(m)) or True, ["alice"], first=first)
    notifier.notify(OneRun("alice"), "r-1 completed", "words")
    notifier.notify(OneRun("mallory"), "r-2 completed", "words")
    assert notifier.flush()
    assert sent == [("alice", "r-1 completed", "words")]
    assert first.told == ["r-1 completed", "r-2 completed"], "what is told is kept whoever is sent it"


def test_a_messenger_that_fails_or_hangs_stops_nothing() -> None:
    go_on, calls = threading.Event(), []

    def hangs(owner: str, subject: str, text: str) -> bool:
        calls.append(subject)
        go_on.wait(30)
        raise RuntimeError(f"could not log in with {SECRET}")

    notifier = MessageNotifier(hangs, [EVERYBODY], first=Kept())
    for number in range(300):
        notifier.notify(OneRun(f"user{number}"), f"{number}", "x")
    assert not notifier.flush(0.05)
    go_on.set()
    assert notifier.flush(30)
    assert len(calls) <= 102


def test_an_owner_is_not_flooded() -> None:
    sent: list[Any] = []
    now = [0.0]
    notifier = MessageNotifier(lambda *m: bool(sent.append(m)) or True, [EVERYBODY], first=Kept(), clock=lambda: now[0])
    for _ in range(2 * MOST_AN_HOUR):
        notifier.notify(OneRun("alice"), "s", "t")
    notifier.notify(OneRun("bob"), "s", "t")
    now[0] = 3700.0
    notifier.notify(OneRun("alice"), "s", "t")
    assert notifier.flush()
    assert [m[0] for m in sent].count("alice") == MOST_AN_HOUR + 1
    assert [m[0] for m in sent].count("bob") == 1


def test_without_addresses_nothing_changes() -> None:
    first = Kept()
    assert with_messages(first, "", {}) is first


@pytest.fixture
def mailbox() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server that takes apprise's JSON messages."""
    got: list[dict[str, Any]] = []

    class Box(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *words: Any) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Box)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"json://alice:{SECRET}@127.0.0.1:{server.server_port}/hook", got
    server.shutdown()
    server.server_close()


def test_apprise_itself_delivers_and_no_address_is_logged(
    tmp_path: Path, mailbox: tuple[str, list[dict[str, Any]]], caplog: pytest.LogCaptureFixture
) -> None:
    url, got = mailbox
    refused = url.replace("/hook", "/").replace(url.split(":")[-1].split("/")[0], "9")
    with caplog.at_level(logging.DEBUG):
        notifier = with_messages(Kept(), str(private(tmp_path / "urls", f"alice={url}\nalice={refused}\n")), {})
        notifier.notify(OneRun("alice"), "r-1 completed", "all 50 epochs")  # pyright: ignore[reportArgumentType]
        assert isinstance(notifier, MessageNotifier)
        assert notifier.flush(30)
    assert [(m["title"], m["message"]) for m in got] == [("r-1 completed", "all 50 epochs")]
    assert SECRET not in caplog.text
