"""How right the estimators have been: rows with coverage, and each outcome's place against its interval. Pure."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from ischeduler.core.history import HistoryRecord
from ischeduler.core.run import Run
from ischeduler.estimators.learning.accuracy import Accuracy, accuracies
from ischeduler.estimators.learning.outcomes import Outcome, outcomes
from ischeduler.estimators.learning.replay import replayed_waits
from ischeduler.service.dashboard.words import ago, amount, percent, signed

UNITS = {"gpu_memory": "bytes", "host_memory": "bytes", "cost": ""}
"""Of outcomes; every other quantity is in seconds. A cost is in its centre's own unit, which an outcome does not keep."""
PROMISED_INSIDE, PROMISED_UNDER = 0.8, 0.9
NEWEST, DOTS = 20, 80
FEW = 10
"""Under so many figures a coverage is not judged."""


@dataclass(frozen=True, slots=True)
class AccuracyRow:
    """One estimator's record. Shares are 0 to 1; ``tone`` and ``tone_under`` judge the two (idle while there are few).

    ``ratios`` are actual / median of the newest figures, and whether each was inside.
    """

    quantity: str
    estimator: str
    where: str
    family: str
    n: int
    median_error: str
    bias: str
    inside: float
    under_p90: float
    tone: str
    tone_under: str
    months: tuple[tuple[str, float], ...]
    drift: str
    ratios: tuple[tuple[float, bool], ...]


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    """One prediction beside its truth, newest first in lists."""

    quantity: str
    where: str
    family: str
    predicted: str
    actual: str
    inside: bool
    age: str


@dataclass(frozen=True, slots=True)
class AccuracyPage:
    """All of it."""

    rows: tuple[AccuracyRow, ...]
    newest: tuple[OutcomeRow, ...]
    runs: int
    jobs: int


def accuracy_page(runs: Sequence[Run], history: Sequence[HistoryRecord], now: float) -> AccuracyPage:
    """Of these runs and this evidence."""
    jobs = [r for r in history if r.kind == "attempt"]
    told = [*outcomes(runs), *replayed_waits(jobs)]
    newest = sorted(told, key=lambda o: -o.at)
    return AccuracyPage(
        tuple(_row(a, newest) for a in accuracies(told)), tuple(_outcome(o, now) for o in newest[:NEWEST]),
        sum(1 for r in runs if r.state.ended), len(jobs),
    )  # fmt: skip


def _row(a: Accuracy, newest: Sequence[Outcome]) -> AccuracyRow:
    f = a.figures
    mine = [o for o in newest if (o.estimator, o.quantity) == (a.estimator, a.quantity) and a.site in ("", o.site) and a.family in ("", o.family)]
    return AccuracyRow(
        a.quantity.replace("_", " "), a.estimator, a.site or "everywhere", a.family or "all models", f.n, percent(f.median_error),
        signed(f.bias - 1), f.inside, f.under_p90, _tone(f.n, f.inside, PROMISED_INSIDE),
        _tone(f.n, f.under_p90, PROMISED_UNDER), tuple((m.month, m.figures.median_error) for m in a.months[-6:]), _drift(a),
        tuple((math.exp(o.log_ratio), o.inside) for o in mine[:DOTS]),
    )  # fmt: skip


def _tone(n: int, share: float, promised: float) -> str:
    """Whether the true share can still be the promised one: within two standard errors of a proportion."""
    if n < FEW:
        return "idle"
    return "bad" if share < promised - 2 * math.sqrt(promised * (1 - promised) / n) else "good"


def _drift(a: Accuracy) -> str:
    if a.drift is None:
        return ""
    day = time.strftime("%Y-%m-%d", time.gmtime(a.drift.at))
    return f"since {day} {signed(a.drift.factor - 1)} against the prediction ({a.drift.n} figures)"


def _outcome(o: Outcome, now: float) -> OutcomeRow:
    unit = UNITS.get(o.quantity, "s")
    low, high = amount(o.p10, unit), amount(o.p90, unit)
    predicted = low if low == high else f"{low}–{high}"
    return OutcomeRow(o.quantity.replace("_", " "), o.site, o.family, predicted, amount(o.actual, unit), o.inside, ago(o.at, now))
