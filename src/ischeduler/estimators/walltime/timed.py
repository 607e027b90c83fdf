"""A finished run as the walltime models see it, and which runs stand for which scale. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Config = tuple[str, str, int]
"""(family, hardware, batch): what has one rate."""


@dataclass(frozen=True, slots=True)
class TimedRun:
    """One training. ``samples`` an epoch, ``seconds`` the whole run (0 where it is to be predicted).

    ``hardware`` names node type, cards and cores; ``features`` are numeric columns for regressors, the same in every run.
    """

    family: str
    hardware: str
    batch: int
    samples: int
    epochs: int
    seconds: float = 0.0
    features: tuple[float, ...] = ()

    @property
    def config(self) -> Config:
        """What has one rate."""
        return (self.family, self.hardware, self.batch)

    @property
    def group(self) -> tuple[str, str]:
        """(family, hardware): what robustness is judged by."""
        return (self.family, self.hardware)

    @property
    def seen(self) -> float:
        """Samples of all epochs."""
        return float(self.samples * self.epochs)


def sizes_of(runs: Sequence[TimedRun]) -> list[int]:
    """Distinct data sizes, ascending."""
    return sorted({r.samples for r in runs})


def by_config(runs: Sequence[TimedRun]) -> dict[Config, list[TimedRun]]:
    """Runs of one rate together."""
    found: dict[Config, list[TimedRun]] = {}
    for run in runs:
        found.setdefault(run.config, []).append(run)
    return found


@dataclass(frozen=True, slots=True)
class ScaleStep:
    """An exam inside the training data: ``test`` (all of size ``size``) is to be predicted from ``train`` (at most half of it)."""

    size: int
    train: tuple[TimedRun, ...]
    test: tuple[TimedRun, ...]


MIN_SIZES = 3
"""Fewer sizes than this do not examine a model on a larger one."""
STEPS = 2


def scale_steps(runs: Sequence[TimedRun], ratio: float = 2.0) -> tuple[ScaleStep, ...]:
    """The last :data:`STEPS` sizes, each with the runs of at most ``1/ratio`` of it; fewer where too few sizes are smaller."""
    steps: list[ScaleStep] = []
    for size in sizes_of(runs):
        train = tuple(r for r in runs if r.samples * ratio <= size)
        if len(sizes_of(train)) >= MIN_SIZES:
            steps.append(ScaleStep(size, train, tuple(r for r in runs if r.samples == size)))
    return tuple(steps[-STEPS:])
