"""Requests to a controller die in the kernel with their time limit."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from ischeduler.batch.slurm_rest_http import SlurmRestHttp
from ischeduler.batch.slurm_rest_tokens import FileTokens
from ischeduler.core.errors import BatchUnavailable
from ischeduler.testing.remote_controller import RemoteController

pytestmark = pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="TCP_USER_TIMEOUT is Linux's")


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[tuple[str, int], list[int]]]:
    """A server's address, and what the kernel says, at each request there, of the asking socket's limit in ms."""
    asking: list[socket.socket] = []
    found: list[int] = []
    connect = socket.create_connection

    def remembered(*given: Any, **named: Any) -> socket.socket:
        asking.append(connect(*given, **named))
        return asking[-1]

    class Reads(BaseHTTPRequestHandler):
        def handle(self) -> None:
            self.rfile.readline()
            found.append(asking[-1].getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))

    monkeypatch.setattr(socket, "create_connection", remembered)
    with HTTPServer(("127.0.0.1", 0), Reads) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield (str(server.server_address[0]), int(server.server_address[1])), found
        server.shutdown()
        thread.join()


def test_a_request_to_slurmrestd_dies_with_its_time_limit(limits: tuple[tuple[str, int], list[int]], tmp_path: Path) -> None:
    (host, port), found = limits
    (tmp_path / "token").write_text("a.b.c")
    (tmp_path / "token").chmod(0o600)
    rest = SlurmRestHttp(f"http://{host}:{port}", "ada", FileTokens(str(tmp_path / "token")), timeout_s=7.0)
    with pytest.raises(BatchUnavailable):
        rest.ask("ping", "GET", "/slurm/v0.0.40/ping/")
    assert found == [7000]


def test_a_question_to_the_controller_that_tests_stand_in_dies_with_it_too(limits: tuple[tuple[str, int], list[int]]) -> None:
    address, found = limits
    with pytest.raises(BatchUnavailable):
        RemoteController(address, timeout_s=3.0).snapshot()
    assert found == [3000]
