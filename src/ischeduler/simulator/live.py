"""A live queue as the simulator's kernel takes it: one pool of nodes, who runs on it, who waits for it, in the order of priority.

What a snapshot does not tell is assumed and counted as such: partitions share nodes where the counts of a node type agree in both;
jobs that share nodes hold equal shares of them; nodes held from outside the pool are freed as those inside are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from ischeduler.core.errors import NotFound
from ischeduler.core.snapshot import NodeCounts, QueuedJob, QueueSnapshot

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray

UNIT = 1000
"""Thousandths of a node or GPU: jobs may hold a share of a node."""
ASSUMED_LIMIT_S = 7 * 86400.0
"""Of a job without a time limit, or with a limit nobody tells."""
HELD = (
    "JobHeld", "Dependency", "BeginTime", "Assoc", "QOS", "PartitionTimeLimit", "PartitionNodeLimit", "PartitionDown", "PartitionInactive",
    "Invalid", "AccountNotAllowed", "BadConstraints", "ReqNodeNotAvail", "JobArrayTaskLimit", "Reservation", "Licenses", "MaxMemPerLimit",
)
"""Reasons for which a job would wait on an empty machine, too: it stands in nobody's way."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes that the same jobs compete for. ``unit`` is 'GPU' or 'node'; ``capacity``, ``free`` and ``outside`` in thousandths of it."""

    partitions: tuple[str, ...]
    unit: str
    capacity: int
    free: int
    outside: int
    node_share: float
    gpus_per_node: int


@dataclass(frozen=True, eq=False)
class LiveQueue:
    """Jobs of a pool: those that run first, then those that wait, best priority first. ``elapsed_s`` is -1 for those that wait.

    Arrays of one length: ``units`` (thousandths), ``limit_s``, ``elapsed_s`` in whole seconds. ``jobs`` names whose they are (None for
    nodes held from outside).
    """

    pool: Pool
    now_s: float
    jobs: tuple[QueuedJob | None, ...]
    units: NDArray[int64]
    limit_s: NDArray[int64]
    elapsed_s: NDArray[int64]

    @property
    def running(self) -> int:
        """How many of the jobs run."""
        return int((self.elapsed_s >= 0).sum())


def pool_of(snapshot: QueueSnapshot, partition: str) -> Pool:
    """The nodes behind a partition. NotFound when the snapshot has none."""
    mine = snapshot.counts(partition)
    if not mine:
        known = ", ".join(sorted({n.partition for n in snapshot.nodes})) or "none at all"
        raise NotFound(f"{snapshot.cluster} shows no nodes of partition '{partition}'; it shows those of {known}.")
    partitions = _sharing(snapshot, mine)
    running = [j for j in snapshot.jobs if j.state == "RUNNING" and j.partition in partitions]
    nodes, idle = sum(n.usable for n in mine), sum(n.idle for n in mine)
    cards = sum(n.total_gpus for n in mine)
    per_node = max(1, round(cards / max(1, sum(n.total for n in mine))))
    if cards:
        held, free = sum(j.gpus for j in running), sum(n.idle_gpus for n in mine)
        outside = max(0, nodes * per_node - free - held)
        return Pool(partitions, "GPU", UNIT * (free + held + outside), UNIT * free, UNIT * outside, 1.0, per_node)
    asked, busy = sum(j.nodes for j in running), nodes - idle
    share = min(1.0, busy / asked) if asked else 1.0
    held_units = sum(_node_units(j.nodes, share) for j in running)
    outside = max(0, UNIT * busy - held_units)
    return Pool(partitions, "node", UNIT * idle + held_units + outside, UNIT * idle, outside, share, 0)


def units_of(pool: Pool, nodes: int, gpus: int) -> int:
    """Thousandths of the pool's unit that a request holds; ``gpus`` over all nodes."""
    return UNIT * gpus if pool.unit == "GPU" else _node_units(nodes, pool.node_share)


def live_queue(snapshot: QueueSnapshot, pool: Pool) -> LiveQueue:
    """The pool's jobs as arrays. Jobs that would wait on an empty machine, too, are left out."""
    import numpy as np

    here = [j for j in snapshot.jobs if j.partition in pool.partitions and units_of(pool, j.nodes, j.gpus) > 0]
    running: list[QueuedJob | None] = [j for j in here if j.state == "RUNNING" and j.start_s is not None]
    seen: set[str] = set()
    waiting: list[QueuedJob | None] = []
    for job in sorted((j for j in here if j.state == "PENDING" and not j.reason.startswith(HELD)), key=_rank):
        if job.job_id not in seen:  # one that waits in several partitions is one job
            seen.add(job.job_id)
            waiting.append(job)
    outside = _outside(pool, [j for j in running if j is not None], snapshot.taken_at)
    jobs = (*running, *(None for _ in outside), *waiting)
    elapsed = [*(snapshot.taken_at - (j.start_s or 0.0) for j in running if j), *(e for _, _, e in outside), *(-1.0 for _ in waiting)]
    limits = [*(_limit(j) for j in running if j), *(limit for _, limit, _ in outside), *(_limit(j) for j in waiting if j)]
    units = [*(units_of(pool, j.nodes, j.gpus) for j in running if j), *(u for u, _, _ in outside),
             *(units_of(pool, j.nodes, j.gpus) for j in waiting if j)]
    since = np.array([-1 if e < 0 and i >= len(running) + len(outside) else max(0, round(e)) for i, e in enumerate(elapsed)], dtype=np.int64)
    most = np.maximum(np.array([round(limit) for limit in limits], dtype=np.int64), since + 60)
    return LiveQueue(pool, snapshot.taken_at, jobs, np.array(units, dtype=np.int64), most, since)


def _sharing(snapshot: QueueSnapshot, mine: Sequence[NodeCounts]) -> tuple[str, ...]:
    """The partition and those whose counts of one of its node types are the very same."""
    def same(a: NodeCounts, b: NodeCounts) -> bool:
        return (a.node_type, a.idle, a.mixed, a.allocated, a.down, a.drained) == (b.node_type, b.idle, b.mixed, b.allocated, b.down, b.drained)

    found = {mine[0].partition, *(other.partition for other in snapshot.nodes for one in mine if same(one, other))}
    return tuple(sorted(found))


def _outside(pool: Pool, running: Sequence[QueuedJob], now_s: float) -> list[tuple[int, float, float]]:
    """(units, limit, elapsed) of what holds the nodes that no job of the pool explains: jobs like the pool's usual one, half over."""
    if pool.outside <= 0:
        return []
    usual = round(median(units_of(pool, j.nodes, j.gpus) for j in running)) if running else UNIT
    limit_s = median(_limit(j) for j in running) if running else 86400.0
    each = max(usual, pool.outside // 200, 1)
    count = math.ceil(pool.outside / each)
    sizes = [min(each, pool.outside - i * each) for i in range(count)]
    return [(size, limit_s, limit_s * (i + 0.5) / count) for i, size in enumerate(sizes)]


def _rank(job: QueuedJob) -> tuple[float, float, str]:
    return (-(job.priority or 0), job.submit_s or 0.0, job.job_id)


def _limit(job: QueuedJob) -> float:
    return job.limit_s if job.limit_s is not None and math.isfinite(job.limit_s) and job.limit_s > 0 else ASSUMED_LIMIT_S


def _node_units(nodes: int, share: float) -> int:
    return max(1, round(UNIT * nodes * share))
