"""Conservative backfill: every job has a reservation from its submission on, and nobody may delay it.

For one partition of equal nodes and jobs that take whole ones, where a number of nodes says everything; the rules are those of
:mod:`ischeduler.simulator.reference`. Source: Mu'alem and Feitelson, IEEE TPDS 12(6), 2001.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ischeduler.core.errors import BadInput
from ischeduler.simulator.engine.jobs import Job

if TYPE_CHECKING:
    from ischeduler.simulator.engine.cluster_sim import ClusterSim

_Hold = tuple[float, float, int]
"""From when, until when, how many nodes."""


class Conservative:
    """Reservations by job. When a job ends before its limit, each moves forward as far as it goes, in the queue's order."""

    each = True

    def __init__(self) -> None:
        self._reserved: dict[Job, float] = {}
        self._seen: dict[Job, float] = {}
        self._capacity = -1

    def cycle(self, sim: ClusterSim) -> None:
        """Reserve for new jobs, compress, start what is due."""
        if not sim.changed and self.wakes_at(sim) > sim.now_s:
            return
        sim.changed = False
        _require_equal_nodes(sim)
        queue = sim.ordered()
        self._reserved = {j: s for j, s in self._reserved.items() if j in queue}
        capacity = (sim.pool.open & sim.pool.partition_masks[0]).bit_count()
        if capacity != self._capacity:
            self._capacity, self._reserved = capacity, {}
        elif any(j.job_id not in sim.running and end_s > sim.now_s for j, end_s in self._seen.items()):
            for job in queue:
                if job in self._reserved:
                    self._reserved[job] = min(self._reserved[job], self._earliest(sim, job))
        for job in queue:
            if job not in self._reserved:
                self._reserved[job] = self._earliest(sim, job)
            job.expected_start_s = self._reserved[job] if self._reserved[job] < math.inf else None
        self._start_due(sim, queue)
        self._seen = {job: end_s for end_s, _, job in sim.ends}

    def wakes_at(self, sim: ClusterSim) -> float:
        """At the next reservation."""
        return min(self._reserved.values(), default=math.inf)

    def _start_due(self, sim: ClusterSim, queue: list[Job]) -> None:
        for job in queue:
            if self._reserved[job] <= sim.now_s:
                mask = sim.pool.choose(sim.pool.fitting(job.shape, sim.pool.suited(job.shape) & sim.pool.open), job.nodes)
                del self._reserved[job]
                if mask:
                    sim.start(job, mask)

    def _earliest(self, sim: ClusterSim, job: Job) -> float:
        """The first moment from now at which the job fits for as long as its limit."""
        holds: list[_Hold] = [(-math.inf, end_s, j.nodes) for end_s, _, j in sim.ends]
        holds += [(s, s + j.limit_s, j.nodes) for j, s in self._reserved.items() if j is not job]
        for at in sorted({sim.now_s} | {end for _, end, _ in holds if end > sim.now_s}):
            until = at + job.limit_s
            turns = [at] + [begin for begin, _, _ in holds if at < begin < until]
            if all(sum(n for b, e, n in holds if b <= t < e) + job.nodes <= self._capacity for t in turns):
                return at
        return math.inf


def _require_equal_nodes(sim: ClusterSim) -> None:
    partial = any(j.cores_total < j.nodes * sim.machine.nodes[0].cores and not j.shape.whole for j in sim.pending)
    if len(sim.machine.partitions) > 1 or len({n.cores for n in sim.machine.nodes}) > 1 or partial:
        raise BadInput("conservative backfill is simulated for one partition of equal nodes and jobs of whole nodes; use slurm or easy here.")
