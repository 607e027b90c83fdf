"""A device as the roofline sees it: peaks from its datasheet, and the shares of them that its architecture was seen to reach."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ischeduler.core.cluster import Accelerator, NodeType
from ischeduler.estimators.steptime.architectures import architecture_of
from ischeduler.estimators.steptime.coefficients import Coefficients, Shares
from ischeduler.estimators.steptime.prior import prior_of
from ischeduler.estimators.steptime.work import CONVOLUTIONS, KINDS, Work


@dataclass(frozen=True, slots=True)
class Device:
    """Peaks in FLOP/s and bytes/s; ``units`` multiprocessors; ``matrix`` whether half precision runs on matrix units."""

    name: str
    architecture: str
    units: int
    plain_flops: float
    half_flops: float
    tensor_float_flops: float | None
    bandwidth_bytes_s: float
    matrix: bool
    coefficients: Coefficients

    @property
    def spread(self) -> float:
        """Half-width of p10-p90 as a factor minus 1, the wider side."""
        return math.exp(max(map(abs, self.coefficients.residual))) - 1

    def peak(self, work: Work, precision: str) -> tuple[float, str]:
        """(FLOP/s, mode) of a kernel.

        torch.backends.cudnn.allow_tf32 is on by default, torch.backends.cuda.matmul.allow_tf32 is not: so float32 convolutions
        run on matrix units where those take TF32, products only when ``precision`` is 'tf32'.
        """
        if work.dtype in ("bf16", "fp16"):
            return (self.half_flops, "tensor") if self.matrix else (max(self.half_flops, self.plain_flops), "plain")
        if self.tensor_float_flops and (work.kind in CONVOLUTIONS or (precision == "tf32" and work.kind == "matmul")):
            return self.tensor_float_flops, "tensor"
        return self.plain_flops, "plain"


def of_accelerator(card: Accelerator, coefficients: Coefficients | None = None) -> Device | None:
    """The card's datasheet with these coefficients, else its architecture's; None when it states neither FLOP/s nor bandwidth."""
    if not card.fp32_flops or not card.bandwidth_bytes_s:
        return None
    kind = architecture_of(card.name)
    half = card.fp16_flops or card.bf16_flops or card.fp32_flops
    tensor_float = card.tf32_flops or (half / 2 if half > 2 * card.fp32_flops else None)
    return Device(
        card.name, kind.name, kind.units, card.fp32_flops, half, tensor_float if kind.tensor_float else None,
        card.bandwidth_bytes_s, kind.matrix and half > 2 * card.fp32_flops, coefficients or prior_of(kind.name),
    )


@dataclass(frozen=True, slots=True)
class CpuCalibration:
    """A node's processors as measured by :func:`ischeduler.estimators.steptime.cpu.calibrate_cpu`, all cores together.

    FLOP/s of float32 convolutions and matrix products, bytes/s of element-wise work, seconds of the smallest operation.
    """

    cores: int
    conv_flops: float
    matmul_flops: float
    bandwidth_bytes_s: float
    operation_s: float
    measured_at: float | None = None
    cpu_model: str = ""


_CORE_FLOPS = 25e9  # float32 in oneDNN convolutions, a server core of 2015-2022 with AVX2 or AVX-512 under load
_CORE_BANDWIDTH = 4e9
_NODE_BANDWIDTH = 150e9
_CPU_MEASURED = (math.log(1 / 1.6), math.log(1.6))
_CPU_PRIOR = (math.log(1 / 2.8), math.log(2.8))
_CPU_CORRECTED = (-0.18, 0.18)
_CPU_SHARE = {"grouped": 0.4, "depthwise": 0.15}


def prior_cpu(node: NodeType) -> CpuCalibration:
    """Coefficients from the number of cores alone."""
    cores = max(1, node.cores or 1)
    effective = cores**0.9  # imperfect scaling over sockets
    flops = _CORE_FLOPS * effective
    return CpuCalibration(cores, flops, flops * 1.4, min(_NODE_BANDWIDTH, _CORE_BANDWIDTH * effective), 1.5e-5)


def of_cpu(calibration: CpuCalibration, cores: int | None = None) -> Device:
    """Processors as a device, scaled to the cores a job gets."""
    share = min(1.0, (cores or calibration.cores) / max(1, calibration.cores)) ** 0.9
    measured = calibration.measured_at is not None
    shares = _cpu_shares(calibration.conv_flops / calibration.matmul_flops, calibration.operation_s)
    flops = calibration.matmul_flops * share
    return Device(
        calibration.cpu_model or "cpu", "cpu", 1, flops, flops, None, calibration.bandwidth_bytes_s * share, False,
        Coefficients(dict.fromkeys(("forward", "backward", "optimizer"), shares),
                     _CPU_MEASURED if measured else _CPU_PRIOR, _CPU_CORRECTED, origin="micro-benchmark" if measured else "cores"),
    )


def _cpu_shares(convolution: float, operation_s: float) -> Shares:
    flops = dict.fromkeys(KINDS, 0.5) | {"matmul": 1.0}
    flops |= {k: convolution * _CPU_SHARE.get(k.partition("_")[2], 1.0) for k in CONVOLUTIONS}
    return Shares({"plain": flops, "tensor": flops}, dict.fromkeys(KINDS, 1.0), {}, operation_s, operation_s)
