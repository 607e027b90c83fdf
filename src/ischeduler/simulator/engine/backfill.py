"""sched/backfill of Slurm 22.05: plan starts for waiting jobs in order, start those that delay nobody planned before them.

The plan is a row of time slots, each with the nodes not promised to anybody; promises are whole nodes and are rounded to
``bf_resolution``. When a job could start is asked of the running jobs' limits in windows that double from 30 s (select/cons_tres),
so a promise may be later than need be, as in the original.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from ischeduler.simulator.engine import preemption
from ischeduler.simulator.engine.jobs import Job
from ischeduler.simulator.engine.nodes import Future, View

if TYPE_CHECKING:
    from ischeduler.simulator.engine.cluster_sim import ClusterSim

TRIES_MAX = 1000
_FIRST_WINDOW_S = 30.0


@dataclass(slots=True)
class Slot:
    """From ``begin_s`` until ``end_s`` the nodes of ``mask`` are not promised."""

    begin_s: float
    end_s: float
    mask: int


class Plan:
    """The row of slots."""

    def __init__(self, begin_s: float, end_s: float, mask: int, resolution_s: float) -> None:
        self.slots = [Slot(begin_s, end_s, mask)]
        self._resolution_s = resolution_s

    def usable(self, suited: int, start_s: float, end_s: float) -> tuple[int, float]:
        """Nodes of ``suited`` unpromised from start to end, and when to look again for others (0: there will be none)."""
        avail, later_s = suited, 0.0
        for slot, following in zip(self.slots, [*self.slots[1:], None], strict=True):
            if slot.end_s > start_s and following is not None and not later_s:
                now, then = avail & slot.mask, suited & following.mask
                if then & ~now:
                    later_s = slot.end_s
            if slot.end_s <= start_s:
                continue
            if slot.begin_s > end_s:
                break
            avail &= slot.mask
        return avail, later_s

    def overlaps(self, mask: int, begin_s: float, end_s: float) -> bool:
        """Whether one of the nodes is promised in that time."""
        return any(s.end_s > begin_s and s.begin_s < end_s and mask & ~s.mask for s in self.slots)

    def promise(self, mask: int, begin_s: float, end_s: float) -> None:
        """Promise nodes, for at least one slot of the resolution."""
        begin_s = max(begin_s, self.slots[0].begin_s)
        end_s = max(end_s, begin_s + self._resolution_s)
        made: list[Slot] = []
        for slot in self.slots:
            edges = [slot.begin_s, *(e for e in (begin_s, end_s) if slot.begin_s < e < slot.end_s), slot.end_s]
            for left, right in pairwise(edges):
                inside = begin_s <= left and right <= end_s
                made.append(Slot(left, right, slot.mask & ~mask if inside else slot.mask))
        self.slots = made[:1]
        for slot in made[1:]:
            if slot.mask == self.slots[-1].mask:
                self.slots[-1].end_s = slot.end_s
            else:
                self.slots.append(slot)


class Backfill:
    """One cycle."""

    def __init__(self, sim: ClusterSim) -> None:
        options = sim.options
        self._sim, self._resolution_s = sim, options.bf_resolution_s
        self._plan = Plan(self._floor(sim.now_s), self._floor(sim.now_s + options.bf_window_s), sim.pool.open, self._resolution_s)
        self._tested = self._started = 0
        self._cut = False
        self._of_user: Counter[str] = Counter()
        self._of_partition: Counter[int] = Counter()
        self._rejected: set[tuple[str, int]] = set()

    def run(self) -> bool:
        """Go down the queue as far as the options allow and a start is possible. Whether another cycle might start more."""
        options = self._sim.options
        queue = self._worth_testing(self._sim.ordered())
        for job in queue:
            if self._tested >= options.bf_max_job_test or (options.bf_max_job_start and self._started >= options.bf_max_job_start):
                self._cut = True
                break
            if job.state.ended or self._sim.blocked(job) or self._over_limits(job) or (job.request.array, job.shape.partition) in self._rejected:
                continue
            if not self._consider(job) and job.request.array:
                self._rejected.add((job.request.array, job.shape.partition))
        return self._cut and self._started > 0

    def _floor(self, when_s: float) -> float:
        return when_s // self._resolution_s * self._resolution_s

    def _over_limits(self, job: Job) -> bool:
        """bf_max_job_user and bf_max_job_part count every job that is looked at."""
        options, user, partition = self._sim.options, job.request.user, job.shape.partition
        self._of_user[user] += 1
        self._of_partition[partition] += 1
        over_user = options.bf_max_job_user and self._of_user[user] > options.bf_max_job_user
        over = bool(over_user or (options.bf_max_job_part and self._of_partition[partition] > options.bf_max_job_part))
        self._cut |= over
        return over

    def _worth_testing(self, queue: list[Job]) -> list[Job]:
        """The queue up to the last job that fits on what is free now: plans for those behind it could start nobody.

        Exact, as free nodes only get fewer during a cycle; not used where expected starts are wanted.
        """
        sim = self._sim
        if sim.options.estimates or preemption.any_preemption(sim, queue):
            return queue
        fits: dict[object, int] = {}
        for last in range(len(queue) - 1, -1, -1):
            shape = queue[last].shape
            if shape not in fits:
                fits[shape] = sim.pool.fitting(shape, sim.pool.suited(shape) & sim.pool.open).bit_count()
            if fits[shape] >= queue[last].nodes:
                return queue[: last + 1]
        return []

    def _consider(self, job: Job) -> bool:
        """Start the job or promise it nodes; True when it has started."""
        sim, now_s = self._sim, self._sim.now_s
        suited, later_s, counted = sim.pool.suited(job.shape) & sim.pool.up, now_s, False
        may_reserve = now_s - (job.eligible_s or 0.0) >= sim.options.bf_min_age_reserve_s
        for _ in range(TRIES_MAX):
            from_s = later_s
            avail, later_s = self._plan.usable(suited, from_s, max(from_s, now_s) + job.limit_s)
            found = None
            if avail.bit_count() >= job.nodes:
                self._tested += not counted
                counted = True
                found = will_run(sim, job, avail, now_only=not may_reserve)
            if found is None:
                if later_s and may_reserve:
                    continue
                return False
            start_s = max(found[0], from_s)
            if start_s <= now_s:
                return self._start(job, sim.pool.choose(found[1], job.nodes, job.shape, found[2]), avail)
            if not may_reserve:
                return False
            if later_s and start_s > later_s:
                continue
            mask = sim.pool.choose(found[1], job.nodes, job.shape, found[2])
            begin_s, end_s = self._floor(start_s), self._floor(start_s + job.limit_s)
            if start_s > now_s + sim.options.bf_window_s:
                job.expected_start_s = start_s
                return False
            if self._plan.overlaps(mask, begin_s, end_s):
                later_s = start_s if start_s > from_s else from_s + self._resolution_s
                continue
            self._plan.promise(mask, begin_s, end_s)
            job.expected_start_s = start_s
            return False
        return False

    def _start(self, job: Job, mask: int, avail: int) -> bool:
        """Start it, or push out those in its way; then its nodes are promised to it."""
        sim = self._sim
        free = sim.pool.choose(sim.pool.fitting(job.shape, avail), job.nodes, job.shape)
        if free:
            sim.start(job, free)
            self._started += 1
            if job.shape.whole and not preemption.candidates(sim, job):
                self._plan.promise(free, self._floor(sim.now_s), self._floor(job.limit_at))
            return True
        for victim in preemption.victims(sim, job, avail):
            sim.preempt(victim, preemption.mode_of(sim, victim))
        self._plan.promise(mask, self._floor(sim.now_s), self._floor(sim.now_s + job.limit_s))
        job.expected_start_s = sim.now_s
        return False


def will_run(sim: ClusterSim, job: Job, avail: int, *, now_only: bool = False) -> tuple[float, int, View] | None:
    """When the job could start on ``avail`` by the limits of the running jobs, the nodes it can choose from, and what is free then.

    None: never.
    """
    pool, shape = sim.pool, job.shape
    found = pool.fitting(shape, avail)
    if found.bit_count() >= job.nodes:
        return sim.now_s, found, pool
    future = Future(pool)
    losers = preemption.candidates(sim, job)
    for other in losers:
        future.remove(other)
    if losers:
        found = future.fitting(shape, avail)
        if found.bit_count() >= job.nodes:
            return sim.now_s, found, future
    return None if now_only else _after_ends(sim, job, avail, future, set(losers))


def _after_ends(sim: ClusterSim, job: Job, avail: int, future: Future, gone: set[Job]) -> tuple[float, int, View] | None:
    """Let running jobs end in the order of their limits, those within a growing window at once, until the job fits.

    As in the original, the window is held against the next running job, whether that one is in the way or not.
    """
    ends = [e for e in sim.ends if e[2] not in gone] if gone else sim.ends
    window_s, barrier_s, i = _FIRST_WINDOW_S, 0.0, 0
    while i < len(ends):
        last_s = -1.0
        while i < len(ends):
            end_s, _, other = ends[i]
            i += 1
            if not other.mask & avail:
                continue
            barrier_s = barrier_s or end_s + window_s - end_s % window_s
            last_s = end_s
            future.remove(other)
            if i >= len(ends) or ends[i][0] > barrier_s + window_s:
                break
        if last_s < 0:
            return None
        window_s = _grown(sim, window_s)
        while i < len(ends) and ends[i][0] > barrier_s + window_s:
            window_s = _grown(sim, window_s)
        found = future.fitting(job.shape, avail)
        if found.bit_count() >= job.nodes:
            return max(last_s, sim.now_s + 1.0), found, future
    return None


def _grown(sim: ClusterSim, window_s: float) -> float:
    scale_s = sim.options.bf_window_scale_s
    return window_s + scale_s if scale_s else window_s * 2

