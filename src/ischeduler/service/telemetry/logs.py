"""Logs as one JSON object a line, with the request's id and without secrets; the standard library's loggers included."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, MutableMapping
from typing import IO, Any

import structlog

from ischeduler.service.telemetry.redact import Redactor

QUIET = ("uvicorn.access", "httpx", "httpx2", "httpcore", "urllib3", "apprise", "opentelemetry")
"""Loggers that would repeat our own access log, or write URLs."""


def configure(*, form: str = "json", level: str = "INFO", secrets: Iterable[str] = (), stream: IO[str] | None = None) -> Callable[[], None]:
    """Everything this process logs goes through one chain to ``stream`` (default: stderr). ``form`` is 'json' or 'text'.

    Returns what sets the process's logging back as it was.
    """
    redactor = Redactor(secrets)
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.stdlib.PositionalArgumentsFormatter(),
    ]
    plain: Any = structlog.processors.JSONRenderer() if form == "json" else structlog.dev.ConsoleRenderer(colors=False)

    def redacted(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        return {key: redactor.value(value, key) for key, value in event.items()}

    last = [structlog.stdlib.ProcessorFormatter.remove_processors_meta, structlog.processors.format_exc_info, redacted, plain]
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=last))
    root = logging.getLogger()
    before = (root.handlers[:], root.level)
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )

    def set_back() -> None:
        root.handlers[:], root.level = before
        structlog.reset_defaults()

    return set_back
