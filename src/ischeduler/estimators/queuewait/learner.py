"""Gradient-boosted trees for waits: quantiles of the log wait, and the chance of starting within a time. Needs lightgbm.

Labels are what was known when the training began: jobs that had not started are censored. A censored wait that is already longer
than the model's median pulls the upper quantiles up; a shorter one says nothing and is left out. Ke et al., LightGBM, NeurIPS 2017;
Koenker and Bassett, Econometrica 46, 1978 (the pinball loss).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ischeduler.core.errors import EstimatorFailed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ischeduler.estimators.queuewait.jobs import Jobs

NO_LIGHTGBM = "Learned queue waits need lightgbm; pip install 'ischeduler[queuewait]'."
LEVELS = (0.1, 0.5, 0.75, 0.9, 0.95)
HORIZONS_S = (600.0, 3600.0)
FEWEST_JOBS = 200


@dataclass(frozen=True, slots=True)
class Settings:
    """How trees are grown. ``threads`` 1: an estimator shares its machine."""

    rounds: int = 150
    learning_rate: float = 0.05
    leaves: int = 31
    least_in_leaf: int = 60
    columns: float = 0.35
    rows: float = 0.7
    l2: float = 3.0
    seed: int = 7
    threads: int = 1

    def parameters(self, objective: str, **more: Any) -> dict[str, Any]:
        """As lightgbm calls them; deterministic for one seed."""
        return {
            "objective": objective, "learning_rate": self.learning_rate, "num_leaves": self.leaves, "lambda_l2": self.l2,
            "min_data_in_leaf": self.least_in_leaf, "feature_fraction": self.columns, "bagging_fraction": self.rows, "bagging_freq": 1,
            "seed": self.seed, "num_threads": self.threads, "deterministic": True, "force_row_wise": True, "verbose": -1, **more,
        }  # fmt: skip


@dataclass(frozen=True)
class Labels:
    """Log waits as far as known (``ended`` False: at least this), in log seconds."""

    log_wait: NDArray[Any]
    ended: NDArray[Any]

    def soon(self, horizon_s: float) -> tuple[NDArray[Any], NDArray[Any]]:
        """(whether it started within the horizon, whether that is known)."""
        import numpy as np

        within = self.ended & (self.log_wait <= np.log1p(horizon_s))
        return within, self.ended | (self.log_wait > np.log1p(horizon_s))


def labels_at(jobs: Jobs, now_s: float) -> Labels:
    """What was known at ``now_s`` of the waits of jobs submitted before it."""
    import numpy as np

    ended = jobs.start_s < now_s
    return Labels(np.log1p(np.maximum(0.0, np.where(ended, jobs.start_s, now_s) - jobs.submit_s)), ended)


def lightgbm() -> Any:
    """The library; EstimatorFailed with a sentence where it is not installed."""
    try:
        import lightgbm as library
    except ImportError as error:
        raise EstimatorFailed(NO_LIGHTGBM) from error
    return library


def fit_quantiles(features: NDArray[Any], labels: Labels, settings: Settings, levels: tuple[float, ...] = LEVELS) -> tuple[Any, ...]:
    """One booster a level."""
    import numpy as np

    first = _grown(features[labels.ended], labels.log_wait[labels.ended], settings, "quantile", alpha=0.5)
    told = labels.ended.copy()
    open_rows = np.flatnonzero(~labels.ended)
    if len(open_rows):
        told[open_rows] = labels.log_wait[open_rows] > first.predict(features[open_rows])
    return tuple(_grown(features[told], labels.log_wait[told], settings, "quantile", alpha=level) for level in levels)


def fit_soon(features: NDArray[Any], labels: Labels, settings: Settings, horizons_s: tuple[float, ...] = HORIZONS_S) -> tuple[Any, ...]:
    """One classifier a horizon."""
    found = []
    for horizon in horizons_s:
        within, known = labels.soon(horizon)
        found.append(_grown(features[known], within[known].astype(float), settings, "binary"))
    return tuple(found)


def fit_value(
    features: NDArray[Any], value: NDArray[Any], settings: Settings, objective: str = "regression", weight: NDArray[Any] | None = None
) -> Any:
    """A point forecast: ``regression`` (mean) or ``l1`` (median)."""
    return _grown(features, value, settings, objective, weight)


def _grown(
    features: NDArray[Any], value: NDArray[Any], settings: Settings, objective: str, weight: NDArray[Any] | None = None, **more: Any
) -> Any:
    library = lightgbm()
    data = library.Dataset(features, value, weight=weight, free_raw_data=True)
    return library.train(settings.parameters(objective, **more), data, settings.rounds)
