"""Clusters as they are now."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from ischeduler.core.cluster import Cluster
from ischeduler.core.errors import IschedError
from ischeduler.core.snapshot import QueueSnapshot
from ischeduler.service.auth.principal import Principal
from ischeduler.service.backend import Backend
from ischeduler.service.dashboard.access import PageRoute, Viewer
from ischeduler.service.dashboard.rendering import page
from ischeduler.service.dashboard.views.clusters import ClusterCard, WaitForecast, cluster_card

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/clusters")
def clusters(request: Request, who: Viewer) -> Response:
    """All of them."""
    return page(request, "clusters.html", who, cards=_cards(request, who))


@router.get("/clusters/live")
def clusters_live(request: Request, who: Viewer) -> Response:
    """The live part."""
    return page(request, "_clusters.html", who, cards=_cards(request, who))


def _cards(request: Request, who: Principal) -> list[ClusterCard]:
    """Those whose queue is seen first."""
    backend: Backend = request.app.state.backend
    reachable = set(backend.reachable(who.user))
    cards = [_card(backend, who.user, c, c.name in reachable) for c in backend.clusters(who.user)]
    return sorted(cards, key=lambda c: (not c.seen, not c.live, c.name))


def _card(backend: Backend, user: str, cluster: Cluster, live: bool) -> ClusterCard:
    now = backend.clock.now()
    if not live:
        return cluster_card(cluster, None, (), now, live=False)
    snapshot: QueueSnapshot | None = None
    forecasts: Any = ()
    problem = ""
    try:
        snapshot = backend.queue(user, cluster.name)
        forecasts = _forecasts(backend, user, cluster.name)
    except IschedError as error:
        problem = f"Its queue could not be seen: {error}"
    return cluster_card(cluster, snapshot, forecasts, now, problem=problem)


def _forecasts(backend: Backend, user: str, cluster: str) -> tuple[WaitForecast, ...]:
    """None where they cannot be made: the counts are shown all the same."""
    try:
        return tuple(backend.forecasts(user, cluster))
    except IschedError:
        return ()
