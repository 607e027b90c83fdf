"""The service as one ASGI application: resources, rights, and what other rooms add (events, dashboard, telemetry)."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from ischeduler import __version__
from ischeduler.service.api import clusters, health, openapi, people, plans, problems, reference, runs, stream, webhooks
from ischeduler.service.api.desk import Desk
from ischeduler.service.auth import oidc
from ischeduler.service.auth.gate import Gate
from ischeduler.service.backend import Backend
from ischeduler.service.headers import BodyLimit, SecurityHeaders
from ischeduler.service.live import Live
from ischeduler.service.settings import ServiceSettings
from ischeduler.service.webhooks import Sender

ROUTERS = (
    health.router, runs.router, plans.router, clusters.router, people.router, stream.router, webhooks.router, reference.router,
    oidc.router,
)  # fmt: skip
OTHER_ROOMS = (
    "ischeduler.service.agents", "ischeduler.service.tapis_hooks", "ischeduler.service.ingest.http",
    "ischeduler.service.dashboard.routes", "ischeduler.service.guard.routes",
)  # fmt: skip
"""Modules with a ``router``, where they are installed."""
EXPOSED = ["ETag", "Link", "Location", "Retry-After", "Idempotent-Replayed"]
ALLOWED = ["Authorization", "Content-Type", "Idempotency-Key", "If-Match", "If-None-Match", "Last-Event-ID", "X-CSRF-Token"]


def create_app(backend: Backend, settings: ServiceSettings) -> FastAPI:
    """The application over a backend. Opens nothing; what runs beside the requests starts and ends with the application."""
    app = FastAPI(
        title="iScheduler", version=__version__, docs_url=None, redoc_url=None, openapi_url="/v1/openapi.json", lifespan=_lifespan,
        description="Sizes, plans and carries DNN trainings through real batch systems. Documents are the command line's own.",
        redirect_slashes=False,
    )  # fmt: skip
    gate = Gate(backend, settings)
    app.state.backend, app.state.settings, app.state.gate = backend, settings, gate
    app.state.oidc = oidc.Provider(settings.oidc) if settings.oidc else None
    app.state.desk = Desk(backend, gate, settings)
    app.state.live = Live(app.state.desk.pages, backend.clock)
    app.state.beside = [app.state.live, Sender(app.state.desk.webhooks, gate.derived, backend.clock, inside=settings.webhook_hosts)]
    problems.install(app)
    for router in ROUTERS:
        app.include_router(router)
    for module in OTHER_ROOMS:
        found = _optional(module)
        if found is not None:
            app.include_router(found.router)
            if hasattr(found, "install"):
                found.install(app, settings)
    openapi.install(app, backend)
    _middleware(app, settings)
    telemetry = _optional("ischeduler.service.telemetry")
    if telemetry is not None and hasattr(telemetry, "install"):
        telemetry.install(app, settings)  # outermost: what the other middleware refuses is measured, too
    return app


def _middleware(app: FastAPI, settings: ServiceSettings) -> None:
    """The last one added is the outermost."""
    app.add_middleware(BodyLimit, most_bytes=settings.body_bytes)
    if settings.origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=list(settings.origins), allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=ALLOWED, expose_headers=EXPOSED, allow_credentials=False, max_age=600,
        )  # fmt: skip
    app.add_middleware(SecurityHeaders, secure=settings.secure, page_csp=page_csp(settings))


def page_csp(settings: ServiceSettings) -> str:
    """The pages' content security policy: nothing inline, nothing from elsewhere; a form may lead to the sign-in provider."""
    issuer = f" {settings.oidc.issuer}" if settings.oidc else ""
    return (
        "default-src 'self'; style-src 'self'; script-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
        f"frame-ancestors 'none'; form-action 'self'{issuer}"
    )


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Start what runs beside the requests, and end it in the opposite order."""
    started: list[Any] = []
    try:
        for part in app.state.beside:
            await part.start()
            started.append(part)
        yield
    finally:
        for part in reversed(started):
            await part.stop()


def _optional(module: str) -> Any:
    """A module of another room; None where that room, or a library that it needs, is not installed."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        return None
