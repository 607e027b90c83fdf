"""Measured steps correct the whole curve over batch sizes: a small Bayesian update. Pure.

Two factors are unknown beforehand, each about log-normal: of the device's time and of the launching CPU's. A step that was bound
by the device says much about the first and nothing about the second, and the other way round. The update is the maximum a posteriori
by Gauss-Newton; one bad measurement among several weighs less (Huber's weights).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ischeduler.estimators.steptime.coefficients import Load

DEVICE_SPREAD = 0.25
"""Standard deviation of the logarithm of (true / estimated) device time before anything was measured."""
LAUNCH_SPREAD = 0.20
NOISE = 0.03
"""Of one measured step time."""
_HUBER = 2.0
_ROUNDS = 12
_STEP = 1e-3


@dataclass(frozen=True, slots=True)
class Correction:
    """Factors on the device's and the launching CPU's time."""

    device: float = 1.0
    launch: float = 1.0

    def seconds(self, loads: Sequence[Load]) -> float:
        """The corrected time of the phases together."""
        return sum(Load(x.device_s * self.device, x.launch_s * self.launch).seconds for x in loads)


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """What the roofline says of a step, phase by phase, and what the step took."""

    loads: tuple[Load, ...]
    seconds: float


def corrected_by(steps: Sequence[MeasuredStep]) -> Correction:
    """The most likely correction; none without measurements."""
    found = (0.0, 0.0)
    if not steps:
        return Correction()
    for _ in range(_ROUNDS):
        found = _improved(found, steps)
    return Correction(math.exp(found[0]), math.exp(found[1]))


def _log_seconds(at: tuple[float, float], step: MeasuredStep) -> float:
    return math.log(Correction(math.exp(at[0]), math.exp(at[1])).seconds(step.loads))


def _improved(at: tuple[float, float], steps: Sequence[MeasuredStep]) -> tuple[float, float]:
    """One Gauss-Newton step of the 2 x 2 normal equations."""
    a, b, c = 1 / DEVICE_SPREAD**2, 0.0, 1 / LAUNCH_SPREAD**2
    u, v = 0.0, 0.0
    for step in steps:
        now = _log_seconds(at, step)
        slope = (
            (_log_seconds((at[0] + _STEP, at[1]), step) - now) / _STEP, (_log_seconds((at[0], at[1] + _STEP), step) - now) / _STEP
        )
        miss = math.log(step.seconds) - now
        weight = min(1.0, _HUBER * NOISE / abs(miss)) if miss and len(steps) > 2 else 1.0
        weight /= NOISE**2
        target = miss + slope[0] * at[0] + slope[1] * at[1]
        a, b, c = a + weight * slope[0] ** 2, b + weight * slope[0] * slope[1], c + weight * slope[1] ** 2
        u, v = u + weight * slope[0] * target, v + weight * slope[1] * target
    scale = a * c - b * b
    return (c * u - b * v) / scale, (a * v - b * u) / scale
