"""A plan as a plain batch script: to read, edit and submit by hand."""

from __future__ import annotations

from dataclasses import replace

from ischeduler.core.errors import BadInput
from ischeduler.core.jobs import JobSpec
from ischeduler.core.plan import Plan
from ischeduler.core.run import Attempt, Run, RunState
from ischeduler.plane.segments import job_spec, launcher_of


def plain_script(plan: Plan, *, wrapped: bool = True, runs_dir: str) -> str:
    """The first segment as an sbatch script. ``wrapped`` keeps ``isched exec`` around the command, which resumes and forwards
    the signal; without it the script is the training alone. BadInput when the workload has no command."""
    from ischeduler.batch.script import render_script

    if not plan.workload.command:
        raise BadInput("this workload has no command to run; plan a training script (isched plan train.py) or give --command.")
    return render_script(job_of(plan, wrapped=wrapped, runs_dir=runs_dir))


def job_of(plan: Plan, *, wrapped: bool, runs_dir: str) -> JobSpec:
    """The first segment as data."""
    resources = replace(plan.resources, walltime_s=plan.segments[0].walltime_s) if plan.segments else plan.resources
    name = plan.workload.name
    directory = f"{runs_dir}/{name}-by-hand"
    run = Run(f"{name}-by-hand", "", plan, RunState.PLANNED, directory, 0.0)
    attempt = Attempt(1, name, plan.cluster, plan.partition, resources, plan.workload.batch, plan.workload.grad_accum)
    output = f"{plan.workload.directory or '.'}/{name}.out"
    spec = replace(job_spec(run, attempt), comment="", output=output)
    if wrapped:  # without a number the wrapper takes the next attempt: submitting the script again goes on where it ended
        return replace(spec, variables={k: v for k, v in spec.variables.items() if k != "ISCHED_ATTEMPT"})
    variables = {k: v for k, v in spec.variables.items() if not k.startswith("ISCHED_")}
    return replace(
        spec, command=plan.workload.command_line(), variables=variables, signal_lead_s=None, launcher=launcher_of(plan.workload)
    )
