"""Slurm's two schedulers: the main one, quick and strict, at every event, and backfill at its own pace beside it.

Follows slurmctld of 22.05 (job_scheduler.c, sched/backfill): the main scheduler goes down the queue until a partition's first job
does not fit, then leaves that partition and all its nodes alone; backfill plans ahead for the rest.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ischeduler.simulator.engine import preemption
from ischeduler.simulator.engine.backfill import Backfill
from ischeduler.simulator.engine.jobs import Job

if TYPE_CHECKING:
    from ischeduler.simulator.engine.cluster_sim import ClusterSim

class Slurm:
    """Both schedulers and their timing."""

    each = False

    def __init__(self) -> None:
        self._backfilled_s = -math.inf
        self._main_at_s = self._full_at_s = math.inf
        self._stale = False

    def cycle(self, sim: ClusterSim) -> None:
        """Run whichever scheduler is due."""
        if sim.changed:
            sim.changed, self._stale = False, True
            if self._full_at_s < sim.now_s:
                self._full_at_s = math.inf  # it found an empty queue
            self._main_at_s = _next_tick(sim.now_s, sim.options.sched_tick_s)
        if sim.now_s >= self._main_at_s:
            self._main_at_s = math.inf
            if not self._main(sim, sim.options.default_queue_depth):
                self._full_at_s = min(self._full_at_s, self._next_full_s(sim))
        if sim.now_s >= self._full_at_s:
            self._full_at_s = math.inf
            self._main(sim, None)
            self._stale = True
        if sim.pending and sim.options.idle_cycles and self._full_at_s == math.inf:
            self._full_at_s = self._next_full_s(sim)
        if sim.options.backfill and sim.now_s >= self._backfill_at_s(sim):
            self._backfilled_s = sim.now_s
            self._stale = Backfill(sim).run()

    def wakes_at(self, sim: ClusterSim) -> float:
        """The next full pass or backfill cycle."""
        if not sim.pending:
            return math.inf
        return min(self._main_at_s, self._full_at_s, self._backfill_at_s(sim) if sim.options.backfill else math.inf)

    def _next_full_s(self, sim: ClusterSim) -> float:
        interval_s, tick_s = sim.options.sched_interval_s, sim.options.sched_tick_s
        if tick_s:
            return (math.floor(sim.now_s / tick_s) + max(1, round(interval_s / tick_s))) * tick_s
        return (math.floor(sim.now_s / interval_s) + 1) * interval_s

    def _backfill_at_s(self, sim: ClusterSim) -> float:
        """bf_interval after the last cycle, or at the next look after that once something has changed."""
        if not sim.pending or not (self._stale or sim.options.idle_cycles):
            return math.inf
        due_s = max(self._backfilled_s, sim.options.bf_first_s) + sim.options.bf_interval_s
        if due_s == -math.inf:
            return sim.now_s
        return due_s + _next_tick(sim.now_s - due_s, sim.options.bf_poll_s) if due_s < sim.now_s else due_s

    def _main(self, sim: ClusterSim, depth: int | None) -> bool:
        """One pass of the main scheduler; False when it stopped at ``depth`` jobs."""
        return MainPass(sim, depth).run()


def _next_tick(now_s: float, tick_s: float) -> float:
    return math.ceil(now_s / tick_s) * tick_s if tick_s else now_s


class MainPass:
    """One walk down the queue."""

    def __init__(self, sim: ClusterSim, depth: int | None) -> None:
        self._sim, self._depth = sim, depth
        self._avail = sim.pool.open
        self._failed: set[int] = set()
        self._rejected: set[tuple[str, int]] = set()

    def run(self) -> bool:
        """Whether the whole queue was seen, as far as that matters."""
        sim = self._sim
        for number, job in enumerate(sim.ordered()):
            if self._depth is not None and number > self._depth:
                return False
            if len(self._failed) == len(sim.machine.partitions):
                return True
            self._consider(job)
        return True

    def _consider(self, job: Job) -> None:
        sim, partition = self._sim, job.shape.partition
        if (job.request.array, partition) in self._rejected:
            return
        if partition in self._failed:
            job.reason = "Priority"
            return
        blocked = sim.blocked(job)
        if blocked:
            job.reason = blocked
            return
        if not self._place(job) and job.request.array:
            self._rejected.add((job.request.array, partition))

    def _place(self, job: Job) -> bool:
        sim = self._sim
        partition_mask = sim.pool.partition_masks[job.shape.partition]
        suited = sim.pool.suited(job.shape)
        if (suited & sim.pool.open).bit_count() < job.nodes:
            job.reason = "ReqNodeNotAvail, UnavailableNodes"
            return False
        avail = suited & self._avail
        mask = sim.pool.choose(sim.pool.fitting(job.shape, avail), job.nodes, job.shape)
        if mask:
            sim.start(job, mask)
            return True
        job.reason = "Resources"
        for victim in preemption.victims(sim, job, avail):
            sim.preempt(victim, preemption.mode_of(sim, victim))
        if sim.now_s - (job.eligible_s or 0.0) >= sim.options.bf_min_age_reserve_s:
            self._failed.add(job.shape.partition)
            self._avail &= ~partition_mask
        return False
