"""A site's memory calibration from the steps of its calibration record: measured device totals beside replayed traces."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from ischeduler.estimators.calibration.record import CalibrationRecord, StepTime
from ischeduler.estimators.memory.calibration import Measured, learn
from ischeduler.estimators.memory.replay import replayed
from ischeduler.estimators.memory.spec import TraceReport
from ischeduler.estimators.memory.workspaces import Workspaces, borrowers, generation_of, uses_tf32


def fit_memory(record: CalibrationRecord, report_of: Callable[[StepTime], TraceReport | None]) -> CalibrationRecord:
    """The record with ``memory`` learned from its steps; ``report_of`` traces one, None leaves it out.

    BadInput where too few steps tell their device total. Plain fp32 is left out on cards with TF32, which PyTorch's convolutions use
    unless told not to.
    """
    generation = generation_of(record.accelerator)
    points: list[Measured] = []
    for row in record.steps:
        if row.failed or row.device_bytes is None or (row.precision == "fp32" and uses_tf32(generation)):
            continue
        report = report_of(row)
        if report is not None and report.log is not None:
            points.append(measured(row, report, generation))
    source = f"{len(points)} steps measured with torch {record.torch}"
    return replace(record, memory=learn(points, source))


def measured(row: StepTime, report: TraceReport, generation: str) -> Measured:
    """One step beside its replay at its own batch."""
    assert report.log is not None
    assert row.device_bytes is not None
    reserved = replayed(report.log, row.batch, workspaces=Workspaces(generation, row.benchmark)).peak_reserved
    inputs = report.inputs_bytes / report.batch * row.batch
    return Measured(row.device_bytes, reserved, inputs, borrowers(report.log, row.batch), row.benchmark, _family(row.model))


def _family(model: str) -> str:
    """'timm:resnet50' and 'timm:resnet18' are one."""
    return re.match(r"[A-Za-z_]*", model.rpartition(":")[2])[0]  # type: ignore[index]
