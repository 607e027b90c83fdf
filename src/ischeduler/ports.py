"""What the core needs from the world: one Protocol each. Adapters implement them; decisions never import an adapter."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ischeduler.core.cluster import Cluster, NodeType, Partition
from ischeduler.core.estimate import Estimate
from ischeduler.core.event import Event
from ischeduler.core.history import HistoryRecord
from ischeduler.core.jobs import JobRef, JobSpec, Observation, Probe
from ischeduler.core.plan import Plan
from ischeduler.core.run import Run, RunState
from ischeduler.core.snapshot import QueueSnapshot
from ischeduler.core.workload import Workload


class Clock(Protocol):
    """Time. Decisions get ``now`` as an argument; only loops hold a clock."""

    def now(self) -> float:
        """Epoch seconds."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait that long."""
        ...


class BatchSystem(Protocol):
    """A batch system. Every method may raise BatchUnavailable, which says nothing about any job."""

    @property
    def name(self) -> str:
        """The cluster's name."""
        ...

    def submit(self, job: JobSpec) -> str:
        """The new job's id. SubmitRefused: answered and refused. SubmitUncertain: may have been accepted."""
        ...

    def observe(self, jobs: Collection[JobRef]) -> Observation:
        """All jobs' states in one batched query, by key; doubled submissions show as two statuses of one key."""
        ...

    def cancel(self, job_id: str, *, signal: str | None = None) -> None:
        """End a job, or send its batch shell ``signal`` (a name without SIG). A job that is gone already is no error."""
        ...

    def snapshot(self) -> QueueSnapshot:
        """The queue as it is now."""
        ...

    def probe(self, job: JobSpec) -> Probe:
        """Whether the job would be accepted, and the batch system's own guess when it would start. Submits nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to act on something until ``expires_at``. ``token`` grows with each new holder."""

    name: str
    holder: str
    token: int
    expires_at: float


class Store(Protocol):
    """Runs, events, leases and history. Every write is atomic."""

    def create_run(self, run: Run) -> Run:
        """Insert; StoreConflict when the id exists."""
        ...

    def get_run(self, run_id: str) -> Run:
        """NotFound when there is none."""
        ...

    def list_runs(self, *, owner: str | None = None, states: Collection[RunState] | None = None) -> Sequence[Run]:
        """Newest first."""
        ...

    def save_run(self, run: Run, events: Iterable[Event] = ()) -> Run:
        """Save where the stored version equals ``run.version`` (else StoreConflict), with its events, in one transaction.

        Events already stored (same run, source, token, seq; seq 0 always new) are skipped. Returns the run with its new version.
        """
        ...

    def events(self, run_id: str, *, after: int = 0) -> Sequence[tuple[int, Event]]:
        """Stored events in order of arrival with their row numbers, those beyond row ``after`` only."""
        ...

    def acquire_lease(self, name: str, holder: str, ttl_s: float, now: float) -> Lease | None:
        """The lease when free, expired or already this holder's; else None."""
        ...

    def release_lease(self, lease: Lease) -> None:
        """Give it back early; nothing happens when it was lost meanwhile."""
        ...

    def record(self, record: HistoryRecord) -> None:
        """Add evidence; the same (run_id, kind, finished_at) again changes nothing."""
        ...

    def history(
        self, *, family: str | None = None, cluster: str | None = None, partition: str | None = None,
        kind: str | None = None, owner: str | None = None, limit: int = 500,
    ) -> Sequence[HistoryRecord]:
        """Evidence, newest first."""
        ...


@dataclass(frozen=True, slots=True)
class EstimateRequest:
    """What an estimator is asked. ``quantity`` is one of the contract's; ``history`` is what the caller may show it."""

    quantity: str
    workload: Workload
    now: float
    cluster: Cluster | None = None
    partition: Partition | None = None
    node_type: NodeType | None = None
    snapshot: QueueSnapshot | None = None
    history: tuple[HistoryRecord, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class EstimatorInfo:
    """Who an estimator is: name, version, the quantities it answers, and how (its basis)."""

    name: str
    version: str
    quantities: tuple[str, ...]
    basis: str
    description: str = ""


class Estimator(Protocol):
    """A plug-in that turns a request into an Estimate, or raises EstimatorFailed with a sentence."""

    @property
    def info(self) -> EstimatorInfo:
        """Who it is."""
        ...

    def estimate(self, request: EstimateRequest) -> Estimate:
        """The answer, in the quantity's unit."""
        ...


class Provisioner(Protocol):
    """Decides when to queue a segment's successor. Pure."""

    def submit_at(self, run: Run, now: float) -> float | None:
        """When the successor of the running attempt should be queued (epoch seconds), or None: only when it has ended."""
        ...


class Foresight(Protocol):
    """Looks at the queue on a provisioner's behalf, so that the provisioner itself stays pure."""

    def provisioner(self, run: Run, now: float) -> tuple[Provisioner, str]:
        """The rule for this run with what is known of the queue now, and why nothing newer is known ('' when all is well).

        May ask the batch system, seldom; never raises.
        """
        ...


class AllocationPolicy(Protocol):
    """Which of many runs gets which accelerator type for what share of time. Pure."""

    def allocate(
        self, jobs: Sequence[Run], throughputs: Mapping[str, Mapping[str, float]], cluster: Mapping[str, int], now: float,
    ) -> Mapping[str, Mapping[str, float]]:
        """Shares of time: run id -> accelerator name -> share in [0, 1]."""
        ...


class EventSource(Protocol):
    """Where events from inside jobs come from: the spool, HTTP, Kafka."""

    def read(self, run: Run) -> tuple[Sequence[Event], Mapping[str, int]]:
        """New events of a run and the offsets to remember; never the same event twice for the same offsets."""
        ...


class Notifier(Protocol):
    """Tells a person."""

    def notify(self, run: Run, subject: str, text: str) -> None:
        """Best effort; never raises."""
        ...


class RunFiles(Protocol):
    """What the plane does in a run's directory on the shared file system. Idempotent; may raise OSError."""

    def prepare(self, run: Run) -> None:
        """Create the directory and its ``run.json`` where missing."""
        ...

    def raise_fence(self, run: Run, token: str) -> None:
        """Lift the fence to ``token``, never down: older incarnations stop themselves."""
        ...

    def control(self, run: Run, token: str, word: str) -> None:
        """Leave a word ('checkpoint', 'stop', 'move') for a running incarnation."""
        ...

    def log_tail(self, run: Run, attempt: int) -> str:
        """The last lines of an attempt's output, '' when there are none yet."""
        ...


class Replanner(Protocol):
    """Asks the planner again for a run under way."""

    def replan(self, run: Run, reason: str, now: float) -> Sequence[Plan]:
        """Options for what is left of the run, best first.

        ``run`` and ``finish`` of each plan cover the remaining work from ``now``; its workload keeps the run's total epochs.
        ``reason`` is 'reschedule', 'host_memory', 'gpu_memory', 'refused: ...' or 'stuck: ...'. Raises IschedError.
        """
        ...
