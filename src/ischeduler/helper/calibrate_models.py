"""The long calibration: training steps of whole models on the card at hand, from which its step times and its memory are fitted."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from ischeduler.core.errors import BadInput, EstimatorFailed
from ischeduler.core.sizes import human_size
from ischeduler.estimators.calibration import campaign as campaigns
from ischeduler.estimators.calibration import record as kept
from ischeduler.estimators.calibration.fitted_record import fit_record
from ischeduler.estimators.calibration.memory_fit import fit_memory
from ischeduler.estimators.calibration.microbench import SHORT
from ischeduler.estimators.calibration.record import CalibrationRecord, StepTime
from ischeduler.estimators.memory.spec import TraceReport, TraceSpec
from ischeduler.estimators.memory.tracer import Tracer
from ischeduler.estimators.steptime.devices import Device, of_accelerator, of_cpu

Say = Callable[[str], None]
ReportOf = Callable[[StepTime], TraceReport | None]
LONGEST_MIN = 24 * 60.0
ONE_JOB = campaigns.Campaign(batches=(8, 32), precisions=("tf32", "bf16"), steps=5, operations=SHORT, command="isched calibrate --models")
"""12 models x 2 batches x TF32 and bf16, cudnn.benchmark on and off: some twenty minutes of a card."""


@dataclass(frozen=True, slots=True)
class ModelCalibration:
    """What the long calibration came to. Errors are shares (0.05: 5 %) of models left out of the fit, p10 and p90; None where nothing was fitted.

    ``context_bytes``, ``searched`` and ``kept`` say how the card's memory is used beside the allocator's (see :class:`~ischeduler.estimators.
    memory.calibration.DeviceCalibration`), ``searched`` and ``kept`` with cudnn.benchmark, in units of the largest convolution.
    """

    device: str
    measured: int
    failed: int
    step_time_error: tuple[float, float] | None
    context_bytes: float | None
    searched: float | None
    kept: float | None
    memory_points: int
    torch: str
    path: str

    def lines(self) -> list[str]:
        """For people."""
        failed = f", {self.failed} could not be" if self.failed else ""
        said = [f"{self.measured} steps of whole models measured on {self.device}{failed}"]
        if self.step_time_error is not None:
            low, high = self.step_time_error
            said.append(f"step times of models left out of the fit: {low:+.0%} to {high:+.0%} (p10 to p90)")
        if self.context_bytes is not None:
            said.append(
                f"CUDA and its libraries take {human_size(self.context_bytes)}; convolutions borrow {self.searched:g} and keep {self.kept:g} times the largest "
                f"with cudnn.benchmark (of {self.memory_points} steps)")
        return [*said, f"kept in {self.path}"]


def described(device: str) -> Device:
    """The card or processor that PyTorch calls ``device``. EstimatorFailed for a card whose datasheet is unknown."""
    if device == "cpu":
        from ischeduler.estimators.steptime.cpu import calibrate_cpu

        return of_cpu(calibrate_cpu(2.0))
    import torch

    from ischeduler.cidb.accelerators import by_gres

    name = torch.cuda.get_device_name(0)
    card = of_accelerator(by_gres(name)[0])
    if card is None:
        raise EstimatorFailed(f"The datasheet of {name} is unknown; add it to the catalog of accelerators first.")
    return card


def traced(say: Say) -> ReportOf:
    """Traces a measured step; None, and a word, where that fails."""

    def report(row: StepTime) -> TraceReport | None:
        precision = "bf16" if row.precision == "bf16" else "fp32"
        try:
            return Tracer(time_limit_s=600.0).report(TraceSpec(row.model, row.batch, precision=precision, optimizer="momentum"))
        except EstimatorFailed as error:
            say(f"left out of the fit: {row.model}: {error}")
            return None

    return report


def fitted(record: CalibrationRecord, device: Device, report_of: ReportOf, say: Say) -> CalibrationRecord:
    """The record with what can be fitted; what cannot is said, and what was measured is kept all the same."""

    def operations(row: StepTime):
        report = report_of(row)
        return () if report is None else report.operations

    for fit in (lambda r: fit_record(r, device, operations), lambda r: fit_memory(r, report_of) if r.accelerator else r):
        try:
            record = fit(record)
        except BadInput as error:
            say(str(error))
    return record


def check(minutes: float) -> None:
    """BadInput or EstimatorFailed, one sentence, where the long calibration cannot begin."""
    if not 1.0 <= minutes <= LONGEST_MIN:
        raise BadInput(f"The long calibration cannot take {minutes:g} minutes; give between 1 and {LONGEST_MIN:g}.")
    try:
        import torch
    except ImportError:
        raise EstimatorFailed("Calibration needs PyTorch; pip install 'ischeduler[torch]'.") from None
    if not torch.cuda.is_available():
        raise BadInput("--models measures an accelerator, and PyTorch sees none here; run it in a job on a node that has one.")


def calibrate_models(
    minutes: float = 20.0, folder: Path | None = None, say: Say = lambda words: None, *, campaign: campaigns.Campaign = ONE_JOB,
    card: Device | None = None, step: campaigns.Runner = campaigns.in_subprocess, report_of: ReportOf | None = None,
) -> ModelCalibration:
    """Measure, fit and keep. BadInput where no accelerator is seen, EstimatorFailed where nothing could be measured.

    ``card``, ``step`` and ``report_of`` stand for the card, its measurement and the tracing of a step (default: those here).
    """
    on = "cuda" if card is None else "cpu"
    if card is None:
        check(minutes)
        card = described(on)
    say(f"measuring models on {card.name} for {minutes:g} min at most")
    found = campaigns.run(campaign, device=on, accelerator=card.name, step=step, say=say, deadline=time.monotonic() + 60 * minutes)
    good = sum(not r.failed for r in found.steps)
    if not good:
        reasons = sorted({r.failed for r in found.steps}) or ["no time"]
        raise EstimatorFailed(f"No model's step could be measured on {card.name} ({'; '.join(reasons)[:300]}); mend that and run it again.")
    quick = kept.standing(found, folder)
    if quick is not None:  # what the whole models may not tell
        found = replace(found, context_bytes=quick.context_bytes, coefficients=quick.coefficients)
    kept.write(found, folder)  # the job may end while it is fitted
    found = fitted(found, card, report_of or traced(say), say)
    path, memory, times = kept.write(found, folder), found.memory, found.fitted()
    searching = memory.searching if memory is not None else None
    return ModelCalibration(
        card.name, good, len(found.steps) - good, None if times is None else times.residual, None if memory is None else memory.context_bytes,
        None if searching is None else searching.searched, None if searching is None else searching.kept,
        0 if memory is None else memory.quiet.points + memory.searching.points, found.torch, str(path),
    )
