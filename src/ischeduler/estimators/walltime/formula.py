"""The 'walltime' estimator: start-up + steps x step time + evaluation + checkpoints; and start-up's prior."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ischeduler.core.errors import EstimatorFailed
from ischeduler.core.estimate import Estimate, total
from ischeduler.ports import EstimateRequest, EstimatorInfo

SOURCE = "walltime@1"
EVALUATION_SHARE = 1 / 3
"""A forward pass of a training step's three parts (forward 1, backward 2)."""
DEFAULT_CHECKPOINT_EVERY_S = 600.0
STARTUP_S = (10.0, 30.0, 120.0)
"""Imports from a shared file system and the first batch, before anything was measured."""

Ask = Callable[[EstimateRequest], Estimate]


class WalltimeEstimator:
    """Run time from the other quantities, which it asks the registry for."""

    info = EstimatorInfo(
        "walltime", "1", ("run_time",), "trace", "start-up + steps x step time + evaluation + checkpoints",
    )

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def estimate(self, request: EstimateRequest) -> Estimate:
        """EstimatorFailed when nobody knows the step time."""
        step = self._ask(replace(request, quantity="step_time"))
        startup = self._ask(replace(request, quantity="startup"))
        checkpoint = self._checkpoint(request)
        return run_time(request, step, startup, checkpoint)

    def _checkpoint(self, request: EstimateRequest) -> Estimate | None:
        if not request.workload.checkpoints:
            return None
        try:
            return self._ask(replace(request, quantity="checkpoint"))
        except EstimatorFailed:
            return None  # its cost is then part of the interval


def run_time(request: EstimateRequest, step: Estimate, startup: Estimate, checkpoint: Estimate | None) -> Estimate:
    """The sum over a whole training; the step time's basis and age are the answer's."""
    workload = request.workload
    evaluation = workload.eval_samples / (workload.batch * workload.grad_accum * workload.devices) * EVALUATION_SHARE
    equivalent = workload.steps + workload.epochs * evaluation
    training = step.scaled(float(equivalent))
    parts = [training, replace(startup, unit="s")]
    words = f"{workload.steps} steps of {step.p50:.3g} s + start-up {startup.p50:.0f} s"
    if evaluation:
        words += f" + evaluation of {workload.eval_samples} samples an epoch"
    if checkpoint is not None:
        every = workload.checkpoint_every_s or DEFAULT_CHECKPOINT_EVERY_S
        saves = max(1.0, training.p50 / every)
        parts.append(checkpoint.scaled(saves))
        words += f" + {saves:.0f} checkpoint(s) of {checkpoint.p50:.1f} s"
    summed = total(parts, f"{SOURCE}({step.source})", independent=True, reason=f"{words}; step time: {step.reason}")
    return replace(summed, basis=step.basis, as_of=step.as_of)


class StartupEstimator:
    """Start-up before anything was measured."""

    info = EstimatorInfo(
        "startup-prior", "1", ("startup",), "analytic", "imports and the first batch, typical of shared file systems",
    )

    def estimate(self, request: EstimateRequest) -> Estimate:
        """Always answers, widely."""
        return Estimate(*STARTUP_S, "s", "startup-prior@1", basis="analytic", reason="typical start-up; none was measured")
