"""The ten-second calibration of the computer at hand: its processors and, where there is one, its accelerator. Needs PyTorch."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ischeduler.core.cluster import Accelerator
from ischeduler.core.errors import EstimatorFailed
from ischeduler.estimators.calibration.fit import Point, Stiffness, fit_phase
from ischeduler.estimators.calibration.microbench import SHORT, Operations, measure
from ischeduler.estimators.calibration.record import CalibrationRecord, OperationTime
from ischeduler.estimators.steptime.coefficients import Coefficients
from ischeduler.estimators.steptime.cpu import calibrate_cpu
from ischeduler.estimators.steptime.devices import Device, of_accelerator
from ischeduler.estimators.steptime.oplog import OpRow
from ischeduler.estimators.steptime.work import Work, kernels

PRECISIONS = ("fp32", "bf16")
RESIDUAL = 0.30
"""Log half-width of p10-p90 after a micro-benchmark: operations alone leave out caches, overlap and launch queues."""


def calibrate_processors(seconds: float, node_type: str = "", command: str = "isched calibrate") -> CalibrationRecord:
    """This computer's processors (those this process may use)."""
    cpu = calibrate_cpu(seconds)
    return CalibrationRecord("", _torch_version(), time.time(), node_type=node_type, cpu=cpu, provenance=_provenance(command))


def calibrate_accelerator(
    card: Accelerator, seconds: float, operations: Operations = SHORT, command: str = "isched calibrate"
) -> CalibrationRecord:
    """The first visible accelerator, described by ``card``. EstimatorFailed where there is none or its datasheet is unknown."""
    import torch

    device = of_accelerator(card)
    if not torch.cuda.is_available():
        raise EstimatorFailed("PyTorch sees no accelerator here; run isched calibrate in a job on a node that has one.")
    if device is None:
        raise EstimatorFailed(f"FLOP/s and bandwidth of {card.name} are unknown; add them to the cluster's description first.")
    context = _context_bytes(torch)
    found: list[OperationTime] = []
    for precision in PRECISIONS:
        deadline = time.monotonic() + seconds / len(PRECISIONS)
        found += measure(operations, precision, "cuda", seconds_each=seconds / 60, deadline=deadline)
    stack = str(torch.version.cuda or torch.version.hip or "")
    return CalibrationRecord(
        card.name, torch.__version__, time.time(), driver_version(), stack, context_bytes=context, operations=tuple(found),
        coefficients=fitted(device, found).to_json(), provenance=_provenance(command),
    )


def fitted(device: Device, operations: Sequence[OperationTime]) -> Coefficients:
    """Coefficients of a device from operations alone, leaning on its architecture's."""
    phases = dict(device.coefficients.phases)
    for phase in ("forward", "backward"):
        rows = [o for o in operations if o.phase == phase]
        rows += [o for o in operations if phase == "backward" and o.phase == "forward" and "conv" not in o.kind]
        points = [Point(device, works, o.dtype, o.seconds) for o in rows if (works := works_of(o, phase))]
        if points:
            few = Stiffness(shared=1e-4, device=1e-2, level=1e-3, exponent=1e-2)
            _, own = fit_phase(points, start=phases[phase], stiffness=few)
            # launches are not to be had from operations timed one after the other
            phases[phase] = replace(own[device.name], dispatch_s=phases[phase].dispatch_s)
    return Coefficients(phases, (-RESIDUAL, RESIDUAL), device.coefficients.corrected, origin="micro-benchmark")


def works_of(operation: OperationTime, phase: str) -> tuple[Work, ...]:
    """The kernels of a micro-benchmark."""
    dtype = "fp32" if operation.dtype == "tf32" else operation.dtype
    if operation.kind == "reduction":
        return (Work("reduction", dtype, 0.0, operation.bytes, 1),)
    row = OpRow(phase, operation.kind, dtype, operation.flops, operation.bytes, 1, operation.shape)
    return kernels([row])[phase]


def driver_version() -> str:
    """As ``nvidia-smi`` says it; '' where it does not."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True, timeout=20, check=True
        )
        return done.stdout.splitlines()[0].strip() if done.stdout else ""
    return ""


def device_bytes(torch: Any) -> int | None:
    """What all processes hold on the current card, as its driver counts (CUDA's memory information)."""
    try:
        free, total = torch.cuda.mem_get_info()
    except (RuntimeError, AssertionError):
        return None
    return int(total - free)


def _context_bytes(torch: Any) -> int | None:
    """Driver context and libraries: what is held once the first kernels ran, less what PyTorch has reserved."""
    ones = torch.ones(256, 256, device="cuda")
    torch.mm(ones, ones)
    torch.cuda.synchronize()
    held = device_bytes(torch)
    return None if held is None else max(0, held - int(torch.cuda.memory_reserved()))


def _torch_version() -> str:
    import torch

    return str(torch.__version__)


def _provenance(command: str) -> dict[str, str]:
    from ischeduler import __version__

    return {"source": "measured on the device named", "command": command, "ischeduler": __version__, "licence": "the measurer's own"}
