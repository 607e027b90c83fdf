"""Waits of a job trace, foretold at each submission by our trees and by the peers, and how right each is."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from benchmarks.report import AtLeast, Bar
from ischeduler.core.errors import BadInput, EstimatorFailed
from ischeduler.estimators.queuewait.features import of_trace
from ischeduler.estimators.queuewait.jobs import NEEDED, Jobs, from_columns
from ischeduler.estimators.queuewait.learner import FEWEST_JOBS, HORIZONS_S
from ischeduler.estimators.queuewait.model import CALIBRATED
from ischeduler.estimators.queuewait.peers import PEERS, Forecaster, Told, Trees
from ischeduler.estimators.queuewait.trout import Trout
from ischeduler.simulator.kernel import rollouts

TRAIN_SHARE = 0.8
KNOWN = {"mirage_ls6_a100": ("2023-03-01", 4.0, 0.87), "kth_sp2_original": (None, 2.2, 0.83), "alcf_theta_2022": (None, 30.0, 0.97)}
"""Where the published split of a trace lies (None: four fifths of the time), the median bound in hours and the AUC that were set for it."""
COVERAGE, COVERAGE_OFF = 0.95, 0.01
LONG_S = 4 * 3600.0
NO_WORSE_THAN_A_PEER = 1.0


@dataclass(frozen=True)
class Score:
    """One method on the test jobs; nan where it says nothing. Bounds in hours, ``long_found`` of the waits over 4 h those foretold as such."""

    method: str
    mse_log10: float = math.nan
    within_2x: float = math.nan
    long_found: float = math.nan
    auc_10min: float = math.nan
    auc_1h: float = math.nan
    coverage: float = math.nan
    median_bound_h: float = math.nan
    seconds: float = math.nan


def is_trace(columns: list[str]) -> bool:
    """Whether a table is a trace, by its columns."""
    return all(c in columns for c in NEEDED)


def judge_trace(
    table: Any, name: str, until: str | None, *, limit: int = 0, seed: int = 7, quiet: bool = False
) -> tuple[dict[str, Any], list[Bar]]:
    """Metrics and bars of a trace; BadInput when it holds too little."""
    jobs = from_columns({c: table[c].to_numpy() for c in table.columns if c in (*NEEDED, "user", "queue", "name")})
    jobs = jobs.take(slice(max(0, len(jobs) - limit), None)) if limit else jobs
    published, bound_h, auc = KNOWN.get(name, (None, None, None))
    from_s = split_s(jobs, until or published)
    scores = _scores(jobs, from_s, seed)
    if not quiet:
        _print(name, jobs, from_s, scores)
    return _metrics(name, scores, jobs, from_s), _bars(name, scores, bound_h, auc)


def split_s(jobs: Jobs, until: str | None) -> float:
    """Where the forecasts begin: a date, or a fraction of the trace's time. BadInput when too little lies on either side."""
    first, last = float(jobs.submit_s[0]), float(jobs.submit_s[-1])
    at = first + TRAIN_SHARE * (last - first)
    if until is not None:
        try:
            at = _date_s(until) if re.fullmatch(r"\d{4}-\d\d-\d\d.*", until) else first + float(until) * (last - first)
        except ValueError:
            raise BadInput(f"--train-until {until} is neither a date (2023-03-01) nor a fraction (0.8).") from None
    before = int((jobs.start_s < at).sum())
    after = int((jobs.submit_s >= at).sum())
    if before < FEWEST_JOBS or after < FEWEST_JOBS:
        raise BadInput(f"{before} jobs had started before the split and {after} were submitted after it; both must be {FEWEST_JOBS} or more.")
    return at


def _date_s(text: str) -> float:
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _scores(jobs: Jobs, from_s: float, seed: int) -> list[Score]:
    began = time.perf_counter()
    features = of_trace(jobs, twin=rollouts)
    ours = Trees()
    spent = time.perf_counter() - began
    return [_score(m, jobs, features, from_s, spent if m is ours else 0.0) for m in (ours, Trout(seed=seed), *PEERS)]


def _score(method: Forecaster, jobs: Jobs, features: Any, from_s: float, spent_s: float) -> Score:
    began = time.perf_counter()
    try:
        told = method.told(jobs, features, from_s)
    except EstimatorFailed as error:
        print(f"{method.name}: {error}")
        return Score(method.name)
    return replace(_judged(method.name, told, jobs.wait_s[jobs.submit_s >= from_s]), seconds=time.perf_counter() - began + spent_s)


def _judged(method: str, told: Told, waits: Any) -> Score:
    middle, bound = told.log_waits[:, CALIBRATED.index(0.5)], told.log_waits[:, CALIBRATED.index(0.95)]
    truth = np.log1p(waits)
    off = np.abs(middle - truth) / np.log(10)
    said, bounded = ~np.isnan(middle), ~np.isnan(bound)
    long = said & (waits > LONG_S)
    aucs = [_auc(waits <= h, told.chances[:, i]) for i, h in enumerate(HORIZONS_S)]
    return Score(
        method, _mean(off[said] ** 2), _mean(off[said] <= np.log10(2)), _mean(middle[long] > np.log1p(LONG_S)),
        aucs[0], aucs[1], _mean(truth[bounded] <= bound[bounded]),
        float(np.median(np.expm1(bound[bounded]))) / 3600 if bounded.any() else float("nan"),
    )  # fmt: skip


def _mean(values: Any) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


def _auc(soon: Any, score: Any) -> float:
    from sklearn.metrics import roc_auc_score

    known = ~np.isnan(score)
    both = len(np.unique(soon[known])) == 2
    return float(roc_auc_score(soon[known], score[known])) if both else float("nan")


def _print(name: str, jobs: Jobs, from_s: float, scores: Sequence[Score]) -> None:
    test = jobs.submit_s >= from_s
    quick = (jobs.wait_s[test] <= HORIZONS_S[0]).mean()
    print(f"{name}: {int(test.sum())} jobs foretold, {quick:.0%} start within 10 min, median wait {np.median(jobs.wait_s[test]) / 60:.0f} min")
    print(f"{'method':<24}{'MSE log10':>10}{'within 2x':>10}{'>4h found':>10}{'AUC 10min':>10}{'AUC 1h':>8}{'in bound':>9}{'bound h':>9}{'s':>7}")
    for s in scores:
        figures = (s.mse_log10, s.within_2x, s.long_found, s.auc_10min, s.auc_1h, s.coverage, s.median_bound_h, s.seconds)
        cells = [f"{v:.{d}f}" if v == v else "-" for v, d in zip(figures, (3, 3, 3, 3, 3, 3, 2, 1), strict=True)]
        print(f"{s.method:<24}" + "".join(f"{c:>{w}}" for c, w in zip(cells, (10, 10, 10, 10, 8, 9, 9, 7), strict=True)))
    print()


def _metrics(name: str, scores: Sequence[Score], jobs: Jobs, from_s: float) -> dict[str, Any]:
    ours = scores[0]
    found: dict[str, Any] = {
        f"{name}_jobs": int((jobs.submit_s >= from_s).sum()), f"{name}_coverage": ours.coverage, f"{name}_coverage_off": abs(ours.coverage - COVERAGE),
        f"{name}_median_bound_h": ours.median_bound_h, f"{name}_auc_10min": ours.auc_10min, f"{name}_auc_1h": ours.auc_1h,
        f"{name}_mse_log10": ours.mse_log10, f"{name}_within_2x": ours.within_2x, f"{name}_mse_against_best_peer": ours.mse_log10 / _best(scores),
    }  # fmt: skip
    for s in scores[1:]:
        word = re.sub(r"[^a-z0-9]+", "_", s.method.lower().replace("'s", "")).strip("_")
        figures = {"mse_log10": s.mse_log10, "auc_10min": s.auc_10min, "coverage": s.coverage, "median_bound_h": s.median_bound_h}
        found |= {f"{name}_{word}_{k}": v for k, v in figures.items() if v == v}
    return found


def _best(scores: Sequence[Score]) -> float:
    return min((s.mse_log10 for s in scores[1:] if s.mse_log10 == s.mse_log10), default=float("nan"))


def _bars(name: str, scores: Sequence[Score], bound_h: float | None, auc: float | None) -> list[Bar]:
    """As set for a trace that was named; any other must do better than every peer."""
    peers = scores[1:]
    valid = [s.median_bound_h for s in peers if s.coverage >= COVERAGE - COVERAGE_OFF]
    limits: list[Bar] = [Bar(f"{name}_coverage_off", COVERAGE_OFF), Bar(f"{name}_mse_against_best_peer", NO_WORSE_THAN_A_PEER)]
    if bound_h is not None or valid:
        limits.append(Bar(f"{name}_median_bound_h", bound_h if bound_h is not None else min(valid)))
    auc = auc if auc is not None else max((s.auc_10min for s in peers if s.auc_10min == s.auc_10min), default=0.5)
    return [*limits, AtLeast(f"{name}_auc_10min", auc)]
