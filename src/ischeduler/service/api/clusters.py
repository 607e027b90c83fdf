"""Clusters, their queues, forecasts of waits, and estimators."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from ischeduler.core.errors import NotFound
from ischeduler.service.api.desk import ADesk
from ischeduler.service.api.documents import answers, document
from ischeduler.service.api.house_route import HouseRoute
from ischeduler.service.auth.require import Reader

router = APIRouter(prefix="/v1", tags=["clusters"], route_class=HouseRoute)
ClusterName = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", examples=["pitzer"])]


@router.get("/clusters", responses=answers("clusters"), name="cluster.list")
def list_clusters(desk: ADesk, who: Reader) -> Response:
    """Every known cluster; ``live`` names those that your runs can be submitted to."""
    return document("clusters", {"clusters": desk.backend.clusters(who.user), "live": list(desk.backend.reachable(who.user))})


@router.get("/clusters/{cluster}", responses=answers("clusters", 404), name="cluster.get")
def get_cluster(desk: ADesk, who: Reader, cluster: ClusterName) -> Response:
    """One cluster."""
    found = [c for c in desk.backend.clusters(who.user) if c.name == cluster]
    if not found:
        raise NotFound(f"no cluster '{cluster}' is known; the list of clusters has their names.")
    live = [n for n in desk.backend.reachable(who.user) if n == cluster]
    return document("clusters", {"clusters": found, "live": live})


@router.get("/clusters/{cluster}/queue", responses=answers("queue", 404), name="cluster.queue")
def get_queue(desk: ADesk, who: Reader, cluster: ClusterName) -> Response:
    """The cluster's queue as it was some seconds ago; of other people's jobs neither whose they are nor their names."""
    return document("queue", {"queue": desk.backend.queue(who.user, cluster)})


@router.get("/clusters/{cluster}/forecasts", responses=answers("forecast", 404), name="cluster.forecasts")
def get_forecasts(
    desk: ADesk, who: Reader, cluster: ClusterName, partition: Annotated[list[str] | None, Query(max_length=64)] = None,
    nodes: Annotated[int, Query(ge=1, le=100_000)] = 1, gpus: Annotated[int | None, Query(ge=0, le=1024)] = None,
    walltime_s: Annotated[float | None, Query(ge=60, le=10**8, allow_inf_nan=False)] = None, what_if: bool = False,
    rolls: Annotated[int, Query(ge=10, le=1000)] = 200, seed: Annotated[int, Query(ge=0, le=2**31)] = 0,
) -> Response:  # fmt: skip
    """When a job would start, partition by partition."""
    with desk.slot():
        found = desk.backend.forecasts(
            who.user, cluster, partition or (), nodes=nodes, gpus=gpus, walltime_s=walltime_s, what_if=what_if, rolls=rolls, seed=seed
        )
    return document("forecast", {"forecasts": found})


@router.get("/estimators", responses=answers("estimators"), name="estimator.list", tags=["estimators"])
def list_estimators(desk: ADesk, who: Reader) -> Response:
    """The estimators that answer here, in the order of trust."""
    return document("estimators", desk.backend.estimators(who.user))


@router.get("/estimators/accuracy", responses=answers("estimator-report"), name="estimator.accuracy", tags=["estimators"])
def accuracy(desk: ADesk, who: Reader) -> Response:
    """How right each estimator has been over your own runs."""
    return document("estimator-report", desk.backend.accuracy(who.user))
