"""A trace forecast as it would have been in service: the model is grown again now and then, from what was known by then and nothing later.

Each job is forecast once, at its submission, by the latest model; the calibration looks at the fate of recent forecasts as far as it is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ischeduler.estimators.queuewait.conformal import Scale, rolling
from ischeduler.estimators.queuewait.features import names
from ischeduler.estimators.queuewait.learner import HORIZONS_S, LEVELS, Settings, fit_quantiles, fit_soon, labels_at
from ischeduler.estimators.queuewait.model import CALIBRATED, sizes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ischeduler.estimators.queuewait.jobs import Jobs

REFITS = 6
"""Models over the period that is forecast."""
CANDIDATES = (Settings(), Settings(rounds=100, leaves=15, least_in_leaf=200, columns=0.25, learning_rate=0.06))
"""Trees for much data, and smoother ones for little or for queues that change. Which is better hardly shows in the training part, so
forecasts are the means of both."""
_WARM_UP = 0.2  # of the jobs before it: forecast first, so that the calibration has something to look at


@dataclass(frozen=True)
class Served:
    """Forecasts for the rows from ``first`` on: calibrated log waits (jobs, CALIBRATED), raw ones, chances (jobs, HORIZONS_S)."""

    first: int
    log_waits: NDArray[Any]
    raw: NDArray[Any]
    chances: NDArray[Any]


def serve(
    jobs: Jobs, features: NDArray[Any], from_s: float, *, settings: Sequence[Settings] = CANDIDATES, refits: int = REFITS, chances: bool = True
) -> Served:
    """Forecasts of all jobs submitted from ``from_s`` on, in order of submission: means over models of all ``settings``."""
    import numpy as np

    scale = Scale(LEVELS)
    first = int(np.searchsorted(jobs.submit_s, from_s))
    warm = int(first * (1 - _WARM_UP))
    raw = np.zeros((len(jobs), len(LEVELS)))
    soon = np.zeros((len(jobs), len(HORIZONS_S)))
    for start, end in ((warm, first), *blocks(jobs, first, refits)):
        labels = labels_at(jobs.take(slice(0, start)), float(jobs.submit_s[start]))
        here = slice(start, end)
        raw[here] = np.mean([_predicted(fit_quantiles(features[:start], labels, s), features[here]) for s in settings], axis=0)
        if chances and start >= first:
            soon[here] = np.mean([_predicted(fit_soon(features[:start], labels, s), features[here]) for s in settings], axis=0)
    ordered = scale.ordered(raw)
    shapes = sizes(names(twin=False), features[warm:])
    told = rolling(scale, ordered[warm:], jobs.submit_s[warm:], jobs.start_s[warm:], shapes, CALIBRATED)
    return Served(first, np.maximum(0.0, told[first - warm :]), ordered[first:], soon[first:])


def _predicted(boosters: Sequence[Any], features: NDArray[Any]) -> NDArray[Any]:
    import numpy as np

    return np.column_stack([b.predict(features) for b in boosters])


def pinball(quantiles: NDArray[Any], truth: NDArray[Any], levels: tuple[float, ...] = LEVELS) -> float:
    """Mean loss of quantiles (jobs, levels) of the log wait (Koenker and Bassett 1978)."""
    import numpy as np

    over = truth[:, None] - quantiles
    return float(np.maximum(over * np.array(levels), over * (np.array(levels) - 1)).mean())


def blocks(jobs: Jobs, first: int, refits: int = REFITS) -> Iterator[tuple[int, int]]:
    """(first row, end) of each model's term: equal times from the row ``first`` on; terms without jobs are left out."""
    import numpy as np

    edges = np.linspace(jobs.submit_s[first], jobs.submit_s[-1] + 1, refits + 1)
    rows = np.searchsorted(jobs.submit_s, edges)
    for start, end in zip(rows[:-1].tolist(), rows[1:].tolist(), strict=True):
        if end > start:
            yield start, end
