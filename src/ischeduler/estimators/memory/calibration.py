"""What a card holds beside the allocator's blocks, learned from measured device totals at one site. Pure.

A site measures some runs (nvidia-smi or NVML) of models it can trace; :func:`learn` finds the context (median of what the
replay leaves unexplained), how many batches the loader keeps on the card beside the step's own, and how far single runs
stray: relative to the total, and relative to the largest convolution, whose algorithm search is the one thing no trace knows.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ischeduler.core.errors import BadInput
from ischeduler.core.sizes import MIB

LEAST_POINTS = 8
_INPUT_STEPS = tuple(x / 2 for x in range(9))
_LOWER, _UPPER = 0.12, 0.925
"""Quantiles aimed at: a little beyond 10 and 90 %, for fitted quantiles are too tight on new models."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One measured run beside its replay, in bytes: device total, reserved by the replay (workspaces included), one batch of
    inputs, and the largest convolution's images and result.
    """

    total: float
    reserved: float
    inputs: float
    convolution: float


@dataclass(frozen=True, slots=True)
class DeviceCalibration:
    """``total = reserved + context + inputs_held x inputs``; p10 and p90 are ``total x (1 + share) + share x convolution``."""

    context_bytes: float
    inputs_held: float = 0.0
    low_share: float = -0.03
    high_share: float = 0.06
    high_convolution: float = 0.0
    points: int = 0
    source: str = ""

    def quantiles(self, reserved: float, inputs: float, convolution: float) -> tuple[float, float, float]:
        """p10, p50, p90 of the device total in bytes."""
        middle = reserved + self.context_bytes + self.inputs_held * inputs
        high = middle * (1 + self.high_share) + self.high_convolution * convolution
        return min(middle, middle * (1 + self.low_share)), middle, max(middle, high)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> DeviceCalibration:
        """The inverse of :meth:`to_json`; BadInput on anything else."""
        try:
            return cls(**data)
        except TypeError as error:
            raise BadInput(f"This is no memory calibration ({error}); make one with isched calibrate.") from None


def learn(points: Sequence[Measured], source: str = "") -> DeviceCalibration:
    """The calibration of a site; BadInput when there are fewer than :data:`LEAST_POINTS`."""
    if len(points) < LEAST_POINTS:
        raise BadInput(f"A memory calibration needs at least {LEAST_POINTS} measured runs, not {len(points)}; measure more.")
    context, held = _centre(points)
    shares = [(p.total / (p.reserved + context + held * p.inputs) - 1, _risk(p, context, held)) for p in points]
    low = _quantile([s for s, _ in shares], _LOWER)
    high, steep = _upper_line(shares)
    return DeviceCalibration(context, held, min(0.0, low), high, steep, len(points), source)


def _centre(points: Sequence[Measured]) -> tuple[float, float]:
    """Context and loader's batches with the least median relative error."""
    best = (float("inf"), 0.0, 0.0)
    for held in _INPUT_STEPS:
        context = statistics.median(p.total - p.reserved - held * p.inputs for p in points)
        error = statistics.mean(abs(p.total - p.reserved - held * p.inputs - context) / p.total for p in points)
        best = min(best, (error, context, held))
    return max(0.0, best[1]), best[2]


def _risk(point: Measured, context: float, held: float) -> float:
    return point.convolution / (point.reserved + context + held * point.inputs)


def _upper_line(shares: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """(share, share per convolution) above which a tenth of the runs lie: the least pinball loss over lines."""
    best = (float("inf"), 0.0, 0.0)
    for steep in (x / 4 for x in range(17)):
        flat = max(0.0, _quantile([s - steep * r for s, r in shares], _UPPER))
        loss = sum(max(_UPPER * d, (_UPPER - 1) * d) for d in (s - flat - steep * r for s, r in shares))
        best = min(best, (loss, flat, steep))
    return best[1], best[2]


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, round(share * (len(ordered) - 1))))]


TYPICAL = DeviceCalibration(1200 * MIB, 0.0, -0.12, 0.12, 0.5, 0, "typical")
"""Where nothing was measured: context and libraries of 0.5 to 1.75 GB, by card, driver and libraries."""
