"""Interruption, overlap and zero-interruption share of decisions, by load class, with paired block-bootstrap intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ischeduler.helper.provisioning.tuning import RETURN_H
from ischeduler.simulator.chain import outcome

LOW_H, HEAVY_H = 2.0, 12.0
"""Mirage's load classes, by the interruption of the reactive method: low up to 2 h, heavy beyond 12 h."""
BLOCK = 12
"""Episodes resampled together: two days of starts every four hours, since neighbours share their queue."""
ZERO_H = 1 / 60


@dataclass(frozen=True)
class Record:
    """A method's transitions in order of time, hours: arrays of equal length over all methods of a table. ``back``: starts given back."""

    method: str
    interruption: NDArray[np.float64]
    overlap: NDArray[np.float64]
    segment: NDArray[np.float64]
    back: NDArray[np.int64]

    @property
    def cost(self) -> NDArray[np.float64]:
        """Interruption plus overlap."""
        return self.interruption + self.overlap

    def figures(self, chosen: NDArray[np.bool_] | None = None) -> dict[str, float]:
        """Means over the chosen episodes, 0 without any."""
        keep = np.ones(len(self.cost), bool) if chosen is None else chosen
        if not keep.any():
            return {"episodes": 0, "interruption_h": 0.0, "overlap_h": 0.0, "sum_h": 0.0, "zero_share": 0.0, "segment_h": 0.0, "given_back": 0.0}
        return {
            "episodes": int(keep.sum()), "interruption_h": float(self.interruption[keep].mean()),
            "overlap_h": float(self.overlap[keep].mean()), "sum_h": float(self.cost[keep].mean()),
            "zero_share": float((self.interruption[keep] < ZERO_H).mean()), "segment_h": float(self.segment[keep].mean()),
            "given_back": float(self.back[keep].mean()),
        }


def record(method: str, outcomes: Sequence[tuple[float, int]], segment_h: float, checkpoint_s: int | None = None) -> Record:
    """A method's record from its signed gaps and the starts it gave back, each of which held two allocations for a minute."""
    found = [outcome(round(3600 * gap), round(3600 * segment_h), checkpoint_s) for gap, _ in outcomes]
    interruption, overlap, segment = (np.array([getattr(o, k) for o in found]) / 3600 for k in ("interruption_s", "overlap_s", "segment_s"))
    back = np.array([count for _, count in outcomes])
    return Record(method, interruption, overlap + RETURN_H * back, segment, back)


def classes(reactive: Record) -> dict[str, NDArray[np.bool_]]:
    """Load classes of the episodes."""
    cost = reactive.interruption
    return {"low": cost <= LOW_H, "medium": (cost > LOW_H) & (cost <= HEAVY_H), "heavy": cost > HEAVY_H}


def interval_h(hours: NDArray[np.float64], chosen: NDArray[np.bool_], *, samples: int = 2000, seed: int = 0, share: float = 0.95) -> tuple[float, float]:
    """Between which the mean of the chosen episodes (some at least) lies in resamples of neighbouring ones; those without any chosen are left out."""
    drawn = _blocks(len(hours), samples, seed)
    count = chosen[drawn].sum(axis=1)
    means = (hours * chosen)[drawn].sum(axis=1)[count > 0] / count[count > 0]
    low, high = np.quantile(means, [(1 - share) / 2, (1 + share) / 2])
    return float(low), float(high)


def reduction(
    ours: Record, others: Sequence[Record], *, samples: int = 2000, seed: int = 0, share: float = 0.95
) -> tuple[float, float, float]:
    """How much less ``ours`` costs than the best of ``others``, as a share: (value, low, high).

    Paired: every resample takes whole blocks of neighbouring episodes, the same for all methods; the best is found anew in each.
    """
    costs = np.stack([r.cost for r in (ours, *others)])
    drawn = np.concatenate([costs.mean(axis=1)[None], costs[:, _blocks(costs.shape[1], samples, seed)].mean(axis=2).T])
    best = np.maximum(drawn[:, 1:].min(axis=1), 1e-9)
    shares = 1 - drawn[:, 0] / best
    low, high = np.quantile(shares[1:], [(1 - share) / 2, (1 + share) / 2])
    return float(shares[0]), float(low), float(high)


def difference_h(ours: Record, other: Record, *, samples: int = 2000, seed: int = 0, share: float = 0.95) -> tuple[float, float, float]:
    """Hours that ``other`` costs more than ``ours``: (value, low, high), paired as in :func:`reduction`."""
    more = other.cost - ours.cost
    drawn = more[_blocks(len(more), samples, seed)].mean(axis=1)
    low, high = np.quantile(drawn, [(1 - share) / 2, (1 + share) / 2])
    return float(more.mean()), float(low), float(high)


def _blocks(count: int, samples: int, seed: int) -> NDArray[np.int64]:
    """Indices of moving-block resamples, shape (samples, count)."""
    size = max(1, min(BLOCK, count // 4))
    rng = np.random.default_rng(seed)
    first = rng.integers(0, count, (samples, -(-count // size)))
    return ((first[:, :, None] + np.arange(size)) % count).reshape(samples, -1)[:, :count]
