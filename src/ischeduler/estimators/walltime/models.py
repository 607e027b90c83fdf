"""Run-time models that need the standard library alone: the plain rate, and the law of a fixed part and a rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol

from ischeduler.estimators.evidence import NoEvidence
from ischeduler.estimators.learning.conformal import shrunk
from ischeduler.estimators.walltime.law import Law, fit_law, fit_near_rate, fit_rate
from ischeduler.estimators.walltime.odd_sizes import odd_sizes
from ischeduler.estimators.walltime.timed import Config, TimedRun, by_config


@dataclass(frozen=True, slots=True)
class Predicted:
    """Seconds, and the spread (mean absolute log-residual) that runs of this configuration showed."""

    seconds: float
    spread: float = 1.0


class Fitted(Protocol):
    """A model that has seen its runs."""

    def predict(self, run: TimedRun) -> Predicted:
        """NoEvidence where it has nothing to go by."""
        ...


class RunTimeModel(Protocol):
    """A way to learn run times."""

    @property
    def name(self) -> str:
        """How reports call it."""
        ...

    def fit(self, runs: Sequence[TimedRun]) -> Fitted:
        """Learn."""
        ...


@dataclass(frozen=True)
class LawTable:
    """One law a configuration; for a batch never seen, the nearest one seen of the same family on the same hardware.

    For a family never seen on the hardware: what other families say of the ratio of the two pieces of hardware.
    """

    laws: Mapping[Config, Law]
    common_spread: float

    def predict(self, run: TimedRun) -> Predicted:
        """NoEvidence for a family or hardware that nothing links to what was seen."""
        law = self.laws.get(run.config) or self._nearest_batch(run)
        if law is not None:
            spread = shrunk(law.scatter, law.n, self.common_spread)
            return Predicted(law.seconds(run.samples, run.epochs), max(spread, 1e-4))
        return Predicted(self._transferred(run), max(self.common_spread, 1e-4))

    def _nearest_batch(self, run: TimedRun) -> Law | None:
        there = {b: law for (f, h, b), law in self.laws.items() if (f, h) == run.group}
        if not there:
            return None
        return there[min(there, key=lambda b: (abs(math.log(b / run.batch)), b))]

    def _transferred(self, run: TimedRun) -> float:
        """Two-way: time of another family here x median ratio of the two families elsewhere, at the same batch and data."""
        at = {(f, h): law.seconds(run.samples, run.epochs) for (f, h, b), law in self.laws.items() if b == run.batch}
        guesses: list[float] = []
        for (family, hardware), here in at.items():
            if hardware != run.hardware or family == run.family:
                continue
            ratios = [at[run.family, h] / s for (f, h), s in at.items() if f == family and (run.family, h) in at]
            if ratios:
                guesses.append(here * median(ratios))
        if not guesses:
            raise NoEvidence(f"no run of {run.family} on {run.hardware}, and nothing to carry over from")
        return median(guesses)


@dataclass(frozen=True)
class TableModel:
    """Fits one law a configuration. ``robust`` sets odd sizes aside first."""

    name: str
    law: Callable[[Sequence[TimedRun]], Law]
    robust: bool = False

    def fit(self, runs: Sequence[TimedRun]) -> LawTable:
        """NoEvidence without runs."""
        if not runs:
            raise NoEvidence("no finished run")
        aside = odd_sizes(runs) if self.robust else {}
        laws = {c: self.law(found) for c, found in by_config([r for r in runs if r.samples not in aside]).items()}
        return LawTable(laws, _common_spread(list(laws.values())))


def _common_spread(laws: Sequence[Law]) -> float:
    """Mean scatter by run, of laws with a fixed part where there are any: a bare rate over several sizes only shows its misfit."""
    judged = [law for law in laws if law.fixed] or list(laws)
    return sum(law.scatter * law.n for law in judged) / sum(law.n for law in judged)


RATE = TableModel("rate", fit_rate)
"""Seconds a sample and epoch of each (hardware, family, batch), times samples, times epochs."""
NEAR_RATE = TableModel("near-rate", fit_near_rate)
"""The same from the larger runs alone."""
LAW = TableModel("law", fit_law, robust=True)
"""A fixed part a run and epoch, and seconds a sample, robustly; odd sizes set aside."""
TABLES = (LAW, NEAR_RATE, RATE)
"""Every model of the standard library alone."""
