"""What was predicted beside what came true: one outcome a quantity of a finished run. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import median

from ischeduler.core.estimate import Estimate
from ischeduler.core.jobs import Cause
from ischeduler.core.plan import Plan
from ischeduler.core.run import Attempt, Run, RunState

SOON_S = 60.0
"""Waits are compared with this added to both sides: whether 2 or 20 seconds matters to nobody."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One estimate and its truth, in the estimate's unit. ``site`` is CLUSTER/PARTITION, ``at`` epoch seconds."""

    estimator: str
    quantity: str
    site: str
    family: str
    at: float
    p10: float
    p50: float
    p90: float
    actual: float

    @property
    def log_ratio(self) -> float:
        """log(actual / median): positive when it took more than predicted."""
        more = SOON_S if self.quantity == "queue_wait" else 0.0
        return math.log((self.actual + more) / (self.p50 + more))

    @property
    def inside(self) -> bool:
        """Whether the truth lay within p10 and p90."""
        return self.p10 <= self.actual <= self.p90

    @property
    def under_p90(self) -> bool:
        """Whether the truth was not beyond p90."""
        return self.actual <= self.p90


def outcomes_of(run: Run) -> tuple[Outcome, ...]:
    """A run's outcomes, the same however often they are asked for.

    Only what is comparable: figures of the whole run when it completed where it was planned; waits of the jobs that started, one
    each, in any ended run. Nothing for a run that goes on, nor for what was not observed or not predicted.
    """
    plan = run.first_plan or run.plan
    if not run.state.ended or plan.where != run.plan.where:
        return ()
    at = run.ended_at or run.state_since or run.created_at
    whole = _whole(run, plan) if run.state is RunState.COMPLETED else ()
    found = [_outcome(quantity, plan, at, estimate, actual) for quantity, estimate, actual in whole]
    back = [a.number for a in run.attempts if a.cause is Cause.RETURNED]
    waits = (_wait(a, plan, a.number - sum(n < a.number for n in back)) for a in run.attempts)
    return tuple(o for o in [*found, *waits] if o is not None)


def outcomes(runs: Iterable[Run]) -> tuple[Outcome, ...]:
    """Of many runs, oldest first."""
    return tuple(sorted((o for run in runs for o in outcomes_of(run)), key=lambda o: o.at))


def _whole(run: Run, plan: Plan) -> Iterator[tuple[str, Estimate | None, float | None]]:
    progress, needs = run.progress, plan.needs
    spans = [a.ended_at - a.started_at for a in run.attempts if a.started_at is not None and a.ended_at is not None]
    startups = [a.startup_s for a in run.attempts if a.startup_s is not None]
    yield "run_time", plan.run, sum(spans) if spans else None
    yield "step_time", needs.step_time, progress.step_time_s
    yield "startup", needs.startup, median(startups) if startups else None
    yield "checkpoint", needs.checkpoint, progress.checkpoint_save_s
    yield "gpu_memory", needs.gpu_memory, progress.peak_gpu_bytes or None
    yield "host_memory", needs.host_memory, progress.peak_rss_bytes or None
    yield "cost", plan.cost, run.spent or None


def _wait(attempt: Attempt, plan: Plan, segment: int) -> Outcome | None:
    """A job's wait beside what was expected of its segment (from 1); later jobs than planned had no estimate."""
    if attempt.started_at is None or attempt.submitted_at is None or not 1 <= segment <= len(plan.segments):
        return None
    waited = max(0.0, attempt.started_at - attempt.submitted_at)
    return _outcome("queue_wait", plan, attempt.started_at, plan.segments[segment - 1].wait, waited)


def _outcome(quantity: str, plan: Plan, at: float, estimate: Estimate | None, actual: float | None) -> Outcome | None:
    if estimate is None or actual is None or not all(map(math.isfinite, (estimate.p10, estimate.p50, estimate.p90, actual))):
        return None
    if quantity != "queue_wait" and (estimate.p50 <= 0 or actual <= 0):
        return None
    site, family = plan.where, plan.workload.family
    return Outcome(estimate.source, quantity, site, family, at, estimate.p10, estimate.p50, estimate.p90, actual)
