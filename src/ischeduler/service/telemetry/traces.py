"""OpenTelemetry: requests, the database's statements and everything timed by ``meters``, sent over OTLP/HTTP. Off without an endpoint.

Spans carry routes, statements with placeholders, clusters and calls; never a parameter, a header or a query string. Sign-in, where
codes travel in the query, is not traced at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastapi import FastAPI
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from sqlalchemy import Engine

LONGEST_STATEMENT = 1000
UNTRACED = "/auth/.*,/healthz,/readyz,/metrics"


def provider(endpoint: str, *, service: str, exporter: SpanExporter | None = None) -> TracerProvider:
    """Where spans go: ``endpoint`` is a collector's base URL (``/v1/traces`` is added), ``exporter`` another way out."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    made = TracerProvider(resource=Resource.create({"service.name": service}))
    sender = exporter or OTLPSpanExporter(endpoint=endpoint.rstrip("/") + "/v1/traces", timeout=5)
    made.add_span_processor(BatchSpanProcessor(sender))
    return made


def trace_app(app: FastAPI, provider: TracerProvider) -> None:
    """A span a request."""
    from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor

    FastAPIInstrumentor.instrument_app(
        app, tracer_provider=provider, excluded_urls=UNTRACED, exclude_spans=["receive", "send"], server_request_hook=_without_query
    )


def trace_engine(engine: Engine, provider: TracerProvider) -> None:
    """A span a statement, named by its first word; the text has placeholders, never values.

    Over SQLAlchemy's own events: OpenTelemetry's instrumentation refuses SQLAlchemy 2.1 and newer.
    """
    from opentelemetry.trace import SpanKind
    from sqlalchemy import event

    tracer = provider.get_tracer("ischeduler.database")

    def before(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        name = statement.split(None, 1)[0].upper() if statement.strip() else "STATEMENT"
        attributes = {"db.system.name": engine.dialect.name, "db.query.text": statement[:LONGEST_STATEMENT]}
        connection.info.setdefault("isched_spans", []).append(tracer.start_span(name, kind=SpanKind.CLIENT, attributes=attributes))

    def after(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        _end(connection)

    def failed(context: Any) -> None:
        if context.connection is not None:
            _end(context.connection, str(type(context.original_exception).__name__))

    event.listen(engine, "before_cursor_execute", before)
    event.listen(engine, "after_cursor_execute", after)
    event.listen(engine, "handle_error", failed)


def _end(connection: Any, error: str = "") -> None:
    from opentelemetry.trace import Status, StatusCode

    spans = connection.info.get("isched_spans")
    if not spans:
        return
    span = spans.pop()
    if error:
        span.set_status(Status(StatusCode.ERROR, error))
    span.end()


class SpanRecorder:
    """Makes a span of everything that ``meters.timed`` times; counts are metrics, not spans."""

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer = provider.get_tracer("ischeduler")

    def count(self, name: str, amount: float, labels: Mapping[str, str]) -> None:
        """Nothing."""

    def observe(self, name: str, value: float, labels: Mapping[str, str]) -> None:
        """Nothing."""

    def gauge(self, name: str, value: float, labels: Mapping[str, str]) -> None:
        """Nothing."""

    @contextmanager
    def timed(self, name: str, labels: Mapping[str, str]) -> Iterator[None]:
        """A span around the block, named like the metric without its unit."""
        title = name.removeprefix("isched_").removesuffix("_seconds")
        with self._tracer.start_as_current_span(title, attributes={f"isched.{k}": v for k, v in labels.items()}):
            yield


def _without_query(span: Any, scope: dict[str, Any]) -> None:
    if span is None or not span.is_recording():
        return
    for key in ("http.url", "url.full", "http.target", "url.query"):
        known = (span.attributes or {}).get(key)
        if isinstance(known, str):
            span.set_attribute(key, "" if key == "url.query" else known.partition("?")[0])
