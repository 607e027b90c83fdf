"""The provisioners of the table: each fitted on training episodes, then asked for its decisions on others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ischeduler.helper.provisioning.evidence import Evidence
from ischeduler.helper.provisioning.forecasters import (
    BlendForecaster,
    BoostedForecaster,
    Forecaster,
    TreeForecaster,
    TwinForecaster,
    held_out,
    mean_table,
)
from ischeduler.helper.provisioning.tuning import Quantiles, Tuning, decide, tune
from ischeduler.plane.provisioners import REACTIVE, Average, Newsvendor, Prices, Rule

DEPLOYED = "blend"
"""The method that is shipped, on every trace: the mean of the forecasts needs no choice by figures of one trace."""


@dataclass
class Method:
    """A forecaster (None: what the rule itself knows) and how its rule was tuned (None: the rule as it is)."""

    name: str
    forecaster: Forecaster | None = None
    rule: Rule | None = None
    tuning: Tuning | None = None
    _tables: dict[tuple[int, int], Quantiles] = field(default_factory=dict)

    def table(self, of: Evidence) -> Quantiles | None:
        """The forecasts of an episode, made once."""
        if self.forecaster is None:
            return None
        key = of.start_s, of.units
        if key not in self._tables:
            self._tables[key] = self.forecaster.forecast(of)
        return self._tables[key]

    def gaps_h(self, episodes: Sequence[Evidence], prices: Prices | None = None, *, handover: bool = False) -> list[float]:
        """The signed gap of each episode under the rule that would be deployed."""
        asked = prices or Prices()
        rule = self.rule or (self.tuning or Tuning()).rule(asked)
        if handover and self.tuning:
            rule = self.tuning.handover()
        levels = self.forecaster.levels if self.forecaster else np.empty(0)
        window = self.tuning.window if self.tuning and not handover else 1
        return [float(e.gap[decide(e, rule, self.table(e), levels, window)]) for e in episodes]


def baselines() -> list[Method]:
    """Reactive, and the average of the last hundred waits."""
    return [Method("reactive", rule=REACTIVE), Method("average", rule=Average())]


def mirage_trees(episodes: Sequence[Evidence], seed: int = 0) -> list[Method]:
    """Random forest and XGBoost as in Mirage: submit when the predicted wait reaches the remaining time."""
    found = []
    for name in ("random_forest", "xgboost"):
        forecaster = TreeForecaster(name, seed)
        forecaster.fit(episodes)
        found.append(Method(name, forecaster, Newsvendor()))
    return found


def newsvendors(episodes: Sequence[Evidence], seed: int = 0, *, probes: int = 13) -> list[Method]:
    """Boosted quantiles, the twin, boosted quantiles that see the twin, and the mean of the three, which is what is deployed.

    The level of each is tuned on forecasts of training episodes by models that were not fitted on them.
    """
    plain, seeing = _boosted(seed, probes, twin=False), _boosted(seed, probes, twin=True)
    makers: dict[str, Callable[[], Any]] = {"newsvendor": plain, "newsvendor_twin": seeing}
    parts: dict[str, Forecaster] = {"newsvendor": plain(), "newsvendor_twin": seeing(), "twin": TwinForecaster()}
    tables = {name: held_out(make, episodes) for name, make in makers.items()} | {"twin": [e.twin for e in episodes]}
    for part in parts.values():
        part.fit(episodes)
    blend = BlendForecaster(tuple(parts.values()))
    mixed = [mean_table([(tables[n][i], parts[n].levels) for n in parts]) for i in range(len(episodes))]
    found = [Method(n, parts[n], tuning=tune(episodes, tables[n], parts[n].levels)) for n in ("newsvendor", "twin", "newsvendor_twin")]
    return [*found, Method(DEPLOYED, blend, tuning=tune(episodes, mixed, blend.levels))]


def _boosted(seed: int, probes: int, *, twin: bool) -> Callable[[], BoostedForecaster]:
    return lambda: BoostedForecaster(with_twin=twin, seed=seed, probes=probes)


def oracle_gaps_h(episodes: Sequence[Evidence], prices: Prices | None = None) -> list[float]:
    """The best look of each episode, known only afterwards: a lower bound."""
    asked = prices or Prices()
    costs = [asked.level * np.maximum(e.gap, 0) + (1 - asked.level) * np.maximum(-e.gap, 0) for e in episodes]
    return [float(e.gap[int(np.argmin(c))]) for e, c in zip(episodes, costs, strict=True)]


def told_gaps_h(episodes: Sequence[Evidence]) -> list[float]:
    """The twin that is told the true run times of the jobs alive: what a perfect run-time law would be worth."""
    rule = Newsvendor()
    return [float(e.gap[decide(e, rule, e.twin_true[:, None], np.array([0.5]))]) for e in episodes]

