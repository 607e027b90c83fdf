"""How right the estimators have been for this user's runs."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from ischeduler.core.run import RunState
from ischeduler.service.dashboard.access import PageRoute, Viewer
from ischeduler.service.dashboard.rendering import page
from ischeduler.service.dashboard.views.accuracy import accuracy_page

router = APIRouter(route_class=PageRoute, include_in_schema=False)
MOST_RECORDS = 2000
ENDED = tuple(s for s in RunState if s.ended)


@router.get("/estimators")
def estimators(request: Request, who: Viewer) -> Response:
    """One's own record."""
    backend = request.app.state.backend
    history = backend.store.history(owner=who.user, limit=MOST_RECORDS)
    runs, _ = request.app.state.desk.pages.page(owner=who.user, states=ENDED, limit=MOST_RECORDS)
    found = accuracy_page(runs, history, backend.clock.now())
    return page(request, "estimators.html", who, page=found)
