"""A ten-second micro-benchmark of a CPU node: what its processors reach in convolutions, products and copies."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from statistics import median

from ischeduler.core.errors import EstimatorFailed
from ischeduler.estimators.steptime.devices import CpuCalibration


def calibrate_cpu(seconds: float = 8.0) -> CpuCalibration:
    """Measure the cores this process may use, with PyTorch; EstimatorFailed without it. The caller keeps the result."""
    try:
        import torch
    except ImportError:
        raise EstimatorFailed("Calibration needs PyTorch; pip install 'ischeduler[torch]'.") from None
    cores = len(os.sched_getaffinity(0))
    share = seconds / 4
    with torch.no_grad():
        left, right = torch.randn(1024, 1024), torch.randn(1024, 1024)
        product = _best_s(lambda: left @ right, share)
        images, kernels = torch.randn(8, 128, 28, 28), torch.randn(128, 128, 3, 3)
        convolution = _best_s(lambda: torch.nn.functional.conv2d(images, kernels, padding=1), share)
        wide = torch.randn(2**24)
        addition = _best_s(lambda: torch.add(wide, 1.0), share)
        small = torch.randn(16)
        smallest = _best_s(lambda: torch.add(small, 1.0), share)
    return CpuCalibration(
        cores, 2 * 8 * 128 * 128 * 9 * 28 * 28 / convolution, 2 * 1024**3 / product, 2 * wide.numel() * 4 / addition,
        smallest, measured_at=time.time(), cpu_model=_cpu_model(),
    )


def _best_s(action: Callable[[], object], seconds: float) -> float:
    """The median of the faster half of repetitions within that time."""
    action()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 5 or (time.perf_counter() < end and len(times) < 2000):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return median(sorted(times)[: max(1, len(times) // 2)])


def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    except OSError:
        return ""
