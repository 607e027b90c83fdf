"""The dashboard's router, for the service to include."""

from __future__ import annotations

from fastapi import APIRouter

from ischeduler.service.dashboard.pages import admin, clusters, estimators, planning, runs, session, static

router = APIRouter(include_in_schema=False)
for part in (static, session, runs, planning, clusters, estimators, admin):
    router.include_router(part.router)
