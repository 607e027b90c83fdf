"""How requests come to the stand-in: over a real socket, or straight from tapipy's HTTP session in this process."""

from __future__ import annotations

import http.server
import io
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.parser import BytesParser
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from ischeduler.testing.tapis_server.server import TapisServer


class InProcess:
    """``InProcess(server).dress`` for :class:`ischeduler.batch.tapis.client.TapisClient`: no socket, no thread."""

    def __init__(self, server: TapisServer) -> None:
        self._server = server

    def dress(self, session: Any) -> None:
        """Give the session a way that leads here."""
        import requests
        import requests.adapters

        server = self._server

        class Adapter(requests.adapters.BaseAdapter):
            def send(self, request: Any, **options: Any) -> Any:  # type: ignore[override]
                if server.faults.down:
                    raise requests.ConnectionError("Connection refused")
                status, answer = answer_to(server, request.method, request.url, request.headers, request.body)
                response = requests.Response()
                response.status_code, response.request, response.url = status, request, request.url
                response.headers["content-type"] = "application/octet-stream" if isinstance(answer, bytes) else "application/json"
                response.raw = io.BytesIO(answer if isinstance(answer, bytes) else json.dumps(answer).encode())
                return response

            def close(self) -> None:
                return None

        session.mount("http://", Adapter())
        session.mount("https://", Adapter())


def answer_to(server: TapisServer, method: str, url: str, headers: Mapping[str, str], body: Any) -> tuple[int, Any]:
    """The server's answer to a raw request."""
    parts = urlsplit(url)
    data = body.encode() if isinstance(body, str) else body or b""
    kind = headers.get("Content-Type", "")
    value: Any = _upload(kind, data) if "multipart" in kind else json.loads(data) if data else None
    return server.handle(method, parts.path, dict(parse_qsl(parts.query)), headers, value)


@contextmanager
def served(server: TapisServer) -> Iterator[str]:
    """The stand-in at an address of its own, one request after the other."""
    lock = threading.Lock()

    class Handler(http.server.BaseHTTPRequestHandler):
        def _do(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            with lock:
                if server.faults.down:
                    self.close_connection = True
                    return
                status, answer = answer_to(server, self.command, self.path, dict(self.headers), data)
            raw = isinstance(answer, bytes)
            content: bytes = answer if raw else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/octet-stream" if raw else "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_DELETE = do_PUT = _do

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    found = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=found.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{found.server_address[1]}"
    finally:
        found.shutdown()
        found.server_close()
        thread.join(10)


def _upload(kind: str, data: bytes) -> bytes:
    """The first file of a multipart body."""
    message = BytesParser().parsebytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + data)
    parts = message.get_payload()
    found = parts[0].get_payload(decode=True) if isinstance(parts, list) and parts else b""  # type: ignore[union-attr]
    return found if isinstance(found, bytes) else b""
