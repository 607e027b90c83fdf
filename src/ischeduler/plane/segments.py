"""Cascade arithmetic: how long the next segment should be, when it must save, and what exactly is submitted."""

from __future__ import annotations

import math
from dataclasses import replace

from ischeduler.core import cascade
from ischeduler.core.elastic import share_of
from ischeduler.core.jobs import Cause, JobSpec
from ischeduler.core.plan import Plan
from ischeduler.core.run import Attempt, Run
from ischeduler.core.workload import Workload
from ischeduler.plane.attempts import alive, progressed, saved_and_leaving
from ischeduler.plane.reestimate import epoch_time, prior_epoch, training_left
from ischeduler.plane.services import settings_text

_STARTUP_GUESS_S, _CHECKPOINT_GUESS_S = 30.0, 10.0


def startup_s(run: Run) -> float:
    """Seconds from the job's start to its first step: the slowest seen on this plan, else the plan's p90."""
    seen = [a.startup_s for a in run.attempts if a.startup_s is not None and a.node_type == run.plan.node_type]
    if seen:
        return max(seen)
    return run.plan.needs.startup.p90 if run.plan.needs.startup else _STARTUP_GUESS_S


def checkpoint_s(run: Run) -> float:
    """Seconds a checkpoint takes: measured, else the plan's p90."""
    if run.progress.checkpoint_save_s is not None:
        return run.progress.checkpoint_save_s
    return run.plan.needs.checkpoint.p90 if run.plan.needs.checkpoint else _CHECKPOINT_GUESS_S


def signal_lead_s(run: Run, walltime_s: float) -> int:
    """How long before the limit SIGUSR2 comes: the plan's figure until a save was measured, then the same arithmetic on that."""
    if run.progress.checkpoint_save_s is None:
        return max(1, min(run.plan.signal_lead_s, math.floor(walltime_s * cascade.LEAD_SHARE)))
    return cascade.signal_lead_s(walltime_s, checkpoint_s(run), run.progress.step_time_s or 0.0)


def limit_s(plan: Plan) -> float:
    """The longest segment the plan asks for; a single job's own walltime where it has no segments."""
    return max((s.walltime_s for s in plan.segments), default=plan.resources.walltime_s)


def next_walltime_s(run: Run, ceiling_s: float = math.inf) -> float:
    """The next segment's walltime: what is left at p90 with all overheads, rounded up, at most the plan's segment.

    ``ceiling_s`` is what budget or deadline still allow. A run that nothing is known of gets the whole segment. After a segment
    that ended at its limit without a checkpoint the estimate has failed: the next one gets all that the partition allows.
    """
    if _overran(run):
        return min(max(limit_s(run.plan), run.plan.max_walltime_s or 0.0), ceiling_s)
    most_s = min(limit_s(run.plan), ceiling_s)
    left = training_left(run, durable=True)
    if left is None or not math.isfinite(left.p90):
        return most_s
    return cascade.next_walltime_s(left.p90, most_s, startup_s(run), checkpoint_s(run))


def useful_s(run: Run) -> float:
    """What training gets of one whole segment of the plan."""
    return cascade.useful_time_s(limit_s(run.plan), startup_s(run), checkpoint_s(run))


def least_s(run: Run) -> float:
    """The shortest segment that could do anything: it starts, and saves once."""
    return startup_s(run) + checkpoint_s(run) + cascade.MIN_LEAD_S


def _overran(run: Run) -> bool:
    last = run.attempt
    return last is not None and last.cause is Cause.WALLTIME and not progressed(run, last)


def segments_left(run: Run) -> int:
    """How many more jobs the rest of the training takes, the running one not counted; 0 when it fits."""
    left, each_s = training_left(run), useful_s(run)
    if left is None or each_s <= 0 or not math.isfinite(left.p50):
        return 0
    return cascade.segments_needed(left.p50, each_s) - 1


def advice(run: Run) -> str:
    """What to do when a segment passes without a checkpoint."""
    posterior, each_s = epoch_time(run.progress.epoch_times_s, prior_epoch(run.plan)), useful_s(run)
    epoch = f"an epoch takes about {posterior.mean_s:.0f} s" if posterior else "the time of an epoch is not known"
    return (
        f"{epoch} and a segment leaves {each_s:.0f} s for training: save within the epoch (checkpoint_every_s), "
        "or move to a partition with a longer limit"
    )


def python_of(workload: Workload) -> str:
    """The interpreter that runs the wrapper: the option ``python``, else the virtual environment's, else ``python3``."""
    if "python" in workload.options:
        return workload.options["python"]
    venv = workload.environment.venv
    return f"{venv.rstrip('/')}/bin/python" if venv else "python3"


def launcher_of(workload: Workload) -> str:
    """The option ``launcher``; else torchrun for more than one worker of PyTorch, srun for other multi-node jobs, else direct."""
    if "launcher" in workload.options:
        return workload.options["launcher"]
    if workload.devices > 1 and workload.framework == "pytorch" and workload.service is None:
        return "torchrun"
    return "srun" if workload.nodes > 1 else "direct"


def job_spec(run: Run, attempt: Attempt) -> JobSpec:
    """The batch job of an attempt, built from run and plan alone."""
    plan, walltime_s = run.plan, attempt.resources.walltime_s
    workload = replace(plan.workload, batch_size=attempt.batch_size, grad_accum=attempt.grad_accum)
    lead_s = signal_lead_s(run, walltime_s)
    wrapper = (python_of(workload), "-m", "ischeduler.training.wrapper", "--", *workload.command_line())
    variables = {
        "ISCHED_RUN_ID": run.id, "ISCHED_RUN_DIR": run.directory, "ISCHED_ATTEMPT": str(attempt.number),
        "ISCHED_GRACE_S": str(lead_s), "ISCHED_WALLTIME_S": f"{walltime_s:.0f}",
    }
    if workload.elastic is not None:
        variables |= _elastic_variables(workload)
    if workload.service is not None:
        variables["ISCHED_SERVICE"] = settings_text(run)
    if workload.checkpoint_every_s is not None:
        variables["ISCHED_CHECKPOINT_EVERY_S"] = f"{workload.checkpoint_every_s:g}"
    if any(a.number < attempt.number and alive(a) and not saved_and_leaving(a) for a in run.attempts):
        variables["ISCHED_HANDOVER_S"] = f"{handover_s(run):.0f}"
        if attempt.keep_from is not None:
            variables["ISCHED_KEEP_FROM"] = f"{attempt.keep_from:.0f}"
    return JobSpec(
        key=attempt.key, name=attempt.key, partition=attempt.partition, resources=attempt.resources, command=wrapper,
        directory=workload.directory or run.directory, output=f"{run.directory}/logs/{attempt.number}.out",
        environment=workload.environment, variables=variables, account=plan.account, qos=plan.qos, signal_lead_s=lead_s,
        launcher=launcher_of(workload), processes_per_node=max(1, attempt.resources.gpus_per_node),
        exclude_nodes=run.excluded_nodes, comment=attempt.key, after=_follows(run, attempt),
    )


def _elastic_variables(workload: Workload) -> dict[str, str]:
    """What a training that may change its number of accelerators is told of this job's."""
    share = share_of(workload, workload.devices)
    return {
        "ISCHED_WORLD_SIZE": str(share.world_size), "ISCHED_BATCH_SIZE": str(workload.batch), "ISCHED_GRAD_ACCUM": str(workload.grad_accum),
        "ISCHED_GLOBAL_BATCH": str(workload.batch * workload.grad_accum * share.world_size), "ISCHED_LR_SCALE": f"{share.lr_scale:.9g}",
    }  # fmt: skip


def handover_s(run: Run) -> float:
    """How long a successor that starts early waits for its predecessor to save and leave: generous, as the work since the last
    checkpoint is what it costs to wait less; below the plane's own patience, which ends the predecessor."""
    return min(200.0, max(60.0, 3 * checkpoint_s(run) + 2 * (run.progress.step_time_s or 0.0)))


def _follows(run: Run, attempt: Attempt) -> str | None:
    """The job whose end this one waits for: a predecessor that has saved but is not gone yet."""
    return next((a.job_id for a in run.attempts if a.number < attempt.number and saved_and_leaving(a)), None)
