"""What is known of a queue and a job, as the learner sees it: one definition for traces and for the live queue.

A live queue becomes the same columns as a trace (:func:`ischeduler.estimators.queuewait.site.jobs_of`: finished, running, pending, and last
the job that is asked about), and the same sweep reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ischeduler.core.errors import EstimatorFailed
from ischeduler.estimators.queuewait.jobs import ASSUMED_LIMIT_S, NEVER_S, Jobs
from ischeduler.estimators.queuewait.twin import TWIN_NAMES, RollOuts, forecasts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ischeduler.core.snapshot import QueuedJob, QueueSnapshot

NO_NUMBA = "Learned queue waits need numba; pip install 'ischeduler[queuewait]'."
MINE = "\x00me"
"""Stands for the asking user where the batch system does not name them."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The job that is asked about: ``units`` of what the partition is counted in, its limit, its name, and whose it is."""

    units: float
    limit_s: float
    user: str = MINE
    name: str = ""


def names(*, twin: bool) -> tuple[str, ...]:
    """The features' names in the order of the columns."""
    return (*_sweep().NAMES, *(TWIN_NAMES if twin else ()))


def of_trace(
    jobs: Jobs, *, capacity: float = 0.0, twin: RollOuts | None = None, wanted: NDArray[Any] | None = None
) -> NDArray[Any]:
    """Features (jobs, names) of each job at its submission, from what was known at that second; nan where nothing was.

    ``capacity`` 0: the most units seen busy until then. ``twin``: the simulator's kernel, for its forecasts. EstimatorFailed without numba.
    """
    import numpy as np

    sweep = _sweep()
    table = sweep.swept(jobs, capacity, wanted)
    if twin is None:
        return table
    units, share, expected = (table[:, sweep.NAMES.index(n)] for n in ("log_units", "units_share", "log_expected_run"))
    mask = np.ones(len(jobs), dtype=bool) if wanted is None else np.asarray(wanted, dtype=bool)
    told = forecasts(jobs, np.expm1(expected), np.round(2**units / share), twin, mask)
    return np.hstack([table, told])


def queued_rows(
    snapshot: QueueSnapshot, partition: str, me: str, by_gpu: bool
) -> list[tuple[float, float, float, float, float, str, str, str]]:
    """The running and pending jobs of a partition; ``me`` names the asking user's own, '' leaves them as the batch system does."""
    here = (j for j in snapshot.jobs if j.partition == partition and j.state in ("RUNNING", "PENDING"))
    return [_queued(j, snapshot.taken_at, me, by_gpu) for j in here]


def _queued(job: QueuedJob, now: float, me: str, by_gpu: bool) -> tuple[float, float, float, float, float, str, str, str]:
    start = job.start_s if job.state == "RUNNING" and job.start_s is not None else NEVER_S
    start = min(start, now - 1.0) if job.state == "RUNNING" else NEVER_S
    submit = min(job.submit_s if job.submit_s is not None else now, start, now)
    user = me if job.mine and me else job.user
    units = float(max(1, job.gpus if by_gpu else job.nodes))
    limit = job.limit_s if job.limit_s and job.limit_s > 0 else ASSUMED_LIMIT_S
    return submit, start, NEVER_S, units, limit, user, job.partition, job.name


def _sweep() -> Any:
    """The compiled sweep; EstimatorFailed with a sentence where numba is not installed."""
    try:
        from ischeduler.estimators.queuewait import sweep
    except ImportError as error:
        raise EstimatorFailed(NO_NUMBA) from error
    return sweep
