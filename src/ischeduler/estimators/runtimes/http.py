"""The ``http`` runtime: the same JSON by POST. TLS always (a loopback address may do without); a token, a client certificate, or both."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import ssl
import stat
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from ischeduler.core.errors import BadInput
from ischeduler.estimators.runtimes.limits import REMOTE, Limits, RuntimeFailed
from ischeduler.estimators.runtimes.words import clean

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_CHUNK = 65536


@dataclass(frozen=True)
class HttpRuntime:
    """``token_file`` (mode 600) is sent as ``Authorization: Bearer``; ``certificate`` and ``key`` are for mutual TLS, in PEM.

    ``authority`` is a PEM file of those who may have signed the server's certificate (default: the system's). Redirects are not
    followed and proxies not used, so that a token goes to the named host alone.
    """

    url: str
    token_file: str = ""
    certificate: str = ""
    key: str = ""
    authority: str = ""
    limits: Limits = Limits()
    trust: str = REMOTE

    @property
    def place(self) -> str:
        """For sentences."""
        return self.url

    def exchange(self, message: bytes) -> bytes:
        """POST and read, all within the time limit however slowly the server speaks."""
        parts = check_url(self.url)
        headers = {"Content-Type": "application/json", "Accept": "application/json", **self._token()}
        deadline = time.monotonic() + self.limits.seconds
        handles: list[socket.socket] = []
        watch = threading.Timer(self.limits.seconds, _cut, (handles,))
        watch.daemon = True
        watch.start()
        connection: http.client.HTTPConnection | None = None
        try:
            connection = self._connected(parts, handles)
            connection.request("POST", parts.path or "/", body=message, headers=headers)
            return self._read(connection.getresponse(), deadline)
        except (OSError, http.client.HTTPException, ValueError) as error:
            if time.monotonic() >= deadline - 0.05 or isinstance(error, TimeoutError):
                raise RuntimeFailed(f"{self.url} did not answer within {self.limits.seconds:g} s.", lasting=True) from None
            raise RuntimeFailed(f"{self.url} could not be asked: {clean(error) or type(error).__name__}.", lasting=True) from None
        finally:
            watch.cancel()
            if connection is not None:
                connection.close()
            for handle in handles:
                handle.close()

    def _read(self, response: http.client.HTTPResponse, deadline: float) -> bytes:
        if response.status in (401, 403):
            raise RuntimeFailed(f"{self.url} refused who asked (HTTP {response.status}); check the token or certificate.", lasting=True)
        if response.status != 200:
            raise RuntimeFailed(f"{self.url} answered HTTP {response.status} {clean(response.reason, 60)}; expected 200.")
        body = bytearray()
        while data := response.read1(_CHUNK):
            body += data
            if len(body) > self.limits.output_bytes:
                raise RuntimeFailed(f"{self.url} answered with more than {self.limits.output_bytes} bytes.")
        if time.monotonic() >= deadline:  # it was cut: what was read may be a part of the answer
            raise TimeoutError
        if response.length:
            raise OSError("the answer ended too early")
        return bytes(body)

    def _connected(self, parts: SplitResult, handles: list[socket.socket]) -> http.client.HTTPConnection:
        """An open connection. ``handles`` gets a duplicate of its socket at once, so that even a slow handshake can be cut."""
        host = parts.hostname or ""
        port = parts.port or (80 if parts.scheme == "http" else 443)
        context = None if parts.scheme == "http" else self._context()
        sock = socket.create_connection((host, port), timeout=self.limits.seconds)
        handles.append(sock.dup())
        connection = http.client.HTTPConnection(host, port, timeout=self.limits.seconds)
        connection.sock = sock if context is None else context.wrap_socket(sock, server_hostname=host)
        return connection

    def _context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.authority or None)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            if self.certificate:
                if self.key:
                    check_private(self.key)
                context.load_cert_chain(self.certificate, self.key or None, password=_no_password)
            return context
        except (OSError, ValueError) as error:
            raise RuntimeFailed(f"the certificates for {self.url} cannot be read: {clean(error)}.", lasting=True) from None

    def _token(self) -> dict[str, str]:
        if not self.token_file:
            return {}
        check_private(self.token_file)
        token = Path(self.token_file).read_text("utf-8").strip()
        if not token or not token.isascii() or any(c.isspace() for c in token):
            raise RuntimeFailed(f"{self.token_file} holds no token; expected one word.", lasting=True)
        return {"Authorization": f"Bearer {token}"}


def check_url(url: str) -> SplitResult:
    """BadInput unless it is an https URL, or an http one on the loopback."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        parts, host = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not host or parts.username or parts.query or parts.fragment:
        raise BadInput(f"'{clean(url)}' is no address of an estimator; expected e.g. https://estimators.example.org/per-image.")
    if parts.scheme == "http" and host not in _LOOPBACK:
        raise BadInput(f"{clean(url)} would be asked without encryption; use https (http is for this host's loopback alone).")
    return parts


def check_private(path: str) -> None:
    """RuntimeFailed unless the file is ours and nobody else's to read."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise RuntimeFailed(f"{path} cannot be read: {error.strerror}.", lasting=True) from None
    if not stat.S_ISREG(status.st_mode) or status.st_mode & 0o077 or status.st_uid not in (os.geteuid(), 0):
        raise RuntimeFailed(f"{path} holds a secret that others can read; make it yours alone: chmod 600 {path}", lasting=True)


def _no_password() -> str:
    """An encrypted key would ask on the terminal, and hang."""
    raise ValueError("the key is encrypted; give one without a pass phrase, mode 600")


def _cut(handles: list[socket.socket]) -> None:
    """End a conversation that takes too long: whoever reads or writes now gets an error."""
    for handle in list(handles):
        with contextlib.suppress(OSError):
            handle.shutdown(socket.SHUT_RDWR)
