"""Which job waits for which, and since when it need not."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ischeduler.core.jobs import JobState
from ischeduler.simulator.engine.jobs import Dependency, Job


class Dependencies:
    """Open dependencies of pending jobs. An unknown job counts as long gone: it satisfies every dependency."""

    def __init__(self) -> None:
        self._open: dict[Job, dict[Dependency, float]] = {}
        self._waiting_for: dict[str, list[Job]] = {}
        self._same_name: dict[tuple[str, str], list[Job]] = {}

    def add(self, job: Job, jobs: Mapping[str, Job]) -> None:
        """Note a new job and what it waits for."""
        name = (job.request.user, job.request.name)
        if job.request.name:
            self._same_name.setdefault(name, []).append(job)
        if not job.request.dependencies:
            return
        met = self._open[job] = {}
        for dependency in job.request.dependencies:
            others = [j for j in self._others(job, dependency, jobs) if j is not job]
            for other in others:
                self._waiting_for.setdefault(other.job_id, []).append(job)
            met[dependency] = self._met_s(dependency, others)

    def _others(self, job: Job, dependency: Dependency, jobs: Mapping[str, Job]) -> list[Job]:
        """The jobs meant: one, all tasks of an array, or for singleton the earlier ones of the same name and user."""
        if dependency.kind == "singleton":
            return [j for j in self._same_name.get((job.request.user, job.request.name), ()) if j.seq < job.seq]
        if dependency.job_id in jobs:
            return [jobs[dependency.job_id]]
        return [j for j in jobs.values() if j.request.array == dependency.job_id]

    def held(self) -> list[Job]:
        """Jobs with an open dependency."""
        return [j for j, met in self._open.items() if j.state is JobState.PENDING and any(s == math.inf or s != s for s in met.values())]

    def ready_s(self, job: Job) -> float:
        """When all dependencies are met; infinity while one is open or can never be."""
        times = self._open.get(job, {}).values()
        return math.inf if any(math.isnan(t) for t in times) else max(times, default=0.0)

    def reason(self, job: Job) -> str:
        """Slurm's word."""
        return "DependencyNeverSatisfied" if any(math.isnan(t) for t in self._open.get(job, {}).values()) else "Dependency"

    def forget(self, job: Job) -> None:
        """The job waits no more."""
        self._open.pop(job, None)

    def started(self, job: Job, jobs: Mapping[str, Job]) -> list[Job]:
        """Who can go on now that the job has started."""
        return self._look_again(job, jobs) if job.job_id in self._waiting_for else []

    def ended(self, job: Job, jobs: Mapping[str, Job]) -> list[Job]:
        """Who can go on now that the job has ended."""
        found = self._look_again(job, jobs) if job.job_id in self._waiting_for else []
        self._waiting_for.pop(job.job_id, None)
        return found

    def _look_again(self, job: Job, jobs: Mapping[str, Job]) -> list[Job]:
        moved: list[Job] = []
        for waiting in self._waiting_for[job.job_id]:
            met = self._open.get(waiting)
            if met is None or waiting.state is not JobState.PENDING:
                continue
            for dependency in met:
                met[dependency] = self._met_s(dependency, [j for j in self._others(waiting, dependency, jobs) if j is not waiting])
            moved.append(waiting)
        return moved

    def _met_s(self, dependency: Dependency, others: list[Job]) -> float:
        """When it was met: infinity for not yet, not-a-number for never."""
        latest = 0.0
        for other in others:
            when_s = _since(dependency, other)
            if math.isnan(when_s):
                return math.nan
            latest = max(latest, when_s)
        return latest + dependency.delay_s if others else latest


def _since(dependency: Dependency, other: Job) -> float:
    if dependency.kind == "after":
        if other.start_s is not None:
            return other.start_s
        return (other.end_s or 0.0) if other.state.ended else math.inf
    if not other.state.ended:
        return math.inf
    well = other.state is JobState.COMPLETED
    wanted = {"afterok": well, "afternotok": not well}.get(dependency.kind, True)
    return (other.end_s or 0.0) if wanted else math.nan
