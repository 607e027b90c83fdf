"""One user's services and session inside a centre: shared database and queues, their own history, batch systems and folder."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ischeduler.core.codec import dumps, from_plain, loads
from ischeduler.core.plan import Needs
from ischeduler.core.run import Run
from ischeduler.core.snapshot import QueuedJob, QueueSnapshot
from ischeduler.helper.harmless import harmless
from ischeduler.helper.options import EstimateRow, Planning, Scene
from ischeduler.helper.plan_cache import CachedPlans, PlanRequest
from ischeduler.helper.session import Session
from ischeduler.planning.candidates import Candidate, CandidateKey
from ischeduler.ports import BatchSystem, Clock
from ischeduler.wiring import Services

QUEUE_AGE_S = 10.0


class Queues:
    """Each cluster's queue, asked for once in ten seconds however many ask; other people's names are taken out."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[str, QueueSnapshot] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def of(self, cluster: str, batch: BatchSystem, account: str) -> QueueSnapshot:
        """The snapshot as the user of this account may see it. BatchUnavailable when nobody answers."""
        with self._lock:
            lock = self._locks.setdefault(cluster, threading.Lock())
        with lock:
            kept = self._kept.get(cluster)
            if kept is None or not 0 <= self._clock.now() - kept.taken_at < QUEUE_AGE_S:
                kept = self._kept[cluster] = batch.snapshot()
        return replace(kept, jobs=tuple(_as_seen_by(account, j) for j in kept.jobs))


def _as_seen_by(account: str, job: QueuedJob) -> QueuedJob:
    """One's own job as it is; of somebody else's neither whose it is nor what it is called."""
    return replace(job, mine=True) if job.user == account else replace(job, user="", name="", mine=False)


class SharedQueue:
    """A user's batch system whose snapshot is the one that all share. Everything else is the batch system's own."""

    def __init__(self, batch: BatchSystem, observer: BatchSystem, queues: Queues, account: str) -> None:
        self._batch, self._observer, self._queues, self._account = batch, observer, queues, account

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def snapshot(self) -> QueueSnapshot:
        """The queue, some seconds old at most."""
        return self._queues.of(self._batch.name, self._observer, self._account)


class CentrePlanning(Planning):
    """Planning for somebody in a shared process: estimators see nothing that would run that person's code."""

    def _ask(self, places: Sequence[Candidate], scene: Scene, request: PlanRequest, now: float) -> dict[CandidateKey, Needs]:
        return super()._ask([replace(p, workload=harmless(p.workload)) for p in places], scene, request, now)

    def memory_details(self, request: PlanRequest, now: float) -> Any:
        """Card memory part by part."""
        return super().memory_details(replace(request, workload=harmless(request.workload)), now)


class UserServices(Services):
    """The services of one user over those of the centre."""

    def __init__(self, centre: Services, user: str, batches: Mapping[str, BatchSystem], folder: Path) -> None:
        super().__init__(centre.settings, clock=centre.clock)
        self.owner, self.engine, self.store = user, centre.engine, centre.store
        self.batches = batches
        self._folder = folder

    @property
    def runs_dir(self) -> Path:
        """Where this user's run directories are, as the cluster's nodes see it."""
        return self._folder / "runs"


class CentreSession(Session):
    """One user's session inside the service: no daemon, no folder of its own; plane workers carry the runs."""

    def __init__(self, services: UserServices) -> None:
        super().__init__(services.settings)  # pyright: ignore[reportArgumentType]
        self.services = services
        services.replanner = self.planning

    def planning_with(self, services: Services) -> Planning:
        """A planner that runs nobody's code."""
        return CentrePlanning(services, self.config)

    def tick_if_free(self) -> None:
        """The workers look."""

    def ensure_plane(self) -> None:
        """The workers are there."""

    def explain(self, run: Run) -> str:
        """Why a run is where it is, and what to do."""
        return self.planning.explain(run, self.clock.now())

    def ask_planner(self, request: PlanRequest) -> CachedPlans:
        """Plans for a request; what was declared is told as the request's own and not by the name of a file here."""
        planset = self.planning.plan(request, self.clock.now())
        cached = CachedPlans(request, planset)
        if not request.assume:
            return cached
        return from_plain(CachedPlans, loads(dumps(cached).replace(request.assume, "the request's figures")))

    def ask_estimators(self, request: PlanRequest) -> list[EstimateRow]:
        """Needs place by place, told the same way."""
        rows = self.planning.estimates(request, self.clock.now())
        if not request.assume:
            return rows
        return from_plain(tuple[EstimateRow, ...], loads(dumps(rows).replace(request.assume, "the request's figures")))  # pyright: ignore
