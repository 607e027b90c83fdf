"""A pool with pilots as a batch system: members' segments wait in its directory until the pool's rounds give them accelerators.

To the plane the pool is a cluster whose partitions are its types of accelerators, and ``any``. What runs when is decided elsewhere
(:mod:`ischeduler.plane.pools`) and carried out by the pilots; this adapter only keeps the files between them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ischeduler.batch.local_jobs import JobFolder, JobFolders
from ischeduler.batch.pilot_files import member_job, pilot_sign, read_json, status_of, write_json
from ischeduler.batch.pilot_sweep import swept
from ischeduler.batch.script import render_script
from ischeduler.core.codec import from_plain, to_plain
from ischeduler.core.durations import human
from ischeduler.core.errors import BadInput, BatchUnavailable, IschedError, SubmitRefused
from ischeduler.core.jobs import JobRef, JobSpec, JobState, JobStatus, Observation, Probe
from ischeduler.core.pilots import MemberJob, PilotOrders, PilotSign
from ischeduler.core.pool import ANY, PREFIX, Pool, PoolPlace, cluster_of
from ischeduler.core.snapshot import NodeCounts, QueuedJob, QueueSnapshot
from ischeduler.ports import BatchSystem, Clock

FRESH_S = 30.0
"""A pilot that has not given a sign for so long is not counted on; it is closed only when its batch job has ended."""


class PilotBatch:
    """The BatchSystem and the PilotFloor of one pool; ``root`` is the pool's directory."""

    def __init__(self, root: Path, clock: Clock) -> None:
        self._root, self._clock = root, clock
        found = read_json(root / "pool.json")
        if not found:
            raise BatchUnavailable(f"the pool's directory {root} cannot be read; see isched pool status.")
        self._pool = str(found["name"])
        self._places = tuple(from_plain(PoolPlace, p) for p in found["places"])
        self._folders = JobFolders(root)
        self._over: dict[str, JobStatus] = {}
        self._ordered: dict[str, PilotOrders] = {}

    @classmethod
    def prepare(cls, pool: Pool) -> None:
        """Make the pool's directory (mode 700). BadInput with a sentence where that cannot be."""
        root = Path(pool.directory)
        try:
            root.mkdir(parents=True, exist_ok=True, mode=0o700)
            for name in ("jobs", "pilots"):
                (root / name).mkdir(exist_ok=True, mode=0o700)
            write_json(root / "pool.json", {"v": 1, "name": pool.name, "places": [to_plain(p) for p in pool.places]})
        except OSError as error:
            raise BadInput(f"the pool's directory {root} cannot be made ({error.strerror}); give --directory on the shared file system.") from None

    @property
    def name(self) -> str:
        """``pool-NAME``."""
        return cluster_of(self._pool)

    def submit(self, job: JobSpec) -> str:
        """Write the segment down; the pool's rounds start it."""
        problem = self._problem(job)
        if problem:
            raise SubmitRefused(f"The pool {self._pool} refused the job: {problem}.")
        # How long it may run is known when it starts; the pilot tells it.
        variables = {k: v for k, v in job.variables.items() if k != "ISCHED_WALLTIME_S"}
        script = render_script(replace(job, variables=variables))
        with self._lock():
            return self._folders.new(job, script, self._clock.now()).job_id

    def observe(self, jobs: Collection[JobRef]) -> Observation:
        """All segments with these keys."""
        keys, found = {ref.key for ref in jobs}, dict[str, list[JobStatus]]()
        with self._reach():
            for _, status in self._all() if keys else ():
                if status.key in keys:
                    found.setdefault(status.key, []).append(status)
        return Observation(self._clock.now(), {k: tuple(s) for k, s in found.items()})

    def cancel(self, job_id: str, *, signal: str | None = None) -> None:
        """Leave the wish; the pilot acts on it. A segment that waits ends at once."""
        with self._lock():
            folder = self._folders.one(job_id)
            if folder is None or (folder.path / "end.json").exists():
                return
            if signal is not None:
                (folder.path / f"signal-{_word(signal)}").touch()
                return
            (folder.path / "cancel").touch()
            if not (folder.path / "start.json").exists() and folder.take("start.json", {"pilot": "", "node": "", "at": None}):
                folder.write("end.json", {"state": "cancelled", "exit_code": 0, "signal": None, "reason": "cancelled", "at": self._clock.now()})

    def snapshot(self) -> QueueSnapshot:
        """The pilots as nodes, the segments as jobs."""
        now = self._clock.now()
        with self._reach():
            signs = [s for s in self.signs() if now - s.beat_at < FRESH_S]
            pairs = [(f.spec, s) for f, s in self._all() if not s.state.ended]
        busy: dict[str, int] = {}
        for spec, status in pairs:
            for node in status.nodes:
                busy[node] = busy.get(node, 0) + max(1, spec.resources.gpus_per_node)
        rows = tuple(_counts(t, [s for s in signs if t in (ANY, s.type)], busy) for t in (*(p.type for p in self._places), ANY))
        return QueueSnapshot(self.name, now, rows, tuple(_queued(spec, status) for spec, status in pairs))

    def probe(self, job: JobSpec) -> Probe:
        """Whether :meth:`submit` would take it."""
        problem, now = self._problem(job), self._clock.now()
        return Probe(False, problem, now) if problem else Probe(True, "waits for its turn in the pool", now)

    def jobs(self, since: float) -> Sequence[MemberJob]:
        """Segments that have not ended, but for those that follow one that has not, and those that ended after ``since``."""
        with self._reach():
            pairs = [(f, s) for f, s in self._all() if not s.state.ended or (s.end_s or 0.0) > since]
            still = {s.job_id for _, s in pairs if not s.state.ended}
            return [member_job(f, s) for f, s in pairs if s.state is not JobState.PENDING or f.spec.after not in still]

    def signs(self) -> Sequence[PilotSign]:
        """The newest report of every pilot that is not closed."""
        with self._reach():
            found = [pilot_sign(p) for p in sorted((self._root / "pilots").iterdir()) if not (p / "ended.json").exists()]
        return [s for s in found if s is not None]

    def order(self, orders: PilotOrders) -> None:
        """Leave orders where they differ from the last that were left here; whoever takes the pool over leaves them anew, with a newer token."""
        folder, last = self._root / "pilots" / orders.pilot, self._ordered.get(orders.pilot)
        content = {"v": 1, "token": orders.token, "look_s": orders.look_s, "steps": {j: {"limit_s": round(s, 1)} for j, s in orders.steps.items()}}
        with self._reach():
            mine = last is not None and read_json(folder / "orders.json").get("token") == last.token
            if last is not None and mine and set(last.steps) == set(orders.steps) and last.look_s == orders.look_s:
                return
            folder.mkdir(exist_ok=True, mode=0o700)
            write_json(folder / "orders.json", content)
            self._ordered[orders.pilot] = orders

    def close(self, pilot: str) -> None:
        """Note that the pilot's batch job has ended."""
        folder = self._root / "pilots" / pilot
        with self._reach():
            if folder.is_dir() and not (folder / "ended.json").exists():
                write_json(folder / "ended.json", {"at": self._clock.now()})

    def sweep(self, before: float, done_with: Callable[[str], bool]) -> int:
        """Take away segments that ended before then and whose key is done with, and closed pilots that ran none of those left."""
        with self._lock():
            return swept(self._root, before, done_with)

    def _all(self) -> Iterator[tuple[JobFolder, JobStatus]]:
        """Every segment with its status; what has ended is read once."""
        folders = self._folders.all()
        there = {f.job_id for f in folders}
        self._over = {job_id: status for job_id, status in self._over.items() if job_id in there}
        for folder in folders:
            known = self._over.get(folder.job_id) or self._read(folder)
            if known is None:
                continue
            if known.state.ended:
                self._over[folder.job_id] = known
            yield folder, known

    def _read(self, folder: JobFolder) -> JobStatus | None:
        """None before it is written down, and where it was taken away just now."""
        if not (folder.path / "submit.json").exists():
            return None
        try:
            return status_of(folder, self._root / "pilots")
        except (IschedError, KeyError, TypeError, ValueError):
            if folder.path.exists():
                raise
            return None

    def _problem(self, job: JobSpec) -> str:
        r, types = job.resources, {p.type: p for p in self._places}
        if job.array:
            return "a pool takes no arrays of jobs"
        if job.partition != ANY and job.partition not in types:
            return f"it has no type '{job.partition}', expected one of {', '.join((*types, ANY))}"
        places = [p for p in self._places if job.partition in (ANY, p.type)]
        if r.nodes > 1:
            return f"it asks for {r.nodes} nodes and a pilot is one node"
        most = max(p.gpus_per_node for p in places)
        if r.gpus_per_node > most:
            return f"it asks for {r.gpus_per_node} accelerators and the largest pilot has {most}"
        cores = max(p.cpus_per_node for p in places)
        if r.cpus_per_node > cores:
            return f"it asks for {r.cpus_per_node} cores and the largest pilot has {cores}"
        longest_s = max(p.walltime_s for p in places)
        return f"{human(r.walltime_s)} is over its pilots' {human(longest_s)}" if r.walltime_s > longest_s else ""

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        with self._reach(), self._folders.locked():
            yield

    @contextlib.contextmanager
    def _reach(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise BatchUnavailable(f"the pool's directory {self._root} fails ({error.strerror}).") from None


class WithPools(Mapping[str, BatchSystem]):
    """Batch systems by name, and every pool whose directory is in ``pools`` under ``pool-NAME``; pools may come and go."""

    def __init__(self, real: Callable[[], Mapping[str, BatchSystem]], pools: Path, clock: Clock) -> None:
        self._real, self._pools, self._clock = real, pools, clock
        self._made: dict[str, PilotBatch] = {}

    def __getitem__(self, name: str) -> BatchSystem:
        return self.floor(name.removeprefix(PREFIX)) if name.startswith(PREFIX) and name not in self._real() else self._real()[name]

    def floor(self, pool: str) -> PilotBatch:
        """The pool's own adapter. KeyError where there is no such directory."""
        if pool not in self._made:
            try:
                self._made[pool] = PilotBatch(self._pools / pool, self._clock)
            except BatchUnavailable:
                raise KeyError(pool) from None
        return self._made[pool]

    def __iter__(self) -> Iterator[str]:
        yield from self._real()
        if self._pools.is_dir():
            yield from (cluster_of(p.name) for p in sorted(self._pools.iterdir()) if (p / "pool.json").exists())

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _word(signal: str) -> str:
    if not (signal.isalnum() and signal.isascii() and signal.isupper()):
        raise BadInput(f"'{signal}' is not a signal; expected a name such as USR2.")
    return signal


def _counts(kind: str, signs: Sequence[PilotSign], busy: Mapping[str, int]) -> NodeCounts:
    used = [min(s.gpus, busy.get(s.node, 0)) for s in signs]
    free = [s.gpus - u for s, u in zip(signs, used, strict=True)]
    return NodeCounts(
        kind, kind, idle=sum(u == 0 for u in used), mixed=sum(u > 0 and f > 0 for u, f in zip(used, free, strict=True)),
        allocated=sum(f == 0 for f in free), idle_gpus=sum(free), total_gpus=sum(s.gpus for s in signs),
    )  # fmt: skip


def _queued(spec: JobSpec, status: JobStatus) -> QueuedJob:
    state = "RUNNING" if status.state is JobState.RUNNING else "PENDING"
    return QueuedJob(
        status.job_id, spec.partition, state, gpus=spec.resources.gpus_per_node, submit_s=status.submit_s, start_s=status.start_s,
        limit_s=spec.resources.walltime_s, mine=True,
    )  # fmt: skip
