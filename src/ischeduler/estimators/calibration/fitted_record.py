"""From a long measurement to coefficients: the operations and the models' steps of a record fitted together."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from ischeduler.core.errors import BadInput
from ischeduler.estimators.calibration.fit import Point, Stiffness, fit_phase
from ischeduler.estimators.calibration.quick import works_of
from ischeduler.estimators.calibration.record import CalibrationRecord, OperationTime, StepTime
from ischeduler.estimators.steptime.coefficients import Coefficients, Load, Shares
from ischeduler.estimators.steptime.correction import MeasuredStep, corrected_by
from ischeduler.estimators.steptime.devices import Device
from ischeduler.estimators.steptime.oplog import OpRow
from ischeduler.estimators.steptime.work import Work, kernels

LogOf = Callable[[StepTime], Sequence[OpRow]]
"""The traced operations of a step's model at its batch and precision; empty where it cannot be traced."""
PHASES = ("forward", "backward")
_OPERATION_WEIGHT = 0.1
_FEWEST_MODELS = 3
_LEAST = 0.05


def fit_record(record: CalibrationRecord, device: Device, log_of: LogOf) -> CalibrationRecord:
    """The record with coefficients and with the residuals of models left out of the fit, one after the other.

    BadInput where fewer than three models were measured: then :func:`~ischeduler.estimators.calibration.quick.fitted` serves.
    """
    rows = [r for r in record.steps if not r.failed and r.forward_s and r.backward_s and _comparable(r.precision, device)]
    measured = [(r, kernels(log)) for r in rows if (log := log_of(r))]
    models = sorted({r.model for r, _ in measured})
    if len(models) < _FEWEST_MODELS:
        raise BadInput(f"A fit needs the steps of {_FEWEST_MODELS} models at least, the record has {len(models)}; measure more.")
    operations = [o for o in record.operations if "conv" not in o.kind or _comparable(o.dtype, device)]
    shares = _fit(device, measured, operations)
    plain: list[float] = []
    after: list[float] = []
    for model in models:
        without = _fit(device, [m for m in measured if m[0].model != model], operations)
        held = [m for m in measured if m[0].model == model]
        plain += _misses(device, held, without)
        after += _misses_after_one(device, held, without)
    found = Coefficients(
        {**device.coefficients.phases, **shares}, _interval(plain),
        _interval(after) if after else device.coefficients.corrected, origin=f"{len(models)} models measured",
        provenance=dict(record.provenance),
    )
    return replace(record, coefficients=found.to_json())


def _comparable(precision: str, device: Device) -> bool:
    """Strict float32 convolutions on a card that uses TF32 by default are another arithmetic than the one estimated."""
    return precision != "fp32" or device.tensor_float_flops is None


def _fit(
    device: Device, measured: Sequence[tuple[StepTime, dict[str, tuple[Work, ...]]]], operations: Sequence[OperationTime]
) -> dict[str, Shares]:
    found: dict[str, Shares] = {}
    for phase in PHASES:
        points = [Point(device, works[phase], row.precision, _seconds(row, phase)) for row, works in measured]
        points += [
            Point(device, works_of(o, phase), o.dtype, o.seconds, _OPERATION_WEIGHT)
            for o in operations if o.phase == phase or (phase == "backward" and "conv" not in o.kind)
        ]
        models = len({row.model for row, _ in measured})
        _, own = fit_phase(points, start=device.coefficients.phases[phase], stiffness=Stiffness.of_models(models))
        found[phase] = own[device.name]
    return found


def _seconds(row: StepTime, phase: str) -> float:
    return float((row.forward_s if phase == "forward" else row.backward_s) or 0.0)


def _loads(device: Device, works: dict[str, tuple[Work, ...]], precision: str, shares: dict[str, Shares]) -> tuple[Load, ...]:
    from ischeduler.estimators.steptime.roofline import loads_of

    ours = replace(device, coefficients=replace(device.coefficients, phases={**device.coefficients.phases, **shares}))
    found = loads_of({p: works[p] for p in PHASES}, ours, precision)
    return tuple(found[p] for p in PHASES)


def _misses(
    device: Device, held: Sequence[tuple[StepTime, dict[str, tuple[Work, ...]]]], shares: dict[str, Shares]
) -> list[float]:
    """log(measured / predicted) of both passes together."""
    return [
        math.log(sum(_seconds(r, p) for p in PHASES) / sum(x.seconds for x in _loads(device, works, r.precision, shares)))
        for r, works in held
    ]


def _misses_after_one(
    device: Device, held: Sequence[tuple[StepTime, dict[str, tuple[Work, ...]]]], shares: dict[str, Shares]
) -> list[float]:
    """The same once the middle batch of each precision was measured."""
    found: list[float] = []
    for precision in sorted({r.precision for r, _ in held}):
        curve = sorted((m for m in held if m[0].precision == precision), key=lambda m: m[0].batch)
        known, works = curve[len(curve) // 2]
        step = MeasuredStep(_loads(device, works, precision, shares), sum(_seconds(known, p) for p in PHASES))
        factor = corrected_by([step])
        found += [
            math.log(sum(_seconds(r, p) for p in PHASES) / factor.seconds(_loads(device, w, precision, shares)))
            for r, w in curve if r.batch != known.batch
        ]
    return found


def _interval(misses: Sequence[float]) -> tuple[float, float]:
    """p10 and p90, at least 5 % either way."""
    ordered = sorted(misses)
    last = len(ordered) - 1
    return min(-_LEAST, ordered[round(0.1 * last)]), max(_LEAST, ordered[round(0.9 * last)])
