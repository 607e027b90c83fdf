"""The dashboard's router, for the service to include."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI

from ischeduler.service.dashboard.pages import admin, clusters, estimators, planning, runs, session, static
from ischeduler.service.settings import ServiceSettings

router = APIRouter(include_in_schema=False)
for part in (static, session, runs, planning, clusters, estimators, admin):
    router.include_router(part.router)


def install(app: FastAPI, settings: ServiceSettings) -> None:
    """What the pages keep for as long as the service runs."""
    app.state.kept_forecasts = clusters.KeptForecasts()
