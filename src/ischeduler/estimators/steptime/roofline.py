"""Each operation takes the longer of its arithmetic and its memory traffic; a step is their sum. Pure.

Source of the model: Williams, Waterman, Patterson, "Roofline" (CACM 2009), applied per operation.
"""

from __future__ import annotations

from collections.abc import Iterable

from ischeduler.estimators.steptime.devices import BYTE_SHARE, FLOP_SHARE, Device
from ischeduler.estimators.steptime.oplog import OpRow

_CPU_FLOP_SHARE = {"conv": 1.0, "conv3x3": 1.0, "group_conv": 0.4, "depthwise_conv": 0.15, "matmul": 1.0, "attention": 0.5}


def step_seconds(rows: Iterable[OpRow], device: Device, precision: str, *, on_cpu: bool = False, accumulate: int = 1) -> float:
    """Seconds of one optimizer step: ``accumulate`` passes forward and backward, one update."""
    parts = phase_seconds(rows, device, precision, on_cpu=on_cpu)
    return accumulate * (parts["forward"] + parts["backward"]) + parts["optimizer"]


def phase_seconds(rows: Iterable[OpRow], device: Device, precision: str, *, on_cpu: bool = False) -> dict[str, float]:
    """Seconds by phase; the device's or the launching CPU's time, whichever is longer."""
    busy = {"forward": 0.0, "backward": 0.0, "optimizer": 0.0}
    launches = dict.fromkeys(busy, 0)
    for row in rows:
        rate = _cpu_rate(row, device) if on_cpu else _rate(row, device, precision)
        share = 1.0 if on_cpu else BYTE_SHARE[row.kind]
        longest = max(row.flops / rate, row.bytes / (device.bandwidth_bytes_s * share))
        busy[row.phase] += row.count * (longest + device.kernel_s)
        launches[row.phase] += row.count
    return {phase: max(busy[phase], launches[phase] * device.dispatch_s) for phase in busy}


def _rate(row: OpRow, device: Device, precision: str) -> float:
    plain, tensor = FLOP_SHARE[row.kind]
    if row.dtype in ("bf16", "fp16"):
        return device.half_flops * (tensor if device.tensor_cores else plain)
    convolution = row.kind in ("conv", "conv3x3", "group_conv", "depthwise_conv")
    # torch.backends.cudnn.allow_tf32 is on by default, torch.backends.cuda.matmul.allow_tf32 is not.
    if device.tensor_float_flops and (convolution or precision == "tf32"):
        return max(device.tensor_float_flops * tensor, device.plain_flops * plain)
    return device.plain_flops * plain


def _cpu_rate(row: OpRow, device: Device) -> float:
    share = _CPU_FLOP_SHARE.get(row.kind, 0.5)
    return device.plain_flops * share * (device.flop_share if "conv" in row.kind else 1.0)
