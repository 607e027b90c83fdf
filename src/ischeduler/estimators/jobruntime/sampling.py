"""Draws from a run-time law: joint samples for all jobs alive, for roll-outs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray



def uniforms(
    groups: NDArray[np.int64], rollouts: int, *, seed: int, together: float = 0.3, jobs: NDArray[np.int64] | None = None
) -> NDArray[np.float64]:
    """Uniform numbers of shape (jobs, rollouts); jobs of one group (a user's alike jobs) are correlated.

    A Gaussian copula: ``together`` is the share of variance a group has in common. Jobs of one user and kind fail or finish
    together, and without it the sums a queue's end depends on are too sure of themselves. A job's numbers depend on its group, its
    own number in ``jobs`` (default: its place) and the seed alone, not on which other jobs there are: those that come later move nothing.
    """
    from scipy.special import ndtr, ndtri

    own = np.arange(len(groups)) if jobs is None else jobs
    common, single = ndtri(_scattered(groups, rollouts, 2 * seed)), ndtri(_scattered(own, rollouts, 2 * seed + 1))
    return ndtr(np.sqrt(together) * common + np.sqrt(1 - together) * single)


def _scattered(keys: NDArray[np.int64], count: int, seed: int) -> NDArray[np.float64]:
    """``count`` uniform numbers a key, between 0 and 1 (exclusive): SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) as a hash."""
    with np.errstate(over="ignore"):
        mixed = _mix(_mix(np.asarray(keys).astype(np.uint64) + np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15))[:, None] + np.arange(count, dtype=np.uint64))
    return ((mixed >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def _mix(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    state = state * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x632BE59BD9B4E019)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def draw_remaining_s(
    deciles_s: NDArray[np.float64], left_s: NDArray[np.int64], uniform: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Remaining run times in seconds, shape of ``uniform`` (jobs, rollouts): inverse transform, straight between deciles.

    Below the first decile it goes to nothing, above the ninth to the limit (``left_s``).
    """
    knots = np.concatenate([np.zeros((len(deciles_s), 1)), deciles_s, np.asarray(left_s, float)[:, None]], axis=1)
    step = np.clip((uniform * 10).astype(np.int64), 0, 9)
    low = np.take_along_axis(knots, step, axis=1)
    high = np.take_along_axis(knots, step + 1, axis=1)
    return np.maximum(np.rint(low + (uniform * 10 - step) * (high - low)), 1).astype(np.int64)
