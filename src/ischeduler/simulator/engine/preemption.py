"""Who may push out whom, and whom it costs least. Sources: preempt/qos and preempt/partition_prio of Slurm 22.05, slurm.conf(5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ischeduler.simulator.engine.jobs import Job
from ischeduler.simulator.engine.nodes import Future

if TYPE_CHECKING:
    from ischeduler.simulator.engine.cluster_sim import ClusterSim

REORDER_COUNT = 1
"""PreemptParameters=preempt_reorder_count."""


def may_preempt(sim: ClusterSim, job: Job, other: Job) -> bool:
    """Whether ``job`` may push out the running ``other``."""
    if sim.options.preempt == "qos":
        qos = sim.qos.get(job.request.qos)
        return qos is not None and other.request.qos in qos.preempt
    return sim.options.preempt == "partition_prio" and job.tier > other.tier


def mode_of(sim: ClusterSim, job: Job) -> str:
    """CANCEL, REQUEUE or OFF, of the job that is pushed out."""
    own = ""
    if sim.options.preempt == "qos":
        qos = sim.qos.get(job.request.qos)
        own = qos.preempt_mode if qos else ""
    return own or sim.machine.partitions[job.shape.partition].preempt_mode or sim.options.preempt_mode


def candidates(sim: ClusterSim, job: Job) -> list[Job]:
    """Running jobs that may be pushed out for this one, cheapest first: low QOS or tier, then many nodes."""
    if not sim.options.preempt:
        return []
    exempt_s = sim.options.preempt_exempt_s
    found = [
        other
        for other in sim.running.values()
        if may_preempt(sim, job, other) and mode_of(sim, other) in ("CANCEL", "REQUEUE") and sim.now_s - (other.start_s or 0.0) >= exempt_s
    ]
    return sorted(found, key=lambda j: (_rank(sim, j), -j.nodes, j.seq))


def _rank(sim: ClusterSim, job: Job) -> int:
    if sim.options.preempt == "partition_prio":
        return job.tier
    qos = sim.qos.get(job.request.qos)
    return qos.priority if qos else 0


def victims(sim: ClusterSim, job: Job, among: int) -> list[Job]:
    """Whom to push out so that the job fits on ``among``; none when that does not help.

    Candidates are removed one by one until the job fits; the last one is then tried first, as Slurm does, to spare the others.
    Those already leaving count: pushing them twice is not needed, and they are not returned.
    """
    order = candidates(sim, job)
    removed, chosen = _first_that_help(sim, job, among, order)
    for _ in range(REORDER_COUNT):
        if not removed or order[0] is removed[-1]:
            break
        order = [removed[-1], *(j for j in order if j is not removed[-1])]
        removed, chosen = _first_that_help(sim, job, among, order)
    return [j for j in removed if j.mask & chosen and not j.leaving]


def _first_that_help(sim: ClusterSim, job: Job, among: int, order: list[Job]) -> tuple[list[Job], int]:
    """Whom to remove in this order until the job fits, and where it fits then; nobody when it never does."""
    future, removed = Future(sim.pool), list[Job]()
    for other in order:
        if other.mask & among:
            future.remove(other)
            removed.append(other)
            found = future.fitting(job.shape, among)
            if found.bit_count() >= job.nodes:
                return removed, sim.pool.choose(found, job.nodes, job.shape, future)
    return [], 0


def any_preemption(sim: ClusterSim, jobs: list[Job]) -> bool:
    """Whether one of the waiting jobs might push out a running one."""
    return bool(sim.options.preempt) and any(candidates(sim, j) for j in jobs)
