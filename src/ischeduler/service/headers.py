"""What every answer carries for the browser's sake, and the limit on what a request may bring. Plain ASGI."""

from __future__ import annotations

import json

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

API_CSP = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
EVENT_BODY_BYTES = 8 << 20


class SecurityHeaders:
    """Headers after the OWASP secure headers project; a page's own policy is not overwritten."""

    def __init__(self, app: ASGIApp, *, secure: bool, page_csp: str) -> None:
        self._app, self._page_csp = app, page_csp
        self._fixed = {
            "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
            "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
            "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
        }  # fmt: skip
        if secure:
            self._fixed["Strict-Transport-Security"] = "max-age=31536000"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        api = scope["path"].startswith("/v1")

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._fixed.items():
                    headers.setdefault(name, value)
                headers.setdefault("Content-Security-Policy", API_CSP if api else self._page_csp)
                if not scope["path"].startswith("/static/"):
                    headers.setdefault("Cache-Control", "private, no-cache")
            await send(message)

        await self._app(scope, receive, with_headers)


class BodyLimit:
    """Refuses a body beyond ``most_bytes`` with 413, by its declared length or while it is read."""

    def __init__(self, app: ASGIApp, *, most_bytes: int) -> None:
        self._app, self._most = app, most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        most = max(self._most, EVENT_BODY_BYTES) if scope["path"].endswith("/events") else self._most
        declared = next((v for k, v in scope["headers"] if k == b"content-length"), b"0")
        if not declared.isdigit() or int(declared) > most:
            await _drain(receive)
            await _refuse(send, most)
            return
        read, refused, started, more = 0, False, False, True

        async def counted() -> Message:
            nonlocal read, refused, more
            message = await receive()
            more = bool(message.get("more_body"))
            read += len(message.get("body", b"")) if message["type"] == "http.request" else 0
            if read > most:
                refused = True
                return {"type": "http.disconnect"}
            return message

        async def watched(message: Message) -> None:
            nonlocal started
            if refused and not started:
                return
            started = True
            await send(message)

        await self._app(scope, counted, watched)
        if refused and not started:
            if more:
                await _drain(receive)
            await _refuse(send, most)


async def _drain(receive: Receive) -> None:
    """Read on and forget, as far as a body may be anywhere: a proxy that is hung up on while it sends tells its client 502, not 413."""
    read, more = 0, True
    while more and read <= EVENT_BODY_BYTES:
        message = await receive()
        read += len(message.get("body", b""))
        more = bool(message.get("more_body"))


async def _refuse(send: Send, most: int) -> None:
    body = {
        "type": "urn:ischeduler:problem:too-large", "title": "The request is too large", "status": 413,
        "detail": f"a body may have {most} bytes at most; send less at once.", "fix": "send less at once.",
    }  # fmt: skip
    headers = [(b"content-type", b"application/problem+json"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(body).encode()})
