"""Around every request: its id, its place in the metrics, its line in the log."""

from __future__ import annotations

import re
import secrets
import time
from typing import Any

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ischeduler.core import meters

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{7,63}")
UNMATCHED = "(none)"
QUIET_PATHS = ("/metrics", "/healthz", "/readyz")
"""Asked every few seconds by machines; only their failures are told."""
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


class Requests:
    """ASGI middleware, to be the outermost. A request keeps an id that its proxy gave it, when that is a sane one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        # Where nobody set logging up (an app inside another program), structlog would print to stdout: then nothing is told.
        self._log: Any = structlog.get_logger("ischeduler.request") if structlog.is_configured() else None
        self._in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers the request and tells of it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _id(scope)
        scope.setdefault("state", {})["request_id"] = request_id
        seen: dict[str, Any] = {"status": 500, "first_byte_s": None}
        started = time.perf_counter()

        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start":
                seen.update(status=message["status"], first_byte_s=time.perf_counter() - started)
                message["headers"] = [*message.get("headers", []), (b"x-request-id", request_id.encode())]
            await send(message)

        self._enter(1)
        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                await self._app(scope, receive, tell)
            except Exception:
                if self._log is not None:
                    self._log.exception("request failed", method=scope["method"], route=route_of(scope))
                raise
            finally:
                self._enter(-1)
                self._tell(scope, seen, time.perf_counter() - started)

    def _enter(self, change: int) -> None:
        self._in_flight += change
        meters.gauge("isched_http_in_flight", self._in_flight)

    def _tell(self, scope: Scope, seen: dict[str, Any], whole_s: float) -> None:
        route, status = route_of(scope), seen["status"]
        method = scope["method"] if scope["method"] in _METHODS else "OTHER"
        latency_s = whole_s if seen["first_byte_s"] is None else seen["first_byte_s"]
        meters.observe("isched_http_request_seconds", latency_s, method=method, route=route, status=f"{status // 100}xx")
        if self._log is None or (scope["path"] in QUIET_PATHS and status < 500):
            return
        who = getattr(scope.get("state", {}).get("principal"), "user", "")
        client = (scope.get("client") or ("",))[0]
        # The path without its query: codes and tokens of a sign-in travel there.
        self._log.info(
            "request", method=method, path=scope["path"], route=route, status=status, user=who, client=client,
            latency_ms=round(latency_s * 1000, 1), duration_ms=round(whole_s * 1000, 1),
        )  # fmt: skip


def route_of(scope: Scope) -> str:
    """The route's template, of which there are few, never the path, of which there are ever more."""
    return str(getattr(scope.get("route"), "path", UNMATCHED))


def _id(scope: Scope) -> str:
    for name, value in scope.get("headers", []):
        if name == b"x-request-id" and _ID.fullmatch(value.decode("latin-1")):
            return value.decode("latin-1")
    return secrets.token_hex(8)
