"""What a run leaves for later estimates: one record a job that ran, and one for the whole of a finished run."""

from __future__ import annotations

from statistics import median

from ischeduler.core.history import HistoryRecord
from ischeduler.core.jobs import Cause
from ischeduler.core.run import Attempt, Run, RunState
from ischeduler.plane.attempts import used_s


def records(run: Run) -> tuple[HistoryRecord, ...]:
    """The run's evidence, the same however often it is asked for."""
    jobs = [_of_attempt(run, a) for a in run.attempts if a.started_at is not None or a.spool_started]
    whole = [_of_run(run)] if run.verdict is RunState.COMPLETED and run.plan.workload.service is None else []
    return tuple(jobs + whole)


def _of_attempt(run: Run, attempt: Attempt) -> HistoryRecord:
    wait_s = None
    if attempt.started_at is not None and attempt.submitted_at is not None:
        wait_s = max(0.0, attempt.started_at - attempt.submitted_at)
    workload, resources = run.plan.workload, attempt.resources
    ended = attempt.ended_at or attempt.ended_seen_at or attempt.created_at
    return HistoryRecord(
        run_id=run.id, kind="attempt", owner=run.owner, family=workload.family, cluster=attempt.cluster,
        partition=attempt.partition, node_type=attempt.node_type, finished_at=ended, batch_size=attempt.batch_size,
        grad_accum=attempt.grad_accum, samples=workload.samples, epochs=workload.epochs, precision=workload.precision,
        optimizer=workload.optimizer, nodes=resources.nodes, gpus=resources.gpus_per_node * resources.nodes,
        cpus=resources.cpus_per_node * resources.nodes, walltime_s=resources.walltime_s, wait_s=wait_s,
        run_s=used_s(attempt) or None, startup_s=attempt.startup_s, cause=str(attempt.cause or Cause.UNKNOWN),
    )


def _of_run(run: Run) -> HistoryRecord:
    workload, resources, p, plan = run.plan.workload, run.plan.resources, run.progress, run.plan
    startups = [a.startup_s for a in run.attempts if a.startup_s is not None]
    return HistoryRecord(
        run_id=run.id, kind="run", owner=run.owner, family=workload.family, cluster=plan.cluster, partition=plan.partition,
        node_type=plan.node_type, finished_at=run.ended_at or run.created_at, batch_size=workload.batch,
        grad_accum=workload.grad_accum, samples=workload.samples, epochs=workload.epochs, precision=workload.precision,
        optimizer=workload.optimizer, nodes=resources.nodes, gpus=resources.gpus_per_node * resources.nodes,
        cpus=resources.cpus_per_node * resources.nodes, walltime_s=resources.walltime_s,
        run_s=sum(used_s(a) for a in run.attempts) or None, startup_s=median(startups) if startups else None,
        step_time_s=p.step_time_s, epoch_time_s=median(p.epoch_times_s) if p.epoch_times_s else None,
        checkpoint_s=p.checkpoint_save_s, gpu_memory_bytes=p.peak_gpu_bytes or None,
        host_memory_bytes=p.peak_rss_bytes or None, cause=str(Cause.FINISHED),
    )
