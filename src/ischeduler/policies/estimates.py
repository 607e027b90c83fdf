"""What a job runs at on types it was hardly seen on: figures from several sources made into one estimate a type, the correction shown.

One Gaussian model of the logarithms. A job's rates over the K types are a scale of its own (unknown) times a profile that varies from job to
job as those of the measured table do (mean and covariance: completion of the table's matrix from what is known of the row; Gavel, OSDI
2020, section 3.3, after Quasar, ASPLOS 2014). A figure is the rate, times an error that all figures of its source share (who overrates
one type overrates the others), times its own error. Conditioning on all figures at once gives every type a median with an interval, and what is
measured on one type corrects what was claimed for the others. O((K + S + F)^3) for S sources and F figures. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ischeduler.core.errors import BadInput
from ischeduler.core.estimate import Estimate
from ischeduler.policies.problem import Floats, Ints, Throughputs

Z90 = 1.2815515655446004
FREE_SCALE = 1e4
"""Variance of a job's own scale in the logarithm: nothing is known of it beforehand."""
SHARED_ERROR = {"given": 0.35, "profile": 0.10, "history": 0.05, "live": 0.02, "trace": 0.05, "analytic": 0.25}
"""Standard deviation (log) of the error all figures of a source share, by basis: what people say is off by a third, what was just seen by 2 %."""
OWN_ERROR = {"given": 0.15, "profile": 0.05, "history": 0.05, "live": 0.02, "trace": 0.05, "analytic": 0.15}
"""Standard deviation (log) of a figure's own error at least; its interval may say more."""
SCATTER = 0.05
"""Standard deviation (log) of a profile that no measured class would show."""


@dataclass(frozen=True, slots=True, eq=False)
class Profiles:
    """How rates vary from class to class over the types: mean (K,) and covariance (K, K) of log rates, each class's own scale taken out."""

    types: tuple[str, ...]
    mean: Floats
    covariance: Floats
    classes: int


@dataclass(frozen=True, slots=True)
class Figure:
    """One source's rate (steps/s) of the job on one type."""

    type: str
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class Correction:
    """What became of a figure: the rate that is used in its place and why, for people."""

    type: str
    source: str
    claimed: float
    used: float
    text: str

    @property
    def factor(self) -> float:
        """Used over claimed."""
        return self.used / self.claimed


@dataclass(frozen=True, slots=True)
class Rates:
    """The estimate of every type and what was corrected (figures that are off by more than their interval first)."""

    by_type: Mapping[str, Estimate]
    corrections: tuple[Correction, ...]


def profiles(throughputs: Throughputs) -> Profiles:
    """From the classes measured on at least two types; gaps in the table are filled by expectation and maximisation (20 rounds)."""
    with np.errstate(divide="ignore"):
        logs = np.where(throughputs.rate > 0, np.log(np.maximum(throughputs.rate, 1e-300)), np.nan)
    logs = logs[np.isfinite(logs).sum(axis=1) >= 2]
    kinds = len(throughputs.types)
    mean, covariance = np.zeros(kinds), np.eye(kinds)
    if len(logs) == 0:
        return Profiles(throughputs.types, mean, covariance, 0)
    logs = logs - np.nanmean(logs, axis=1, keepdims=True)
    mean = np.array([np.nanmean(column) if np.isfinite(column).any() else 0.0 for column in logs.T])
    ridge = SCATTER**2 * np.eye(kinds)
    for _ in range(20 if not np.isfinite(logs).all() else 1):
        full, extra = np.empty_like(logs), np.zeros((kinds, kinds))
        for i, row in enumerate(logs):
            known = np.isfinite(row)
            full[i], spread = _conditioned(mean, covariance, np.flatnonzero(known).astype(np.int64), row[known], 1e-6)
            extra += spread
        full -= full.mean(axis=1, keepdims=True)
        mean = full.mean(axis=0)
        covariance = ((full - mean).T @ (full - mean) + extra) / len(full) + ridge
    return Profiles(throughputs.types, mean, covariance, len(logs))


def _conditioned(mean: Floats, covariance: Floats, at: Ints, values: Floats, noise: float) -> tuple[Floats, Floats]:
    """Mean and covariance given values at some places."""
    if len(at) == 0:
        return mean, covariance
    gain = np.transpose(np.asarray(np.linalg.solve(covariance[np.ix_(at, at)] + noise * np.eye(len(at)), covariance[at]), dtype=np.float64))
    return mean + gain @ (values - mean[at]), covariance - gain @ covariance[at]


def combine(figures: Sequence[Figure], known: Profiles) -> Rates:
    """Estimates of all types in steps/s. BadInput without a figure, with one for an unknown type, or one that is not above zero."""
    if not figures:
        raise BadInput("Nothing is known of this job's throughput; give a figure for at least one type of accelerator.")
    kinds = len(known.types)
    column = {t: k for k, t in enumerate(known.types)}
    sources = list(dict.fromkeys(f.estimate.source for f in figures))
    basis = {f.estimate.source: f.estimate.basis for f in figures}
    size = kinds + len(sources)
    mean, prior = np.zeros(size), np.zeros((size, size))
    mean[:kinds] = known.mean
    prior[:kinds, :kinds] = known.covariance + FREE_SCALE
    for s, source in enumerate(sources):
        prior[kinds + s, kinds + s] = SHARED_ERROR.get(basis[source], 0.35) ** 2
    seen, value, noise = np.zeros((len(figures), size)), np.zeros(len(figures)), np.zeros(len(figures))
    for i, f in enumerate(figures):
        if f.type not in column:
            raise BadInput(f"A throughput is given for '{f.type}', which is not one of {', '.join(known.types)}; correct the type.")
        if not (f.estimate.p50 > 0 and math.isfinite(f.estimate.p50)):
            raise BadInput(f"The throughput of '{f.type}' from {f.estimate.source} is {f.estimate.p50:g}; give steps per second above zero.")
        seen[i, column[f.type]] = seen[i, kinds + sources.index(f.estimate.source)] = 1.0
        value[i] = math.log(f.estimate.p50)
        interval = math.log(f.estimate.p90 / f.estimate.p10) / (2 * Z90) if f.estimate.p10 > 0 and math.isfinite(f.estimate.p90) else 0.0
        noise[i] = max(OWN_ERROR.get(f.estimate.basis, 0.15), interval) ** 2
    gain = np.linalg.solve(seen @ prior @ seen.T + np.diag(noise), seen @ prior).T
    after = mean + gain @ (value - seen @ mean)
    spread = np.sqrt(np.maximum(np.diag(prior - gain @ seen @ prior), 0.0))
    measured = {f.type for f in figures}
    by_type = {t: _estimate(t, float(after[k]), float(spread[k]), figures, t in measured, known) for k, t in enumerate(known.types)}
    found = [_correction(f, by_type[f.type], figures) for f in figures]
    return Rates(by_type, tuple(sorted(found, key=lambda c: -abs(math.log(c.factor)))))


def _estimate(kind: str, middle: float, spread: float, figures: Sequence[Figure], direct: bool, known: Profiles) -> Estimate:
    names = [f.estimate.source for f in figures if f.type == kind] if direct else sorted({f.type for f in figures})
    reason = f"from {', '.join(dict.fromkeys(names))}" if direct else f"completed from {', '.join(names)} by {known.classes} measured classes"
    dates = [f.estimate.as_of for f in figures if f.estimate.as_of is not None]
    low, high = math.exp(middle - Z90 * spread), math.exp(middle + Z90 * spread)
    return Estimate(low, math.exp(middle), high, "steps/s", "throughputs@1", basis="history" if direct else "analytic",
                    as_of=max(dates) if dates else None, reason=reason)


def _correction(figure: Figure, used: Estimate, figures: Sequence[Figure]) -> Correction:
    claimed, source = figure.estimate.p50, figure.estimate.source
    others = [f"{f.estimate.source} saw {f.estimate.p50:.3g} on {f.type}" for f in figures if f.estimate.source != source]
    change = used.p50 / claimed - 1.0
    verdict = "kept" if abs(change) < 0.02 else f"corrected by {change:+.0%}"
    why = f"; {', '.join(others[:3])}" if others and verdict != "kept" else ""
    text = f"{figure.type}: {source} says {claimed:.3g} steps/s, {used.p50:.3g} ({used.p10:.3g} to {used.p90:.3g}) is used, {verdict}{why}"
    return Correction(figure.type, source, claimed, used.p50, text)


def table_with(throughputs: Throughputs, name: str, rates: Rates, *, only: Sequence[str] | None = None) -> Throughputs:
    """The table with one more class (or that class replaced) at the estimates' medians; types not in ``only`` (default: all) get 0."""
    allowed = set(throughputs.types if only is None else only)
    row = np.array([rates.by_type[t].p50 if t in allowed and t in rates.by_type else 0.0 for t in throughputs.types])
    if name in throughputs.classes:
        at = throughputs.classes.index(name)
        rate, spread = throughputs.rate.copy(), throughputs.spread.copy()
        rate[at], spread[at] = row, row
        return Throughputs(throughputs.types, throughputs.classes, rate, spread, throughputs.shared)
    shared = throughputs.shared
    if shared is not None:
        # Nobody ran the new class beside another: it shares with none.
        shared = np.pad(shared, ((0, 1), (0, 1), (0, 0)))
    return Throughputs(throughputs.types, (*throughputs.classes, name), np.vstack([throughputs.rate, row]), np.vstack([throughputs.spread, row]), shared)
