"""Clusters as they are now."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

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
FORECAST_S, MOST_KEPT = 60.0, 512


class KeptForecasts:
    """The newest forecasts by user and cluster. One runs the queue forward some hundred times: once a minute is enough."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], tuple[float, Sequence[WaitForecast]]] = OrderedDict()

    def of(self, user: str, cluster: str, now: float, make: Callable[[], Sequence[WaitForecast]]) -> Sequence[WaitForecast]:
        """Those kept, or new ones by ``make`` where these are older than a minute."""
        made_at, found = self._kept.get((user, cluster), (0.0, ()))
        if not 0 <= now - made_at < FORECAST_S:
            found = make()
            self._kept[user, cluster] = (now, found)
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return found


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
    cards = [_card(request, who.user, c, c.name in reachable) for c in backend.clusters(who.user)]
    return sorted(cards, key=lambda c: (not c.seen, not c.live, c.name))


def _card(request: Request, user: str, cluster: Cluster, live: bool) -> ClusterCard:
    backend: Backend = request.app.state.backend
    now = backend.clock.now()
    if not live:
        return cluster_card(cluster, None, (), now, live=False)
    snapshot: QueueSnapshot | None = None
    forecasts: Sequence[WaitForecast] = ()
    problem = ""
    try:
        snapshot = backend.queue(user, cluster.name)
        forecasts = request.app.state.kept_forecasts.of(user, cluster.name, now, lambda: _forecasts(request, user, cluster.name))
    except IschedError as error:
        problem = f"Its queue could not be seen: {error}"
    return cluster_card(cluster, snapshot, forecasts, now, problem=problem)


def _forecasts(request: Request, user: str, cluster: str) -> Sequence[WaitForecast]:
    """None where they cannot be made (or their libraries are not installed): the counts are shown all the same."""
    try:
        with request.app.state.desk.slot():
            return tuple(request.app.state.backend.forecasts(user, cluster))
    except (IschedError, ImportError):
        return ()
