"""For administrators of the centre: people, workers, queues, controllers."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, Request
from starlette.responses import Response

from ischeduler.core.run import RunState
from ischeduler.ports import Store, WorkerSign
from ischeduler.service.dashboard.access import Administrator, PageRoute
from ischeduler.service.dashboard.rendering import page
from ischeduler.service.dashboard.views.admin import (
    controllers_table,
    people_table,
    queues_table,
    refused_table,
    states_table,
    workers_table,
)
from ischeduler.store.ingest_read import EventArchive

LETTERS, MOST_GOING = 10, 5000
GOING = tuple(s for s in RunState if not s.ended)
router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/admin")
def admin(request: Request, who: Administrator) -> Response:
    """Everything at a glance."""
    backend = request.app.state.backend
    now, signs = backend.clock.now(), _signs(backend.store)
    runs, _ = request.app.state.desk.pages.page(owner=None, states=GOING, limit=MOST_GOING)
    tables = [
        states_table(runs), queues_table(runs), controllers_table(signs, runs, now), workers_table(signs, now),
        refused_table(EventArchive(backend.engine).dead_letters(limit=LETTERS)[::-1], now),
        people_table(request.app.state.gate.identities.users(), runs, now),
    ]  # fmt: skip
    return page(request, "admin.html", who, tables=tables)


def _signs(store: Store) -> Sequence[WorkerSign]:
    """None from a store that one plane alone carries runs from."""
    return store.signs() if hasattr(store, "signs") else ()  # pyright: ignore[reportAttributeAccessIssue]
