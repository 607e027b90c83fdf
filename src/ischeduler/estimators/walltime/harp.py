"""HARP's pipeline behind the same interface: train on scaled-down runs, select by under-prediction, adjust.

As in HARP (github.com/ICICLE-ai/harp, BSD-3, ``ModelTrainer``, ``Predictor.policy``): each regressor is trained on the
scaled-down runs alone ("SD") and with three quarters of the full-scale ones resampled to as many ("SD+75FS"); the last
quarter validates. The adjustment multiplies by 1 + the mean relative error of the under-predictions. Chosen is what
under-predicts the fewest validation runs, and of equals what over-predicts least. One difference, in HARP's disfavour if
any: the choice sees validation runs alone, while HARP's own trainer scores with its test runs. The largest size of the
training data is taken for full scale.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ischeduler.core.errors import EstimatorFailed
from ischeduler.estimators.walltime.regressors import REGRESSORS, SEED, FittedRegressor, RegressorModel, seconds_of
from ischeduler.estimators.walltime.timed import TimedRun, sizes_of


@dataclass(frozen=True)
class Candidate:
    """A trained regressor as the policy sees it: share under-predicted, mean error of the over-predictions."""

    name: str
    pipeline: Any
    factor: float
    under_share: float
    over_error: float


@dataclass(frozen=True)
class HarpModel:
    """The whole pipeline as one model."""

    regressors: tuple[RegressorModel, ...] = REGRESSORS
    name: str = "harp"

    def fit(self, runs: Sequence[TimedRun]) -> FittedRegressor:
        """EstimatorFailed without scikit-learn, or with one size only."""
        best = self.chosen(runs)
        return FittedRegressor(best.pipeline, best.factor)

    def chosen(self, runs: Sequence[TimedRun]) -> Candidate:
        """What the policy picks."""
        small, full, check = split(runs)
        found: list[Candidate] = []
        for regressor in self.regressors:
            for words, train in (("SD", small), ("SD+75FS", [*small, *full])):
                pipeline = regressor.pipeline(train)
                plain = seconds_of(pipeline, check)
                for factor in dict.fromkeys((1.0, adjustment(check, plain))):
                    found.append(judged(f"{regressor.name} {words} x{factor:.2f}", pipeline, factor, check, plain))
        return min(found, key=lambda c: (c.under_share, c.over_error))


def split(runs: Sequence[TimedRun]) -> tuple[list[TimedRun], list[TimedRun], list[TimedRun]]:
    """(scaled-down, full-scale resampled to as many, validation)."""
    sizes = sizes_of(runs)
    if len(sizes) < 2:
        raise EstimatorFailed("HARP's pipeline needs scaled-down and larger runs; all have one size")
    small = [r for r in runs if r.samples < sizes[-1]]
    large = [r for r in runs if r.samples == sizes[-1]]
    if len(large) < 4:
        raise EstimatorFailed(f"HARP's pipeline needs at least 4 runs of the largest size to validate, not {len(large)}")
    rng = random.Random(SEED)
    rng.shuffle(large)
    quarter = max(1, len(large) // 4)
    return small, rng.choices(large[quarter:], k=len(small)), large[:quarter]


def adjustment(check: Sequence[TimedRun], predicted: Sequence[float]) -> float:
    """1 + mean relative error of the under-predictions, to two digits; 1 where none is under."""
    under = [1 - p / r.seconds for r, p in zip(check, predicted, strict=True) if p < r.seconds]
    return round(1 + sum(under) / len(under), 2) if under else 1.0


def judged(name: str, pipeline: Any, factor: float, check: Sequence[TimedRun], plain: Sequence[float]) -> Candidate:
    """The policy's two figures of a regressor with its adjustment."""
    ratios = [p * factor / r.seconds for r, p in zip(check, plain, strict=True)]
    over = [q - 1 for q in ratios if q > 1]
    return Candidate(name, pipeline, factor, sum(q < 1 for q in ratios) / len(ratios), sum(over) / len(over) if over else 0.0)


HARP = HarpModel()
