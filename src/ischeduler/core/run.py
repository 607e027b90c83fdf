"""A plan that was delegated, and the batch jobs submitted for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ischeduler.core.jobs import Cause, JobState, Resources
from ischeduler.core.plan import Plan


class RunState(StrEnum):
    """A run's life. The transition table lives in :mod:`ischeduler.plane.transitions`."""

    PLANNED = "planned"
    SUBMITTING = "submitting"
    QUEUED = "queued"
    RUNNING = "running"
    CHECKPOINTING = "checkpointing"
    HANDING_OVER = "handing_over"
    BETWEEN_SEGMENTS = "between_segments"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    STALLED = "stalled"
    UNKNOWN = "unknown"

    @property
    def ended(self) -> bool:
        """True when nothing more will be submitted."""
        return self in (RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED)


@dataclass(frozen=True, slots=True)
class Caps:
    """What the plane may spend without asking: attempts, money (plan's cost unit), time, and whether it may change the batch."""

    max_attempts: int = 50
    max_failures: int = 5
    max_cost: float | None = None
    deadline: float | None = None
    allow_smaller_batch: bool = False
    allow_move: bool = True
    stall_after_s: float = 1800.0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the training is, as its own events say. Times are epoch seconds; durations in seconds."""

    epochs_done: int = 0
    epochs: int = 0
    step: int = 0
    steps: int = 0
    at: float | None = None
    loss: float | None = None
    step_time_s: float | None = None
    epoch_times_s: tuple[float, ...] = ()
    checkpoint: str | None = None
    checkpoint_epoch: int = 0
    checkpoint_step: int = 0
    checkpoint_at: float | None = None
    checkpoint_save_s: float | None = None
    peak_rss_bytes: int = 0
    peak_gpu_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Attempt:
    """One batch job of a run. ``number`` is the fencing token's first part; ``key`` the idempotency key.

    Three clocks meet here and are never subtracted from one another. The batch system's: ``submitted_at``, ``started_at``,
    ``ended_at``, ``expected_start_s``, ``keep_from``. The job's host's: ``spool_started_at``, ``heard_at``, ``progressed_at``. The plane's:
    all others. ``last_try_at`` is when the submission was sent whose answer is not known yet, else None.
    ``keep_from``: a job that starts earlier while its predecessor runs gives its allocation back (None: it stays whenever it starts);
    ``told``: what it was told since, while it waited (``stay`` or ``return``, '' nothing).
    ``ending`` says why the plane itself is ending the attempt ('' when it is not); ``nudged_at`` when it last said so.
    ``start_step``, ``step`` and ``checkpoint_step`` count steps of the whole run. Of a service: ``ready_at`` is when it was first
    ready (the job's host's clock), ``serving`` whether it is, ``endpoint`` its ``host:port``, ``service_restarts`` its restarts in the job,
    ``unready_since`` since when it lives without answering its probe (the job's host's clock; None while it answers).
    """

    number: int
    key: str
    cluster: str
    partition: str
    resources: Resources
    batch_size: int
    grad_accum: int = 1
    state: JobState = JobState.UNKNOWN
    job_id: str | None = None
    created_at: float = 0.0
    submit_tries: int = 0
    last_try_at: float | None = None
    submitted_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    last_seen_at: float | None = None
    nodes: tuple[str, ...] = ()
    reason: str = ""
    cause: Cause | None = None
    exit_code: int | None = None
    exit_reason: str = ""
    oom_text: str = ""
    restarts: int = 0
    start_step: int = 0
    expected_start_s: float | None = None
    keep_from: float | None = None
    told: str = ""
    spool_started: bool = False
    node_type: str = ""
    raw_state: str = ""
    signal: int | None = None
    cost_rate: float = 0.0
    oom_where: str = ""
    signalled: str = ""
    finished: bool = False
    checkpointing: bool = False
    seq: int = 0
    step: int = 0
    checkpoint_step: int = 0
    spool_started_at: float | None = None
    heard_at: float | None = None
    progressed_at: float | None = None
    absent_since: float | None = None
    ended_seen_at: float | None = None
    ending: str = ""
    ending_since: float | None = None
    nudged_at: float | None = None
    startup_s: float | None = None
    log_read: bool = False
    ready_at: float | None = None
    serving: bool = False
    endpoint: str = ""
    service_restarts: int = 0
    unready_since: float | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """A delegated plan: everything the plane knows, one row of the store. ``version`` grows with each save (compare and swap).

    ``plan`` is the plan in force; ``first_plan`` what was delegated, once it differs. ``verdict`` is what the run will end as
    when its last job is gone and its evidence is recorded. ``replan_reason`` is the question open to the planner, ``unanswered``
    the one it had no answer to. ``project`` names the group that it belongs to in a centre, '' outside one.
    """

    id: str
    owner: str
    plan: Plan
    state: RunState
    directory: str
    created_at: float
    caps: Caps = Caps()
    version: int = 0
    attempts: tuple[Attempt, ...] = ()
    progress: Progress = Progress()
    excluded_nodes: tuple[str, ...] = ()
    spool_offsets: Mapping[str, int] = field(default_factory=dict[str, int])
    state_since: float = 0.0
    state_before_unknown: RunState | None = None
    cancel_requested: bool = False
    move_to: Plan | None = None
    replan_after: float | None = None
    not_before: float | None = None
    spent: float = 0.0
    message: str = ""
    ended_at: float | None = None
    recorded: bool = False
    first_plan: Plan | None = None
    verdict: RunState | None = None
    query_failures: int = 0
    replan_reason: str = ""
    unanswered: str = ""
    project: str = ""

    @property
    def attempt(self) -> Attempt | None:
        """The newest attempt that did not give its allocation back: what the run's fate hangs on."""
        stayed = (a for a in reversed(self.attempts) if a.cause is not Cause.RETURNED)
        return next(stayed, None)
