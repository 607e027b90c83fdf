"""First come first served, and EASY backfill, on real nodes: the head of the queue holds particular nodes, not only a number.

With equal whole nodes both give the very starts of :mod:`ischeduler.simulator.reference`. Source: Lifka, JSSPP 1995.
"""

from __future__ import annotations

import math
from itertools import groupby
from typing import TYPE_CHECKING

from ischeduler.simulator.engine.jobs import Job
from ischeduler.simulator.engine.nodes import Future

if TYPE_CHECKING:
    from ischeduler.simulator.engine.cluster_sim import ClusterSim


class Fcfs:
    """The head of the queue starts while it fits; nobody overtakes it."""

    each = True

    def cycle(self, sim: ClusterSim) -> None:
        """Start from the head on."""
        if sim.changed:
            sim.changed = False
            start_heads(sim)

    def wakes_at(self, sim: ClusterSim) -> float:
        """Never by itself."""
        return math.inf


class Easy(Fcfs):
    """The head has a reservation; whoever does not delay it may overtake."""

    def cycle(self, sim: ClusterSim) -> None:
        """Heads first, then those behind."""
        if not sim.changed:
            return
        sim.changed = False
        queue = start_heads(sim)
        if not queue:
            return
        shadow_s, held = reservation(sim, queue[0])
        for job in queue[1:]:
            open_now = sim.pool.suited(job.shape) & sim.pool.open
            free = sim.pool.fitting(job.shape, open_now)
            if sim.now_s + job.limit_s > shadow_s:
                free &= ~held
            mask = prefer(sim, free & held, free & ~held, job.nodes)
            if mask:
                sim.start(job, mask)


def start_heads(sim: ClusterSim) -> list[Job]:
    """Start jobs from the head on while they fit; the rest of the queue. Jobs that a limit holds back are passed over."""
    queue = [j for j in sim.ordered() if not sim.blocked(j)]
    for position, job in enumerate(queue):
        if sim.blocked(job):
            continue
        open_now = sim.pool.suited(job.shape) & sim.pool.open
        mask = sim.pool.choose(sim.pool.fitting(job.shape, open_now), job.nodes)
        if not mask:
            job.reason = "Resources"
            return queue[position:]
        sim.start(job, mask)
    return []


def reservation(sim: ClusterSim, head: Job) -> tuple[float, int]:
    """When and where the head can start by the announced ends; (infinity, no node) when it cannot at all.

    Of the nodes free then, those still busy now are held first: more is left for jobs that outlast the reservation.
    """
    future = Future(sim.pool)
    able = sim.pool.suited(head.shape) & sim.pool.open
    for end_s, ending in groupby(sim.ends, key=lambda e: e[0]):
        for _, _, job in ending:
            future.remove(job)
        found = future.fitting(head.shape, able)
        if found.bit_count() >= head.nodes:
            busy = found & ~sim.pool.fitting(head.shape, able)
            head.expected_start_s = end_s
            return end_s, prefer(sim, busy, found & ~busy, head.nodes)
    return math.inf, 0


def prefer(sim: ClusterSim, first: int, then: int, count: int) -> int:
    """``count`` nodes, of ``first`` as far as they go; 0 when there are not so many."""
    if first.bit_count() >= count:
        return sim.pool.choose(first, count)
    rest = count - first.bit_count()
    return first | sim.pool.choose(then, rest) if then.bit_count() >= rest else 0
