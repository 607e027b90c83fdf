"""What a network sees at a look: the last day of snapshots, standardised with the training episodes' figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ischeduler.helper.provisioning.evidence import Evidence
from ischeduler.helper.provisioning.state import MIRAGE

BACK_S = 86400
"""Mirage's networks see the last 144 snapshots of ten minutes."""


@dataclass(frozen=True)
class Scale:
    """Standardises the logarithms of the snapshots' features and of the remaining hours."""

    mean: NDArray[np.float32]
    deviation: NDArray[np.float32]

    @classmethod
    def of(cls, episodes: Sequence[Evidence]) -> Scale:
        """From training episodes."""
        rows = np.concatenate([_raw(e) for e in episodes])
        return cls(rows.mean(axis=0), rows.std(axis=0) + 1e-3)

    def as_data(self) -> list[list[float]]:
        """Means and deviations."""
        return [self.mean.tolist(), self.deviation.tolist()]

    @classmethod
    def from_data(cls, data: Sequence[Sequence[float]]) -> Scale:
        """The scale of :meth:`as_data`."""
        mean, deviation = (np.array(row, np.float32) for row in data)
        return cls(mean, deviation)

    def present(self, of: Evidence) -> NDArray[np.float32]:
        """The snapshot at every look with a forecast, shape (M, features + 1)."""
        return np.clip((_raw(of) - self.mean) / self.deviation, -5, 5)

    def past(self, of: Evidence, steps: int) -> NDArray[np.float32]:
        """The day up to each look, oldest first, shape (M, steps, features + 1).

        True snapshots of those times, not the present one pasted onto the past; before the episode's first look its first one.
        """
        rows, times = self.present(of), of.looks_s[of.asked]
        wanted = times[:, None] - np.linspace(BACK_S, 0, steps)[None, :]
        return rows[np.maximum(np.searchsorted(times, wanted, "right") - 1, 0)]


def steps_of(episodes: Sequence[Evidence]) -> int:
    """As many steps as a day has snapshots: 144 of ten minutes, 24 when only every sixth look is kept."""
    times = episodes[0].looks_s[episodes[0].asked]
    return max(2, min(144, round(BACK_S / max(1.0, float(np.median(np.diff(times)))))))


def _raw(of: Evidence) -> NDArray[np.float32]:
    rows = np.hstack([of.state[:, : len(MIRAGE)], of.remaining[of.asked][:, None]])
    return np.log1p(np.maximum(rows, 0.0)).astype(np.float32)
