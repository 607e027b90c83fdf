"""Learned forecasts of the successor's wait: boosted quantiles, with or without the twin's, and Mirage's two tree ensembles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ischeduler.core.errors import BadInput
from ischeduler.helper.provisioning import evidence
from ischeduler.helper.provisioning.evidence import Evidence
from ischeduler.helper.provisioning.forest import Forest
from ischeduler.helper.provisioning.state import MIRAGE
from ischeduler.helper.provisioning.tuning import Quantiles, at_level, folds

BOOSTED_LEVELS = np.array([0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95])
MEAN = np.array([0.5])
"""The only level of a method that forecasts one number."""
PROBES = 7
"""Mirage's offline data: so many evenly spaced moments of submission an episode."""
PROBES_MORE = 13


class Forecaster(Protocol):
    """Something fitted on training episodes that forecasts the wait at every look."""

    @property
    def levels(self) -> NDArray[np.float64]:
        """The quantiles' levels."""
        ...

    def fit(self, episodes: Sequence[Evidence]) -> None:
        """Learn from the episodes' states and true waits."""
        ...

    def forecast(self, of: Evidence) -> Quantiles:
        """Quantiles of the wait in hours, shape (M, levels)."""
        ...

    def as_data(self) -> dict[str, Any]:
        """What it is when fitted, for a model file; its ``kind`` says how to have it again."""
        ...


@dataclass
class TwinForecaster:
    """The twin's own quantiles: nothing to fit here."""

    levels = evidence.LEVELS

    def fit(self, episodes: Sequence[Evidence]) -> None:
        """Nothing."""

    def forecast(self, of: Evidence) -> Quantiles:
        """What the roll-outs said."""
        return of.twin

    def as_data(self) -> dict[str, Any]:
        """Its kind alone."""
        return {"kind": "twin"}


@dataclass
class BoostedForecaster:
    """Gradient-boosted quantiles (LightGBM) of the wait's logarithm, on the queue's state and, ``with_twin``, the twin's quantiles."""

    with_twin: bool = False
    probes: int = PROBES_MORE
    trees: int = 120
    seed: int = 0
    boosters: tuple[Any, ...] = ()
    levels = BOOSTED_LEVELS

    def fit(self, episodes: Sequence[Evidence]) -> None:
        """One booster a level."""
        import lightgbm

        x, y = probed(episodes, self.probes, self._inputs)
        settings = {
            "objective": "quantile", "num_leaves": 7, "learning_rate": 0.05, "min_data_in_leaf": max(10, min(60, len(y) // 20)),
            "feature_fraction": 0.3, "bagging_fraction": 0.7, "bagging_freq": 1, "verbose": -1, "num_threads": 1, "seed": self.seed,
            "deterministic": True,
        }  # fmt: skip
        self.boosters = tuple(
            lightgbm.train({**settings, "alpha": float(q)}, lightgbm.Dataset(x, np.log1p(y)), self.trees) for q in self.levels
        )

    def forecast(self, of: Evidence) -> Quantiles:
        """Never decreasing along a row, never negative."""
        x = self._inputs(of)
        rows = np.stack([b.predict(x, num_threads=1) for b in self.boosters], axis=1)
        return np.sort(np.maximum(np.expm1(rows), 0.0), axis=1)

    def as_data(self) -> dict[str, Any]:
        """The boosters as text."""
        return {"kind": "boosted", "with_twin": self.with_twin, "boosters": [b.model_to_string() for b in self.boosters]}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> BoostedForecaster:
        """The forecaster of :meth:`as_data`."""
        import lightgbm

        return cls(data["with_twin"], boosters=tuple(lightgbm.Booster(model_str=text) for text in data["boosters"]))

    def _inputs(self, of: Evidence) -> NDArray[np.float32]:
        if not self.with_twin:
            return of.state
        return np.hstack([of.state, of.twin, of.twin.mean(axis=1, keepdims=True)]).astype(np.float32)


@dataclass
class BlendForecaster:
    """The mean of the others' quantiles, level by level: their errors differ, and a steadier forecast crosses less early."""

    parts: tuple[Forecaster, ...]
    levels = BOOSTED_LEVELS

    def fit(self, episodes: Sequence[Evidence]) -> None:
        """Fit every part."""
        for part in self.parts:
            part.fit(episodes)

    def forecast(self, of: Evidence) -> Quantiles:
        """The mean."""
        return mean_table([(p.forecast(of), p.levels) for p in self.parts])

    def as_data(self) -> dict[str, Any]:
        """Every part."""
        return {"kind": "blend", "parts": [p.as_data() for p in self.parts]}


def mean_table(tables: Sequence[tuple[Quantiles, NDArray[np.float64]]]) -> Quantiles:
    """The mean of several tables at :data:`BOOSTED_LEVELS`."""
    return np.mean([np.stack([at_level(t, levels, q) for q in BOOSTED_LEVELS], axis=1) for t, levels in tables], axis=0)


@dataclass
class TreeForecaster:
    """Mirage's ensemble methods: a random forest or XGBoost regresses the wait on the flat state of seven probes an episode."""

    kind: str = "random_forest"
    seed: int = 0
    model: Any = None
    levels = MEAN

    def fit(self, episodes: Sequence[Evidence]) -> None:
        """Squared error, as there."""
        x, y = probed(episodes, PROBES, _mirage_inputs)
        if self.kind == "random_forest":
            from sklearn.ensemble import RandomForestRegressor

            self.model = Forest.of(RandomForestRegressor(n_estimators=100, min_samples_leaf=2, n_jobs=1, random_state=self.seed).fit(x, y))
        else:
            self.model = _xgboost()(n_estimators=100, max_depth=6, n_jobs=1, random_state=self.seed).fit(x, y)

    def forecast(self, of: Evidence) -> Quantiles:
        """The one predicted wait, shape (M, 1)."""
        return np.maximum(np.asarray(self.model.predict(_mirage_inputs(of)), float), 0.0)[:, None]

    def as_data(self) -> dict[str, Any]:
        """The trees as text."""
        text = self.model.as_text() if self.kind == "random_forest" else self.model.get_booster().save_raw("json").decode()
        return {"kind": self.kind, "trees": text}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> TreeForecaster:
        """The forecaster of :meth:`as_data`."""
        if data["kind"] == "random_forest":
            return cls(data["kind"], model=Forest.from_text(data["trees"]))
        model = _xgboost()(n_jobs=1)
        model.load_model(bytearray(data["trees"].encode()))
        return cls(data["kind"], model=model)


def _xgboost() -> Any:
    try:
        from xgboost import XGBRegressor
    except ImportError:
        raise BadInput("the XGBoost peer needs XGBoost: pip install 'ischeduler[provisioning]'") from None
    return XGBRegressor


def probed(episodes: Sequence[Evidence], probes: int, inputs: Any) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """States and true waits (hours) at evenly spaced looks of every episode."""
    xs, ys = [], []
    for of in episodes:
        chosen = np.unique(np.linspace(0, len(of.asked) - 1, probes).round().astype(np.int64))
        xs.append(inputs(of)[chosen])
        ys.append(of.wait[of.asked[chosen]])
    return np.concatenate(xs), np.concatenate(ys)


def held_out(make: Any, episodes: Sequence[Evidence], parts: int = 7) -> list[Quantiles]:
    """Forecasts of every training episode by a forecaster fitted on other parts of the time."""
    tables: list[Quantiles] = [np.empty(0)] * len(episodes)
    for train, out in folds([e.start_s for e in episodes], parts):
        model = make()
        model.fit([episodes[i] for i in train])
        for i in out:
            tables[i] = model.forecast(episodes[i])
    return tables


def _mirage_inputs(of: Evidence) -> NDArray[np.float32]:
    return np.hstack([of.state[:, : len(MIRAGE)], (of.remaining[of.asked] * 1.0)[:, None]]).astype(np.float32)
