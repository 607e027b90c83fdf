"""Boosted deciles of the remaining run time of jobs alive, blended with two laws of alike jobs.

Each decile is a gradient-boosted quantile regression (LightGBM) of the share of the remaining limit that will be used, weighted by
what is left, so that its loss is the pinball loss in seconds. It sees what alike jobs (:mod:`.alike`) did, and is averaged with it: one
finds what is common to all users, the other follows each of them from day to day. The mean of that and of the law with learned weights
(:mod:`.learned`) is the law. How many trees is decided on the last fifth of the training span.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ischeduler.core.errors import BadInput
from ischeduler.estimators.jobruntime import alike, empirical, learned
from ischeduler.estimators.jobruntime.empirical import LEVELS
from ischeduler.estimators.jobruntime.history import elapsed_s, features
from ischeduler.estimators.jobruntime.instants import Rows, instants, running_rows, settled, submitted_rows
from ischeduler.estimators.jobruntime.learned import Weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ischeduler.estimators.jobruntime.table import JobTable

TREES = (30, 60, 100)
BLEND = 2 / 3
"""The share of the law of alike jobs; on the training spans of five public traces no other is better by a hundredth."""
LEARNED = 1 / 2
"""The share of the law with learned weights; from .25 to .6 did alike on forward cuts of eight public traces' training spans."""
VALIDATION_SHARE = 0.2


@dataclass(frozen=True)
class RuntimeLaw:
    """A fitted law. ``validation``: the pinball losses (hours) its trees were chosen by; ``weights``: None for the blend of two alone."""

    boosters: tuple[Any, ...]
    until_s: int
    seed: int
    validation: dict[str, float]
    weights: Weights | None = None

    def remaining_deciles(self, table: JobTable, rows: NDArray[np.int64], at_s: NDArray[np.int64]) -> NDArray[np.float64]:
        """Deciles (0.1 to 0.9) of the remaining run time in seconds, shape (rows, 9), never decreasing along a row."""
        if len(rows) == 0:
            return np.empty((0, len(LEVELS)))
        told = _alike_shares(table, rows, at_s)
        boosted = _shares(self.boosters, _inputs(table, rows, at_s, told))
        blend = (1 - BLEND) * boosted + BLEND * told
        return _with_learned(blend, _learned_shares(table, rows, at_s, self.weights)) * _left_s(table, rows, at_s)[:, None]

    def as_data(self) -> dict[str, Any]:
        """Everything needed to have it again, for a model file."""
        return {
            "boosters": [b.model_to_string() for b in self.boosters], "until_s": self.until_s, "seed": self.seed, "validation": dict(self.validation),
            "weights": self.weights.as_data() if self.weights else None,
        }  # fmt: skip

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> RuntimeLaw:
        """The law of :meth:`as_data`; one written before there were learned weights has none."""
        boosters = tuple(_lightgbm().Booster(model_str=text) for text in data["boosters"])
        weights = Weights.from_data(data["weights"]) if data.get("weights") else None
        return cls(boosters, data["until_s"], data["seed"], dict(data["validation"]), weights)


def fit(table: JobTable, *, until_s: float, looks: int = 600, seed: int = 0, weights: Weights | None = None) -> RuntimeLaw:
    """A law from what was known at ``until_s``: random ``looks`` in time at the jobs then running, and jobs at submission.

    ``weights``: of past jobs; default: :func:`learned.shipped`.
    """
    weights = weights or learned.shipped()
    low = float(np.quantile(table.submit_s[table.submit_s < until_s], 0.02)) if (table.submit_s < until_s).any() else until_s
    cut = until_s - VALIDATION_SHARE * (until_s - low)
    rng = np.random.default_rng(seed)
    rows = settled(table, _training_rows(table, low, until_s, looks, rng), until_s)
    if len(rows[0]) < 200:
        raise BadInput(f"only {len(rows[0])} observations of running jobs before the training's end: give a longer trace")
    told, weighed = _alike_shares(table, *rows), _learned_shares(table, *rows, weights)
    x, y, weight = _inputs(table, *rows, told), _used(table, rows), _left_s(table, *rows)
    early = settled_mask(table, rows, cut)
    late = (rows[1] >= cut) & (table.start_s[rows[0]] <= rows[1])
    trees, losses = _choose((x, y, weight), told, weighed, early, late, seed)
    boosters = tuple(_booster(x, y, weight, level, trees, seed) for level in LEVELS)
    plain = empirical.remaining_deciles(table, rows[0][late], rows[1][late])
    losses |= {"empirical_pinball_h": pinball_h(y[late] * weight[late], plain)}
    return RuntimeLaw(boosters, int(until_s), seed, losses, weights)


def settled_mask(table: JobTable, rows: Rows, until_s: float) -> NDArray[np.bool_]:
    """Rows looked at and settled by ``until_s``."""
    job, at = rows
    gone = elapsed_s(table, job, at)
    return np.maximum(at, table.start_s[job]) + table.limit_s[job] - gone <= until_s


def pinball_h(remaining_s: NDArray[Any], deciles_s: NDArray[np.float64]) -> float:
    """Pinball loss in hours, mean over rows and the nine deciles."""
    miss = np.asarray(remaining_s, float)[:, None] - deciles_s
    return float(np.maximum(LEVELS * miss, (LEVELS - 1) * miss).mean() / 3600) if len(miss) else 0.0


def _training_rows(table: JobTable, low: float, until_s: float, looks: int, rng: np.random.Generator) -> Rows:
    running = running_rows(table, instants(low, until_s, looks, rng))
    waiting = submitted_rows(table, low, until_s, len(running[0]) // 4, rng)
    return np.concatenate([running[0], waiting[0]]), np.concatenate([running[1], waiting[1]])


def _choose(
    data: tuple[Any, Any, Any], told: NDArray[np.float64], weighed: NDArray[np.float64] | None, early: Any, late: Any, seed: int
) -> tuple[int, dict[str, float]]:
    """How many trees have the least pinball loss on the late part, fitted on the early part and blended."""
    x, y, weight = data
    if early.sum() < 100 or late.sum() < 50:
        return TREES[0], {}
    truth, left, told = y[late] * weight[late], weight[late][:, None], told[late]
    weighed = weighed if weighed is None else weighed[late]
    boosters = [_booster(x[early], y[early], weight[early], level, TREES[-1], seed) for level in LEVELS]
    blends = {t: (1 - BLEND) * _shares(boosters, x[late], t) + BLEND * told for t in TREES}
    losses = {t: pinball_h(truth, _with_learned(blend, weighed) * left) for t, blend in blends.items()}
    best = min(losses, key=lambda trees: losses[trees])
    return best, {"pinball_h": losses[best], "alike_pinball_h": pinball_h(truth, told * left)}


def _with_learned(blend: NDArray[np.float64], weighed: NDArray[np.float64] | None) -> NDArray[np.float64]:
    return blend if weighed is None else (1 - LEARNED) * blend + LEARNED * weighed


def _inputs(table: JobTable, rows: NDArray[np.int64], at_s: NDArray[np.int64], told: NDArray[np.float64]) -> NDArray[np.float32]:
    """Features, and what alike jobs say."""
    return np.hstack([features(table, rows, at_s), told]).astype(np.float32)


def _booster(x: Any, y: Any, weight: Any, level: float, trees: int, seed: int) -> Any:
    lightgbm = _lightgbm()
    settings = {
        "objective": "quantile", "alpha": float(level), "num_leaves": 7, "learning_rate": 0.1, "verbose": -1, "seed": seed,
        "min_data_in_leaf": max(20, min(200, len(y) // 50)), "feature_fraction": 0.5, "bagging_fraction": 0.7, "bagging_freq": 1,
        "num_threads": 1, "deterministic": True,
    }
    return lightgbm.train(settings, lightgbm.Dataset(x, y, weight=weight / weight.mean()), trees)


def _shares(boosters: Any, x: NDArray[np.float32], trees: int | None = None) -> NDArray[np.float64]:
    columns = [b.predict(x, num_iteration=trees, num_threads=1) for b in boosters]
    return np.clip(np.sort(np.stack(columns, axis=1), axis=1), 0.0, 1.0)


def _alike_shares(table: JobTable, rows: NDArray[np.int64], at_s: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.clip(alike.remaining_deciles(table, rows, at_s) / _left_s(table, rows, at_s)[:, None], 0.0, 1.0)


def _learned_shares(table: JobTable, rows: NDArray[np.int64], at_s: NDArray[np.int64], weights: Weights | None) -> NDArray[np.float64] | None:
    """What the learned weights say, as shares of what is left; None without weights."""
    if weights is None:
        return None
    return np.clip(learned.remaining_deciles(table, rows, at_s, weights) / _left_s(table, rows, at_s)[:, None], 0.0, 1.0)


def _left_s(table: JobTable, rows: NDArray[np.int64], at_s: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.maximum(table.limit_s[rows] - elapsed_s(table, rows, at_s), 1).astype(float)


def _used(table: JobTable, rows: Rows) -> NDArray[np.float64]:
    job, at = rows
    return (table.run_s[job] - elapsed_s(table, job, at)) / _left_s(table, job, at)


def _lightgbm() -> Any:
    try:
        import lightgbm
    except ImportError:
        raise BadInput("the run-time law needs LightGBM: pip install 'ischeduler[provisioning]'") from None
    return lightgbm
