"""The HTTP runtime against real servers on the loopback: token, mutual TLS, slowness, lies, redirects."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ischeduler.core.errors import BadInput
from ischeduler.estimators.runtimes.http import HttpRuntime, check_url
from ischeduler.estimators.runtimes.limits import Limits, RuntimeFailed

QUICK = Limits(seconds=2.0, output_bytes=10_000)
Answer = Callable[[BaseHTTPRequestHandler, bytes], None]


def say(handler: BaseHTTPRequestHandler, body: bytes, status: int = 200, **headers: str) -> None:
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **headers}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)


@contextmanager
def served(answer: Answer, context: ssl.SSLContext | None = None) -> Iterator[int]:
    """A server's port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            message = self.rfile.read(int(self.headers["Content-Length"]))
            try:
                answer(self, message)
            except OSError:
                return  # the client has left: that is what some tests are about

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # pyright: ignore[reportAttributeAccessIssue]
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def echo(handler: BaseHTTPRequestHandler, message: bytes) -> None:
    heard = {"path": handler.path, "token": handler.headers.get("Authorization"), "message": message.decode()}
    say(handler, json.dumps(heard).encode())


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("word\n")
    path.chmod(0o600)
    return path


def test_the_message_the_path_and_the_token_arrive(token: Path) -> None:
    with served(echo) as port:
        runtime = HttpRuntime(f"http://127.0.0.1:{port}/per-image", str(token), limits=QUICK)
        assert json.loads(runtime.exchange(b"{}")) == {"path": "/per-image", "token": "Bearer word", "message": "{}"}


def test_a_token_that_others_can_read_is_not_sent(token: Path) -> None:
    token.chmod(0o640)
    with served(echo) as port, pytest.raises(RuntimeFailed, match="chmod 600"):
        HttpRuntime(f"http://127.0.0.1:{port}", str(token), limits=QUICK).exchange(b"{}")


@pytest.mark.parametrize(("text", "words"), [("", "no token"), ("two words", "no token"), (None, "cannot be read")])
def test_a_bad_token_file_is_said(token: Path, text: str | None, words: str) -> None:
    token.unlink() if text is None else token.write_text(text)
    with pytest.raises(RuntimeFailed, match=words):
        HttpRuntime("http://127.0.0.1:9", str(token), limits=QUICK).exchange(b"{}")


@pytest.mark.parametrize("url", [
    "http://estimators.example.org/x", "ftp://x", "https://", "https://me:secret@x.org/", "https://x.org/?a=1", "nonsense", "https://x.org:port/",
])
def test_only_encrypted_addresses_are_taken(url: str) -> None:
    with pytest.raises(BadInput, match=r"expected|https"):
        check_url(url)


@pytest.mark.parametrize(("answer", "words"), [
    (lambda h, _: say(h, b"", 401), "refused who asked"),
    (lambda h, _: say(h, b"", 302, Location="http://127.0.0.1:1/"), "HTTP 302"),
    (lambda h, _: say(h, b"", 500), "HTTP 500"),
    (lambda h, _: say(h, b"x" * 20_000), "more than 10000 bytes"),
    (lambda h, _: h.wfile.write(b"nonsense\r\n\r\n"), "could not be asked"),
    (lambda h, _: (h.send_response(200), h.send_header("Content-Length", "100"), h.end_headers(), h.wfile.write(b"{}")), "too early"),
])
def test_a_bad_answer_is_a_sentence(answer: Answer, words: str) -> None:
    with served(answer) as port, pytest.raises(RuntimeFailed, match=words) as failure:
        HttpRuntime(f"http://127.0.0.1:{port}/", limits=QUICK).exchange(b"{}")
    assert "\n" not in str(failure.value)


def drip_header(handler: BaseHTTPRequestHandler, _: bytes) -> None:
    for letter in b"HTTP/1.1 200 OK\r\nX-Slow: " + b"x" * 500:
        handler.wfile.write(bytes([letter]))
        time.sleep(0.05)


def drip_body(handler: BaseHTTPRequestHandler, _: bytes) -> None:
    handler.wfile.write(b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\n")
    for _ in range(500):
        handler.wfile.write(b" ")
        time.sleep(0.05)


@pytest.mark.parametrize("answer", [drip_header, drip_body, lambda h, _: time.sleep(5)])
def test_slowness_ends_at_the_limit_however_it_comes(answer: Answer) -> None:
    with served(answer) as port:
        started = time.monotonic()
        with pytest.raises(RuntimeFailed, match="within 1 s") as failure:
            HttpRuntime(f"http://127.0.0.1:{port}/", limits=Limits(seconds=1.0)).exchange(b"{}")
        assert time.monotonic() - started < 4
        assert failure.value.lasting


def test_nobody_there_is_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(RuntimeFailed, match=r"could not be asked.*refused"):
        HttpRuntime(f"http://127.0.0.1:{port}/", limits=QUICK).exchange(b"{}")


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, a server's and a client's certificate, made by openssl(1)."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed; scripts/install-containers installs it")
    folder = tmp_path_factory.mktemp("papers")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl("req", "-x509", *new_key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=test authority")
    for name in ("server", "client"):
        openssl("req", *new_key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (folder / "ext").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "ext", "-out", f"{name}.pem")
        (folder / f"{name}.key").chmod(0o600)
    return folder


@pytest.fixture
def mutual(papers: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(papers / "server.pem", papers / "server.key")
    context.load_verify_locations(papers / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def test_mutual_tls(papers: Path, mutual: ssl.SSLContext) -> None:
    paper = lambda name: str(papers / name)  # noqa: E731
    with served(echo, mutual) as port:
        url = f"https://127.0.0.1:{port}/x"
        known = HttpRuntime(url, "", paper("client.pem"), paper("client.key"), paper("ca.pem"), QUICK)
        assert json.loads(known.exchange(b"{}"))["path"] == "/x"
        with pytest.raises(RuntimeFailed, match="could not be asked"):
            HttpRuntime(url, authority=paper("ca.pem"), limits=QUICK).exchange(b"{}")
        with pytest.raises(RuntimeFailed, match=r"could not be asked.*(verify|certificate)"):
            HttpRuntime(url, "", paper("client.pem"), paper("client.key"), limits=QUICK).exchange(b"{}")


def test_a_key_that_others_can_read_is_not_used(papers: Path, tmp_path: Path) -> None:
    key = tmp_path / "open.key"
    shutil.copy(papers / "client.key", key)
    key.chmod(0o644)
    with pytest.raises(RuntimeFailed, match="chmod 600"):
        HttpRuntime("https://127.0.0.1:9/", "", str(papers / "client.pem"), str(key), limits=QUICK)._context()


def test_a_slow_handshake_ends_at_the_limit() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        started = time.monotonic()
        with pytest.raises(RuntimeFailed, match="within 1 s"):
            HttpRuntime(f"https://127.0.0.1:{silent.getsockname()[1]}/", limits=Limits(seconds=1.0)).exchange(b"{}")
        assert time.monotonic() - started < 4
