"""A queue snapshot indexed once, because a plan asks it the same questions for every place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from ischeduler.core.snapshot import NodeCounts, QueuedJob, QueueSnapshot


class Live:
    """Read-only view of one :class:`QueueSnapshot`."""

    def __init__(self, snapshot: QueueSnapshot) -> None:
        self.cluster = snapshot.cluster
        self.taken_at = snapshot.taken_at
        self.mine: tuple[QueuedJob, ...] = tuple(j for j in snapshot.jobs if j.mine)
        self.all_down = bool(snapshot.nodes) and not any(n.usable for n in snapshot.nodes)
        self._counts: dict[tuple[str, str], tuple[NodeCounts, ...]] = {}
        self._starts: dict[str, list[float]] = defaultdict(list)
        for count in snapshot.nodes:
            key = count.partition, count.node_type
            self._counts[key] = (*self._counts.get(key, ()), count)
        for job in snapshot.jobs:
            if job.state == "PENDING" and job.start_s is not None:
                self._starts[job.partition].append(job.start_s)

    def counts(self, partition: str, node_type: str) -> tuple[NodeCounts, ...]:
        """The node counts of one type in one partition; empty where the snapshot does not know them."""
        return self._counts.get((partition, node_type), ())

    def usable(self, partition: str, node_type: str) -> int | None:
        """Nodes that run jobs now or could; None where the snapshot does not know them."""
        counts = self.counts(partition, node_type)
        return sum(n.usable for n in counts) if counts else None

    def next_planned_start_s(self, partitions: Iterable[str]) -> float | None:
        """When the batch system plans to start the first job that waits in these (epoch seconds); None where it has no plan."""
        return min((min(self._starts[p]) for p in partitions if p in self._starts), default=None)
