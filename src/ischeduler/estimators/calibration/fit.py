"""Fits coefficients to measured times. Needs PyTorch (for its gradients and L-BFGS); small: seconds on one core.

One figure a kind is shared by all devices of a fit, and each device may depart from it, at a price (a ridge on the logarithms):
so that a card with few measurements leans on the others, and all lean on the start. Errors are relative and robust (pseudo-Huber).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ischeduler.core.errors import BadInput, EstimatorFailed
from ischeduler.estimators.steptime.coefficients import MODES, Shares
from ischeduler.estimators.steptime.devices import Device
from ischeduler.estimators.steptime.work import DIRECTIONS, KINDS, Work, features

_WINOGRAD = {"plain": 1.2, "tensor": 0.85}
"""Of 3 x 3 kernels: on plain units Winograd's method saves multiplications, and passes the peak (Lavin and Gray, CVPR 2016)."""
START = Shares(
    flops={
        mode: {
            **dict.fromkeys(KINDS, 0.6 * scale),
            **{f"{d}_{s}": v * scale for d in DIRECTIONS[:3] for s, v in
               {"1x1": 0.6, "3x3": _WINOGRAD[mode], "3x3_strided": 0.5, "other": 0.5, "grouped": 0.2, "depthwise": 0.08}.items()},
        }
        for mode, scale in (("plain", 1.0), ("tensor", 0.5))
    },
    bytes=dict.fromkeys(KINDS, 0.6), exponents=dict.fromkeys(DIRECTIONS, (0.0, 0.0, 0.0)), kernel_s=4e-6, dispatch_s=1.5e-5,
)
"""Round values to start from where there is no prior: well-tuned kernels reach 60-90 % of a peak, depthwise ones a tenth."""


@dataclass(frozen=True)
class Point:
    """One measured phase: its kernels at the measured batch, and seconds. ``weight`` counts in the fit."""

    device: Device
    kernels: Sequence[Work]
    precision: str
    seconds: float
    weight: float = 1.0


_MANY_MODELS = 12


@dataclass(frozen=True)
class Stiffness:
    """What departing by a factor e costs, in units of the mean loss.

    ``shared`` of a kind on all devices, ``device`` of a kind on one, ``level`` of all kinds on one, ``exponent`` of an exponent.
    """

    shared: float = 1e-4
    device: float = 1e-3
    level: float = 1e-4
    exponent: float = 1e-3
    iterations: int = 150
    huber: float = 0.1

    @classmethod
    def of_models(cls, models: int) -> Stiffness:
        """For so many measured models a card: a dozen may speak for themselves, a handful lean on the start."""
        return cls(1e-5, 1e-4, 1e-5, 3e-5) if models >= _MANY_MODELS else cls(1e-3, 1e-2, 3e-4, 1e-2)


@dataclass
class _Flat:
    """All kernels of all points in one row each."""

    columns: dict[str, list[float]] = field(default_factory=lambda: {n: [] for n in _COLUMNS})

    def add(self, index: int, device: int, point: Point) -> None:
        for work in point.kernels:
            peak, mode = point.device.peak(work, point.precision)
            row = (
                index, device, MODES.index(mode), _KIND[work.kind], work.flops / peak, work.bytes / point.device.bandwidth_bytes_s,
                work.count, work.launches, DIRECTIONS.index(work.direction) if work.direction else 0,
                *features(work, point.device.units),
            )
            for name, value in zip(_COLUMNS, row, strict=True):
                self.columns[name].append(value)


_KIND = {k: i for i, k in enumerate(KINDS)}
_COLUMNS = ("point", "device", "mode", "kind", "flop_s", "byte_s", "count", "launches", "direction", "f0", "f1", "f2")
_INTEGERS = ("point", "device", "mode", "kind", "direction")


def fit_phase(
    points: Sequence[Point], *, start: Shares = START, stiffness: Stiffness | None = None
) -> tuple[Shares, dict[str, Shares]]:
    """(shared figures, figures by device name) of one phase. BadInput without points, EstimatorFailed without PyTorch."""
    if not points:
        raise BadInput("There is nothing to fit; measure at least one model's step first.")
    torch = _torch()
    names = list(dict.fromkeys(p.device.name for p in points))
    flat = _Flat()
    for index, point in enumerate(points):
        flat.add(index, names.index(point.device.name), point)
    problem = _Problem(torch, flat, points, names, start, stiffness or Stiffness())
    return problem.solve()


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise EstimatorFailed("Fitting needs PyTorch; pip install 'ischeduler[torch]'.") from None
    return torch


def _flops(p: Mapping[str, Any]) -> Any:
    """Log shares by mode and kind: what a kernel is good at is much the same on plain and on matrix units, their level is not."""
    return p["flops"] + p["common"] + p["level"]


class _Problem:
    """Parameters are logarithms, in named blocks."""

    def __init__(
        self, torch: Any, flat: _Flat, points: Sequence[Point], names: list[str], start: Shares, stiffness: Stiffness
    ) -> None:
        self._torch, self._names, self._start, self._stiffness = torch, names, start, stiffness
        self._x = {n: torch.tensor(v, dtype=torch.long if n in _INTEGERS else torch.float64) for n, v in flat.columns.items()}
        self._features = torch.stack([self._x["f0"], self._x["f1"], self._x["f2"]], 1)
        self._log_s = torch.log(torch.tensor([p.seconds for p in points], dtype=torch.float64))
        self._weight = torch.tensor([p.weight for p in points], dtype=torch.float64)
        self._weight /= self._weight.sum()
        self._of_point = torch.tensor([names.index(p.device.name) for p in points])
        self._launches = self._per_point(self._x["count"] * self._x["launches"])
        self._first = self._start_values()

    def _start_values(self) -> dict[str, Any]:
        torch, start, n = self._torch, self._start, len(self._names)
        def log(values: Sequence[float]) -> Any:
            return torch.log(torch.tensor(values, dtype=torch.float64))

        zeros = {
            "common": (len(KINDS),), "level": (len(MODES), 1), "flops_by": (n, len(MODES), len(KINDS)), "bytes_by": (n, len(KINDS)),
            "latency_by": (n, 2), "level_by": (n, len(MODES)), "band_by": (n, 1),
        }
        return {
            "flops": torch.stack([log([start.flops[m][k] for k in KINDS]) for m in MODES]),
            "bytes": log([start.bytes[k] for k in KINDS]),
            "exponents": torch.tensor([start.exponents.get(d, (0.0, 0.0, 0.0)) for d in DIRECTIONS], dtype=torch.float64),
            "latency": log([start.kernel_s, start.dispatch_s]),
            **{name: torch.zeros(shape, dtype=torch.float64) for name, shape in zeros.items()},
        }

    def _per_point(self, values: Any) -> Any:
        return self._torch.zeros(len(self._log_s), dtype=self._torch.float64).index_add(0, self._x["point"], values)

    def _log_predicted(self, p: Mapping[str, Any]) -> Any:
        torch, x = self._torch, self._x
        share = _flops(p)[x["mode"], x["kind"]] + p["flops_by"][x["device"], x["mode"], x["kind"]]
        share = share + p["level_by"][x["device"], x["mode"]]
        share = share + (self._features * p["exponents"][x["direction"]]).sum(1)
        band = p["bytes"][x["kind"]] + p["bytes_by"][x["device"], x["kind"]] + p["band_by"][x["device"], 0]
        busy = torch.sqrt((x["flop_s"] * torch.exp(-share)) ** 2 + (x["byte_s"] * torch.exp(-band)) ** 2 + 1e-30)
        latency = torch.exp(p["latency"] + p["latency_by"])
        device_s = self._per_point((busy + x["launches"] * latency[x["device"], 0]) * x["count"])
        launch_s = self._launches * latency[self._of_point, 1]
        return torch.log(device_s**6 + launch_s**6 + 1e-60) / 6

    def _loss(self, p: Mapping[str, Any]) -> Any:
        h = self._stiffness.huber
        error = self._log_predicted(p) - self._log_s
        loss = (h * h * (self._torch.sqrt(1 + (error / h) ** 2) - 1) * self._weight).sum()
        s = self._stiffness
        price = {"flops": s.device, "common": s.shared, "level": s.shared / 10, "bytes": s.shared, "latency": s.shared,
                 "exponents": s.exponent, "flops_by": s.device, "bytes_by": s.device, "latency_by": s.device,
                 "level_by": s.level, "band_by": s.level}
        return loss + sum(price[k] * ((p[k] - self._first[k]) ** 2).sum() for k in p)

    def solve(self) -> tuple[Shares, dict[str, Shares]]:
        """Minimise, and read the figures back."""
        p = {k: v.clone().requires_grad_(True) for k, v in self._first.items()}
        search = self._torch.optim.LBFGS(
            list(p.values()), lr=1, max_iter=self._stiffness.iterations, history_size=20, line_search_fn="strong_wolfe"
        )

        def closure() -> Any:
            search.zero_grad()
            loss = self._loss(p)
            loss.backward()
            return loss

        search.step(closure)
        found = {k: v.detach() for k, v in p.items()}
        return self._shares(found, None), {name: self._shares(found, i) for i, name in enumerate(self._names)}

    def _shares(self, p: Mapping[str, Any], device: int | None) -> Shares:
        """Of one device; None: of the typical one (the mean over those that measured a figure is in the shared part)."""
        exp = self._torch.exp
        flops, band, latency = _flops(p), p["bytes"], p["latency"]
        if device is not None:
            flops = flops + p["flops_by"][device] + p["level_by"][device][:, None]
            band = band + p["bytes_by"][device] + p["band_by"][device]
            latency = latency + p["latency_by"][device]
        return Shares(
            {m: dict(zip(KINDS, exp(flops[i]).tolist(), strict=True)) for i, m in enumerate(MODES)},
            dict(zip(KINDS, exp(band).tolist(), strict=True)),
            {d: (float(e[0]), float(e[1]), float(e[2])) for d, e in zip(DIRECTIONS, p["exponents"].tolist(), strict=True)},
            float(exp(latency[0])), float(exp(latency[1])),
        )
