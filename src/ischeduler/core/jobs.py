"""Batch jobs as the plane sees them: what is submitted, what is observed, why it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ischeduler.core.workload import EnvironmentSpec


class JobState(StrEnum):
    """A batch job's state, reduced to what decisions need."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    NODE_FAIL = "node_fail"
    PREEMPTED = "preempted"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"

    @property
    def ended(self) -> bool:
        """True when the job will never run again under this id."""
        return self not in (JobState.PENDING, JobState.RUNNING, JobState.UNKNOWN)


class Cause(StrEnum):
    """Why an attempt ended, read from everything known and not from the exit code alone."""

    FINISHED = "finished"
    WALLTIME = "walltime"
    OUT_OF_MEMORY = "out_of_memory"
    GPU_OUT_OF_MEMORY = "gpu_out_of_memory"
    NODE_FAILURE = "node_failure"
    PREEMPTED = "preempted"
    USER_ERROR = "user_error"
    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"
    REFUSED = "refused"
    STALLED = "stalled"
    MOVED = "moved"
    RETURNED = "returned"
    LOST = "lost"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Resources:
    """What one job asks for, a node's share each. ``memory_bytes`` None leaves the site's default."""

    nodes: int = 1
    cpus_per_node: int = 1
    memory_bytes: int | None = None
    gpus_per_node: int = 0
    gres: str | None = None
    walltime_s: float = 3600.0
    features: tuple[str, ...] = ()
    whole_node: bool = False


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One batch job as data; adapters render it. ``key`` is the idempotency key, carried in the job's name or comment.

    ``command`` is an argument list, never a shell line. ``signal_lead_s`` asks for SIGUSR2 that long before the limit.
    ``launcher`` is 'direct' (one process), 'srun' (one task a node) or 'torchrun' (srun + torchrun rendezvous).
    ``after`` is the id of a job that must have ended, however it did, before this one may start. ``array`` jobs of this kind (0: one
    plain job) are numbered from 0 by ``SLURM_ARRAY_TASK_ID``, at most ``array_at_once`` of them side by side (0: no limit); each has
    its own output, ``output`` with its number behind. The plane submits plain jobs only.
    """

    key: str
    name: str
    partition: str
    resources: Resources
    command: tuple[str, ...]
    directory: str
    output: str
    environment: EnvironmentSpec = EnvironmentSpec()
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    account: str | None = None
    qos: str | None = None
    signal_lead_s: int | None = 60
    launcher: str = "direct"
    processes_per_node: int = 1
    exclude_nodes: tuple[str, ...] = ()
    comment: str = ""
    after: str | None = None
    array: int = 0
    array_at_once: int = 0


@dataclass(frozen=True, slots=True)
class JobChange:
    """What to change in a job that waits; None leaves it. ``gres`` is (type or GRES name, accelerators a node, at least one),
    of the type that the job asks for, or where it asked for none.

    ``nice`` of zero or more: users may only step back. ``site_factor`` needs an operator's rights. ``walltime_s`` may only shrink.
    """

    partition: str | None = None
    features: tuple[str, ...] | None = None
    gres: tuple[str, int] | None = None
    nice: int | None = None
    walltime_s: float | None = None
    exclude_nodes: tuple[str, ...] | None = None
    site_factor: int | None = None


@dataclass(frozen=True, slots=True)
class JobStatus:
    """What the batch system last said of one job. Times are epoch seconds by the batch system's clock."""

    job_id: str
    key: str
    state: JobState
    raw_state: str = ""
    reason: str = ""
    partition: str = ""
    exit_code: int | None = None
    signal: int | None = None
    nodes: tuple[str, ...] = ()
    submit_s: float | None = None
    start_s: float | None = None
    end_s: float | None = None
    expected_start_s: float | None = None
    limit_s: float | None = None
    restarts: int = 0
    max_rss_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class JobRef:
    """A job to look for: by its key always, by its id where known."""

    key: str
    job_id: str | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """The answer to one batched query: every job found, by key (two of one key means a doubled submission).

    ``complete`` says whether a key that is absent is truly absent: False when the accounting that remembers ended jobs was
    not reachable or is off. Of the ``unknown`` keys nothing could be heard at all (one user's token has expired, say), which says
    nothing about their jobs.
    """

    taken_at: float
    jobs: Mapping[str, tuple[JobStatus, ...]] = field(default_factory=dict[str, tuple[JobStatus, ...]])
    complete: bool = True
    unknown: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Probe:
    """The batch system's own answer to "would you take this job, and when would it start?" (``sbatch --test-only``)."""

    accepted: bool
    reason: str
    as_of: float
    start_s: float | None = None
