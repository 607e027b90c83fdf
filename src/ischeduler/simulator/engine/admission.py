"""Whether a job is taken at all, and what it looks like to the scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ischeduler.core.durations import human
from ischeduler.core.errors import SubmitRefused
from ischeduler.simulator.engine.jobs import Job, JobRequest, Shape
from ischeduler.simulator.engine.machine import SimPartition

if TYPE_CHECKING:
    from ischeduler.simulator.engine.cluster_sim import ClusterSim


def admit(sim: ClusterSim, request: JobRequest, seq: int) -> Job:
    """The job, not queued yet. SubmitRefused with a sentence where it could never run or a limit forbids it."""
    job = shaped(sim, request, seq)
    problem, kind = refusal(sim, job)
    if problem:
        raise SubmitRefused(f"The simulated batch system refused the job: {problem}.", kind=kind)
    return job


def shaped(sim: ClusterSim, request: JobRequest, seq: int) -> Job:
    """The request in the scheduler's terms; SubmitRefused for an unknown partition or QOS."""
    names = [p.name for p in sim.machine.partitions]
    name = request.partition or names[0]
    if name not in names:
        raise SubmitRefused(f"The simulated batch system refused the job: there is no partition '{name}', expected one of {', '.join(names)}.")
    if request.qos and request.qos not in sim.qos:
        raise SubmitRefused(f"The simulated batch system refused the job: there is no QOS '{request.qos}'.")
    index = names.index(name)
    partition = sim.machine.partitions[index]
    whole = request.exclusive or partition.exclusive
    shape = Shape(index, request.cores, request.memory_mb, request.gpus, request.gpu_type, whole, request.features, request.exclude)
    return Job(request, seq, shape, partition.priority_tier, float(request.limit_s))


def refusal(sim: ClusterSim, job: Job) -> tuple[str, str]:
    """What is wrong with the job ('' where nothing) and its kind: 'invalid' for ever, 'site_limit' for now."""
    partition = sim.machine.partitions[job.shape.partition]
    return next((found for found in (_of_partition(sim, job, partition), _of_qos(sim, job), _of_nodes(sim, job)) if found[0]), ("", ""))


def _of_partition(sim: ClusterSim, job: Job, partition: SimPartition) -> tuple[str, str]:
    request = job.request
    if sim.options.enforce_part_limits and job.limit_s > partition.max_time_s:
        return f"{human(job.limit_s)} is over the limit of {partition.name}, {human(partition.max_time_s)}", "invalid"
    if partition.max_nodes is not None and request.nodes > partition.max_nodes:
        return f"it asks for {request.nodes} nodes and {partition.name} gives {partition.max_nodes} at most", "invalid"
    if partition.allow_accounts and request.account not in partition.allow_accounts:
        return f"the account '{request.account}' may not use {partition.name}", "invalid"
    if partition.allow_qos and request.qos not in partition.allow_qos:
        return f"the QOS '{request.qos}' may not use {partition.name}", "invalid"
    return "", ""


def _of_qos(sim: ClusterSim, job: Job) -> tuple[str, str]:
    qos = sim.qos.get(job.request.qos)
    if qos is None:
        return "", ""
    if qos.max_wall_s is not None and job.limit_s > qos.max_wall_s:
        return f"{human(job.limit_s)} is over the limit of QOS {qos.name}, {human(qos.max_wall_s)}", "invalid"
    if qos.max_submit_per_user is not None and sim.alive_of[(qos.name, job.request.user)] >= qos.max_submit_per_user:
        return f"QOS {qos.name} lets a user have {qos.max_submit_per_user} jobs", "site_limit"
    return "", ""


def _of_nodes(sim: ClusterSim, job: Job) -> tuple[str, str]:
    able = sim.pool.suited(job.shape).bit_count()
    if job.request.nodes < 1:
        return "it asks for no node", "invalid"
    if able < job.request.nodes:
        return f"it asks for {job.request.nodes} nodes of its shape and the partition has {able}", "invalid"
    return "", ""
