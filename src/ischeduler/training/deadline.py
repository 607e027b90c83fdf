"""When the job ends, on this host's clock."""

from __future__ import annotations

from collections.abc import Mapping

from ischeduler.training.context import number

_PLAUSIBLE_SETUP_S = 600.0


def job_deadline(environ: Mapping[str, str], now: float) -> float | None:
    """Epoch seconds by the local clock, None when the job has no known limit.

    `ISCHED_WALLTIME_S` counted from now is the upper bound; it ignores what the job did before the wrapper started.
    SLURM_JOB_END_TIME knows that, but is the controller's clock: it is taken when it is earlier by no more than ten
    minutes (or a tenth of the walltime), a plausible set-up time; beyond that the clocks disagree and it is not used.
    """
    end, walltime_s = number(environ, "SLURM_JOB_END_TIME"), number(environ, "ISCHED_WALLTIME_S")
    if walltime_s is None:
        return end if end is not None and end > now else None
    local = now + walltime_s
    if end is None:
        return local
    early_s = local - end
    return end if 0 <= early_s <= max(_PLAUSIBLE_SETUP_S, walltime_s / 10) and end > now else local
