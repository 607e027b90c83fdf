"""What a card holds beside the allocator's blocks, learned from measured device totals at one site. Pure.

A site measures some runs (nvidia-smi or NVML) of models it can trace; :func:`learn` finds the context (median of what the
replay leaves unexplained), how many batches the loader keeps on the card beside the step's own, how convolutions borrow with and
without ``cudnn.benchmark`` where that can be told from the data, and how far single runs stray: relative to the total, and
relative to the largest convolution, whose algorithm search is the one thing no trace knows.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ischeduler.core.codec import from_plain, to_plain
from ischeduler.core.errors import BadInput
from ischeduler.estimators.memory.workspaces import Borrowers

LEAST_POINTS = 8
LEAST_FAMILIES = 4
"""Of models with convolutions: with fewer nothing can be held out, so the rules stand."""
_INPUT_STEPS = tuple(x / 2 for x in range(9))
_SEARCHED = (0.0, *(x / 2 for x in range(4, 17)))
_KEPT = tuple(x / 4 for x in range(5))
_ROUNDS = 2
_FOLDS = 4
_GAIN = 0.98
"""A fit must leave so much of the rules' error on families it has not seen, or less."""
_CAP = 0.5
"""A run that is further off says no more than one that is so far off: some runs are not what their trace is."""
_LOWER, _UPPER = 0.12, 0.925
"""Quantiles aimed at: a little beyond 10 and 90 %, for fitted quantiles are too tight on new models."""
SEARCH_SHARE = 0.5
"""Of the largest convolution: what trying algorithms may add at p90 with ``cudnn.benchmark``, where nothing was measured."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One measured run beside its replay, in bytes: device total, reserved by the replay (rules of workspaces included), one
    batch of inputs, and the step's borrowers. ``benchmark`` is ``cudnn.benchmark``; ``family`` groups models that are alike, '' is
    unknown.
    """

    total: float
    reserved: float
    inputs: float
    borrowers: Borrowers = Borrowers()
    benchmark: bool = False
    family: str = ""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How convolutions borrow beyond the rules, and how far runs stray, with or without ``cudnn.benchmark``.

    ``searched`` times the largest convolution is borrowed while most is allocated under one (0: no more than the rules say), and
    ``kept`` times it stays beside the peak. p10 is ``total x (1 + low_share)``, p90 ``total x (1 + high_share) + high_convolution x
    largest``. ``points`` were measured (0: assumed); ``error_rules`` and ``error_fitted`` are mean relative errors on families held
    out, None where none could be.
    """

    searched: float = 0.0
    kept: float = 0.0
    low_share: float = -0.03
    high_share: float = 0.06
    high_convolution: float = 0.0
    points: int = 0
    error_rules: float | None = None
    error_fitted: float | None = None

    def borrowed(self, reserved: float, borrowers: Borrowers) -> float:
        """Bytes beside what the rules reserve."""
        return _borrowed(reserved, borrowers, self.searched, self.kept)


@dataclass(frozen=True, slots=True)
class DeviceCalibration:
    """``total = reserved + borrowed + context + inputs_held x inputs``; ``quiet`` is without ``cudnn.benchmark``, ``searching`` with."""

    context_bytes: float
    inputs_held: float = 0.0
    quiet: Behaviour = Behaviour()
    searching: Behaviour = Behaviour(high_convolution=SEARCH_SHARE)
    source: str = ""

    @property
    def measured(self) -> bool:
        """Whether whole steps were measured, not the context alone."""
        return self.quiet.points + self.searching.points > 0

    def behaviour(self, benchmark: bool) -> Behaviour:
        """The one with or without ``cudnn.benchmark``."""
        return self.searching if benchmark else self.quiet

    def quantiles(self, reserved: float, inputs: float, borrowers: Borrowers, benchmark: bool) -> tuple[float, float, float]:
        """p10, p50, p90 of the device total in bytes, from what the rules reserve."""
        return self.spread(reserved + self.behaviour(benchmark).borrowed(reserved, borrowers), inputs, borrowers, benchmark)

    def spread(self, held: float, inputs: float, borrowers: Borrowers, benchmark: bool) -> tuple[float, float, float]:
        """The same, where ``held`` has what is borrowed in it."""
        how = self.behaviour(benchmark)
        middle = held + self.context_bytes + self.inputs_held * inputs
        high = middle * (1 + how.high_share) + how.high_convolution * borrowers.largest
        return min(middle, middle * (1 + how.low_share)), middle, max(middle, high)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return to_plain(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> DeviceCalibration:
        """The inverse of :meth:`to_json`; BadInput on anything else."""
        try:
            return from_plain(cls, data)
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"This is no memory calibration ({error}); make one with isched calibrate.") from None


def learn(points: Sequence[Measured], source: str = "") -> DeviceCalibration:
    """The calibration of a site; BadInput when there are fewer than :data:`LEAST_POINTS`.

    How convolutions borrow is fitted for each setting of ``cudnn.benchmark`` by itself, and kept only where it brings models of
    families left out nearer to the truth than the rules do. A setting that was not measured is assumed to stray as the other does.
    """
    if len(points) < LEAST_POINTS:
        raise BadInput(f"A memory calibration needs at least {LEAST_POINTS} measured runs, not {len(points)}; measure more.")
    shown = {flag: _held_out(points, flag) for flag in {p.benchmark for p in points}}
    better = [flag for flag, errors in shown.items() if errors is not None and errors[1] <= _GAIN * errors[0]]
    centre = _fit(points, better)
    found = {flag: _behaviour([p for p in points if p.benchmark == flag], centre, flag, errors) for flag, errors in shown.items()}
    quiet = found.get(False) or _assumed(found[True], 0.0)
    searching = found.get(True) or _assumed(found[False], SEARCH_SHARE)
    return DeviceCalibration(centre.context, centre.held, quiet, searching, source)


def _assumed(other: Behaviour, least_convolution: float) -> Behaviour:
    return Behaviour(
        low_share=other.low_share, high_share=other.high_share, high_convolution=max(least_convolution, other.high_convolution)
    )


def _borrowed(reserved: float, borrowers: Borrowers, searched: float, kept: float) -> float:
    search = max(0.0, borrowers.busiest + searched * borrowers.largest - reserved) if searched else 0.0
    return search + kept * borrowers.largest


@dataclass(frozen=True, slots=True)
class _Centre:
    """The middle of the device total; ``forms`` maps ``cudnn.benchmark`` to (searched, kept), (0, 0) where absent."""

    context: float
    held: float
    forms: Mapping[bool, tuple[float, float]]

    def of(self, point: Measured) -> float:
        searched, kept = self.forms.get(point.benchmark, (0.0, 0.0))
        return point.reserved + _borrowed(point.reserved, point.borrowers, searched, kept) + self.context + self.held * point.inputs

    def error(self, points: Sequence[Measured]) -> float:
        return statistics.fmean(min(_CAP, abs(self.of(p) / p.total - 1)) for p in points)


def _held_out(points: Sequence[Measured], benchmark: bool) -> tuple[float, float] | None:
    """(rules' error, fit's error) on families that took no part, of runs with that setting; None where families are too few."""
    families = sorted({p.family for p in points if p.family and p.benchmark == benchmark and p.borrowers.largest})
    if len(families) < LEAST_FAMILIES:
        return None
    rules = fitted = 0.0
    for fold in range(_FOLDS):
        out = set(families[fold::_FOLDS])
        rest = [p for p in points if p.family not in out]
        left = [p for p in points if p.family in out and p.benchmark == benchmark]
        if len(rest) < LEAST_POINTS:
            return None
        others = {p.benchmark for p in rest} - {benchmark}  # else their borrowing would pass for context
        rules += len(left) * _fit(rest, others).error(left)
        fitted += len(left) * _fit(rest, {*others, benchmark}).error(left)
    count = sum(p.family in families and p.benchmark == benchmark for p in points)
    return rules / count, fitted / count


def _fit(points: Sequence[Measured], settings: Collection[bool]) -> _Centre:
    """The centre of least error; forms are searched for those ``settings`` of ``cudnn.benchmark`` alone, in turn with the rest."""
    best = _offsets(points, {})
    for _ in range(_ROUNDS if settings else 0):
        for setting in settings:
            forms = [(searched, kept) for searched in _SEARCHED for kept in _KEPT]
            best = min((_with_context(points, best.held, {**best.forms, setting: f}) for f in forms), key=lambda c: c.error(points))
        best = _offsets(points, best.forms)
    return best


def _offsets(points: Sequence[Measured], forms: Mapping[bool, tuple[float, float]]) -> _Centre:
    return min((_with_context(points, held, forms) for held in _INPUT_STEPS), key=lambda c: c.error(points))


def _with_context(points: Sequence[Measured], held: float, forms: Mapping[bool, tuple[float, float]]) -> _Centre:
    bare = _Centre(0.0, held, forms)
    return _Centre(max(0.0, statistics.median(p.total - bare.of(p) for p in points)), held, forms)


def _behaviour(points: Sequence[Measured], centre: _Centre, benchmark: bool, errors: tuple[float, float] | None) -> Behaviour:
    shares = [(p.total / centre.of(p) - 1, p.borrowers.largest / centre.of(p)) for p in points]
    high, steep = _upper_line(shares)
    searched, kept = centre.forms.get(benchmark, (0.0, 0.0))
    rules, fitted = errors or (None, None)
    return Behaviour(searched, kept, min(0.0, _quantile([s for s, _ in shares], _LOWER)), high, steep, len(points), rules, fitted)


def _upper_line(shares: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """(share, share per convolution) above which a tenth of the runs lie: the least pinball loss over lines."""
    best = (float("inf"), 0.0, 0.0)
    for steep in (x / 4 for x in range(17)):
        flat = max(0.0, _quantile([s - steep * r for s, r in shares], _UPPER))
        loss = sum(max(_UPPER * d, (_UPPER - 1) * d) for d in (s - flat - steep * r for s, r in shares))
        best = min(best, (loss, flat, steep))
    return best[1], best[2]


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, round(share * (len(ordered) - 1))))]
