"""Draws from a run-time law: joint samples for all jobs alive, for roll-outs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray



def uniforms(groups: NDArray[np.int64], rollouts: int, *, seed: int, together: float = 0.3) -> NDArray[np.float64]:
    """Uniform numbers of shape (jobs, rollouts); jobs of one group (a user's alike jobs) are correlated.

    A Gaussian copula: ``together`` is the share of variance a group has in common. Jobs of one user and kind fail or finish
    together, and without it the sums a queue's end depends on are too sure of themselves.
    """
    from scipy.special import ndtr

    rng = np.random.default_rng(seed)
    code = np.unique(groups, return_inverse=True)[1]
    common = rng.standard_normal((int(code.max(initial=-1)) + 1, rollouts))
    own = rng.standard_normal((len(groups), rollouts))
    return ndtr(np.sqrt(together) * common[code] + np.sqrt(1 - together) * own)


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
