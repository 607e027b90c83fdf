"""A small world for the plane: a batch system, a shared file system, trainings that save and die, and one clock.

Time passes only by :meth:`World.advance`. Nothing here reads the plane's code: the jobs follow docs/in-job-protocol.md.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ischeduler.core.errors import BatchUnavailable, SubmitRefused, SubmitUncertain
from ischeduler.core.estimate import Estimate
from ischeduler.core.event import Event
from ischeduler.core.history import HistoryRecord
from ischeduler.core.jobs import JobRef, JobSpec, JobState, JobStatus, Observation, Resources
from ischeduler.core.plan import Needs, Plan, Segment
from ischeduler.core.run import Caps, Run, RunState
from ischeduler.core.sizes import GIB
from ischeduler.core.workload import Workload
from ischeduler.testing.memory_store import MemoryStore

T0 = 1_000_000.0
MIN_JOB_AGE_S = 300.0


def seconds(value: float, spread: float = 0.1) -> Estimate:
    return Estimate.spread(value, spread, "s", "test@1") if value > 0 else Estimate.exact(0.0, "s", "test@1")


def make_plan(
    *, cluster: str = "one", partition: str = "gpu", node_type: str = "v100", epochs: int = 6, epoch_s: float = 60.0,
    walltime_s: float = 240.0, memory: int | None = 16 * GIB, node_memory: int | None = 64 * GIB, batch: int = 32,
    wait_s: float = 60.0, cost: float = 0.0, options: Mapping[str, str] | None = None,
) -> Plan:
    workload = Workload(
        name="toy", model="toy", samples=3200, epochs=epochs, batch_size=batch,
        command=("python", "train.py", "--batch={batch_size}", "--epochs={epochs}", "--accum={grad_accum}", "{other}"),
        options=options or {},
    )
    run = seconds(epoch_s * epochs)
    segment = Segment(0, walltime_s, walltime_s - 30, seconds(wait_s))
    return Plan(
        number=1, cluster=cluster, partition=partition, node_type=node_type, workload=workload,
        resources=Resources(cpus_per_node=4, memory_bytes=memory, walltime_s=walltime_s), segments=(segment,),
        needs=Needs(startup=seconds(10), checkpoint=seconds(5), wait=seconds(wait_s)), run=run, wait=seconds(wait_s),
        finish=seconds(epoch_s * epochs + wait_s), cost=Estimate.exact(cost, "usd", "test@1"), signal_lead_s=30,
        node_memory_bytes=node_memory,
    )


def make_run(plan: Plan | None = None, *, run_id: str = "r-1", caps: Caps | None = None, now: float = T0) -> Run:
    return Run(
        id=run_id, owner="alice", plan=plan or make_plan(), state=RunState.PLANNED, directory=f"/runs/{run_id}", created_at=now,
        caps=caps or Caps(), state_since=now,
    )


@dataclass
class Clock:
    time: float = T0
    world: World | None = None

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        if self.world is None:
            self.time += seconds
        else:
            self.world.advance(seconds)


class Store(MemoryStore):
    """The package's own in-memory store, with its log and evidence in the open."""

    @property
    def log(self) -> list[tuple[int, Event]]:
        return list(enumerate(self._events, start=1))

    @property
    def records(self) -> dict[tuple[str, str, float], HistoryRecord]:
        return self._history


class QuickStore(Store):
    """Without the trip through JSON at each save, for tests of a thousand lives; runs are immutable anyway."""

    def _put(self, run: Run) -> Run:
        self._runs[run.id] = replace(run, version=run.version + 1)
        return self._runs[run.id]


@dataclass
class Job:
    job_id: str
    spec: JobSpec
    submitted: float
    state: JobState = JobState.PENDING
    started: float | None = None
    ended: float | None = None
    restarts: int = 0
    exit_code: int | None = None
    signal: int | None = None
    node: str = ""
    epoch: int = 0
    since_epoch: float = 0.0
    seq: int = 0
    warned: bool = False
    zombie: bool = False
    reason: str = ""
    raw: str = ""
    leaves: tuple[float, JobState, int] | None = None

    @property
    def run_id(self) -> str:
        return self.spec.variables["ISCHED_RUN_ID"]

    @property
    def token(self) -> tuple[int, int]:
        return int(self.spec.variables["ISCHED_ATTEMPT"]), self.restarts


@dataclass
class Training:
    """One run's directory and what its script does. ``needs_memory`` decides about host OOM, ``gpu_batch`` about CUDA OOM."""

    epochs: int = 6
    epoch_s: float = 60.0
    startup_s: float = 10.0
    needs_memory: int = 0
    gpu_batch: int = 10**9
    fails_at: dict[int, int] = field(default_factory=dict)
    fail_code: int = 1
    hangs_at: int | None = None
    saves: bool = True
    silent: bool = False
    deaf: bool = False
    quits_at: int | None = None
    fence: tuple[int, int] = (0, 0)
    claims: dict[tuple[int, int], str] = field(default_factory=dict)
    saved: list[tuple[int, tuple[int, int]]] = field(default_factory=list)
    spool: list[Event] = field(default_factory=list)
    control: dict[tuple[int, int], str] = field(default_factory=dict)
    done_by: list[tuple[int, int]] = field(default_factory=list)
    logs: dict[int, str] = field(default_factory=dict)


class World:
    """One cluster named ``one`` (more by name), with jobs that follow the protocol. ``host_skew_s`` is the nodes' clock error.

    ``linger_s`` is how long the batch system still shows a job as running after its training has left.
    """

    def __init__(
        self, *, wait_s: float = 20.0, accounting: bool = True, host_skew_s: float = 0.0, nodes: int = 4, linger_s: float = 0.0,
    ) -> None:
        self.linger_s = linger_s
        self.clock = Clock()
        self.clock.world = self
        self.wait_s, self.accounting, self.host_skew_s = wait_s, accounting, host_skew_s
        self.jobs: dict[str, list[Job]] = {}
        self.trainings: dict[str, Training] = {}
        self.nodes = [f"n{i}" for i in range(nodes)]
        self.down: set[str] = set()
        self.faults: list[str] = []
        self.calls: dict[str, int] = {}
        self.max_alive: dict[str, int] = {}
        self.ids = 100
        self.disk_full = False
        self.late: list[tuple[float, str, JobSpec]] = []

    def accept(self, cluster: str, job: JobSpec) -> Job:
        self.ids += 1
        made = Job(str(self.ids), job, self.now())
        self.jobs.setdefault(cluster, []).append(made)
        return made

    def all_jobs(self, run_id: str | None = None) -> list[Job]:
        found = [j for jobs in self.jobs.values() for j in jobs]
        return [j for j in found if run_id in (None, j.run_id)]

    def held(self, job: Job) -> bool:
        """It follows a job that has not ended."""
        return any(j.job_id == job.spec.after and not j.state.ended for j in self.all_jobs())

    def alive(self, run_id: str) -> list[Job]:
        return [j for j in self.all_jobs(run_id) if not j.state.ended]

    def now(self) -> float:
        return self.clock.time

    def host_now(self) -> float:
        return self.clock.time + self.host_skew_s

    def training(self, run_id: str) -> Training:
        return self.trainings.setdefault(run_id, Training())

    def batch(self, name: str = "one") -> FakeBatch:
        return FakeBatch(self, name)

    # -- time ---------------------------------------------------------------------------------------------------------

    def advance(self, seconds: float, step_s: float = 5.0) -> None:
        left = seconds
        while left > 1e-9:
            step = min(step_s, left)
            self.clock.time += step
            left -= step
            for entry in [e for e in self.late if e[0] <= self.now()]:
                self.late.remove(entry)
                self.accept(entry[1], entry[2])
            for job in self.all_jobs():
                self._step(job, step)

    def _step(self, job: Job, step: float) -> None:
        if job.leaves is not None and job.state is JobState.RUNNING:
            if self.now() >= job.leaves[0]:
                self._end(job, job.leaves[1], job.leaves[2])
            return
        if job.state is JobState.PENDING:
            ready = self.now() - job.submitted >= self.wait_s and not self.held(job)
            free = [n for n in self.nodes if n not in self.down and n not in job.spec.exclude_nodes]
            job.reason = "Priority" if free else "ReqNodeNotAvail, UnavailableNodes"
            if ready and free:
                self._start(job, free[0])
            return
        if job.state is JobState.RUNNING or job.zombie:
            self._run(job, step)

    def _start(self, job: Job, node: str) -> None:
        job.state, job.started, job.node, job.warned, job.since_epoch = JobState.RUNNING, self.now(), node, False, 0.0
        t = self.training(job.run_id)
        if job.token < t.fence:
            self._exit(job, 86, "superseded")
            return
        older = [j for j in self.alive(job.run_id) if j.state is JobState.RUNNING and j.token < job.token and j.leaves is None]
        keep_from, told = job.spec.variables.get("ISCHED_KEEP_FROM"), t.control.pop(job.token, "")
        if older and keep_from and (told == "return" or (told != "stay" and self.host_now() < float(keep_from))):
            self._exit(job, 88, "")
            return
        if "ISCHED_HANDOVER_S" in job.spec.variables:
            for before in older:
                self.warn(before, t, "control")
        if t.claims.get(job.token, job.job_id) != job.job_id:
            self._exit(job, 87, "")
            return
        t.claims[job.token] = job.job_id
        t.fence = max(t.fence, job.token)
        job.seq = 0
        self.say(job, "started", job_id=job.job_id, host=node, restart=job.restarts)
        job.epoch = max((e for e, who in t.saved if who < job.token), default=0)
        job.since_epoch = -t.startup_s
        if not t.silent:
            name = f"e{job.epoch:05d}" if job.epoch else None
            self.say(job, "resumed", checkpoint=name, epoch=job.epoch, step=job.epoch * 100, skipped=[])

    def _run(self, job: Job, step: float) -> None:
        t = self.training(job.run_id)
        if t.fence > job.token:
            self._exit(job, 86, "superseded")
            return
        self.say(job, "heartbeat", rss_bytes=min(t.needs_memory, job.spec.resources.memory_bytes or 0), cpu_percent=90.0, gpu=[])
        job.since_epoch += step
        if t.hangs_at is not None and job.epoch >= t.hangs_at:
            pass
        elif job.since_epoch >= 0 and self._fails(job, t):
            return
        elif job.since_epoch >= t.epoch_s:
            self._end_epoch(job, t)
            if job.state is not JobState.RUNNING and not job.zombie:
                return
        self._limits(job, t)

    def _fails(self, job: Job, t: Training) -> bool:
        if t.needs_memory > (job.spec.resources.memory_bytes or 10**15):
            t.logs[job.token[0]] = "slurmstepd: error: Step 1.0 exceeded memory limit, being killed"
            self._end(job, JobState.FAILED, 0, signal=9)
            return True
        batch = int(next(a for a in job.spec.command if a.startswith("--batch=")).split("=")[1])
        if batch > t.gpu_batch:
            self.say(job, "oom", where="cuda", text="torch.OutOfMemoryError: CUDA out of memory")
            self._exit(job, 1, "oom")
            return True
        if t.fails_at.get(job.epoch, 0) > 0:
            t.fails_at[job.epoch] -= 1
            self._exit(job, t.fail_code, "error")
            return True
        return False

    def _end_epoch(self, job: Job, t: Training) -> None:
        job.epoch, job.since_epoch = job.epoch + 1, 0.0
        if not t.silent:
            self.say(
                job, "progress", epoch=job.epoch, epochs=t.epochs, step=job.epoch * 100, steps=t.epochs * 100, loss=1 / job.epoch,
                step_time_s=t.epoch_s / 100, epoch_time_s=t.epoch_s,
            )
        if t.saves:
            self._save(job, t, "periodic")
        if job.epoch == t.quits_at:
            self._exit(job, 0, "completed")
        if job.epoch >= t.epochs:
            if not t.silent:
                self.say(job, "finished", epochs=job.epoch, steps=job.epoch * 100)
            t.done_by.append(job.token)
            self._exit(job, 0, "completed")

    def _save(self, job: Job, t: Training, reason: str) -> None:
        if t.fence > job.token or not t.saves:
            return
        t.saved.append((job.epoch, job.token))
        if not t.silent:
            self.say(job, "checkpointing", reason=reason)
            self.say(job, "checkpoint", name=f"e{job.epoch:05d}", epoch=job.epoch, step=job.epoch * 100, bytes=1, save_s=2.0)

    def _limits(self, job: Job, t: Training) -> None:
        if job.started is None:  # back in the queue since
            return
        ran = self.now() - job.started
        lead = job.spec.signal_lead_s or 0
        if ran >= job.spec.resources.walltime_s:
            self._end(job, JobState.TIMEOUT, 0, signal=15)
        elif ran >= job.spec.resources.walltime_s - lead and not job.warned:
            self.warn(job, t, "signal")

    def warn(self, job: Job, t: Training, reason: str) -> None:
        job.warned = True
        self.say(job, "signal", name="SIGUSR2")
        if t.hangs_at is not None and job.epoch >= t.hangs_at:
            return
        if not t.saves or t.deaf:
            return
        self._save(job, t, reason)
        self._exit(job, 85, "checkpointed")

    # -- ends ---------------------------------------------------------------------------------------------------------

    def _exit(self, job: Job, code: int, reason: str) -> None:
        if reason:
            self.say(job, "exit", code=code, reason=reason)
        if job.zombie:
            job.zombie = False
            return
        state = JobState.COMPLETED if code == 0 else JobState.FAILED
        if self.linger_s and job.state is JobState.RUNNING:
            job.leaves = (self.now() + self.linger_s, state, code)
        else:
            self._end(job, state, code)

    def _end(self, job: Job, state: JobState, code: int | None, signal: int | None = None) -> None:
        job.state, job.ended, job.exit_code, job.signal = state, self.now(), code, signal

    def fail_node(self, job: Job, *, requeue: bool = False, zombie: bool = False) -> None:
        """The node is declared failed. ``zombie``: the process goes on (a network cut)."""
        self.down.add(job.node)
        if requeue:
            self.requeue(job)
        else:
            self._end(job, JobState.NODE_FAIL, None)
            job.zombie = zombie

    def requeue(self, job: Job) -> None:
        job.leaves = None
        job.state, job.restarts, job.submitted, job.started = JobState.PENDING, job.restarts + 1, self.now(), None

    def say(self, job: Job, kind: str, **data: Any) -> None:
        if self.disk_full:
            return
        job.seq += 1
        token = f"{job.token[0]}.{job.token[1]}"
        t = self.training(job.run_id)
        t.spool.append(Event(job.run_id, kind, self.host_now(), source="job", token=token, seq=job.seq, data=data))


class FakeBatch:
    """One cluster of the world. ``world.faults`` says how the next submissions go; ``down`` takes the controller away."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self._name = world, name
        self.down = False
        self.accepts = True

    @property
    def name(self) -> str:
        return self._name

    def _count(self, call: str) -> None:
        self.world.calls[call] = self.world.calls.get(call, 0) + 1
        if self.down:
            raise BatchUnavailable("Unable to contact slurm controller")

    def submit(self, job: JobSpec) -> str:
        self._count("submit")
        fault = self.world.faults.pop(0) if self.world.faults else ""
        if fault in ("site_limit", "invalid"):
            raise SubmitRefused(f"refused: {fault}", kind=fault)
        if fault == "lost":
            raise SubmitUncertain("timed out, not accepted")
        if fault == "late":
            self.world.late.append((self.world.now() + 12, self._name, job))
            raise SubmitUncertain("timed out, accepted 12 s later")
        if job.exclude_nodes and not set(self.world.nodes) - set(job.exclude_nodes):
            raise SubmitRefused("Requested node configuration is not available", kind="invalid")
        made = self.world.accept(self._name, job)
        if fault == "accepted":
            raise SubmitUncertain("timed out, accepted all the same")
        return made.job_id

    def observe(self, jobs: Collection[JobRef]) -> Observation:
        self._count("observe")
        found: dict[str, tuple[JobStatus, ...]] = {}
        for ref in jobs:
            statuses = tuple(_status(j) for j in self.world.jobs.get(self._name, ()) if j.spec.key == ref.key and self._seen(j))
            if statuses:
                found[ref.key] = statuses
        return Observation(self.world.now(), found, complete=self.world.accounting)

    def _seen(self, job: Job) -> bool:
        return self.world.accounting or job.ended is None or self.world.now() - job.ended < MIN_JOB_AGE_S

    def cancel(self, job_id: str, *, signal: str | None = None) -> None:
        self._count("cancel")
        job = next((j for j in self.world.jobs.get(self._name, ()) if j.job_id == job_id), None)
        if job is None or job.state.ended:
            return
        if signal is None:
            self.world._end(job, JobState.CANCELLED, None)
        elif job.state is JobState.RUNNING:
            self.world.warn(job, self.world.training(job.run_id), "control")

    def snapshot(self) -> Any:
        raise NotImplementedError

    def probe(self, job: JobSpec) -> Any:
        raise NotImplementedError


def _status(j: Job) -> JobStatus:
    return JobStatus(
        j.job_id, j.spec.key, j.state, raw_state=j.raw or j.state.name, reason=j.reason, exit_code=j.exit_code, signal=j.signal,
        nodes=(j.node,) if j.node else (), submit_s=j.submitted, start_s=j.started, end_s=j.ended, restarts=j.restarts,
        limit_s=j.spec.resources.walltime_s,
    )


class Spools:
    """The event source: reads what jobs wrote."""

    def __init__(self, world: World) -> None:
        self.world = world

    def read(self, run: Run) -> tuple[Sequence[Event], Mapping[str, int]]:
        spool = self.world.training(run.id).spool
        start = run.spool_offsets.get("all", 0)
        return spool[start:], {"all": len(spool)}


class Files:
    """The run directories of the world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.prepared: list[str] = []

    def prepare(self, run: Run) -> None:
        if self.world.disk_full:
            raise OSError(28, "No space left on device")
        self.prepared.append(run.id)

    def raise_fence(self, run: Run, token: str) -> None:
        if self.world.disk_full:
            raise OSError(28, "No space left on device")
        t = self.world.training(run.id)
        a, b = token.split(".")
        t.fence = max(t.fence, (int(a), int(b)))

    def control(self, run: Run, token: str, word: str) -> None:
        a, b = token.split(".")
        self.world.training(run.id).control[(int(a), int(b))] = word

    def log_tail(self, run: Run, attempt: int) -> str:
        return self.world.training(run.id).logs.get(attempt, "")


class Letters:
    """The notifier: keeps what it was told."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []

    def notify(self, run: Run, subject: str, text: str) -> None:
        self.sent.append((subject, text))
