"""What the core needs from the world: one Protocol each. Adapters implement them; decisions never import an adapter."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from ischeduler.core.cluster import Cluster, NodeType, Partition
from ischeduler.core.estimate import Estimate
from ischeduler.core.event import Event
from ischeduler.core.history import HistoryRecord
from ischeduler.core.incoming import Claimed, Incoming, Mark, Refused, Written
from ischeduler.core.jobs import JobChange, JobRef, JobSpec, Observation, Probe
from ischeduler.core.pilots import MemberJob, PilotOrders, PilotSign
from ischeduler.core.plan import Plan
from ischeduler.core.pool import Pool
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


@runtime_checkable
class Amending(Protocol):
    """A batch system that lets a waiting job be changed in place, so that it keeps its age in the queue. Not every one does."""

    def amend(self, job_id: str, change: JobChange) -> None:
        """Change a job that waits. AmendRefused, in one sentence, where it runs, is gone, or the change is not allowed; BatchUnavailable."""
        ...


@runtime_checkable
class Favouring(Protocol):
    """A batch system in which some users may put jobs that wait before others' (:attr:`~ischeduler.core.jobs.JobChange.site_factor`)."""

    def favour_refused(self) -> str:
        """Why this user may not, in one sentence; '' where they may. BatchUnavailable."""
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


class PoolStore(Protocol):
    """Pools by owner and name. Every write is atomic."""

    def create(self, pool: Pool) -> Pool:
        """Insert; StoreConflict when the owner has one of that name."""
        ...

    def get(self, owner: str, name: str) -> Pool:
        """NotFound when the owner has none of that name."""
        ...

    def list(self, owner: str) -> Sequence[Pool]:
        """An owner's pools, oldest first."""
        ...

    def save(self, pool: Pool) -> Pool:
        """Save where the stored version equals ``pool.version`` (else StoreConflict); the pool with its new version."""
        ...

    def delete(self, owner: str, name: str) -> None:
        """Forget a pool; nothing happens when there is none."""
        ...


class PilotFloor(Protocol):
    """Where a pool and its pilots meet: the segments that wait or run, what the pilots say, and what is asked of them.

    Every method may raise BatchUnavailable, which says nothing of any pilot or segment.
    """

    def jobs(self, since: float) -> Sequence[MemberJob]:
        """All segments that have not ended, and those that ended after ``since``; oldest first."""
        ...

    def signs(self) -> Sequence[PilotSign]:
        """The newest report of every pilot that is not closed."""
        ...

    def order(self, orders: PilotOrders) -> None:
        """Leave orders; nothing is written when they are what was left last."""
        ...

    def close(self, pilot: str) -> None:
        """The pilot's batch job is known to have ended: what ran in it and has not said how it ended is lost with it."""
        ...

    def sweep(self, before: float, done_with: Callable[[str], bool]) -> int:
        """Forget segments that ended before an instant and whose key nobody needs any more, and pilots closed before it; how many segments."""
        ...


@dataclass(frozen=True, slots=True)
class Claim:
    """One worker's right to carry one run until ``expires_at``. ``token`` grows with each claim; a save under an old one is refused."""

    run: Run
    holder: str
    token: int
    expires_at: float


@dataclass(frozen=True, slots=True)
class WorkerSign:
    """A sign of life of a plane worker: what it carries, and how often it asked each controller since its start."""

    name: str
    host: str
    pid: int
    started_at: float
    seen_at: float
    carried: int = 0
    looks: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class Carried:
    """A run taken on by a step that asks for no action: as it is to be stored, with its events, and when it is due again."""

    claim: Claim
    run: Run
    events: Sequence[Event]
    due_at: float


class SharedStore(Store, Protocol):
    """A store that several workers carry runs from. All times are the store's own clock's: workers' clocks may differ.

    A run is due when its state is live and its due time has come. Creating a run, and any save outside a claim (a wish of its
    owner), makes it due at once.
    """

    def now(self) -> float:
        """Epoch seconds by the clock that all workers share."""
        ...

    def due_clusters(self, now: float) -> Sequence[str]:
        """Clusters of runs that are due and in nobody's hands."""
        ...

    def reserve_look(self, cluster: str, *, now: float, interval_s: float) -> bool:
        """Take the right to ask the cluster's controller once: True for one caller an interval, whoever asks."""
        ...

    def claim_runs(self, holder: str, *, now: float, ttl_s: float, limit: int, clusters: Collection[str] | None = None) -> Sequence[Claim]:
        """Take runs that are due and in nobody's hands, the longest overdue first; never one that another is just taking.

        With ``clusters`` those of these clusters, and new ones (state planned), which need no look at a queue.
        """
        ...

    def renew_claims(self, claims: Iterable[Claim], *, now: float, ttl_s: float) -> Mapping[str, Claim]:
        """The claims still held, by run, until ``now + ttl_s``. One that lapsed is renewed where nobody took it since."""
        ...

    def save_claimed(self, claim: Claim, run: Run, events: Iterable[Event] = ()) -> Claim:
        """As :meth:`save_run`, and only while the claim's token is the newest. StoreConflict otherwise. The due time stays."""
        ...

    def save_and_release(self, carried: Iterable[Carried]) -> frozenset[str]:
        """:meth:`save_claimed` and :meth:`release_claims` for many runs in one transaction; the ids of those that were saved.

        The others, which someone has changed or taken, are left as they are: release their claims to have them carried again.
        """
        ...

    def release_claims(self, releases: Iterable[tuple[Claim, float]]) -> None:
        """Give runs back, each with the time when it is due again; one that was woken meanwhile is due at once.

        Nothing happens to those that others have taken.
        """
        ...

    def wake(self, run_ids: Iterable[str]) -> None:
        """Make runs due at once: something came that should not wait for the next look."""
        ...

    def sign(self, sign: WorkerSign) -> None:
        """Leave a worker's sign of life; the newest of each name is kept."""
        ...

    def signs(self) -> Sequence[WorkerSign]:
        """All workers' signs, the newest first."""
        ...


class BatchDirectory(Protocol):
    """Batch systems of a centre: one identity that sees everybody's jobs, and for each user one that acts as that user."""

    def observer(self, cluster: str) -> BatchSystem | None:
        """What sees all users' jobs on the cluster; None where it is not configured. Only ``observe`` and ``snapshot`` are called."""
        ...

    def of(self, owner: str) -> Mapping[str, BatchSystem]:
        """The batch systems that act as ``owner``, by cluster. IschedError where none can be made now (an expired token)."""
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


class EventSource(Protocol):
    """Where events from inside jobs come from: the spool, HTTP, Kafka."""

    def read(self, run: Run) -> tuple[Sequence[Event], Mapping[str, int]]:
        """New events of a run and the offsets to remember; never the same event twice for the same offsets."""
        ...


class EventSink(Protocol):
    """Where events from inside jobs go in, by whatever way they came. Safe to give the same event any number of times."""

    def write(self, events: Sequence[Incoming], refused: Sequence[Refused] = (), marks: Sequence[Mark] = ()) -> Written:
        """Store events, refusals and how far their channels were read, all or nothing.

        Fenced when a channel was claimed by another; StoreUnavailable when the database is away. Nothing was written then.
        """
        ...

    def claim(self, channel: str, holder: str, incarnation: str = "") -> Claimed:
        """Take a channel, and fence off whoever had it. One of another ``incarnation`` begins anew at 0."""
        ...

    def restart(self, claimed: Claimed, position: int) -> Claimed:
        """The channel began anew: read it from ``position``. Raises Fenced."""
        ...


class ManyEvents(EventSource, Protocol):
    """An event source that answers for many runs in one question."""

    def read_many(self, runs: Sequence[Run]) -> Mapping[str, tuple[Sequence[Event], Mapping[str, int]]]:
        """As :meth:`read`, by run id; a run without news may be left out."""
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
