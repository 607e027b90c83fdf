"""What is left of a run, from what its own epochs took: robust against outliers, narrower with each epoch.

The plan's figure is a prior. The observed median is weighed against it by precision; where both disagree, the prior loses
weight by the square of the disagreement, so that a wrong plan cannot outvote a few real epochs. Spread is the median absolute
deviation, shrunk toward a tenth of the median while epochs are few (a spread from two numbers means nothing).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from ischeduler.core.estimate import Estimate
from ischeduler.core.plan import Plan
from ischeduler.core.run import Run

Z90 = 1.2815515655446004
_MAD_TO_SD = 1.4826
_MEDIAN_EFFICIENCY = 1.2533
_PRIOR_SPREAD, _PRIOR_COUNT = 0.10, 2.0


@dataclass(frozen=True, slots=True)
class Posterior:
    """Seconds an epoch: its mean, how sure the mean is (``mean_sd``) and how much single epochs differ (``each_sd``)."""

    mean_s: float
    mean_sd: float
    each_sd: float
    observed: int

    def of(self, epochs: float) -> tuple[float, float, float]:
        """p10, p50, p90 of the time ``epochs`` epochs take together."""
        half = Z90 * math.sqrt((epochs * self.mean_sd) ** 2 + epochs * self.each_sd**2)
        middle = epochs * self.mean_s
        return max(0.0, middle - half), middle, middle + half


def epoch_time(times_s: Sequence[float], prior: Estimate | None) -> Posterior | None:
    """The time of one epoch, or None when there is neither an observation nor a prior."""
    if not times_s:
        if prior is None:
            return None
        return Posterior(prior.p50, _sd(prior), _PRIOR_SPREAD * prior.p50, 0)
    count, middle = len(times_s), median(times_s)
    mad = _MAD_TO_SD * median(abs(t - middle) for t in times_s)
    each = math.sqrt((_PRIOR_COUNT * (_PRIOR_SPREAD * middle) ** 2 + count * mad**2) / (_PRIOR_COUNT + count))
    error = max(_MEDIAN_EFFICIENCY * each / math.sqrt(count), 1e-9)
    if prior is None:
        return Posterior(middle, error, each, count)
    doubt = _sd(prior) ** 2 + (prior.p50 - middle) ** 2
    weight = 1.0 if doubt <= 0 else doubt / (doubt + error**2)
    mean_sd = math.sqrt(1.0 / (1.0 / error**2 + (1.0 / doubt if doubt > 0 else 0.0)))
    return Posterior(weight * middle + (1.0 - weight) * prior.p50, mean_sd, each, count)


def _sd(prior: Estimate) -> float:
    return max(1e-9, (prior.p90 - prior.p10) / (2 * Z90))


def prior_epoch(plan: Plan) -> Estimate | None:
    """The plan's own time of one epoch: step time by steps where it has one, else its whole run by its epochs."""
    if plan.needs.step_time is not None:
        return plan.needs.step_time.scaled(plan.workload.steps_per_epoch)
    if plan.run.p50 <= 0 or not math.isfinite(plan.run.p90):
        return None
    return plan.run.scaled(1.0 / plan.workload.epochs)


def epochs_left(run: Run) -> float:
    """Epochs still to do, the finished part of the current one taken off where steps are reported."""
    p, total = run.progress, run.plan.workload.epochs
    left = float(max(0, total - p.epochs_done))
    if p.steps > 0 and p.step > 0:
        left = min(left, total * max(0.0, 1.0 - p.step / p.steps))
    return left


def durable_epochs_left(run: Run) -> float:
    """Epochs a new attempt has to do: from the last checkpoint on."""
    p, total = run.progress, run.plan.workload.epochs
    left = float(max(0, total - p.checkpoint_epoch))
    if p.steps > 0 and p.checkpoint_step > 0:
        left = min(left, total * max(0.0, 1.0 - p.checkpoint_step / p.steps))
    return left


def training_left(run: Run, *, durable: bool = False) -> Estimate | None:
    """Seconds of training still to do (from the last checkpoint when ``durable``), or None when nothing is known."""
    if run.plan.workload.service is not None:
        return None  # nothing of it is ever done
    posterior = epoch_time(run.progress.epoch_times_s, prior_epoch(run.plan))
    if posterior is None:
        return None
    p10, p50, p90 = posterior.of(durable_epochs_left(run) if durable else epochs_left(run))
    if posterior.observed == 0:
        return Estimate(p10, p50, p90, "s", "plan", basis=run.plan.run.basis, reason="no epoch seen yet: the plan's own figure")
    reason = f"{posterior.observed} epochs seen, {posterior.mean_s:.3g} s each, against the plan's figure"
    return Estimate(p10, p50, p90, "s", "reestimate@1", basis="live", as_of=run.progress.at, reason=reason)
