"""HARP's regressors on a run's plain columns: linear, decision tree, neural network; gradient boosting beside them.

As HARP trains them (github.com/ICICLE-ai/harp, BSD-3, ``pipeline/modules/ModelTrainer``): columns standardised, seconds as they
are; the network has 128 and 64 rectified units, Adam at 0.01, 50 epochs of batches of 20. HARP also rotates the columns to
their principal components, which is left out in its favour: components of rounding noise lead the tree astray.
Needs scikit-learn (extra ``estimators``), which is imported when a model is fitted.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ischeduler.core.errors import EstimatorFailed
from ischeduler.estimators.walltime.models import Predicted
from ischeduler.estimators.walltime.timed import TimedRun

SEED = 2048
LEAST_S = 0.1
"""A prediction below this is raised to it: a straight line may well say that a run takes less than no time."""


@dataclass(frozen=True)
class FittedRegressor:
    """A scikit-learn pipeline; ``factor`` is HARP's adjustment."""

    pipeline: Any
    factor: float = 1.0

    def predict(self, run: TimedRun) -> Predicted:
        """At least :data:`LEAST_S`."""
        return Predicted(seconds_of(self.pipeline, [run], self.factor)[0])


@dataclass(frozen=True)
class RegressorModel:
    """One of HARP's regressors, or one in their manner."""

    name: str
    build: Callable[[], Any]

    def fit(self, runs: Sequence[TimedRun]) -> FittedRegressor:
        """EstimatorFailed without scikit-learn or columns."""
        return FittedRegressor(self.pipeline(runs))

    def pipeline(self, runs: Sequence[TimedRun]) -> Any:
        """Standardise, regress."""
        try:
            from sklearn.exceptions import ConvergenceWarning
            from sklearn.pipeline import make_pipeline
            from sklearn.preprocessing import StandardScaler
        except ImportError:
            raise EstimatorFailed("HARP's regressors need scikit-learn: pip install 'ischeduler[estimators]'") from None
        if not runs or not runs[0].features:
            raise EstimatorFailed(f"{self.name} has no columns to learn from")
        fitted = make_pipeline(StandardScaler(), self.build())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # HARP stops after 50 epochs, converged or not
            return fitted.fit([r.features for r in runs], [r.seconds for r in runs])


def seconds_of(pipeline: Any, runs: Sequence[TimedRun], factor: float = 1.0) -> list[float]:
    """What a fitted pipeline says of many runs."""
    return [max(LEAST_S, float(v) * factor) for v in pipeline.predict([r.features for r in runs])]


def _linear() -> Any:
    from sklearn.linear_model import LinearRegression

    return LinearRegression()


def _tree() -> Any:
    from sklearn.tree import DecisionTreeRegressor

    return DecisionTreeRegressor(random_state=0)


def _boosted() -> Any:
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(random_state=SEED, max_iter=200)


def _network() -> Any:
    from sklearn.neural_network import MLPRegressor

    settings: dict[str, Any] = {"learning_rate_init": 0.01, "max_iter": 50, "batch_size": 20, "random_state": SEED}
    return MLPRegressor(hidden_layer_sizes=(128, 64), **settings)


LINEAR = RegressorModel("linear", _linear)
TREE = RegressorModel("tree", _tree)
BOOSTED = RegressorModel("boosted", _boosted)
NETWORK = RegressorModel("network", _network)
REGRESSORS = (LINEAR, TREE, BOOSTED, NETWORK)
