"""Bounds that hold as often as they say, although a label arrives only once its job has started. Pure.

A model's quantiles become a scale: the score of a wait is the normal deviate of the level at which the model's quantile function passes it
(distributional conformal prediction: Chernozhukov, Wuethrich and Zhu, PNAS 118, 2021). Scores of jobs that still wait are censored: they are
at least the score of what the job has waited so far. The calibrated deviate is the quantile of the recent scores by Kaplan and
Meier's estimate (J. Am. Stat. Assoc. 53, 1958); leaving the pending jobs out would make every bound too short in a growing queue.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

WINDOW = 3000
"""Recent jobs that calibrate."""
HALF_LIFE_JOBS = 1000.0
"""Of a past job's weight: enough jobs for a 95 % quantile, few enough to follow a queue that changes."""
WIDTH = 1.0
"""In doublings of size or limit: jobs that differ by as much say 60 %."""
FLOOR = 0.05
"""What a job of quite another size still says."""
FEWEST = 60
_LEAST_STEP = 0.02  # equal quantiles still need a slope
_LEAST_TAIL = 0.1
_MOST = 8.0  # deviates; nothing is told beyond


@dataclass(frozen=True)
class Scale:
    """Normal deviates of the ``levels`` that a model predicts, ascending; at least two."""

    levels: tuple[float, ...]

    @property
    def deviates(self) -> NDArray[Any]:
        import numpy as np

        return np.array([NormalDist().inv_cdf(q) for q in self.levels])

    def ordered(self, quantiles: NDArray[Any]) -> NDArray[Any]:
        """Quantiles (jobs, levels) of log waits made to ascend strictly."""
        import numpy as np

        return np.maximum.accumulate(quantiles, axis=1) + _LEAST_STEP * np.arange(quantiles.shape[1])

    def score(self, quantiles: NDArray[Any], value: NDArray[Any]) -> NDArray[Any]:
        """Deviate at which each row's ordered quantiles (jobs, levels) pass ``value`` (jobs,)."""
        import numpy as np

        z = self.deviates
        rows = np.arange(len(value))
        k = np.clip((quantiles <= value[:, None]).sum(axis=1) - 1, 0, len(z) - 2)
        step = quantiles[rows, k + 1] - quantiles[rows, k]
        beyond = value > quantiles[:, -1]
        step = np.where(beyond, np.maximum(step, _LEAST_TAIL), step)
        origin = np.where(beyond, quantiles[:, -1], quantiles[rows, k])
        base = np.where(beyond, z[-1], z[k])
        return np.clip(base + (value - origin) * (z[k + 1] - z[k]) / step, -_MOST, _MOST)

    def value(self, quantiles: NDArray[Any], deviate: float | NDArray[Any]) -> NDArray[Any]:
        """The inverse of :meth:`score`: the log wait at a deviate, for each row."""
        import numpy as np

        z = self.deviates
        rows = np.arange(len(quantiles))
        at = np.broadcast_to(np.asarray(deviate, dtype=float), rows.shape)
        k = np.clip((z[None, :] <= at[:, None]).sum(axis=1) - 1, 0, len(z) - 2)
        step = quantiles[rows, k + 1] - quantiles[rows, k]
        beyond = at > z[-1]
        step = np.where(beyond, np.maximum(step, _LEAST_TAIL), step)
        origin = np.where(beyond, quantiles[:, -1], quantiles[rows, k])
        base = np.where(beyond, z[-1], z[k])
        return origin + (at - base) * step / (z[k + 1] - z[k])


def likeness(log_units: NDArray[Any], log_limit: NDArray[Any], units: float, limit: float, age: NDArray[Any]) -> NDArray[Any]:
    """How much each past job says of one of ``units`` and ``limit`` (binary logarithms); ``age`` counts the jobs since."""
    import numpy as np

    apart = ((log_units - units) / WIDTH) ** 2 + ((log_limit - limit) / WIDTH) ** 2
    return (FLOOR + np.exp(-0.5 * apart)) * 0.5 ** (age / HALF_LIFE_JOBS)


def kaplan_meier(scores: NDArray[Any], ended: NDArray[Any], weights: NDArray[Any], levels: Sequence[float]) -> tuple[float, ...]:
    """For each level the smallest score that at most ``1 - level`` of the jobs, by weight, exceed; ``ended`` False: a lower bound.

    inf when the censored ones leave that open.
    """
    import numpy as np

    order = np.lexsort((~ended, scores))
    ranked, done, weight = scores[order], ended[order], weights[order]
    at_risk = np.cumsum(weight[::-1])[::-1]
    surviving = np.cumprod(np.where(done, np.maximum(0.0, 1.0 - weight / at_risk), 1.0))
    places = [int(np.searchsorted(-surviving, -(1.0 - level) - 1e-12)) for level in levels]
    return tuple(float(ranked[p]) if p < len(ranked) else math.inf for p in places)


@dataclass(frozen=True)
class PastScores:
    """What calibrates: scores of past forecasts (oldest first), whether each wait had ended, and the jobs' sizes (binary logarithms)."""

    scores: NDArray[Any]
    ended: NDArray[Any]
    log_units: NDArray[Any]
    log_limit: NDArray[Any]

    def deviates(self, units: float, limit: float, levels: Sequence[float]) -> tuple[float, ...]:
        """What to ask the scale for, one a level, for a job of such a size; the levels' own of fewer than :data:`FEWEST` jobs."""
        import numpy as np

        own = tuple(NormalDist().inv_cdf(q) for q in levels)
        if len(self.scores) < FEWEST:
            return own
        weights = likeness(self.log_units, self.log_limit, units, limit, np.arange(len(self.scores), 0, -1))
        found = kaplan_meier(self.scores, self.ended, weights, levels)
        top = float(self.scores.max())
        return tuple(z if math.isfinite(z) else max(top, o) for z, o in zip(found, own, strict=True))


def past_scores(
    scale: Scale, quantiles: NDArray[Any], submit_s: NDArray[Any], start_s: NDArray[Any], sizes: NDArray[Any], now_s: float
) -> PastScores:
    """Scores, as known at ``now_s``, of the last :data:`WINDOW` jobs and what was predicted of them (ordered log waits).

    ``sizes`` (jobs, 2): binary logarithms of units and limit.
    """
    import numpy as np

    last = slice(max(0, len(submit_s) - WINDOW), None)
    ended = start_s[last] < now_s
    waited = np.maximum(0.0, np.where(ended, start_s[last], now_s) - submit_s[last])
    return PastScores(scale.score(quantiles[last], np.log1p(waited)), ended, sizes[last, 0], sizes[last, 1])


def rolling(
    scale: Scale, quantiles: NDArray[Any], submit_s: NDArray[Any], start_s: NDArray[Any], sizes: NDArray[Any], levels: Sequence[float]
) -> NDArray[Any]:
    """Calibrated log waits (jobs, levels), each by what was known when its job was submitted; rows sorted by submission.

    A slow correction by the bounds found too short (Angelopoulos, Candes and Tibshirani, NeurIPS 2023) made them longer without losing less:
    on the training parts of three traces the pinball loss was lower without one.
    """
    import numpy as np

    from ischeduler.estimators.queuewait.calibrating import rolled

    asked = np.array([NormalDist().inv_cdf(q) for q in levels])
    constants = np.array([WINDOW, HALF_LIFE_JOBS, WIDTH, FLOOR, FEWEST, _LEAST_TAIL, _MOST])
    found = rolled(
        np.ascontiguousarray(quantiles, dtype=np.float64), scale.deviates, submit_s.astype(np.float64), start_s.astype(np.float64),
        np.ascontiguousarray(sizes, dtype=np.float64), np.array(levels, dtype=np.float64), asked, constants,
    )  # fmt: skip
    return np.maximum.accumulate(found, axis=1)
