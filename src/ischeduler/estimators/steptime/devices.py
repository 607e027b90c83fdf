"""What a device can do at most, and what share of it each class of operation reaches.

Peaks are datasheet figures (core's Accelerator). Efficiencies are round values by class from
the literature, revised once by hand after a comparison with GPEmu's cards, so figures against GPEmu are no independent test of
them; those against NeuSight are. Both are in ``tests/integration/test_estimator_truth.py``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ischeduler.core.cluster import Accelerator, NodeType

_TENSOR_FLOAT = re.compile(
    r"\b(a100|a10|a16|a2|a30|a40|a800|g?h100|g?h200|h800|g?b100|g?b200|g?b300|l4|l40s?|rtx-?(30|40|50)\d\d|a[4-6]000)\b", re.I
)
_TENSOR_CORES = re.compile(r"v100|t4|titan-?v|rtx-?(20|6000|8000)", re.I)

# Share of peak FLOP/s reached by class: (plain units, tensor cores). Well-tuned fp32 kernels reach 80-90 %; Winograd's method
# saves up to 2.25 of the multiplications of 3x3 kernels (Lavin and Gray, CVPR 2016), so those pass the peak.
FLOP_SHARE = {
    "conv": (0.80, 0.35), "conv3x3": (1.15, 0.45), "group_conv": (0.30, 0.10), "depthwise_conv": (0.10, 0.05),
    "matmul": (0.85, 0.55), "attention": (0.50, 0.35), "norm": (0.5, 0.5), "pool": (0.5, 0.5), "elementwise": (0.5, 0.5),
}
BYTE_SHARE = {
    "conv": 0.70, "conv3x3": 0.70, "group_conv": 0.50, "depthwise_conv": 0.40, "matmul": 0.70,
    "attention": 0.5, "norm": 0.60, "pool": 0.60, "elementwise": 0.80,
}
KERNEL_S = 4e-6
"""The shortest a kernel takes on the device."""
DISPATCH_S = 1.2e-5
"""What eager PyTorch needs on the CPU for one operation; the device waits for it when kernels are shorter."""


@dataclass(frozen=True, slots=True)
class Device:
    """A device as the roofline sees it. FLOP/s by kind of number; ``spread`` is the p10-p90 half-width as a factor minus 1."""

    name: str
    plain_flops: float
    half_flops: float
    tensor_float_flops: float | None
    bandwidth_bytes_s: float
    tensor_cores: bool
    spread: float
    kernel_s: float = KERNEL_S
    dispatch_s: float = DISPATCH_S
    flop_share: float = 1.0


ACCELERATOR_SPREAD = 0.60
UNKNOWN_SPREAD = 1.5


def of_accelerator(card: Accelerator) -> Device | None:
    """The card's datasheet as a device; None when it states neither FLOP/s nor bandwidth."""
    if not card.fp32_flops or not card.bandwidth_bytes_s:
        return None
    tensor = bool(_TENSOR_FLOAT.search(card.name) or _TENSOR_CORES.search(card.name))
    half = card.bf16_flops or card.fp32_flops
    tensor_float = half / 2 if _TENSOR_FLOAT.search(card.name) and half > 2 * card.fp32_flops else None
    known = card.vendor == "nvidia"
    return Device(
        card.name, card.fp32_flops, half, tensor_float, card.bandwidth_bytes_s, tensor and half > 2 * card.fp32_flops,
        ACCELERATOR_SPREAD if known else UNKNOWN_SPREAD,
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


CPU_SPREAD_MEASURED = 0.6
CPU_SPREAD_PRIOR = 1.8
_CORE_FLOPS = 25e9  # float32 in oneDNN convolutions, a server core of 2015-2022 with AVX2 or AVX-512 under load
_CORE_BANDWIDTH = 4e9
_NODE_BANDWIDTH = 150e9


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
    return Device(
        calibration.cpu_model or "cpu", calibration.matmul_flops * share, calibration.matmul_flops * share, None,
        calibration.bandwidth_bytes_s * share, False, CPU_SPREAD_MEASURED if measured else CPU_SPREAD_PRIOR,
        kernel_s=calibration.operation_s, dispatch_s=calibration.operation_s,
        flop_share=calibration.conv_flops / calibration.matmul_flops,
    )
