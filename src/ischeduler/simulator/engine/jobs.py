"""Jobs of the simulated cluster: what was asked for, and what has become of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ischeduler.core.errors import BadInput
from ischeduler.core.jobs import JobState

DEPENDENCY_KINDS = ("after", "afterany", "afterok", "afternotok", "singleton")


@dataclass(frozen=True, slots=True)
class Dependency:
    """sbatch's ``--dependency``: ``after`` once the other has started, the rest once it has ended (any way, well, badly).

    ``singleton`` (``job_id`` empty): after all earlier jobs of the same name and user. ``delay_s`` counts from then on.
    """

    kind: str
    job_id: str = ""
    delay_s: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in DEPENDENCY_KINDS:
            raise BadInput(f"'{self.kind}' is not a dependency; expected one of {', '.join(DEPENDENCY_KINDS)}.")


@dataclass(frozen=True, slots=True)
class JobRequest:
    """One job as submitted; times in seconds. All per-node figures hold for each of ``nodes``.

    ``run_s`` is the true run time, hidden from the scheduler; None: it runs until its limit or until something ends it.
    ``array`` names the job array it is a task of, of which at most ``array_limit`` run at once. ``exit_code`` is how it ends by
    itself. ``requeue`` lets the batch system start it again after a node failure or a preemption.
    """

    job_id: str
    submit_s: float = 0.0
    limit_s: float = 3600.0
    run_s: float | None = None
    nodes: int = 1
    cores: int = 1
    memory_mb: int = 0
    gpus: int = 0
    gpu_type: str = ""
    features: tuple[str, ...] = ()
    exclusive: bool = False
    exclude: tuple[str, ...] = ()
    partition: str = ""
    qos: str = ""
    user: str = "user"
    account: str = ""
    name: str = ""
    begin_s: float | None = None
    nice: int = 0
    dependencies: tuple[Dependency, ...] = ()
    array: str = ""
    array_limit: int | None = None
    requeue: bool = True
    signal_lead_s: float | None = None
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class Shape:
    """What a job needs of one node, and which nodes it may use at all: jobs of one shape fit the same places."""

    partition: int
    cores: int
    memory_mb: int
    gpus: int
    gpu_type: str
    whole: bool
    features: tuple[str, ...]
    exclude: tuple[str, ...]


@dataclass(slots=True, eq=False)
class Job:
    """A job under way. ``mask`` is the set of its nodes, ``last_mask`` keeps it once it has ended. ``eligible_s`` is when it began to
    wait without a dependency.

    ``incarnation`` counts its starts and returns to the queue, so that an end that was due in an earlier life is ignored.
    """

    request: JobRequest
    seq: int
    shape: Shape
    tier: int
    limit_s: float
    state: JobState = JobState.PENDING
    raw_state: str = "PENDING"
    reason: str = ""
    priority: int = 1
    queued_s: float = 0.0
    eligible_s: float | None = None
    not_before_s: float = 0.0
    start_s: float | None = None
    end_s: float | None = None
    expected_start_s: float | None = None
    mask: int = 0
    last_mask: int = 0
    gpus_taken: list[tuple[int, str, int]] = field(default_factory=list[tuple[int, str, int]])
    restarts: int = 0
    incarnation: int = 0
    exit_code: int | None = None
    signal: int | None = None
    leaving: str = ""
    usage_counted_s: float = 0.0

    @property
    def job_id(self) -> str:
        """Its id."""
        return self.request.job_id

    @property
    def nodes(self) -> int:
        """How many nodes it needs."""
        return self.request.nodes

    @property
    def limit_at(self) -> float:
        """When the batch system expects it to end; only for a started job."""
        return (self.start_s or 0.0) + self.limit_s

    @property
    def cores_total(self) -> int:
        """Cores it asked for."""
        return self.request.nodes * self.request.cores


def array_tasks(first: JobRequest, tasks: Sequence[int], *, limit: int | None = None, run_s: Sequence[float] | None = None) -> list[JobRequest]:
    """The tasks of a job array (``--array=...%limit``): ids ``JOB_TASK``, each with its own ``run_s`` where given."""
    from dataclasses import replace

    made = [replace(first, job_id=f"{first.job_id}_{t}", array=first.job_id, array_limit=limit) for t in tasks]
    return made if run_s is None else [replace(r, run_s=s) for r, s in zip(made, run_s, strict=True)]


def parse_dependencies(text: str) -> tuple[Dependency, ...]:
    """``afterok:12:13,after:14+10`` as Slurm writes it (``+10`` are minutes); BadInput when a word is not known.

    A list with ``?`` (any of them) is refused: it is not modelled.
    """
    if "?" in text:
        raise BadInput(f"the dependency '{text}' wants any one of several, which is not simulated; use commas for all of them.")
    found: list[Dependency] = []
    for part in filter(None, text.split(",")):
        kind, *ids = part.split(":")
        found += [Dependency(kind, i.partition("+")[0], 60.0 * float(i.partition("+")[2] or 0)) for i in ids] or [Dependency(kind)]
    return tuple(found)
