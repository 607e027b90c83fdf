"""A batch system in memory, on simulated time: for unit tests that need one to queue, run, warn, kill, lose and lie.

It passes the same contract suite as Slurm. Jobs have behaviours instead of processes; the queue is first come, first served
over ``slots`` nodes; everything happens at its own time, however far the clock was moved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from ischeduler.core.errors import BatchUnavailable, IschedError, SubmitRefused, SubmitUncertain
from ischeduler.core.jobs import JobRef, JobSpec, JobState, JobStatus, Observation, Probe
from ischeduler.core.snapshot import NodeCounts, QueuedJob, QueueSnapshot
from ischeduler.testing.sim_clock import SimClock

NODE_TYPE = "fake-8c-16g"


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What a job does once it runs. ``run_s`` None means until something ends it; ``signal_exit`` maps a signal's name to the
    exit code with which the job then ends (a signal that is not listed is survived).
    """

    run_s: float | None = 60.0
    state: JobState = JobState.COMPLETED
    exit_code: int | None = 0
    signal: int | None = None
    output: str = ""
    signal_exit: dict[str, int] = field(default_factory=dict[str, int])
    max_rss_bytes: int | None = None


@dataclass(slots=True)
class FakeJob:
    """One job: its wish, its behaviour and its status so far."""

    spec: JobSpec
    behaviour: Behaviour
    status: JobStatus
    warned: bool = False

    @property
    def limit_at(self) -> float:
        """When the batch system ends it; only for a started job."""
        return (self.status.start_s or 0.0) + self.spec.resources.walltime_s

    @property
    def warn_at(self) -> float:
        """When it gets SIGUSR2."""
        lead_s = self.spec.signal_lead_s
        return float("inf") if lead_s is None or self.warned else max(self.status.start_s or 0.0, self.limit_at - lead_s)

    @property
    def done_at(self) -> float:
        """When it ends by itself."""
        run_s = self.behaviour.run_s
        return float("inf") if run_s is None else (self.status.start_s or 0.0) + run_s

    @property
    def next_at(self) -> float:
        """When the next thing happens to it."""
        return min(self.done_at, self.limit_at, self.warn_at)


class FakeBatch:
    """The port, and the strings to pull: start, end, requeue, lose, duplicate, go_down, refuse_next, uncertain_next.

    ``behave`` chooses a job's behaviour from its spec. ``auto_start`` False leaves jobs pending until :meth:`start`.
    ``remembers`` False acts as a site without accounting: jobs that were forgotten make observations incomplete.
    """

    def __init__(
        self, name: str = "fake", clock: SimClock | None = None, *, slots: int = 8, partitions: tuple[str, ...] = ("cpu", "gpu"),
        behave: Callable[[JobSpec], Behaviour] | None = None, auto_start: bool = True, max_walltime_s: float = 86400.0,
    ) -> None:  # fmt: skip
        self._name = name
        self.clock = clock or SimClock()
        self.slots, self.partitions, self.max_walltime_s = slots, partitions, max_walltime_s
        self.behave = behave or (lambda spec: Behaviour())
        self.auto_start, self.remembers, self.down = auto_start, True, False
        self.jobs: dict[str, FakeJob] = {}
        self.calls: Counter[str] = Counter()
        self.signals: list[tuple[str, str]] = []
        self.outputs: dict[str, str] = {}
        self._next_submit: list[tuple[IschedError, bool]] = []
        self._last_id = 0

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self._name

    def submit(self, job: JobSpec) -> str:
        """Takes the job, or raises what was ordered by :meth:`refuse_next` or :meth:`uncertain_next`."""
        self._enter("submit")
        if self._next_submit:
            error, accepted = self._next_submit.pop(0)
            if accepted:
                self._accept(job)
            raise error
        problem = self._problem(job)
        if problem:
            raise SubmitRefused(f"The fake batch system refused the job: {problem}.")
        return self._accept(job)

    def observe(self, jobs: Collection[JobRef]) -> Observation:
        """All jobs of these keys."""
        self._enter("observe")
        keys = {ref.key for ref in jobs}
        found: dict[str, tuple[JobStatus, ...]] = {}
        for job in self.jobs.values():
            if job.status.key in keys:
                found[job.status.key] = (*found.get(job.status.key, ()), job.status)
        return Observation(self.clock.now(), found, complete=self.remembers or keys <= found.keys())

    def cancel(self, job_id: str, *, signal: str | None = None) -> None:
        """Ends the job, or lets it meet the signal."""
        self._enter("cancel")
        job = self.jobs.get(job_id)
        if job is None or job.status.state.ended:
            return
        if signal is None:
            self.end(job_id, JobState.CANCELLED, exit_code=None, signal=15, reason="cancelled")
        elif job.status.state is JobState.RUNNING:
            self._deliver(job, signal)

    def snapshot(self) -> QueueSnapshot:
        """``slots`` nodes in every partition."""
        self._enter("snapshot")
        busy = self._busy()
        counts = NodeCounts("", NODE_TYPE, idle=self.slots - busy, allocated=busy)
        jobs = tuple(_queued(j) for j in self.jobs.values() if not j.status.state.ended)
        return QueueSnapshot(self._name, self.clock.now(), tuple(replace(counts, partition=p) for p in self.partitions), jobs)

    def probe(self, job: JobSpec) -> Probe:
        """Whether it would be taken."""
        self._enter("probe")
        problem, now = self._problem(job), self.clock.now()
        return Probe(not problem, problem, now, None if problem else now)

    def start(self, job_id: str, nodes: tuple[str, ...] = ()) -> None:
        """Let a pending job run from now on."""
        self._start(self.jobs[job_id], self.clock.now(), nodes)

    def end(
        self, job_id: str, state: JobState = JobState.COMPLETED, *, exit_code: int | None = 0, signal: int | None = None,
        reason: str = "", at: float | None = None,
    ) -> None:  # fmt: skip
        """End a job in any way a batch system can end it."""
        job = self.jobs[job_id]
        when = self.clock.now() if at is None else at
        job.status = replace(
            job.status, state=state, raw_state=state.value.upper(), exit_code=exit_code, signal=signal, reason=reason,
            end_s=when, max_rss_bytes=job.behaviour.max_rss_bytes,
        )  # fmt: skip
        self._fill(when)

    def requeue(self, job_id: str, reason: str = "BeginTime") -> None:
        """Put a running job back into the queue under its own id, as Slurm does after preemption or a node failure."""
        job = self.jobs[job_id]
        job.warned = False
        job.status = replace(
            job.status, state=JobState.PENDING, raw_state="PENDING", reason=reason, start_s=None, nodes=(), restarts=job.status.restarts + 1
        )

    def lose(self, job_id: str) -> None:
        """Forget a job altogether."""
        del self.jobs[job_id]

    def duplicate(self, job_id: str) -> str:
        """The same submission once more; the second job's id."""
        return self._accept(self.jobs[job_id].spec)

    def go_down(self) -> None:
        """Every call raises BatchUnavailable from now on; jobs go on."""
        self.down = True

    def come_back(self) -> None:
        """Answer again."""
        self.down = False

    def refuse_next(self, message: str = "not today.", kind: str = "invalid") -> None:
        """The next submission is answered and refused."""
        self._next_submit.append((SubmitRefused(message, kind=kind), False))

    def uncertain_next(self, *, accepted: bool) -> None:
        """The next submission's answer is lost; ``accepted`` says what really happened."""
        self._next_submit.append((SubmitUncertain("The answer was lost; look the key up."), accepted))

    def _enter(self, call: str) -> None:
        self.calls[call] += 1
        if self.down:
            raise BatchUnavailable(f"{self._name} does not answer.")
        self._catch_up()

    def _accept(self, spec: JobSpec) -> str:
        self._last_id += 1
        now, job_id = self.clock.now(), str(self._last_id)
        status = JobStatus(
            job_id, spec.key, JobState.PENDING, "PENDING", "Resources", spec.partition, submit_s=now, limit_s=spec.resources.walltime_s
        )
        self.jobs[job_id] = FakeJob(spec, self.behave(spec), status)
        self._fill(now)
        return job_id

    def _catch_up(self) -> None:
        """Let everything happen that is due, in the order of its time."""
        while running := [j for j in self.jobs.values() if j.status.state is JobState.RUNNING]:
            job = min(running, key=lambda j: j.next_at)
            if job.next_at > self.clock.now():
                return
            self._happen(job)

    def _happen(self, job: FakeJob) -> None:
        at, behaviour = job.next_at, job.behaviour
        if job.done_at <= at:
            code, signum = (behaviour.exit_code, behaviour.signal) if behaviour.signal is None else (None, behaviour.signal)
            self.end(job.status.job_id, behaviour.state, exit_code=code, signal=signum, at=at)
        elif job.warn_at <= at:
            job.warned = True
            self._deliver(job, "USR2", at)
        else:
            self.end(job.status.job_id, JobState.TIMEOUT, exit_code=None, signal=15, reason="TimeLimit", at=at)

    def _deliver(self, job: FakeJob, name: str, at: float | None = None) -> None:
        self.signals.append((job.status.job_id, name))
        code = job.behaviour.signal_exit.get(name)
        if code is not None:
            self.end(job.status.job_id, JobState.FAILED if code else JobState.COMPLETED, exit_code=code, at=at)

    def _fill(self, at: float) -> None:
        for job in self.jobs.values():
            if self.auto_start and job.status.state is JobState.PENDING and job.status.restarts == 0 and self._follows(job):
                if self._busy() + job.spec.resources.nodes > self.slots:
                    return
                self._start(job, at)

    def _follows(self, job: FakeJob) -> bool:
        before = self.jobs.get(job.spec.after or "")
        return before is None or before.status.state.ended

    def _start(self, job: FakeJob, at: float, nodes: tuple[str, ...] = ()) -> None:
        names = nodes or tuple(f"fake{n + 1:02d}" for n in range(job.spec.resources.nodes))
        job.status = replace(job.status, state=JobState.RUNNING, raw_state="RUNNING", reason="", start_s=at, nodes=names)
        self.outputs[job.spec.output] = self.outputs.get(job.spec.output, "") + job.behaviour.output

    def _busy(self) -> int:
        return sum(j.spec.resources.nodes for j in self.jobs.values() if j.status.state is JobState.RUNNING)

    def _problem(self, job: JobSpec) -> str:
        if job.partition not in self.partitions:
            return f"there is no partition '{job.partition}', expected one of {', '.join(self.partitions)}"
        if job.resources.nodes > self.slots:
            return f"it asks for {job.resources.nodes} nodes and there are {self.slots}"
        return "its walltime is over the limit" if job.resources.walltime_s > self.max_walltime_s else ""


def _queued(job: FakeJob) -> QueuedJob:
    status = job.status
    return QueuedJob(
        status.job_id, status.partition, status.raw_state, job.spec.resources.nodes, job.spec.resources.gpus_per_node,
        status.submit_s, status.start_s, status.limit_s, mine=True, reason=status.reason,
    )  # fmt: skip
