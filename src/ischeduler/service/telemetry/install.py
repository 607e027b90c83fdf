"""Puts metrics, traces and logs around an app or into a worker's process."""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ischeduler.core import meters
from ischeduler.core.errors import ConfigError
from ischeduler.service.telemetry import logs, traces
from ischeduler.service.telemetry.metrics import DatabaseCollector, PrometheusRecorder

if TYPE_CHECKING:
    from fastapi import FastAPI
    from opentelemetry.sdk.trace import TracerProvider
    from prometheus_client import CollectorRegistry
    from sqlalchemy import Engine

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class TelemetrySettings:
    """``metrics_port`` 0: no port of its own. ``metrics_token``: who shows it may read ``/metrics`` of the service itself.

    ``trace_endpoint`` '' : no traces. ``secrets`` are hidden in every log line by their very value.
    """

    service: str = "ischeduler"
    metrics_host: str = "127.0.0.1"
    metrics_port: int = 0
    metrics_token: str = field(default="", repr=False)
    trace_endpoint: str = ""
    log_form: str = "json"
    log_level: str = "INFO"
    secrets: tuple[str, ...] = field(default=(), repr=False)


class Telemetry:
    """What was set up; :meth:`close` sends what is left and frees the port."""

    def __init__(self, registry: CollectorRegistry, provider: TracerProvider | None, server: Any) -> None:
        self.registry, self.provider, self._server = registry, provider, server
        self.set_logging_back: Callable[[], None] = lambda: None

    def text(self) -> bytes:
        """Everything, as Prometheus reads it."""
        from prometheus_client import generate_latest

        return generate_latest(_readable(self.registry))

    def close(self) -> None:
        """Send what is left; nobody counts from now on, and logging is as it was."""
        meters.listen()
        self.set_logging_back()
        if self.provider is not None:
            self.provider.shutdown()
        if self._server is not None:
            server, thread = self._server
            server.shutdown()
            server.server_close()
            thread.join(5)


def begin(settings: TelemetrySettings, engine: Engine | None = None) -> Telemetry:
    """Logs, metrics and traces of this process. ConfigError when the metrics' port is taken."""
    telemetry = _measure(settings, engine)
    telemetry.set_logging_back = logs.configure(form=settings.log_form, level=settings.log_level, secrets=settings.secrets)
    return telemetry


def _measure(settings: TelemetrySettings, engine: Engine | None) -> Telemetry:
    from prometheus_client import CollectorRegistry

    registry = CollectorRegistry()
    recorders: list[meters.Recorder] = [PrometheusRecorder(registry)]
    if engine is not None:
        registry.register(DatabaseCollector(engine))
    provider = None
    if settings.trace_endpoint:
        provider = traces.provider(settings.trace_endpoint, service=settings.service)
        recorders.append(traces.SpanRecorder(provider))
        if engine is not None:
            traces.trace_engine(engine, provider)
    telemetry = Telemetry(registry, provider, _served(settings, registry))
    meters.listen(*recorders)
    return telemetry


def _served(settings: TelemetrySettings, registry: CollectorRegistry) -> Any:
    from prometheus_client import start_http_server

    if not settings.metrics_port:
        return None
    try:
        return start_http_server(settings.metrics_port, settings.metrics_host, _readable(registry))
    except OSError as error:
        where = f"{settings.metrics_host}:{settings.metrics_port}"
        raise ConfigError(f"metrics cannot be offered at {where} ({error.strerror}); choose another serve.metrics_port.") from None


def install(app: FastAPI, settings: Any) -> Telemetry:
    """Metrics, traces and logs of an app; call it last, so that every other middleware is inside.

    ``settings`` are a :class:`TelemetrySettings`, or the service's own with one as ``extra['telemetry']``; without, requests are
    measured and the process's logging is left as it is. ``app.state.backend``, where there is one, has the database.
    """
    from ischeduler.service.telemetry.requests import Requests

    found = settings if isinstance(settings, TelemetrySettings) else getattr(settings, "extra", {}).get("telemetry")
    backend = getattr(app.state, "backend", None)
    engine = None if backend is None else backend.engine
    own = found if isinstance(found, TelemetrySettings) else TelemetrySettings()
    telemetry = begin(own, engine) if own is found else _measure(own, engine)
    _offer_metrics(app, telemetry, own.metrics_token)
    app.add_middleware(Requests)
    if telemetry.provider is not None:
        traces.trace_app(app, telemetry.provider)
    app.state.telemetry = telemetry
    return telemetry


def _offer_metrics(app: FastAPI, telemetry: Telemetry, token: str) -> None:
    """``/metrics`` for whoever shows the token; without one it is not there at all."""
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    async def metrics(request: Request) -> Response:
        shown = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(shown.encode(), token.encode()):
            return Response(status_code=404)
        return Response(await run_in_threadpool(telemetry.text), media_type=CONTENT_TYPE)

    if token:
        app.router.routes.append(Route("/metrics", metrics, include_in_schema=False))


def _readable(registry: CollectorRegistry) -> CollectorRegistry:
    """The registry itself; where several processes count into one folder (PROMETHEUS_MULTIPROC_DIR), what all of them counted."""
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return registry
    from prometheus_client import CollectorRegistry
    from prometheus_client.multiprocess import MultiProcessCollector

    shared = CollectorRegistry()
    MultiProcessCollector(shared)
    for collector in set(registry._collector_to_names):  # pyright: ignore[reportPrivateUsage]
        if isinstance(collector, DatabaseCollector):
            shared.register(collector)
    return shared
