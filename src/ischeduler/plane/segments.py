"""Cascade arithmetic: how long the next segment should be, when it must save, and what exactly is submitted."""

from __future__ import annotations

import math
from dataclasses import replace

from ischeduler.core.jobs import Cause, JobSpec
from ischeduler.core.plan import Plan
from ischeduler.core.run import Attempt, Run
from ischeduler.core.workload import Workload
from ischeduler.plane.attempts import progressed
from ischeduler.plane.reestimate import epoch_time, prior_epoch, training_left

MINUTE_S = 60.0
_STARTUP_GUESS_S, _CHECKPOINT_GUESS_S = 30.0, 10.0


def margin_s(walltime_s: float) -> float:
    """What is kept free at the end of a segment: a fiftieth of it, within 5 s and 5 minutes."""
    return min(300.0, max(5.0, 0.02 * walltime_s))


def useful_s(walltime_s: float, startup_s: float, checkpoint_s: float) -> float:
    """What training gets of a segment: the limit minus start-up, the last checkpoint and the safety margin."""
    return max(0.0, walltime_s - startup_s - checkpoint_s - margin_s(walltime_s))


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
    """How long before the limit SIGUSR2 comes: two measured saves, two steps (it waits for a step's end) and 5 s.

    The plan's figure until a save was measured; never under 10 s nor over half of the segment.
    """
    save_s = run.progress.checkpoint_save_s
    step_s = run.progress.step_time_s or 0.0
    lead_s = float(run.plan.signal_lead_s) if save_s is None else 2 * save_s + 2 * step_s + 5.0
    return math.ceil(min(max(10.0, lead_s), max(10.0, walltime_s / 2)))


def limit_s(plan: Plan) -> float:
    """The longest segment the plan asks for; a single job's own walltime where it has no segments."""
    return max((s.walltime_s for s in plan.segments), default=plan.resources.walltime_s)


def next_walltime_s(run: Run, ceiling_s: float = math.inf) -> float:
    """The next segment's walltime: what is left at p90 with all overheads, in whole minutes, at most the plan's segment.

    ``ceiling_s`` is what budget or deadline still allow. A run that nothing is known of gets the whole segment. After a segment
    that ended at its limit without a checkpoint the estimate has failed: the next one gets all that the partition allows.
    """
    if _overran(run):
        return min(max(limit_s(run.plan), run.plan.max_walltime_s or 0.0), ceiling_s)
    most_s = min(limit_s(run.plan), ceiling_s)
    left = training_left(run, durable=True)
    if left is None or not math.isfinite(left.p90):
        return most_s
    need_s = left.p90 + startup_s(run) + checkpoint_s(run)
    return min(most_s, _whole_minutes(need_s + margin_s(need_s) + signal_lead_s(run, most_s)))


def _overran(run: Run) -> bool:
    last = run.attempt
    return last is not None and last.cause is Cause.WALLTIME and not progressed(run, last)


def _whole_minutes(seconds: float) -> float:
    return max(MINUTE_S, math.ceil(seconds / MINUTE_S - 1e-9) * MINUTE_S)


def segments_left(run: Run) -> int:
    """How many more jobs the rest of the training takes, the running one not counted; 0 when it fits."""
    left = training_left(run)
    each_s = useful_s(limit_s(run.plan), startup_s(run), checkpoint_s(run))
    if left is None or each_s <= 0 or not math.isfinite(left.p50):
        return 0
    return max(0, math.ceil(left.p50 / each_s) - 1)


def advice(run: Run) -> str:
    """What to do when a segment passes without a checkpoint."""
    posterior = epoch_time(run.progress.epoch_times_s, prior_epoch(run.plan))
    each_s = useful_s(limit_s(run.plan), startup_s(run), checkpoint_s(run))
    epoch = f"an epoch takes about {posterior.mean_s:.0f} s" if posterior else "the time of an epoch is not known"
    return (
        f"{epoch} and a segment leaves {each_s:.0f} s for training: save within the epoch (checkpoint_every_s), "
        "or move to a partition with a longer limit"
    )


def filled(workload: Workload) -> tuple[str, ...]:
    """The training's command with ``{batch_size}``, ``{epochs}`` and ``{grad_accum}`` replaced; other braces are left alone."""
    words = {"{batch_size}": workload.batch, "{epochs}": workload.epochs, "{grad_accum}": workload.grad_accum}
    command: list[str] = []
    for argument in workload.command:
        for word, value in words.items():
            argument = argument.replace(word, str(value))
        command.append(argument)
    return tuple(command)


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
    if workload.devices > 1 and workload.framework == "pytorch":
        return "torchrun"
    return "srun" if workload.nodes > 1 else "direct"


def job_spec(run: Run, attempt: Attempt) -> JobSpec:
    """The batch job of an attempt, built from run and plan alone."""
    plan, walltime_s = run.plan, attempt.resources.walltime_s
    workload = replace(plan.workload, batch_size=attempt.batch_size, grad_accum=attempt.grad_accum)
    lead_s = signal_lead_s(run, walltime_s)
    wrapper = (python_of(workload), "-m", "ischeduler.training.wrapper", "--", *filled(workload))
    variables = {
        "ISCHED_RUN_ID": run.id, "ISCHED_RUN_DIR": run.directory, "ISCHED_ATTEMPT": str(attempt.number),
        "ISCHED_GRACE_S": str(lead_s), "ISCHED_WALLTIME_S": f"{walltime_s:.0f}",
    }
    return JobSpec(
        key=attempt.key, name=attempt.key, partition=attempt.partition, resources=attempt.resources, command=wrapper,
        directory=workload.directory or run.directory, output=f"{run.directory}/logs/{attempt.number}.out",
        environment=workload.environment, variables=variables, account=plan.account, qos=plan.qos, signal_lead_s=lead_s,
        launcher=launcher_of(workload), processes_per_node=max(1, attempt.resources.gpus_per_node),
        exclude_nodes=run.excluded_nodes, comment=attempt.key,
    )
