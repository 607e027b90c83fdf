"""What was measured of an application on a type of accelerator: step times by placement and batch, gradient noise by batch and epoch.

Files, known by their columns, in a folder per application: ``placements-TYPE.csv`` (placement: accelerators on each node as digits,
local_bsz, step_time, sync_time), ``scalability-TYPE.csv`` (num_nodes, num_replicas instead of placement), ``validation-BATCH.csv``
(a row per epoch: progress, iteration, grad_sqr, grad_var).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ischeduler.core.errors import BadInput

Placement = tuple[int, ...]
EPOCHS = {"bert": 2, "cifar10": 100, "ncf": 10, "imagenet": 90, "deepspeech2": 80, "yolov3": 50}
RESTART_S = {"cifar10": 50.0, "deepspeech2": 25.0, "bert": 120.0, "yolov3": 80.0, "imagenet": 250.0, "ncf": 15.0}
"""Seconds of checkpoint and restore, measured; 30 where it was not."""
LARGEST_LOCAL = {("deepspeech2", "rtx"): 57}
MOST_NODES = 16


@dataclass(eq=False)
class Application:
    """One application on one type. Batches: it was tuned at ``base``; at most ``largest``; per accelerator ``least_local`` to ``most_local``."""

    name: str
    type: str
    placements: dict[str, Any]
    scalability: dict[str, Any]
    validation: dict[int, dict[str, Any]]
    base: int
    largest: int
    least_local: int
    most_local: int
    epochs: int
    restart_s: float
    _times: dict[tuple[Placement, int], tuple[float, float]] = field(default_factory=dict[Any, Any])
    _space: Any = None

    def noise(self, batch: float, epoch: int) -> tuple[float, float]:
        """(squared norm, variance) of the gradient in an epoch, interpolated between the measured batches. BadInput outside them."""
        low = max((b for b in self.validation if b <= batch), default=None)
        high = min((b for b in self.validation if b >= batch), default=None)
        if low is None or high is None:
            raise BadInput(f"The gradient noise of {self.name} was not measured at a batch of {batch:g}; it was from {self.base} to {self.largest}.")
        part = 0.0 if low == high else (batch - low) / (high - low)
        first, last = self.validation[low], self.validation[high]
        return (
            float((1 - part) * first["grad_sqr"][epoch] + part * last["grad_sqr"][epoch]),
            float((1 - part) * first["grad_var"][epoch] + part * last["grad_var"][epoch]),
        )

    def progress(self, epoch: int) -> float:
        """Progress (steps of the base batch) after so many epochs."""
        return 0.0 if epoch == 0 else self._after[epoch - 1]

    def __post_init__(self) -> None:
        self._after = [min(float(v["progress"][e]) for v in self.validation.values()) for e in range(self.epochs)]
        self._alone = {int(p): rows for p, rows in _grouped(self.placements, "placement").items()}

    def seconds(self, placement: Placement, local: int) -> tuple[float, float] | None:
        """(step, synchronisation) seconds with ``local`` samples on each accelerator; None where nothing near was measured."""
        key = (placement, local)
        if key not in self._times:
            self._times[key] = self._measured(placement, local)
        found = self._times[key]
        return None if np.isnan(found[0]) else found

    def _measured(self, placement: Placement, local: int) -> tuple[float, float]:
        rows = self._alone.get(placement_number(placement))
        if rows is not None:
            order = np.argsort(rows["local_bsz"])
            x = rows["local_bsz"][order]
            if not x[0] <= local <= x[-1]:
                return np.nan, np.nan
            return float(np.interp(local, x, rows["step_time"][order])), float(np.interp(local, x, rows["sync_time"][order]))
        if self._space is None:
            self._space = self._interpolator()
        found = self._space([min(len(placement), MOST_NODES), sum(placement), local])[0]
        return float(found[0]), float(found[1])

    def _interpolator(self) -> Any:
        """Over nodes, accelerators and local batch: the mean of the placements, and what was measured at scale."""
        from scipy.interpolate import LinearNDInterpolator

        p, s = self.placements, self.scalability
        points = np.stack([p["num_nodes"], p["num_replicas"], p["local_bsz"]], axis=1).astype(np.float64)
        unique, at = np.unique(points, axis=0, return_inverse=True)
        times = np.stack([np.bincount(at.ravel(), p[c]) / np.bincount(at.ravel()) for c in ("step_time", "sync_time")], axis=1)
        more = np.stack([s["num_nodes"], s["num_replicas"], s["local_bsz"]], axis=1).astype(np.float64)
        return LinearNDInterpolator(np.concatenate([unique, more]), np.concatenate([times, np.stack([s["step_time"], s["sync_time"]], axis=1)]))

    def most_on(self, placement: Placement) -> int:
        """The largest local batch measured on a placement, or on any as large."""
        rows = self._alone.get(placement_number(placement))
        if rows is not None:
            return int(rows["local_bsz"].max())
        s = self.scalability
        as_large = (s["num_nodes"] >= len(placement)) & (s["num_replicas"] >= sum(placement))
        return int(s["local_bsz"][as_large].max()) if as_large.any() else self.most_local

    def most_with(self, replicas: int) -> int | None:
        """The largest local batch measured on so many accelerators, None where none was."""
        same = self.placements["num_replicas"] == replicas
        return int(self.placements["local_bsz"][same].max()) if same.any() else None

    def samples_per_s(self) -> float:
        """Sia's measure of a type before a job has run: the largest local batch over the longest step on one accelerator."""
        one = self.placements["num_replicas"] == 1
        return float(self.placements["local_bsz"][one].max() / self.placements["step_time"][one].max())


def placement_number(placement: Placement) -> int:
    """Accelerators on each node as digits, in the rotation that comes first."""
    return int("".join(map(str, min(placement[i:] + placement[:i] for i in range(len(placement))))))


def _grouped(table: dict[str, Any], column: str) -> dict[Any, dict[str, Any]]:
    return {value: {name: values[table[column] == value] for name, values in table.items()} for value in np.unique(table[column])}


@cache
def read_application(folder: Path, kind: str) -> Application:
    """An application's measurements on a type. BadInput says which file or column is lacking."""
    placements = _table(folder / f"placements-{kind}.csv", ("placement", "local_bsz", "step_time", "sync_time"))
    digits = [str(int(p)) for p in placements["placement"]]
    placements["num_nodes"] = np.array([len(d) for d in digits], np.int64)
    placements["num_replicas"] = np.array([sum(map(int, d)) for d in digits], np.int64)
    scalability = _table(folder / f"scalability-{kind}.csv", ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time"))
    validation: dict[int, dict[str, Any]] = {}
    for path in folder.glob("validation-*.csv"):
        validation[int(path.stem.rsplit("-", 1)[1])] = _table(path, ("progress", "iteration", "grad_sqr", "grad_var"))
    if not validation:
        raise BadInput(f"{folder} has no validation-BATCH.csv; it should hold an application's gradient noise by batch.")
    validation = dict(sorted(validation.items()))
    name = folder.name
    return Application(
        name, kind, placements, scalability, validation, min(validation), max(validation), int(placements["local_bsz"].min()),
        LARGEST_LOCAL.get((name, kind), int(placements["local_bsz"].max())),
        EPOCHS.get(name, min(len(v["progress"]) for v in validation.values())), RESTART_S.get(name, 30.0),
    )  # fmt: skip


def _table(path: Path, needed: tuple[str, ...]) -> dict[str, Any]:
    import pandas as pd

    try:
        frame = pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read as csv ({' '.join(str(error).split())[:80]}).") from None
    lacking = [c for c in needed if c not in frame.columns]
    if lacking:
        raise BadInput(f"{path} has no column {', '.join(lacking)}; it has {', '.join(map(str, frame.columns))}.")
    return {str(c): frame[c].to_numpy() for c in frame.columns}
