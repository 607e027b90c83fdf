"""A trained wait model as a value: what it predicts, how it was made, and its file.

The file is JSON: lightgbm's own text for the trees, the calibration, and the provenance (data, code version, validation figures). It holds
numbers only; reading one runs no code of its author's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ischeduler import __version__
from ischeduler.core.errors import BadInput, EstimatorFailed
from ischeduler.estimators.queuewait.conformal import PastScores, Scale, past_scores
from ischeduler.estimators.queuewait.features import names, of_trace
from ischeduler.estimators.queuewait.learner import (
    FEWEST_JOBS,
    HORIZONS_S,
    LEVELS,
    Settings,
    fit_quantiles,
    fit_soon,
    labels_at,
    lightgbm,
)  # fmt: skip

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ischeduler.estimators.queuewait.jobs import Jobs
    from ischeduler.estimators.queuewait.twin import RollOuts

FORMAT = "ischeduler-queue-wait-1"
CALIBRATED = (0.1, 0.5, 0.9, 0.95)
_HELD_BACK = 0.2  # of the jobs, the last ones: they calibrate a model that was trained without them
_NEVER_LOG = 17.4  # a year, in log seconds


@dataclass(frozen=True)
class WaitModel:
    """Quantiles of the log wait and chances of an early start. ``past`` calibrates; ``capacity`` is in units."""

    names: tuple[str, ...]
    quantile_boosters: tuple[Any, ...]
    soon_boosters: tuple[Any, ...]
    past: PastScores
    capacity: float
    levels: tuple[float, ...] = LEVELS
    horizons_s: tuple[float, ...] = HORIZONS_S
    provenance: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def twin(self) -> bool:
        """Whether it needs the simulator's forecasts."""
        return any(n.startswith("twin_") for n in self.names)

    @property
    def scale(self) -> Scale:
        return Scale(self.levels)

    def quantiles(self, features: NDArray[Any]) -> NDArray[Any]:
        """Ordered, uncalibrated log waits (jobs, levels)."""
        import numpy as np

        return self.scale.ordered(np.column_stack([b.predict(features) for b in self.quantile_boosters]))

    def waits_s(self, features: NDArray[Any]) -> NDArray[Any]:
        """Calibrated waits (jobs, :data:`CALIBRATED`) in seconds, ascending."""
        import numpy as np

        told = self.quantiles(features)
        logs = np.column_stack([self.scale.value(told, z) for z in np.array([self._deviates(row) for row in features]).T])
        return np.expm1(np.clip(np.maximum.accumulate(logs, axis=1), 0.0, _NEVER_LOG))

    def _deviates(self, row: NDArray[Any]) -> tuple[float, ...]:
        units, limit = sizes(self.names, row[None, :])[0]
        return tuple(sorted(self.past.deviates(float(units), float(limit), CALIBRATED)))

    def chances(self, features: NDArray[Any]) -> NDArray[Any]:
        """Chances (jobs, horizons) of starting within each horizon, ascending."""
        import numpy as np

        return np.maximum.accumulate(np.column_stack([b.predict(features) for b in self.soon_boosters]), axis=1)

    def chance_by(self, features: NDArray[Any], deadline_s: float) -> NDArray[Any]:
        """Chances (jobs,) of having started ``deadline_s`` from now, by the quantiles, never below a shorter horizon's chance."""
        from statistics import NormalDist

        import numpy as np

        z = self.scale.score(self.quantiles(features), np.full(len(features), np.log1p(max(0.0, deadline_s))))
        asked = [NormalDist().inv_cdf(q) for q in CALIBRATED]
        chance = np.array([NormalDist().cdf(_back(float(v), self._deviates(row), asked)) for v, row in zip(z, features, strict=True)])
        nearer = [i for i, h in enumerate(self.horizons_s) if h <= deadline_s]
        return np.maximum(chance, self.chances(features)[:, nearer[-1]]) if nearer else np.minimum(chance, self.chances(features)[:, 0])


def train(
    jobs: Jobs, *, now_s: float, twin: RollOuts | None = None, settings: Settings | None = None, capacity: float = 0.0,
    data: str = "", validation: Mapping[str, Any] | None = None,
) -> WaitModel:  # fmt: skip
    """A model of what was known at ``now_s``; calibrated on the last fifth, then grown again on all of it.

    ``capacity`` 0: as seen. ``data`` says in words where the jobs come from. BadInput with fewer than :data:`FEWEST_JOBS` started jobs,
    or fewer than half of that before the fifth that calibrates (all jobs came at once).
    """
    import numpy as np

    settings = settings or Settings()
    seen = jobs.known_at(now_s)
    started = int((seen.start_s < now_s).sum())
    if started < FEWEST_JOBS:
        raise BadInput(f"{started} jobs had started by then; a wait model needs at least {FEWEST_JOBS}; collect more history.")
    columns = names(twin=twin is not None)
    table = of_trace(seen, capacity=capacity, twin=twin)
    first = int(len(seen) * (1 - _HELD_BACK))
    early_s = float(seen.submit_s[first])
    known = labels_at(seen.take(slice(0, first)), early_s)
    before = int(known.ended.sum())
    if before < FEWEST_JOBS // 2:
        raise BadInput(f"{before} jobs had started when the fifth that calibrates was handed in; at least {FEWEST_JOBS // 2} are needed; collect more history.")
    scale = Scale(LEVELS)
    trial = fit_quantiles(table[:first], known, settings)
    told = scale.ordered(np.column_stack([b.predict(table[first:]) for b in trial]))
    past = past_scores(scale, told, seen.submit_s[first:], seen.start_s[first:], sizes(columns, table[first:]), now_s)
    labels = labels_at(seen, now_s)
    made = {
        "data": data, "code": __version__, "jobs": len(seen), "started": started, "first_s": float(seen.submit_s[0]), "now_s": now_s,
        "validation": dict(validation or {}),
    }  # fmt: skip
    units = float(np.max(2 ** table[:, 0] / table[:, 1])) if capacity <= 0 else capacity
    return WaitModel(
        columns, fit_quantiles(table, labels, settings), fit_soon(table, labels, settings), past, units, provenance=made,
    )  # fmt: skip


def save(model: WaitModel, path: Path) -> None:
    """Write the file, whole or not at all."""
    text = json.dumps({
        "format": FORMAT, "provenance": dict(model.provenance), "names": model.names, "levels": model.levels, "horizons_s": model.horizons_s,
        "past": {f.name: getattr(model.past, f.name).tolist() for f in fields(PastScores)}, "capacity": model.capacity,
        "quantiles": [b.model_to_string() for b in model.quantile_boosters],
        "soon": [b.model_to_string() for b in model.soon_boosters],
    })  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def load(path: Path) -> WaitModel:
    """The model of a file; EstimatorFailed with one sentence when it cannot be read or was made for other features."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data.get("format") != FORMAT:
            raise EstimatorFailed(f"{path} is no wait model of format {FORMAT}; train it again.")
        library = lightgbm()
        grown = [tuple(library.Booster(model_str=text) for text in data[k]) for k in ("quantiles", "soon")]
        model = WaitModel(
            tuple(data["names"]), grown[0], grown[1], _past(data["past"]), float(data["capacity"]), tuple(data["levels"]),
            tuple(data["horizons_s"]), data["provenance"],
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise EstimatorFailed(f"{path} cannot be read as a wait model ({type(error).__name__}: {error}); train it again.") from error
    if model.names != names(twin=model.twin):
        raise EstimatorFailed(f"{path} was trained on other features than this version computes; train it again.")
    return model


def sizes(columns: tuple[str, ...], features: NDArray[Any]) -> NDArray[Any]:
    """Binary logarithms of units and limit (jobs, 2), as the calibration compares jobs."""
    import numpy as np

    return np.column_stack([features[:, columns.index("log_units")], features[:, columns.index("log_limit")] / math.log(2)])


def _past(data: Mapping[str, Any]) -> PastScores:
    import numpy as np

    return PastScores(*(np.array(data[f.name], dtype=bool if f.name == "ended" else float) for f in fields(PastScores)))


def _back(value: float, told: tuple[float, ...], asked: list[float]) -> float:
    """A raw deviate as a calibrated one: straight between the calibrated levels, parallel beyond."""
    import numpy as np

    if value <= told[0]:
        return asked[0] + value - told[0]
    if value >= told[-1]:
        return asked[-1] + value - told[-1]
    return float(np.interp(value, told, asked))
