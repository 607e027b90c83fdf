"""What a cluster's queue looked like at one instant."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeCounts:
    """Nodes of one type in one partition by state, and idle accelerators counted from allocated TRES, not from job requests."""

    partition: str
    node_type: str
    idle: int = 0
    mixed: int = 0
    allocated: int = 0
    down: int = 0
    drained: int = 0
    idle_gpus: int = 0
    total_gpus: int = 0

    @property
    def total(self) -> int:
        """All nodes of the type, usable or not."""
        return self.idle + self.mixed + self.allocated + self.down + self.drained

    @property
    def usable(self) -> int:
        """Nodes that run jobs now or could."""
        return self.idle + self.mixed + self.allocated


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """One job of the snapshot: sizes, times, state, and whose it is as the batch system tells everybody. Times are epoch seconds."""

    job_id: str
    partition: str
    state: str
    nodes: int = 1
    gpus: int = 0
    submit_s: float | None = None
    start_s: float | None = None
    limit_s: float | None = None
    priority: int | None = None
    mine: bool = False
    reason: str = ""
    user: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """A job that ran and ended, as accounting tells it: what a job asked for and how long it really took. Times are epoch seconds."""

    user: str
    name: str
    partition: str
    submit_s: float
    start_s: float
    end_s: float
    limit_s: float
    nodes: int = 1
    gpus: int = 0

    @property
    def share(self) -> float:
        """Of the requested time that was used, 0 to 1."""
        return min(1.0, max(0.0, (self.end_s - self.start_s) / self.limit_s)) if self.limit_s > 0 else 1.0


@dataclass(frozen=True, slots=True)
class QueueSnapshot:
    """A cluster's queue at ``taken_at`` (epoch seconds)."""

    cluster: str
    taken_at: float
    nodes: tuple[NodeCounts, ...] = ()
    jobs: tuple[QueuedJob, ...] = ()

    def counts(self, partition: str, node_type: str | None = None) -> tuple[NodeCounts, ...]:
        """The node counts of a partition, of one node type where given."""
        return tuple(n for n in self.nodes if n.partition == partition and node_type in (None, n.node_type))

    def pending(self, partition: str) -> tuple[QueuedJob, ...]:
        """Jobs waiting in a partition."""
        return tuple(j for j in self.jobs if j.partition == partition and j.state == "PENDING")

    def running(self, partition: str) -> tuple[QueuedJob, ...]:
        """Jobs running in a partition."""
        return tuple(j for j in self.jobs if j.partition == partition and j.state == "RUNNING")
