"""What the queue as it is now says about a job that joins it. Pure.

Running jobs end before their limits, by a share nobody knows exactly, and only some of the pending ones go first. The heuristic
replays the queue first come, first served, three times: hopeful (jobs use 25 % of their limits, a quarter of the pending ones go
first), usual (60 %, 60 %) and at the limits (100 %, all).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from ischeduler.core.jobs import Resources
from ischeduler.core.snapshot import NodeCounts, QueuedJob, QueueSnapshot
from ischeduler.estimators.queuewait.prior import prior_wait

IDLE_NOW_S = (2.0, 20.0, 420.0)
"""Wait with enough idle nodes and nobody ahead: a scheduler cycle or two; 7 minutes covers a busy controller."""
ASSUMED_LIMIT_S = 86400.0
LONGEST_S = 30 * 86400.0
_CASES = ((0.25, 0.25), (0.6, 0.6), (1.0, 1.0))
_MOST_JOBS = 4000


@dataclass(frozen=True, slots=True)
class LiveWait:
    """p10, p50, p90 in seconds, what they come from, and whether enough is idle at once. ``possible`` False: never fits.

    ``prior`` is what such jobs wait elsewhere under such a load. ``need``, ``whole``: units asked for and there; GPUs where ``by_gpu``.
    """

    p10: float
    p50: float
    p90: float
    words: str
    idle: bool
    possible: bool = True
    prior: tuple[float, float, float] | None = None
    need: int = 0
    whole: int = 0
    by_gpu: bool = False


def live_wait(
    snapshot: QueueSnapshot, partition: str, node_type: str | None, resources: Resources, now: float
) -> LiveWait | None:
    """The wait by the snapshot; None when it does not know the partition."""
    counts = snapshot.counts(partition, node_type) or snapshot.counts(partition)
    if not counts:
        return None
    gpus = resources.gpus_per_node * resources.nodes
    by_gpu = gpus > 0 and sum(c.total_gpus for c in counts) > 0
    need = gpus if by_gpu else resources.nodes
    free, whole = _free(counts, resources, by_gpu), _usable(counts, by_gpu)
    unit = "GPUs" if by_gpu else "nodes"
    pending = [j for j in snapshot.pending(partition) if not j.reason.startswith("Dependency")]
    if whole < need:
        words = f"only {whole} usable {unit} where {need} are needed"
        return LiveWait(LONGEST_S / 30, LONGEST_S / 4, LONGEST_S, words, idle=False, possible=False)
    if free >= need and not _contended(pending, free - need, by_gpu):
        return LiveWait(*IDLE_NOW_S, f"{free} {unit} idle now, {need} needed", idle=True, need=need, whole=whole, by_gpu=by_gpu)
    running = snapshot.running(partition)
    waits = sorted(_replayed(running, pending, whole, free, need, now, used, ahead, by_gpu) for used, ahead in _CASES)
    low, middle, high = (max(IDLE_NOW_S[i], min(LONGEST_S, w)) for i, w in enumerate(waits))
    words = f"{free} of {whole} {unit} idle, {need} needed, {len(pending)} jobs pending, {len(running)} running"
    elsewhere = prior_wait(free, whole, need, sum(_size(j, by_gpu) for j in pending))
    return LiveWait(low, max(low, middle), max(low, middle, high), words, False, True, elsewhere, need, whole, by_gpu)


def _free(counts: Sequence[NodeCounts], resources: Resources, by_gpu: bool) -> int:
    if by_gpu:
        return sum(c.idle_gpus for c in counts)
    return sum(c.idle for c in counts)


def _usable(counts: Sequence[NodeCounts], by_gpu: bool) -> int:
    if not by_gpu:
        return sum(c.usable for c in counts)
    return sum(round(c.total_gpus * c.usable / c.total) if c.total else c.total_gpus for c in counts)


def _size(job: QueuedJob, by_gpu: bool) -> int:
    return max(1, job.gpus) if by_gpu else max(1, job.nodes)


def _contended(pending: Sequence[QueuedJob], left: int, by_gpu: bool) -> bool:
    """Whether pending jobs small enough to want what is idle stand before us (large ones wait for more than this)."""
    wanted = sum(_size(j, by_gpu) for j in pending if _size(j, by_gpu) <= left)
    return wanted > left


def _replayed(
    running: Sequence[QueuedJob], pending: Sequence[QueuedJob], whole: int, free: int, need: int, now: float,
    used: float, ahead: float, by_gpu: bool,
) -> float:
    """Seconds until ``need`` units are free for us when jobs use that share of their limits."""
    ends: list[tuple[float, int]] = []
    for job in running[:_MOST_JOBS]:
        limit = job.limit_s or ASSUMED_LIMIT_S
        elapsed = max(0.0, now - (job.start_s or now))
        left = max(60.0, used * limit - elapsed) if elapsed < used * limit else 0.5 * used * max(60.0, limit - elapsed)
        ends.append((left, _size(job, by_gpu)))
    heapq.heapify(ends)
    clock, available = 0.0, free
    first = sorted(pending[:_MOST_JOBS], key=lambda j: (-(j.priority or 0), j.submit_s or 0.0))
    for job in first[: round(len(first) * ahead)]:
        size = min(whole, _size(job, by_gpu))
        clock, available = _until(ends, clock, available, size)
        available -= size
        heapq.heappush(ends, (clock + used * min(job.limit_s or ASSUMED_LIMIT_S, LONGEST_S), size))
    return _until(ends, clock, available, need)[0]


def _until(ends: list[tuple[float, int]], clock: float, available: int, size: int) -> tuple[float, int]:
    """When that many units are free, and how many are then."""
    while available < size and ends:
        at, freed = heapq.heappop(ends)
        clock, available = max(clock, at), available + freed
    return (clock, available) if available >= size else (LONGEST_S, size)
