"""The provisioners of the table: each fitted on training episodes, then asked for its decisions on others."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ischeduler.core.errors import BadInput
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
from ischeduler.helper.provisioning.setting import Setting
from ischeduler.helper.provisioning.tuning import (
    KEEPS,
    MARGINS_H,
    RETURN_H,
    Quantiles,
    Tuning,
    after_start,
    decide,
    replayed,
    submissions,
    tune,
)
from ischeduler.plane.provisioners import REACTIVE, Average, Newsvendor, Prices, Rule

DEPLOYED, STAYING = "blend", "blend_staying"
"""The method that is shipped, on every trace: the mean of two forecasts needs no choice by figures of one trace. And the same when no start
is given back, as in Mirage."""


BLENDED = ("newsvendor_twin", "twin")
"""The forecasts whose mean is deployed."""
TREES = ("random_forest", "xgboost")
NETWORKS = ("transformer_value", "transformer_policy", "mixture_value", "mixture_policy", "dqn", "ppo")
NAMES = (DEPLOYED, STAYING, "newsvendor", *BLENDED, *TREES, *NETWORKS)
"""All that are trained, and can be deployed."""


@dataclass(frozen=True)
class Effort:
    """How much training networks get: ``width`` of the embedding (Mirage's is 512), at most so many ``epochs``, so many ``decisions`` of DQN
    and PPO."""

    width: int = 64
    epochs: int = 30
    decisions: int = 40_000


@dataclass
class Method:
    """A forecaster (None: what the rule itself knows) and how its rule was tuned (None: the rule as it is); ``apart``: forecasts of the training
    episodes by models that were fitted on others, where there are such."""

    name: str
    forecaster: Forecaster | None = None
    rule: Rule | None = None
    tuning: Tuning | None = None
    apart: Sequence[Quantiles] = ()
    _tables: dict[tuple[int, int], Quantiles] = field(default_factory=dict)

    def table(self, of: Evidence) -> Quantiles | None:
        """The forecasts of an episode, made once."""
        if self.forecaster is None:
            return None
        key = of.start_s, of.units
        if key not in self._tables:
            self._tables[key] = self.forecaster.forecast(of)
        return self._tables[key]

    def outcomes(
        self, episodes: Sequence[Evidence], prices: Prices | None = None, *, handover: bool = False, setting: Setting | None = None
    ) -> list[tuple[float, int]]:
        """Signed gap in hours, and how many starts were given back before, of each episode under the rule that would be deployed.

        With ``setting``, episodes with such starts are simulated again, with the jobs that were given back in the queue.
        """
        rule = self.rule or (self.tuning or Tuning()).rule(prices or Prices())
        if handover and self.tuning:
            rule = self.tuning.handover()
        window = self.tuning.window if self.tuning and not handover else 1
        return self._followed(rule, episodes, [self.table(e) for e in episodes], window, setting)

    def training_outcomes(self, episodes: Sequence[Evidence], prices: Prices) -> list[tuple[float, int]]:
        """The same of the training episodes, by the forecasts of models that were fitted on others; only the levels were tuned on them all."""
        tuning = self.tuning or Tuning()
        return self._followed(tuning.rule(prices), episodes, self.apart, tuning.window, None)

    def _followed(
        self, rule: Rule, episodes: Sequence[Evidence], tables: Sequence[Quantiles | None], window: int, setting: Setting | None
    ) -> list[tuple[float, int]]:
        levels = self.forecaster.levels if self.forecaster else np.empty(0)
        found = []
        for e, table in zip(episodes, tables, strict=True):
            asked = decide(e, rule, table, levels, window)
            made, gap = submissions(asked, e.gap.__getitem__, lambda gap, e=e: after_start(e, gap))
            if len(made) > 1 and setting is not None and (again := setting.episode(e.start_s, e.units)) is not None:
                made, gap, _ = replayed(e, asked, again)
            found.append((float(gap), len(made) - 1))
        return found


def baselines() -> list[Method]:
    """Reactive, and the average of the last hundred waits."""
    return [Method("reactive", rule=REACTIVE), Method("average", rule=Average())]


def mirage_trees(episodes: Sequence[Evidence], seed: int = 0, names: Sequence[str] = TREES) -> list[Method]:
    """Random forest and XGBoost as in Mirage: submit when the predicted wait reaches the remaining time."""
    found = []
    for name in names:
        forecaster = TreeForecaster(name, seed)
        forecaster.fit(episodes)
        found.append(Method(name, forecaster, Newsvendor()))
    return found


def newsvendors(episodes: Sequence[Evidence], seed: int = 0, *, probes: int = 13) -> list[Method]:
    """Boosted quantiles, the twin, boosted quantiles that see the twin, and the mean of the last two, which is what is deployed.

    The level of each is tuned on forecasts of training episodes by models that were not fitted on them; for what is deployed, also from
    when on a successor that starts stays.
    """
    plain, seeing = _boosted(seed, probes, twin=False), _boosted(seed, probes, twin=True)
    makers: dict[str, Callable[[], Any]] = {"newsvendor": plain, "newsvendor_twin": seeing}
    parts: dict[str, Forecaster] = {"newsvendor": plain(), "twin": TwinForecaster(), "newsvendor_twin": seeing()}
    tables = {name: held_out(make, episodes) for name, make in makers.items()} | {"twin": [e.twin for e in episodes]}
    for part in parts.values():
        part.fit(episodes)
    found = [Method(n, part, tuning=tune(episodes, tables[n], part.levels)) for n, part in parts.items()]
    blend = BlendForecaster(tuple(parts[n] for n in BLENDED))
    mixed = [mean_table([(tables[n][i], parts[n].levels) for n in BLENDED]) for i in range(len(episodes))]
    found.append(Method(STAYING, blend, tuning=tune(episodes, mixed, blend.levels)))
    return [*found, Method(DEPLOYED, blend, tuning=tune(episodes, mixed, blend.levels, KEEPS), apart=mixed)]


def check(name: str) -> None:
    """BadInput for what is none of :data:`NAMES`, or where its library is missing: said before hours of gathering."""
    if name not in NAMES:
        raise BadInput(f"there is no method '{name}' to train; choose one of {', '.join(NAMES)}")
    needed = {"xgboost": ("xgboost", "provisioning"), **dict.fromkeys(NETWORKS, ("torch", "reinforcement"))}
    needed |= dict.fromkeys(("dqn", "ppo"), ("stable_baselines3", "reinforcement"))
    module, extra = needed.get(name, ("lightgbm", "provisioning"))
    if importlib.util.find_spec(module) is None:
        raise BadInput(f"{name} needs {module}, which is not installed: pip install 'ischeduler[{extra}]'")


def fitted(name: str, episodes: Sequence[Evidence], seed: int = 0, *, effort: Effort | None = None) -> Method:
    """The one of :data:`NAMES`, fitted."""
    if name in TREES:
        return mirage_trees(episodes, seed, [name])[0]
    if name in NETWORKS:
        from ischeduler.helper.provisioning.networks.methods import networks
        from ischeduler.helper.provisioning.networks.transformer import Shape

        asked = effort or Effort()
        shape = Shape(width=asked.width, epochs=asked.epochs)
        return next(networks(episodes, seed, shape=shape, steps=asked.decisions, only=name))
    return next(m for m in newsvendors(episodes, seed) if m.name == name)


def _boosted(seed: int, probes: int, *, twin: bool) -> Callable[[], BoostedForecaster]:
    return lambda: BoostedForecaster(with_twin=twin, seed=seed, probes=probes)


def oracle_outcomes(episodes: Sequence[Evidence], prices: Prices | None = None) -> list[tuple[float, int]]:
    """The best look of each episode, known only afterwards: a lower bound."""
    asked = prices or Prices()
    costs = [asked.level * np.maximum(e.gap, 0) + (1 - asked.level) * np.maximum(-e.gap, 0) for e in episodes]
    return [(float(e.gap[int(np.argmin(c))]), 0) for e, c in zip(episodes, costs, strict=True)]


def told_outcomes(episodes: Sequence[Evidence], rule: Newsvendor | None = None) -> list[tuple[float, int]]:
    """The twin that is told the true run times of the jobs alive: what a perfect run-time law would be worth."""
    found = []
    for e in episodes:
        asked = decide(e, rule or Newsvendor(), e.twin_true[:, None], np.array([0.5]))
        made, gap = submissions(asked, e.gap.__getitem__, lambda gap, e=e: after_start(e, gap))
        found.append((float(gap), len(made) - 1))
    return found


def told_in_hindsight(episodes: Sequence[Evidence]) -> list[tuple[float, int]]:
    """The same with the margin that turns out cheapest, and free to give back a start after which the next would come in time."""
    rules = [Newsvendor(margin_s=3600 * margin, kept=kept) for kept in ((), ((0.5, 0.5),)) for margin in MARGINS_H]
    tried = [told_outcomes(episodes, rule) for rule in rules]
    return min(tried, key=lambda found: sum(abs(gap) + RETURN_H * back for gap, back in found))

