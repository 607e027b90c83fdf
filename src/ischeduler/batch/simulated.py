"""The simulated cluster as a batch system: the BatchSystem port on the engine and a simulated clock.

The plane, the planner and provisioners run on it unchanged. Every call first lets everything happen that is due by the clock. Other
people's jobs come by :meth:`SimulatedBatch.background`; what a job of one's own does is its :class:`Program`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Any, Protocol

from ischeduler.batch.header import gres_request
from ischeduler.core.errors import BatchUnavailable, SubmitRefused
from ischeduler.core.jobs import JobRef, JobSpec, JobState, JobStatus, Observation, Probe
from ischeduler.core.naming import gpus_of_gres, node_type_name
from ischeduler.core.sizes import MIB
from ischeduler.core.snapshot import FinishedJob, NodeCounts, QueuedJob, QueueSnapshot
from ischeduler.ports import Clock
from ischeduler.simulator.engine.admission import refusal, shaped
from ischeduler.simulator.engine.backfill import will_run
from ischeduler.simulator.engine.cluster_sim import ClusterSim
from ischeduler.simulator.engine.jobs import Dependency, Job, JobRequest
from ischeduler.simulator.engine.machine import Machine, SimNode
from ischeduler.simulator.engine.nodes import members
from ischeduler.simulator.engine.options import SchedulerOptions


class Life:
    """One run of a job, as its program sees it. What was ordered for a life that is over never happens."""

    def __init__(self, sim: ClusterSim, job: Job, spec: JobSpec, outputs: dict[str, str]) -> None:
        self._sim, self._job, self.spec, self._outputs = sim, job, spec, outputs
        self._number = job.incarnation
        self.job_id, self.restarts, self.limit_at_s = job.job_id, job.restarts, job.limit_at
        self.nodes = sim.node_names(job.mask)

    @property
    def now_s(self) -> float:
        """The simulated time."""
        return self._sim.now_s

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._job.state is JobState.RUNNING and self._job.incarnation == self._number

    def after(self, delay_s: float, act: Callable[[], None]) -> None:
        """Do something that much later, if the job still runs then."""
        self._sim.at(self.now_s + delay_s, lambda: act() if self.alive else None)

    def end(self, exit_code: int = 0, *, signal: int | None = None) -> None:
        """The job ends, now."""
        if self.alive:
            self._sim.finish(self._job, exit_code, signal)

    def print(self, text: str) -> None:
        """Write to the job's output."""
        self._outputs[self.spec.output] = self._outputs.get(self.spec.output, "") + text


class Program(Protocol):
    """What a job does while it runs: one object a life."""

    def start(self, life: Life) -> None:
        """The job has started."""
        ...

    def signal(self, name: str) -> bool:
        """A signal came (a name without SIG); True when it is caught, else SIGTERM ends the job."""
        ...


class Fixed:
    """A program that runs for ``run_s`` (None: until something ends it) and ends with ``exit_code`` or by ``killed_by``.

    ``on_signal`` maps a signal's name to the exit code with which the job then ends; others are not caught. ``text`` is its output.
    """

    def __init__(
        self, run_s: float | None = 60.0, exit_code: int = 0, *, killed_by: int | None = None, on_signal: dict[str, int] | None = None, text: str = ""
    ) -> None:
        self._run_s, self._exit_code, self._killed_by, self._on_signal, self._text = run_s, exit_code, killed_by, on_signal or {}, text
        self._life: Life | None = None

    def start(self, life: Life) -> None:
        """Print, and end when it is time."""
        self._life = life
        life.print(self._text)
        if self._run_s is not None:
            life.after(self._run_s, lambda: life.end(self._exit_code, signal=self._killed_by))

    def signal(self, name: str) -> bool:
        """End where that was ordered."""
        if self._life is None or name not in self._on_signal:
            return False
        self._life.end(self._on_signal[name])
        return True


class SimulatedBatch:
    """The port. ``programs`` says what a job does; ``requeue`` lets the batch system start one's own jobs again after a node failure or
    preemption. ``down`` True takes the controller away: calls raise BatchUnavailable, jobs go on. Faults: see ``sim``.
    """

    def __init__(
        self, machine: Machine, clock: Clock, options: SchedulerOptions | None = None, *, programs: Callable[[JobSpec], Program] | None = None,
        user: str = "me", requeue: bool = False,
    ) -> None:  # fmt: skip
        self._clock, self._user, self._requeue = clock, user, requeue
        self._programs = programs or (lambda spec: Fixed())
        self.sim = ClusterSim(machine, options or SchedulerOptions(estimates=True), start_s=clock.now(), observer=self)
        self.down = False
        self.calls: Counter[str] = Counter()
        self.outputs: dict[str, str] = {}
        self._specs: dict[str, JobSpec] = {}
        self._by_key: dict[str, list[str]] = {}
        self._running: dict[str, Program] = {}
        self._last_id = 0
        self._types = [_node_type(n) for n in machine.nodes]

    @property
    def name(self) -> str:
        """The simulated cluster's name."""
        return self.sim.machine.name

    def submit(self, job: JobSpec) -> str:
        """Queue the job; SubmitRefused where the cluster would not take it."""
        self._enter("submit")
        job_id = str(self._last_id + 1)
        request = self._request(job, job_id)
        self._specs[job_id] = job
        try:
            self.sim.submit(request)
        except SubmitRefused:
            del self._specs[job_id]
            raise
        self._last_id += 1
        self._by_key.setdefault(job.key, []).append(job_id)
        self.sim.run_until(self._clock.now())
        return job_id

    def background(self, requests: Iterable[JobRequest]) -> None:
        """Jobs of other people, with their true run times; those that have passed are queued now. Ids must not be plain numbers."""
        for request in requests:
            self.sim.submit(request)

    def observe(self, jobs: Collection[JobRef]) -> Observation:
        """All jobs of these keys."""
        self._enter("observe")
        keys = {ref.key for ref in jobs} & self._by_key.keys()
        return Observation(self._clock.now(), {k: tuple(self._status(i) for i in self._by_key[k]) for k in keys})

    def cancel(self, job_id: str, *, signal: str | None = None) -> None:
        """End the job, or send it a signal."""
        self._enter("cancel")
        if signal is None:
            self.sim.cancel(job_id)
        else:
            self.sim.signal(job_id, signal)
        self.sim.run_until(self._clock.now())

    def snapshot(self) -> QueueSnapshot:
        """Nodes by type and state, and everybody's jobs."""
        self._enter("snapshot")
        sim = self.sim
        jobs = [self._queued(j) for j in [*sim.running.values(), *sim.jobs_waiting()] if j.queued_s <= sim.now_s]
        counts = [self._counts(p, kind) for p in range(len(sim.machine.partitions)) for kind in dict.fromkeys(self._types)]
        return QueueSnapshot(self.name, self._clock.now(), tuple(c for c in counts if c.total), tuple(jobs))

    def finished(self, since_s: float) -> tuple[FinishedJob, ...]:
        """Jobs that ran and ended after ``since_s`` (epoch seconds), everybody's, as ``sacct`` tells them."""
        self._enter("finished")
        told = [(j, j.start_s, j.end_s) for j in self.sim.jobs.values() if j.state.ended]
        return tuple(self._finished(j, start, end) for j, start, end in told if start is not None and end is not None and end > since_s)

    def probe(self, job: JobSpec) -> Probe:
        """As ``sbatch --test-only``: the start by the limits of the jobs that run, without regard to those that wait."""
        self._enter("probe")
        now = self._clock.now()
        try:
            made = shaped(self.sim, self._request(job, "probe"), -1)
        except SubmitRefused as error:
            return Probe(False, str(error), now)
        problem, _ = refusal(self.sim, made)
        if problem:
            return Probe(False, problem, now)
        found = will_run(self.sim, made, self.sim.pool.suited(made.shape) & self.sim.pool.open)
        return Probe(True, "", now, found[0] if found else None)

    # -- the observer's side of the engine ----------------------------------------------------------------------------

    def started(self, job: Job) -> None:
        """Bring the job's program to life."""
        spec = self._specs.get(job.job_id)
        if spec is not None:
            program = self._running[job.job_id] = self._programs(spec)
            program.start(Life(self.sim, job, spec, self.outputs))

    def signalled(self, job: Job, name: str) -> bool:
        """Hand it to the program."""
        program = self._running.get(job.job_id)
        return program is not None and program.signal(name)

    def stopped(self, job: Job) -> None:
        """The program is gone."""
        self._running.pop(job.job_id, None)

    # -- inside -------------------------------------------------------------------------------------------------------

    def catch_up(self) -> None:
        """Let everything happen that is due by the clock."""
        self.sim.run_until(self._clock.now())

    def _enter(self, call: str) -> None:
        self.calls[call] += 1
        self.catch_up()
        if self.down:
            raise BatchUnavailable(f"{self.name} does not answer.")

    def _request(self, spec: JobSpec, job_id: str) -> JobRequest:
        resources = spec.resources
        kinds = gpus_of_gres(gres_request(resources) or "")
        return JobRequest(
            job_id, self._clock.now(), resources.walltime_s, None, resources.nodes, resources.cpus_per_node,
            math.ceil((resources.memory_bytes or 0) / MIB), sum(kinds.values()), next(iter(kinds), ""), resources.features,
            resources.whole_node, spec.exclude_nodes, spec.partition, spec.qos or "", self._user, spec.account or "",
            dependencies=(Dependency("afterany", spec.after),) if spec.after else (), requeue=self._requeue, signal_lead_s=spec.signal_lead_s,
        )  # fmt: skip

    def _status(self, job_id: str) -> JobStatus:
        job, spec = self.sim.jobs[job_id], self._specs[job_id]
        return JobStatus(
            job_id, spec.key, job.state, job.raw_state, job.reason, spec.partition, job.exit_code, job.signal,
            () if job.last_mask == 0 else self.sim.node_names(job.last_mask), job.queued_s, job.start_s, job.end_s,
            job.expected_start_s, job.limit_s, job.restarts,
        )  # fmt: skip

    def _queued(self, job: Job) -> QueuedJob:
        partition, request = self.sim.machine.partitions[job.shape.partition].name, job.request
        return QueuedJob(
            job.job_id, partition, job.raw_state, request.nodes, request.gpus * request.nodes, job.queued_s, job.start_s, job.limit_s,
            job.priority, job.job_id in self._specs, job.reason, request.user, self._named(job),
        )  # fmt: skip

    def _finished(self, job: Job, start_s: float, end_s: float) -> FinishedJob:
        partition, request = self.sim.machine.partitions[job.shape.partition].name, job.request
        gpus = request.gpus * request.nodes
        return FinishedJob(request.user, self._named(job), partition, job.queued_s, start_s, end_s, job.limit_s, request.nodes, gpus)

    def _named(self, job: Job) -> str:
        spec = self._specs.get(job.job_id)
        return spec.name if spec is not None else job.request.name

    def _counts(self, partition: int, kind: str) -> NodeCounts:
        sim, pool = self.sim, self.sim.pool
        here = [i for i in members(pool.partition_masks[partition]) if self._types[i] == kind]
        states = Counter(_state(sim, i) for i in here)
        whole = sum(1 << i for i in here) & sum(j.mask for j in sim.running.values() if j.shape.whole)
        usable = [i for i in here if pool.open >> i & 1 and not whole >> i & 1]
        total = sum(sum(sim.machine.nodes[i].gpus.values()) for i in here)
        counts: dict[str, Any] = dict(states)
        return NodeCounts(
            sim.machine.partitions[partition].name, kind, **counts, idle_gpus=sum(sum(pool.gpus[i].values()) for i in usable), total_gpus=total
        )


def _state(sim: ClusterSim, i: int) -> str:
    """sinfo's compact state of a node."""
    pool, bit = sim.pool, 1 << i
    if not pool.up & bit:
        return "down"
    if pool.drained & bit:
        return "drained"
    if not pool.occupied & bit:
        return "idle"
    return "allocated" if pool.packed & bit else "mixed"


def _node_type(node: SimNode) -> str:
    gres = ",".join(f"gpu:{kind}:{count}" for kind, count in node.gpus.items())
    return node_type_name(node.cores, node.memory_mb, gres, node.features)

