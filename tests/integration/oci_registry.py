"""As much of the OCI distribution protocol as a push needs, on the loopback, in memory."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

_UPLOAD = re.compile(r"/v2/(?P<name>.+)/blobs/uploads/(?P<upload>\d*)")
_BLOB = re.compile(r"/v2/(?P<name>.+)/blobs/(?P<digest>sha256:[0-9a-f]+)")
_MANIFEST = re.compile(r"/v2/(?P<name>.+)/manifests/(?P<tag>.+)")


@dataclass
class Kept:
    """What was pushed. ``closed`` lets nobody in."""

    closed: bool = False
    port: int = 0
    uploads: dict[str, bytes] = field(default_factory=dict[str, bytes])
    blobs: dict[str, bytes] = field(default_factory=dict[str, bytes])
    manifests: dict[str, bytes] = field(default_factory=dict[str, bytes])


@contextmanager
def oci_registry(closed: bool = False) -> Iterator[Kept]:
    """A registry at ``127.0.0.1:port``."""
    kept = Kept(closed)

    class Handler(_Handler):
        state = kept

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    kept.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield kept
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: Kept

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if self._refused():
            return
        if path.rstrip("/") == "/v2":
            self._say(200)
        elif (found := _BLOB.fullmatch(path)) and found["digest"] in self.state.blobs:
            self._say(200, self.state.blobs[found["digest"]])
        elif (found := _MANIFEST.fullmatch(path)) and found[0] in self.state.manifests:
            self._say(200, self.state.manifests[found[0]])
        else:
            self._say(404)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        self._body()
        found = _UPLOAD.fullmatch(urlsplit(self.path).path)
        if self._refused() or found is None:
            return
        upload = str(len(self.state.uploads) + 1)
        self.state.uploads[upload] = b""
        self._say(202, Location=f"/v2/{found['name']}/blobs/uploads/{upload}")

    def do_PATCH(self) -> None:
        body = self._body()
        path = urlsplit(self.path).path
        found = _UPLOAD.fullmatch(path)
        if found is None:
            return self._say(404)
        self.state.uploads[found["upload"]] += body
        return self._say(202, Location=path, Range=f"0-{len(self.state.uploads[found['upload']]) - 1}")

    def do_PUT(self) -> None:
        body = self._body()
        parts = urlsplit(self.path)
        if found := _UPLOAD.fullmatch(parts.path):
            digest = parse_qs(parts.query)["digest"][0]
            data = self.state.uploads[found["upload"]] + body
            if digest != f"sha256:{hashlib.sha256(data).hexdigest()}":
                return self._say(400)
            self.state.blobs[digest] = data
            return self._say(201, Location=f"/v2/{found['name']}/blobs/{digest}")
        self.state.manifests[parts.path] = body
        return self._say(201, **{"Docker-Content-Digest": f"sha256:{hashlib.sha256(body).hexdigest()}"})

    def _refused(self) -> bool:
        if self.state.closed:
            self._say(401, b'{"errors": [{"code": "UNAUTHORIZED"}]}', **{"WWW-Authenticate": 'Basic realm="test"'})
        return self.state.closed

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _say(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
