"""Traces come from a server on this computer: whole, checked, and after an interruption from where it stopped."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ischeduler.core.errors import BadInput, NotFound
from ischeduler.simulator.catalogue import PUBLIC, fetch, public_trace

CONTENT = bytes(range(256)) * 4096


@dataclass
class Server:
    """What the server does, and what it was asked."""

    url: str = ""
    tag: str | None = '"v1"'
    ranges: bool = True
    cut: int | None = None
    asked: list[str | None] = field(default_factory=list[str | None])


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers.get("Range")
            state.asked.append(asked)
            if self.path != "/trace.swf.gz":
                self.send_error(404, "Not Found")
                return
            resume = bool(asked) and state.ranges and self.headers.get("If-Range") == state.tag
            begin = int(str(asked).removeprefix("bytes=").rstrip("-")) if resume else 0
            self.send_response(206 if resume else 200)
            self.send_header("Content-Length", str(len(CONTENT) - begin))
            if state.tag:
                self.send_header("ETag", state.tag)
            self.end_headers()
            self.wfile.write(CONTENT[begin : state.cut])

        def log_message(self, format: str, *args: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    state.url = f"http://127.0.0.1:{http.server_address[1]}/trace.swf.gz"
    yield state
    http.shutdown()
    http.server_close()


def test_a_whole_file(server: Server, tmp_path: Path) -> None:
    heard: list[tuple[int, int | None]] = []
    done = fetch(server.url, tmp_path / "new" / "t.gz", sha256=hashlib.sha256(CONTENT).hexdigest(), progress=lambda a, b: heard.append((a, b)))
    assert Path(done.path).read_bytes() == CONTENT
    assert (done.size_bytes, done.received_bytes, done.resumed) == (len(CONTENT), len(CONTENT), False)
    assert heard[-1] == (len(CONTENT), len(CONTENT))
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["t.gz"]


def test_what_broke_off_goes_on_where_it_stopped(server: Server, tmp_path: Path) -> None:
    server.cut = 300_000
    with pytest.raises(BadInput, match="broke off after 300,000 of 1,048,576 bytes"):
        fetch(server.url, tmp_path / "t.gz")
    assert not (tmp_path / "t.gz").exists()
    server.cut = None
    done = fetch(server.url, tmp_path / "t.gz")
    assert server.asked == [None, "bytes=300000-"]
    assert done.resumed
    assert done.received_bytes == len(CONTENT) - 300_000
    assert Path(done.path).read_bytes() == CONTENT
    assert [p.name for p in tmp_path.iterdir()] == ["t.gz"]


@pytest.mark.parametrize("change", [{"tag": '"v2"'}, {"ranges": False}])
def test_a_file_that_changed_meanwhile_comes_anew(server: Server, tmp_path: Path, change: dict[str, Any]) -> None:
    server.cut = 1000
    with pytest.raises(BadInput, match="broke off"):
        fetch(server.url, tmp_path / "t.gz")
    server.cut = None
    for name, value in change.items():
        setattr(server, name, value)
    done = fetch(server.url, tmp_path / "t.gz")
    assert not done.resumed
    assert Path(done.path).read_bytes() == CONTENT


def test_a_wrong_checksum_leaves_nothing(server: Server, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="expected 00ff; the file was thrown away"):
        fetch(server.url, tmp_path / "t.gz", sha256="00FF")
    assert not list(tmp_path.iterdir())


def test_no_such_page_and_no_such_server_are_one_sentence(server: Server, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"refused \(404 Not Found\)"):
        fetch(server.url.replace("trace", "other"), tmp_path / "t.gz")
    with pytest.raises(BadInput, match="cannot be reached"):
        fetch("http://127.0.0.1:1/t.gz", tmp_path / "t.gz")


def test_the_catalogue() -> None:
    assert len({t.name for t in PUBLIC}) == len(PUBLIC) >= 10
    assert all(t.url.startswith("https://") and t.filename and t.licence for t in PUBLIC)
    assert public_trace("kth-sp2").filename == "KTH-SP2-1996-2.1-cln.swf.gz"
    with pytest.raises(NotFound, match="did you mean kth-sp2"):
        public_trace("kth_sp2")
