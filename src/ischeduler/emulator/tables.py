"""Measured times of one model on one accelerator, from a folder in GPEmu's layout.

``time/compute/{forward,backward}/GPU/MODEL/time_by_batch_size.csv`` (Batch_Size, Time_In_SECONDS),
``time/transfer/GPU/MODEL/data_transfer_time_by_batch_size.csv`` (the same columns), ``memory/GPU/MODEL/memory.csv``
(batch_size, peak, persistent in MiB). Only the first two are needed. Source: github.com/mengwanguc/gpemu, profiled_data.
"""

from __future__ import annotations

import csv
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ischeduler.core.errors import BadInput

Curve = Mapping[float, float]
"""Batch size -> seconds."""


@dataclass(frozen=True, slots=True)
class StepTable:
    """Seconds by batch size; ``transfer`` is empty where nobody measured it."""

    forward: Curve
    backward: Curve
    transfer: Curve

    def seconds(self, phase: str, batch: int) -> float:
        """Between measured batch sizes a straight line; beyond the last one in proportion to the batch."""
        return at(getattr(self, phase), batch)


def at(curve: Curve, batch: float) -> float:
    """A curve's value: linear between its points, proportional beyond its last, its first value below its first."""
    known = sorted(curve)
    place = bisect_left(known, batch)
    if (place < len(known) and known[place] == batch) or place == 0:
        return curve[known[place]]
    if place == len(known):
        return curve[known[-1]] * batch / known[-1]
    low, high = known[place - 1], known[place]
    return curve[low] + (curve[high] - curve[low]) * (batch - low) / (high - low)


def read_table(root: Path, gpu: str, model: str) -> StepTable:
    """The tables of one model on one card. BadInput names what is missing and what there is."""
    forward, backward = (_curve(_found(root / "time" / "compute" / phase, gpu, model)) for phase in ("forward", "backward"))
    transfer = root / "time" / "transfer" / gpu / model / "data_transfer_time_by_batch_size.csv"
    return StepTable(forward, backward, _curve(transfer) if transfer.exists() else {})


def _found(folder: Path, gpu: str, model: str) -> Path:
    path = folder / gpu / model / "time_by_batch_size.csv"
    if path.is_file():
        return path
    if not folder.is_dir():
        raise BadInput(f"{folder.parents[2]} has no time/compute/{folder.name}; give a folder in GPEmu's layout (profiled_data).")
    kind, name, there = ("GPU", gpu, folder) if not (folder / gpu).is_dir() else ("model", model, folder / gpu)
    names = sorted(p.name for p in there.iterdir() if p.is_dir())
    raise BadInput(f"{there} has no {kind} '{name}'; there are {', '.join(names[:8]) or 'none'}.")


def _curve(path: Path) -> dict[float, float]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            curve = {float(row["Batch_Size"]): float(row["Time_In_SECONDS"]) for row in csv.DictReader(file)}
    except (KeyError, ValueError, TypeError, OSError) as error:
        raise BadInput(f"{path} cannot be read as a table with Batch_Size and Time_In_SECONDS ({error}).") from None
    if not curve or min(curve) <= 0 or min(curve.values()) < 0:
        raise BadInput(f"{path} has no rows, or times below zero; expected Batch_Size and Time_In_SECONDS.")
    return curve
