"""How right each estimator has been: error, bias and coverage by estimator, site and family, month by month. Pure."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from ischeduler.estimators.learning.drift import last_drift
from ischeduler.estimators.learning.outcomes import Outcome


@dataclass(frozen=True, slots=True)
class Figures:
    """Of ``n`` outcomes: median and mean of |median / actual - 1|, bias (1.1: it took 10 % more than predicted, in the median),
    share inside p10-p90 (80 % would be right) and share not beyond p90 (90 %)."""

    n: int
    median_error: float
    mape: float
    bias: float
    inside: float
    under_p90: float


@dataclass(frozen=True, slots=True)
class Month:
    """The figures of one month (``2026-11``, UTC)."""

    month: str
    figures: Figures


@dataclass(frozen=True, slots=True)
class Moved:
    """A drift: since ``at`` (epoch seconds), ``factor`` times as much as before against the prediction, over ``n`` outcomes."""

    at: float
    factor: float
    n: int


@dataclass(frozen=True, slots=True)
class Accuracy:
    """One estimator's record for a quantity at one site and of one family; '' where all are taken together."""

    estimator: str
    quantity: str
    site: str
    family: str
    figures: Figures
    months: tuple[Month, ...]
    drift: Moved | None


def accuracies(found: Iterable[Outcome]) -> tuple[Accuracy, ...]:
    """For each estimator and quantity one record of everything, and one a site and family where there are several of these.

    Drift is sought where it has one meaning: at one site, in one family.
    """
    whole: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in sorted(found, key=lambda o: o.at):
        whole.setdefault((outcome.quantity, outcome.estimator), []).append(outcome)
    rows: list[Accuracy] = []
    for (_, _), every in sorted(whole.items()):
        parts: dict[tuple[str, str], list[Outcome]] = {}
        for outcome in every:
            parts.setdefault((outcome.site, outcome.family), []).append(outcome)
        if len(parts) > 1:
            rows.append(_accuracy(every, "", "", drift=False))
        rows += [_accuracy(some, site, family, drift=True) for (site, family), some in sorted(parts.items())]
    return tuple(rows)


def figures(found: Sequence[Outcome]) -> Figures:
    """Of at least one outcome."""
    errors = [abs(math.exp(-o.log_ratio) - 1) for o in found]
    n = len(found)
    return Figures(
        n, median(errors), sum(errors) / n, math.exp(median(o.log_ratio for o in found)),
        sum(o.inside for o in found) / n, sum(o.under_p90 for o in found) / n,
    )  # fmt: skip


def _accuracy(found: Sequence[Outcome], site: str, family: str, *, drift: bool) -> Accuracy:
    first = found[0]
    return Accuracy(
        first.estimator, first.quantity, site, family, figures(found), tuple(_months(found)), _moved(found) if drift else None,
    )  # fmt: skip


def _months(found: Sequence[Outcome]) -> list[Month]:
    by_month: dict[str, list[Outcome]] = {}
    for outcome in found:
        by_month.setdefault(time.strftime("%Y-%m", time.gmtime(outcome.at)), []).append(outcome)
    return [Month(name, figures(some)) for name, some in sorted(by_month.items())]


def _moved(found: Sequence[Outcome]) -> Moved | None:
    drift = last_drift([o.log_ratio for o in found])
    return None if drift is None else Moved(found[drift.index].at, drift.factor, len(found) - drift.index)
