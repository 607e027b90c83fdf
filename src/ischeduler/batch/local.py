"""The embedded batch system of one machine: real processes, enforced walltimes, signals before the limit, and a queue.

For machines without Slurm, for trying things out and for tests. One machine only; it knows no other users.
"""

from __future__ import annotations

import contextlib
import os
import signal as signals
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ischeduler.batch.local_gpus import Cards, find_cards
from ischeduler.batch.local_jobs import JobFolder, JobFolders, alive
from ischeduler.batch.local_queue import advance, machine_cores
from ischeduler.batch.script import render_script
from ischeduler.core.cluster import Accelerator, Cluster, NodeType, Partition, Provenance
from ischeduler.core.durations import human, parse_human
from ischeduler.core.errors import BadInput, BatchUnavailable, SubmitRefused
from ischeduler.core.jobs import JobRef, JobSpec, JobState, JobStatus, Observation, Probe
from ischeduler.core.naming import node_type_name
from ischeduler.core.snapshot import NodeCounts, QueuedJob, QueueSnapshot
from ischeduler.ports import Clock

NAME = "local"
DEFAULT_PARTITIONS: tuple[Mapping[str, Any], ...] = ({"name": "main", "max_walltime": "24h"},)
KEPT_ENDED = 200


class LocalBatch:
    """The BatchSystem of this machine; ``root`` holds its jobs. ``partitions`` are tables with name and max_walltime.

    ``gpus`` is ``local.gpus`` (see :func:`find_cards`); ``card_of`` finds the datasheet of a product's name. The cards are looked for
    only when a job or the planner asks for them.
    """

    def __init__(
        self, root: Path, clock: Clock, partitions: Sequence[Mapping[str, Any]] = (), *, cores: int | None = None, name: str = NAME,
        gpus: str = "auto", card_of: Callable[[str], Accelerator] | None = None,
    ) -> None:  # fmt: skip
        self._gpus, self._card_of = gpus, card_of
        self._clock, self._name, self._cores = clock, name, cores or machine_cores()
        self._limits = {_text(p, "name"): parse_human(str(p.get("max_walltime", "24h"))) for p in partitions or DEFAULT_PARTITIONS}
        try:
            self._folders = JobFolders(root)
        except OSError as error:
            raise BatchUnavailable(f"the local batch system cannot use {root} ({error.strerror}); set paths.data to a writable folder.") from None

    @property
    def name(self) -> str:
        """``local``."""
        return self._name

    def submit(self, job: JobSpec) -> str:
        """Write the job down and start it if there is room."""
        problem = self._problem(job)
        if problem:
            raise SubmitRefused(f"The local batch system refused the job: {problem}.")
        script = render_script(job)
        with self._lock():
            folder = self._folders.new(job, script, self._clock.now())
            self._advance()
        return folder.job_id

    def observe(self, jobs: Collection[JobRef]) -> Observation:
        """All jobs with these keys. Looking also moves the queue on."""
        keys = {ref.key for ref in jobs}
        with self._lock():
            self._advance()
            statuses = [folder.status() for folder in self._folders.submitted()]
        found: dict[str, list[JobStatus]] = {}
        for status in statuses:
            if status.key in keys:
                found.setdefault(status.key, []).append(status)
        return Observation(self._clock.now(), {k: tuple(v) for k, v in found.items()})

    def cancel(self, job_id: str, *, signal: str | None = None) -> None:
        """End a job, or signal its batch shell."""
        folder = self._folders.one(job_id)
        if folder is None:
            return
        if signal is not None:
            self._signal(folder, signal)
            return
        (folder.path / "cancel").touch()
        with self._lock():
            self._advance()

    def snapshot(self) -> QueueSnapshot:
        """This machine as one node in every partition."""
        with self._lock():
            open_jobs = [f for f in self._folders.submitted() if not (f.path / "end.json").exists()]
            seen = [(f.spec, f.status()) for f in open_jobs]
        used = sum(s.resources.cpus_per_node for s, status in seen if status.state is JobState.RUNNING)
        state = "idle" if used == 0 else "mixed" if used < self._cores else "allocated"
        kind = self._node_type().name
        counts = tuple(NodeCounts(p, kind, **{state: 1}) for p in sorted(self._limits))
        jobs = tuple(_queued(spec, status) for spec, status in seen if not status.state.ended)
        return QueueSnapshot(self._name, self._clock.now(), counts, jobs)

    def probe(self, job: JobSpec) -> Probe:
        """Whether :meth:`submit` would take it."""
        problem, now = self._problem(job), self._clock.now()
        return Probe(False, problem, now) if problem else Probe(True, "would be taken", now)

    def cluster(self, now: float) -> Cluster:
        """This machine as the CI database knows clusters."""
        node = self._node_type()
        partitions = tuple(Partition(n, (node.name,), max_walltime_s=limit, max_nodes=1) for n, limit in self._limits.items())
        return Cluster(
            self._name, batch="local", partitions=partitions, node_types=(node,), as_of=now,
            provenance={"*": Provenance("this machine", now, "live")},
        )  # fmt: skip

    def _node_type(self) -> NodeType:
        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        cards = self._cards
        if not cards.indices:
            return NodeType(node_type_name(self._cores, memory_bytes // 2**20), self._cores, memory_bytes, count=1)
        card = self._card_of(cards.product) if self._card_of else Accelerator(cards.product or "gpu", 0, "nvidia")
        card = replace(card, memory_bytes=cards.memory_bytes or card.memory_bytes, gres=None)
        name = node_type_name(self._cores, memory_bytes // 2**20, f"gpu:{card.name}:{len(cards.indices)}")
        return NodeType(name, self._cores, memory_bytes, card, len(cards.indices), count=1)

    @cached_property
    def _cards(self) -> Cards:
        return find_cards(self._gpus)

    def _advance(self) -> None:
        waits = any(f.spec.resources.gpus_per_node for f in self._folders.submitted() if not (f.path / "end.json").exists())
        advance(self._folders, self._cores, self._cards.indices if waits else ())

    def _problem(self, job: JobSpec) -> str:
        resources = job.resources
        if job.array:
            return "arrays of jobs need Slurm"
        if job.partition not in self._limits:
            return f"there is no partition '{job.partition}', expected one of {', '.join(self._limits)}"
        if resources.walltime_s > self._limits[job.partition]:
            return f"{human(resources.walltime_s)} is over the limit of {job.partition}, {human(self._limits[job.partition])}"
        if resources.nodes > 1:
            return f"it asks for {resources.nodes} nodes and this is one machine"
        if resources.cpus_per_node > self._cores:
            return f"it asks for {resources.cpus_per_node} cores and this machine has {self._cores}"
        if resources.gpus_per_node and resources.gpus_per_node > len(self._cards.indices):
            return f"it asks for {resources.gpus_per_node} GPUs and this machine has {len(self._cards.indices)} to hand out (local.gpus)"
        return ""

    def _signal(self, folder: JobFolder, name: str) -> None:
        number = getattr(signals, f"SIG{name}", None)
        if number is None:
            raise BadInput(f"'{name}' is not a signal; expected a name such as USR2.")
        running = folder.read("running.json")
        if running and alive(running["pid"], running["start"]):
            with contextlib.suppress(ProcessLookupError):
                os.kill(running["pid"], number)

    @contextlib.contextmanager
    def _lock(self):  # type: ignore[no-untyped-def]
        try:
            with self._folders.locked():
                yield
        except OSError as error:
            raise BatchUnavailable(f"the local batch system's folder {self._folders.root} fails ({error.strerror}).") from None


def _text(table: Mapping[str, Any], key: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value:
        raise BadInput(f"a table of local.partitions has no {key}; expected e.g. {{ name = 'main', max_walltime = '1h' }}.")
    return value


def _queued(spec: JobSpec, status: JobStatus) -> QueuedJob:
    state = "RUNNING" if status.state is JobState.RUNNING else "PENDING"
    return QueuedJob(
        status.job_id, status.partition, state, submit_s=status.submit_s, start_s=status.start_s, limit_s=spec.resources.walltime_s, mine=True
    )
