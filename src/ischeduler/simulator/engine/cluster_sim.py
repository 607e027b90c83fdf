"""The discrete-event engine: time, the queue, starts and ends. Policies decide who starts; this module makes it happen.

Pure Python, deterministic, and without a clock of its own: :meth:`ClusterSim.run_until` moves the simulated time.
"""

from __future__ import annotations

import heapq
import itertools
import math
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from ischeduler.core.errors import BadInput
from ischeduler.core.jobs import JobState
from ischeduler.simulator.engine.admission import admit
from ischeduler.simulator.engine.dependencies import Dependencies
from ischeduler.simulator.engine.jobs import Job, JobRequest
from ischeduler.simulator.engine.machine import Machine
from ischeduler.simulator.engine.nodes import NodePool, members
from ischeduler.simulator.engine.options import SchedulerOptions
from ischeduler.simulator.engine.priority import Priorities

_LIMITS, _FAULTS, _ARRIVES, _ENDS = 0, 1, 2, 3
"""The order at one instant: jobs at their limit give their nodes back, nodes fail, jobs arrive, others end in the order of their starts."""
_Event = tuple[float, int, int, Callable[..., None], tuple[Any, ...]]


class Observer(Protocol):
    """Who lives inside the jobs. ``signalled`` answers whether the job has caught the signal (it then ends itself, or not)."""

    def started(self, job: Job) -> None:
        """The job runs from now on."""
        ...

    def signalled(self, job: Job, name: str) -> bool:
        """A signal (a name without SIG) arrived."""
        ...

    def stopped(self, job: Job) -> None:
        """The job runs no more: it ended, or went back into the queue."""
        ...


class Policy(Protocol):
    """Decides who starts. ``each``: it looks after every single event of an instant, else when all of them have happened."""

    each: bool

    def cycle(self, sim: ClusterSim) -> None:
        """Look at the queue; called whenever something happened and at :meth:`wakes_at`."""
        ...

    def wakes_at(self, sim: ClusterSim) -> float:
        """When the policy wants to look again though nothing happened; infinity where never."""
        ...


class ClusterSim:
    """One simulated cluster. ``jobs`` holds every job ever submitted, ``pending`` those that could start, ``ends`` the running ones
    by expected end. ``now_s`` is the simulated time.
    """

    def __init__(
        self, machine: Machine, options: SchedulerOptions | None = None, *, start_s: float = 0.0, observer: Observer | None = None,
        policy: Policy | None = None,
    ) -> None:  # fmt: skip
        from ischeduler.simulator.engine.policies import policy_of

        self.machine, self.options, self.observer = machine, options or SchedulerOptions(), observer
        self.now_s = start_s
        self.pool = NodePool(machine)
        self.qos = {q.name: q for q in machine.qos}
        self.priorities = Priorities(machine, self.options.priority, start_s)
        self.policy = policy or policy_of(self.options)
        self.jobs: dict[str, Job] = {}
        self.pending: list[Job] = []
        self.running: dict[str, Job] = {}
        self.ends: list[tuple[float, int, Job]] = []
        self.changed = False
        self.running_of: Counter[tuple[str, str]] = Counter()
        self.alive_of: Counter[tuple[str, str]] = Counter()
        self.array_running: Counter[str] = Counter()
        self._dependencies = Dependencies()
        self._events: list[_Event] = []
        self._number = itertools.count()

    # -- from outside -------------------------------------------------------------------------------------------------

    def submit(self, request: JobRequest) -> Job:
        """Queue a job at ``request.submit_s`` (now, where that has passed). SubmitRefused with the reason; BadInput for a known id."""
        if request.job_id in self.jobs:
            raise BadInput(f"the job id '{request.job_id}' is taken.")
        job = admit(self, request, next(self._number))
        self.jobs[request.job_id] = job
        self.alive_of[(request.qos, request.user)] += 1
        job.queued_s = max(self.now_s, request.submit_s)
        job.not_before_s = max(job.queued_s, request.begin_s or 0.0)
        self._dependencies.add(job, self.jobs)
        self._at(job.queued_s, _ARRIVES, self._arrive, job)
        return job

    def at(self, when_s: float, act: Callable[..., None], *arguments: Any) -> None:
        """Call ``act`` at that time: for observers and faults."""
        self._at(max(when_s, self.now_s), _FAULTS, act, *arguments)

    def run_until(self, until_s: float) -> None:
        """Let everything happen that is due until then, and leave the time there."""
        while (due_s := self._due_s()) <= until_s:
            self.now_s = max(self.now_s, due_s)
            due: list[_Event] = []
            while self._events and self._events[0][0] <= self.now_s:
                due.append(heapq.heappop(self._events))
            for _, order, _, act, arguments in due:
                act(*arguments)
                if self.policy.each and order != _LIMITS:
                    self.policy.cycle(self)
            self.policy.cycle(self)
        self.now_s = max(self.now_s, until_s)

    def run_until_before(self, until_s: float) -> None:
        """Let everything happen that is due earlier than that, so that a job submitted then shares its instant with the rest."""
        while (due_s := self._due_s()) < until_s:
            self.run_until(due_s)
        self.now_s = max(self.now_s, until_s)

    def run(self) -> None:
        """Until nothing more happens; jobs that can never start stay pending."""
        while (due_s := self._due_s()) < math.inf:
            self.run_until(due_s)

    def _due_s(self) -> float:
        if self.changed:
            return self.now_s
        return min(self._events[0][0] if self._events else math.inf, max(self.now_s, self.policy.wakes_at(self)))

    def cancel(self, job_id: str) -> None:
        """End a job wherever it is; one that is gone is no error."""
        job = self.jobs.get(job_id)
        if job is None or job.state.ended:
            return
        if job.state is JobState.PENDING:
            if job in self.pending:
                self.pending.remove(job)
            self._close(job, JobState.CANCELLED, None, None)
        elif job.leaving != "cancelled":
            self._leave(job, "cancelled")

    def signal(self, job_id: str, name: str) -> None:
        """Send a running job a signal."""
        job = self.jobs.get(job_id)
        if job is not None and job.state is JobState.RUNNING and self.observer is not None:
            self.observer.signalled(job, name)

    def finish(self, job: Job, exit_code: int = 0, signal: int | None = None) -> None:
        """The job ends by itself, now. What Slurm calls that depends on whether it was told to leave."""
        if job.state is not JobState.RUNNING:
            return
        state = {"timeout": JobState.TIMEOUT, "cancelled": JobState.CANCELLED, "preempted": JobState.PREEMPTED}.get(job.leaving)
        if job.leaving == "requeued":
            self.requeue(job)
            return
        self._end(job, state or (JobState.FAILED if exit_code or signal else JobState.COMPLETED), exit_code, signal)

    # -- nodes --------------------------------------------------------------------------------------------------------

    def node_down(self, name: str) -> None:
        """A node fails now: its jobs go back into the queue or end as NODE_FAIL."""
        bit = 1 << self._node(name)
        self.pool.up &= ~bit
        for job in [j for j in self.running.values() if j.mask & bit]:
            if self.options.requeue and job.request.requeue:
                self.requeue(job)
            else:
                self._end(job, JobState.NODE_FAIL, None, None)
        self.changed = True

    def node_up(self, name: str) -> None:
        """A failed or drained node takes jobs again."""
        bit = 1 << self._node(name)
        self.pool.up |= bit
        self.pool.drained &= ~bit
        self.changed = True

    def drain(self, name: str) -> None:
        """The node takes no new job; those on it go on."""
        self.pool.drained |= 1 << self._node(name)
        self.changed = True

    def _node(self, name: str) -> int:
        if name not in self.pool.index:
            raise BadInput(f"the simulated cluster '{self.machine.name}' has no node '{name}'.")
        return self.pool.index[name]

    def node_names(self, mask: int) -> tuple[str, ...]:
        """The names of a set of nodes."""
        return tuple(self.pool.names[i] for i in members(mask))

    # -- from policies ------------------------------------------------------------------------------------------------

    def ordered(self) -> list[Job]:
        """The queue as Slurm looks at it: partition tier, priority, time of submission. Priorities are brought up to date."""
        if self.priorities.due(self.now_s):
            self.priorities.recalculate([*self.running.values(), *(j for j in self.jobs_waiting())], self.now_s)
        self.pending.sort(key=lambda j: (-j.tier, -j.priority, j.queued_s, j.seq))
        return list(self.pending)

    def jobs_waiting(self) -> list[Job]:
        """All pending jobs, those with an open dependency included."""
        return [*self.pending, *self._dependencies.held()]

    def blocked(self, job: Job) -> str:
        """The limit that keeps the job from starting whatever is free, or ''."""
        request = job.request
        if job.state is not JobState.PENDING:
            return "gone"
        qos = self.qos.get(request.qos)
        if qos and qos.max_jobs_per_user is not None and self.running_of[(request.qos, request.user)] >= qos.max_jobs_per_user:
            return "QOSMaxJobsPerUserLimit"
        if request.array_limit is not None and self.array_running[request.array] >= request.array_limit:
            return "JobArrayTaskLimit"
        limit_s = self.machine.partitions[job.shape.partition].max_time_s
        return "PartitionTimeLimit" if job.limit_s > limit_s else ""

    def start(self, job: Job, mask: int) -> None:
        """Start a pending job on these nodes, now."""
        self.pool.take(job, mask)
        self.pending.remove(job)
        job.state, job.raw_state, job.reason, job.leaving = JobState.RUNNING, "RUNNING", "", ""
        job.start_s = job.usage_counted_s = self.now_s
        job.last_mask = mask
        job.expected_start_s, job.incarnation = None, job.incarnation + 1
        self.running[job.job_id] = job
        insort(self.ends, (job.limit_at, job.seq, job))
        self._count(job, 1)
        self._release(self._dependencies.started(job, self.jobs))
        self._schedule_ends(job)
        if self.observer is not None:
            self.observer.started(job)

    def _schedule_ends(self, job: Job) -> None:
        life, run_s, start_s = job.incarnation, job.request.run_s, self.now_s
        if run_s is not None and run_s < job.limit_s:
            self._at(start_s + run_s, _ENDS, self._due_end, job, life)
        else:
            own = run_s == job.limit_s
            when_s = job.limit_at if own else self._polled(job.limit_at)
            self._at(when_s, _LIMITS, self._due_end if own else self._limit, job, life)
            self._at(when_s, _ENDS, self._look)
        lead_s = job.request.signal_lead_s
        if lead_s is not None and self.observer is not None:
            self._at(max(start_s, job.limit_at - lead_s), _FAULTS, self._warn, job, life)

    def _polled(self, when_s: float) -> float:
        poll_s = self.options.timeout_poll_s
        return math.ceil(when_s / poll_s) * poll_s if poll_s else when_s

    def preempt(self, job: Job, mode: str) -> None:
        """Push a running job out."""
        again = mode == "REQUEUE" and self.options.requeue and job.request.requeue
        self._leave(job, "requeued" if again else "preempted")

    def requeue(self, job: Job) -> None:
        """Back into the queue under its own id, to start again after the requeue delay."""
        self._vacate(job)
        job.state, job.raw_state, job.reason, job.leaving = JobState.PENDING, "PENDING", "BeginTime", ""
        job.restarts, job.start_s, job.eligible_s, job.last_mask = job.restarts + 1, None, None, 0
        job.queued_s, job.not_before_s = self.now_s, self.now_s + self.options.requeue_delay_s
        self._at(job.not_before_s, _ARRIVES, self._arrive, job)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _at(self, when_s: float, order: int, act: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self._events, (when_s, order, next(self._number), act, arguments))

    def _arrive(self, job: Job) -> None:
        """Submitted, or its begin time has come; then it waits for its dependencies, or for its turn."""
        if job.state is not JobState.PENDING or job in self.pending:
            return
        if self.now_s < job.not_before_s:
            job.reason = "BeginTime"
            self._at(job.not_before_s, _ARRIVES, self._arrive, job)
            return
        ready_s = self._dependencies.ready_s(job)
        if ready_s > self.now_s:
            job.reason = self._dependencies.reason(job)
            self.priorities.first(job, self.now_s)
            if ready_s < math.inf:
                self._at(ready_s, _ARRIVES, self._arrive, job)
            return
        self._dependencies.forget(job)
        job.eligible_s, job.reason = self.now_s, "Priority"
        self.priorities.first(job, self.now_s)
        self.pending.append(job)
        self.changed = True

    def _release(self, jobs: list[Job]) -> None:
        for job in jobs:
            if job.queued_s <= self.now_s:
                self._arrive(job)

    def _due_end(self, job: Job, life: int) -> None:
        if job.incarnation == life and job.state is JobState.RUNNING:
            self.finish(job, job.request.exit_code)

    def _look(self) -> None:
        """A job that ends at its limit is looked at in its turn, though its nodes are free since the instant began."""
        self.changed = True

    def _limit(self, job: Job, life: int) -> None:
        if job.incarnation == life and job.state is JobState.RUNNING and not job.leaving:
            job.reason = "TimeLimit"
            self._leave(job, "timeout")

    def _warn(self, job: Job, life: int) -> None:
        if job.incarnation == life and job.state is JobState.RUNNING and self.observer is not None:
            self.observer.signalled(job, "USR2")

    def _leave(self, job: Job, why: str) -> None:
        """SIGTERM, and SIGKILL after KillWait; a job that does not catch SIGTERM ends at once."""
        job.leaving = why
        caught = self.observer is not None and self.observer.signalled(job, "TERM")
        if job.state is not JobState.RUNNING or job.leaving != why:
            return
        if caught:
            self._at(self.now_s + self.options.kill_wait_s, _ENDS, self._kill, job, job.incarnation)
        else:
            self.finish(job, 0, 15)

    def _kill(self, job: Job, life: int) -> None:
        if job.incarnation == life and job.state is JobState.RUNNING:
            self.finish(job, 0, 9)

    def _end(self, job: Job, state: JobState, exit_code: int | None, signal: int | None) -> None:
        self._vacate(job)
        self._close(job, state, None if signal else exit_code, signal)

    def _vacate(self, job: Job) -> None:
        """It runs no more; its nodes are free at once or after COMPLETING."""
        self.priorities.charge(job, self.now_s)
        del self.running[job.job_id]
        del self.ends[bisect_left(self.ends, (job.limit_at, job.seq, job))]
        self._count(job, -1)
        if self.observer is not None:
            self.observer.stopped(job)
        self.changed = True
        if not self.options.release_s:
            self.pool.give(job)
            return
        ghost = Job(job.request, job.seq, job.shape, job.tier, job.limit_s, mask=job.mask, gpus_taken=job.gpus_taken)
        job.mask, job.gpus_taken = 0, []
        self._at(self.now_s + self.options.release_s, _ENDS, self._give_back, ghost)

    def _give_back(self, ghost: Job) -> None:
        self.pool.give(ghost)
        self.changed = True

    def _count(self, job: Job, step: int) -> None:
        self.running_of[(job.request.qos, job.request.user)] += step
        if job.request.array:
            self.array_running[job.request.array] += step

    def _close(self, job: Job, state: JobState, exit_code: int | None, signal: int | None) -> None:
        job.state, job.raw_state, job.end_s = state, state.value.upper(), self.now_s
        job.exit_code, job.signal = exit_code, signal
        self.alive_of[(job.request.qos, job.request.user)] -= 1
        self._dependencies.forget(job)
        self.changed = True
        self._release(self._dependencies.ended(job, self.jobs))
