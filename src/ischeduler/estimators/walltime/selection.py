"""Which model answers is decided by data: each is examined on the larger sizes of the runs it may learn from. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from ischeduler.core.errors import EstimatorFailed
from ischeduler.estimators.evidence import NoEvidence
from ischeduler.estimators.learning.conformal import Margins, margins
from ischeduler.estimators.walltime.models import TABLES, Fitted, Predicted, RunTimeModel
from ischeduler.estimators.walltime.odd_sizes import odd_sizes
from ischeduler.estimators.walltime.timed import ScaleStep, TimedRun, scale_steps


@dataclass(frozen=True, slots=True)
class Residual:
    """One examined prediction: log(actual / predicted), and the spread that belonged to it."""

    run: TimedRun
    log: float
    spread: float

    @property
    def score(self) -> float:
        """What margins are made of."""
        return self.log / self.spread

    @property
    def error(self) -> float:
        """Absolute relative error of the prediction."""
        return abs(math.exp(-self.log) - 1)


@dataclass(frozen=True, slots=True)
class Exam:
    """How a model did on the scale steps: mean over steps of the mean absolute relative error, or why it could not sit it."""

    name: str
    mape: float
    residuals: tuple[Residual, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class Selection:
    """The winner, fitted on everything, with margins from its exam; ``exams`` in the order of merit."""

    model: RunTimeModel
    fitted: Fitted
    margins: Margins | None
    exams: tuple[Exam, ...]
    aside: Mapping[int, float] = field(default_factory=dict[int, float])

    def interval(self, run: TimedRun) -> tuple[float, float, float] | None:
        """(p10, p50, p90) in seconds; None where too few were examined for margins."""
        found = self.fitted.predict(run)
        return None if self.margins is None else self.margins.interval(found.seconds, found.spread)

    def predict(self, run: TimedRun) -> Predicted:
        """The prediction without margins."""
        return self.fitted.predict(run)

    @property
    def words(self) -> str:
        """Which model won, by how much, and what was set aside."""
        told = [e for e in self.exams if not e.problem]
        if not told:
            return f"method {self.model.name}: too few sizes to compare methods"
        best, rest = told[0], told[1:]
        won = f"method {best.name} (error {best.mape:.1%} on {len(best.residuals)} larger runs held out"
        won += f"; next {rest[0].name} {rest[0].mape:.1%})" if rest else ")"
        odd = ", ".join(f"size {s} ({math.exp(v) - 1:+.0%})" for s, v in sorted(self.aside.items()))
        return won + (f"; set aside as odd: {odd}" if odd else "")


def select(runs: Sequence[TimedRun], candidates: Sequence[RunTimeModel] = TABLES) -> Selection:
    """Examine every candidate, fit the best on all runs. Of equals the first; without an exam (few sizes) the first that fits.

    NoEvidence when nobody can be fitted.
    """
    steps, aside = scale_steps(runs), odd_sizes(runs)
    exams = sorted((examine(c, steps, aside) for c in candidates), key=lambda e: e.mape)
    named = {c.name: c for c in candidates}
    problems: list[str] = []
    for exam in exams:
        try:
            fitted = named[exam.name].fit(runs)
        except EstimatorFailed as reason:
            problems.append(f"{exam.name}: {reason}")
            continue
        scores = [r.score for r in exam.residuals]
        return Selection(named[exam.name], fitted, margins(scores), tuple(exams), aside)
    raise NoEvidence("; ".join(problems) or "no run-time model was given")


def examine(model: RunTimeModel, steps: Sequence[ScaleStep], aside: Mapping[int, float]) -> Exam:
    """Every step's test runs predicted from its smaller ones. An odd size counts by its spread, not by its common shift."""
    every: list[Residual] = []
    errors: list[float] = []
    try:
        for step in steps:
            found = _centred(_residuals(model, step), step.size in aside)
            if found:
                errors.append(sum(r.error for r in found) / len(found))
                every += found
    except EstimatorFailed as reason:
        return Exam(model.name, math.inf, problem=str(reason))
    if not errors:
        return Exam(model.name, math.inf, problem="too few sizes")
    return Exam(model.name, sum(errors) / len(errors), tuple(every))


def _residuals(model: RunTimeModel, step: ScaleStep) -> list[Residual]:
    fitted = model.fit(step.train)
    found: list[Residual] = []
    for run in step.test:
        try:
            predicted = fitted.predict(run)
        except NoEvidence:
            continue  # a configuration first seen at this size examines nobody
        found.append(Residual(run, math.log(run.seconds / predicted.seconds), predicted.spread))
    return found


def _centred(found: list[Residual], odd: bool) -> list[Residual]:
    if not odd or not found:
        return found
    shift = median(r.log for r in found)
    return [Residual(r.run, r.log - shift, r.spread) for r in found]
