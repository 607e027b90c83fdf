"""Each kernel takes the longer of its arithmetic and its memory traffic; a step is their sum. Pure.

Source of the model: Williams, Waterman, Patterson, "Roofline" (CACM 2009), applied per kernel, with fitted shares of the peaks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from ischeduler.estimators.steptime.coefficients import Load
from ischeduler.estimators.steptime.devices import Device
from ischeduler.estimators.steptime.oplog import OpRow
from ischeduler.estimators.steptime.prior import is_prior
from ischeduler.estimators.steptime.work import CONVOLUTIONS, Work, kernels

_TINY = 1e-30
UNMEASURED = math.log(2.0)
"""Log half-width of p10-p90 that float32 convolutions get from the prior: no licensed source measured them beyond ResNet-50's, so this
is a judgement and no residual."""


def step_seconds(rows: Iterable[OpRow], device: Device, precision: str, *, accumulate: int = 1) -> float:
    """Seconds of one optimizer step: ``accumulate`` passes forward and backward, one update."""
    parts = phase_seconds(rows, device, precision)
    return accumulate * (parts["forward"] + parts["backward"]) + parts["optimizer"]


def phase_seconds(rows: Iterable[OpRow], device: Device, precision: str) -> dict[str, float]:
    """Seconds by phase; the device's or the launching CPU's time, whichever is longer."""
    return {phase: load.seconds for phase, load in phase_loads(rows, device, precision).items()}


def phase_loads(rows: Iterable[OpRow], device: Device, precision: str) -> dict[str, Load]:
    """Seconds by phase, of the device and of the launching CPU apart."""
    return loads_of(kernels(rows), device, precision)


def loads_of(phases: Mapping[str, Iterable[Work]], device: Device, precision: str) -> dict[str, Load]:
    """The same from kernels."""
    found: dict[str, Load] = {}
    for phase, works in phases.items():
        shares = device.coefficients.phases.get(phase) or device.coefficients.phases["forward"]
        busy = launches = 0.0
        for work in works:
            peak, mode = device.peak(work, precision)
            busy += work.count * shares.kernel_seconds(work, peak, mode, device.bandwidth_bytes_s, device.units)
            launches += work.count * work.launches
        found[phase] = Load(busy + _TINY, launches * shares.dispatch_s + _TINY)
    return found


def residual(works: Iterable[Work], device: Device) -> tuple[float, float]:
    """(p10, p90) of log(true / estimated) of these kernels: the coefficients' own, wider where the prior has not seen their like."""
    known = device.coefficients
    whole = convolved = unmeasured = 0.0
    for work in works:
        flops = work.count * work.flops
        whole += flops
        if work.kind in CONVOLUTIONS:
            convolved += flops
            unmeasured += flops if work.dtype == "fp32" else 0.0
    if is_prior(known) and unmeasured > whole / 2:
        return min(known.residual[0], -UNMEASURED), max(known.residual[1], UNMEASURED)
    return known.products if known.products and convolved < whole / 2 else known.residual
