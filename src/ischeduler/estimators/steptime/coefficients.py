"""What share of its peaks a device reaches, by kind of kernel: fitted figures, read from JSON, evaluated in plain Python."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ischeduler.core.errors import BadInput
from ischeduler.estimators.steptime.work import Work, features

MODES = ("plain", "tensor")
"""Arithmetic on the plain units, or on matrix (tensor) units."""
_SOFT_KERNEL = 2.0
_SOFT_QUEUE = 6.0


@dataclass(frozen=True, slots=True)
class Load:
    """What a phase keeps busy: seconds of the device, and seconds of the CPU that launches its kernels; they overlap."""

    device_s: float
    launch_s: float

    @property
    def seconds(self) -> float:
        """The longer of both, with a soft corner: queues are never perfectly full."""
        return math.hypot(self.device_s**3, self.launch_s**3) ** (2 / _SOFT_QUEUE)


@dataclass(frozen=True, eq=False)
class Shares:
    """One phase's figures. ``flops``: mode -> kind -> share of the mode's peak; ``bytes``: kind -> share of the bandwidth.

    ``exponents``: direction -> how strongly the three :func:`~ischeduler.estimators.steptime.work.features` count;
    ``kernel_s`` the shortest a kernel takes, ``dispatch_s`` what the launching CPU needs for one operation.
    """

    flops: Mapping[str, Mapping[str, float]]
    bytes: Mapping[str, float]
    exponents: Mapping[str, tuple[float, float, float]]
    kernel_s: float
    dispatch_s: float

    def kernel_seconds(self, work: Work, peak: float, mode: str, bandwidth: float, units: float) -> float:
        """One kernel: arithmetic and traffic overlap, mostly; never shorter than ``kernel_s`` more."""
        share = self.flops[mode][work.kind]
        if work.tiles:
            gains = self.exponents.get(work.direction, (0.0, 0.0, 0.0))
            share *= math.exp(sum(g * f for g, f in zip(gains, features(work, units), strict=True)))
        busy = math.hypot(work.flops / (peak * share), work.bytes / (bandwidth * self.bytes[work.kind]))
        return busy + work.launches * self.kernel_s

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, four figures each."""
        return {
            "flops": {m: _rounded(s) for m, s in self.flops.items()}, "bytes": _rounded(self.bytes),
            "exponents": {d: [_figures(v) for v in e] for d, e in self.exponents.items()},
            "kernel_s": _figures(self.kernel_s), "dispatch_s": _figures(self.dispatch_s),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Shares:
        """The inverse; BadInput where figures are missing or not positive."""
        try:
            flops = {m: {k: float(v) for k, v in data["flops"][m].items()} for m in MODES}
            exponents = {d: (float(e[0]), float(e[1]), float(e[2])) for d, e in data["exponents"].items()}
            shares = cls(flops, {k: float(v) for k, v in data["bytes"].items()}, exponents,
                         float(data["kernel_s"]), float(data["dispatch_s"]))
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise BadInput(f"Coefficients lack or misstate {error}; fit them again with isched calibrate.") from None
        figures = (*shares.bytes.values(), *(v for m in MODES for v in flops[m].values()), shares.kernel_s, shares.dispatch_s)
        if not all(math.isfinite(v) and v > 0 for v in figures):
            raise BadInput("Coefficients must be positive numbers; fit them again with isched calibrate.")
        return shares


@dataclass(frozen=True, eq=False)
class Coefficients:
    """All phases of one device (or architecture). ``residual`` is (p10, p90) of log(measured / estimated) on unseen models;
    ``products`` the same of models that mostly multiply matrices, where those were looked at apart.
    """

    phases: Mapping[str, Shares]
    residual: tuple[float, float] = (-0.3, 0.3)
    corrected: tuple[float, float] = (-0.12, 0.12)
    origin: str = ""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    products: tuple[float, float] | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        apart = {} if self.products is None else {"products": [_figures(v) for v in self.products]}
        return apart | {
            "phases": {p: s.to_json() for p, s in self.phases.items()}, "residual": [_figures(v) for v in self.residual],
            "corrected": [_figures(v) for v in self.corrected], "origin": self.origin, "provenance": dict(self.provenance),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Coefficients:
        """The inverse; BadInput on anything else."""
        try:
            phases = {p: Shares.from_json(s) for p, s in data["phases"].items()}
            low, high = data["residual"]
            narrow, wide = data["corrected"]
            products = tuple(map(float, data["products"])) if data.get("products") else None
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"Coefficients lack or misstate {error}; fit them again with isched calibrate.") from None
        if products is not None and len(products) != 2:
            raise BadInput("Coefficients misstate products; fit them again with isched calibrate.")
        return cls(phases, (float(low), float(high)), (float(narrow), float(wide)), str(data.get("origin", "")),
                   dict(data.get("provenance", {})), products)


def _figures(value: float) -> float:
    return float(f"{value:.4g}")


def _rounded(shares: Mapping[str, float]) -> dict[str, float]:
    return {k: _figures(v) for k, v in shares.items()}
