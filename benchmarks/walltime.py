"""``python -m benchmarks.walltime [--truth FILE] [--limit N] [--json]``: run times of large runs, foretold from runs of at most half their size.

The truth is a table with HARP's columns: GPU, sys_phy_cores_count, sys_ntasks_per_core, data_rr_count (images),
model_encoding, batch_size, epochs, fit_time (s); other numeric columns feed the regressors, measured epoch times do not. The runs
of the largest size are the test; models, settings and margins come from runs of at most half of it and from nothing else.

Peers: HARP's linear regression, decision tree and neural network, gradient boosting beside them, and HARP's own pipeline
(selection by under-prediction, then adjustment). ``own_exam`` is each method's error on the larger of the runs it may learn from.
"""

from __future__ import annotations

import argparse
import csv
import math
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.coverage import COMPARED, Interval
from benchmarks.report import Bar, finish
from ischeduler.core.cluster import NodeType
from ischeduler.core.errors import EstimatorFailed
from ischeduler.core.history import HistoryRecord
from ischeduler.core.workload import Workload
from ischeduler.estimators.evidence import NoEvidence
from ischeduler.estimators.walltime.harp import HARP
from ischeduler.estimators.walltime.history import HistoryEstimator
from ischeduler.estimators.walltime.models import TABLES, RunTimeModel
from ischeduler.estimators.walltime.regressors import REGRESSORS
from ischeduler.estimators.walltime.scaling import ScalingEstimator
from ischeduler.estimators.walltime.selection import Selection, select
from ischeduler.estimators.walltime.timed import TimedRun
from ischeduler.ports import EstimateRequest, Estimator

TRUTH = Path(__file__).resolve().parents[1].parent / "shared" / "data" / "harp" / "dnn_training_runs.csv"
NEEDED = (
    "GPU", "sys_phy_cores_count", "sys_ntasks_per_core", "data_rr_count", "model_encoding", "batch_size", "epochs", "fit_time",
)  # fmt: skip
OUTCOMES = ("fit_time", "epochs_times_one", "epochs_times_avg")
OURS: tuple[RunTimeModel, ...] = TABLES
PEERS: tuple[RunTimeModel, ...] = (*REGRESSORS, HARP)
SEED = 7


class BadTruth(ValueError):
    """One sentence: what was wrong with the file."""


@dataclass(frozen=True)
class Row:
    """A method on the test runs. ``under`` is the share it under-predicts."""

    method: str
    own_exam: float
    mape: float
    median: float
    under: float


@dataclass(frozen=True)
class Measured:
    """Everything the benchmark says."""

    rows: tuple[Row, ...]
    selection: Selection
    intervals: tuple[Interval, ...]
    left_out: tuple[Interval, ...]
    cold_mape: float | None
    untold: int


def read(path: Path) -> list[TimedRun]:
    """Runs of a table with HARP's columns. BadTruth with one sentence otherwise."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            table = csv.DictReader(file)
            names = table.fieldnames or ()
            missing = [c for c in NEEDED if c not in names]
            if missing:
                raise BadTruth(f"{path} has no column {', '.join(missing)}; expected HARP's columns.")
            plain = [c for c in names if c not in OUTCOMES]
            return [_run(row, plain) for row in table]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadTruth(f"{path} cannot be read: {error}.") from None
    except BadTruth:
        raise
    except (ValueError, TypeError) as error:
        raise BadTruth(f"{path} holds something that is no positive number: {error}.") from None


def _run(row: dict[str, str], plain: Sequence[str]) -> TimedRun:
    kind = "gpu" if float(row["GPU"]) else "cpu"
    run = TimedRun(
        row["model_encoding"], f"{kind}-{row['sys_phy_cores_count']}-{row['sys_ntasks_per_core']}", int(row["batch_size"]),
        int(row["data_rr_count"]), int(row["epochs"]), float(row["fit_time"]), tuple(_number(row[c]) for c in plain),
    )  # fmt: skip
    if min(run.batch, run.samples, run.epochs, run.seconds) <= 0 or not math.isfinite(run.seconds):
        raise ValueError(f"batch {run.batch}, images {run.samples}, epochs {run.epochs}, seconds {run.seconds}")
    return run


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0  # a column of words says nothing to a regressor


def parted(runs: Sequence[TimedRun], limit: int | None) -> tuple[list[TimedRun], list[TimedRun]]:
    """(training, test): at most half of the largest size, and the largest (a seeded sample of it with ``limit``)."""
    largest = max((r.samples for r in runs), default=0)
    train = [r for r in runs if 2 * r.samples <= largest]
    test = [r for r in runs if r.samples == largest]
    if not train or not test:
        raise BadTruth("there are no runs of at most half the largest size; expected several sizes in data_rr_count.")
    return train, random.Random(SEED).sample(test, limit) if limit and limit < len(test) else test


def measure(path: Path, limit: int | None = None, *, peers: bool = True) -> Measured:
    """Judge the selected model, its rivals and its peers. BadTruth for a file that cannot serve."""
    train, test = parted(read(path), limit)
    try:
        rivals = [*OURS, *(PEERS if peers else ())]
        chosen = select(train, rivals)
    except EstimatorFailed as error:
        raise BadTruth(f"nothing can be learnt from {path}: {error}.") from None
    rows = [row for model in rivals if (row := _row(model, chosen, train, test)) is not None]
    told = list(_stated(chosen, test))
    return Measured(
        tuple(rows), chosen, tuple(told), tuple(_left_out(chosen, train, test)), _cold(chosen.model, train, test),
        len(test) - len(told),
    )  # fmt: skip


def _row(model: RunTimeModel, chosen: Selection, train: Sequence[TimedRun], test: Sequence[TimedRun]) -> Row | None:
    exam = next(e for e in chosen.exams if e.name == model.name)
    try:
        fitted = model.fit(train)
    except EstimatorFailed as reason:
        print(f"{model.name} left out: {reason}", file=sys.stderr)
        return None
    ratios: list[float] = []
    for run in test:
        try:
            ratios.append(fitted.predict(run).seconds / run.seconds)
        except NoEvidence:
            continue  # counted as untold where the method is ours
    errors = [abs(q - 1) for q in ratios]
    return Row(model.name, exam.mape, sum(errors) / len(errors), median(errors), sum(q < 1 for q in ratios) / len(ratios))


def _stated(chosen: Selection, test: Sequence[TimedRun]) -> Iterator[Interval]:
    for run in test:
        try:
            found = chosen.interval(run)
        except NoEvidence:
            continue
        if found is None:
            raise BadTruth("too few runs were held out to state intervals; expected at least 20 of the two larger training sizes.")
        yield Interval(f"{run.hardware} {run.family} b{run.batch}", *found, run.seconds)


def _left_out(chosen: Selection, train: Sequence[TimedRun], test: Sequence[TimedRun]) -> Iterator[Interval]:
    """Each (family, hardware) with method, settings and margins decided by all others; its own runs only give its own law."""
    for group in sorted({r.group for r in test}):
        others = [r for r in train if r.group != group]
        decided = select(others, OURS)
        judged = Selection(decided.model, decided.model.fit(train), decided.margins, decided.exams, decided.aside)
        yield from _stated(judged, [r for r in test if r.group == group])


def _cold(model: RunTimeModel, train: Sequence[TimedRun], test: Sequence[TimedRun]) -> float | None:
    """Error for a (family, hardware) of which no run at all was seen: carried over from other families and hardware."""
    errors: list[float] = []
    for group in sorted({r.group for r in test}):
        fitted = model.fit([r for r in train if r.group != group])
        for run in (r for r in test if r.group == group):
            try:
                errors.append(abs(fitted.predict(run).seconds / run.seconds - 1))
            except NoEvidence:
                continue
    return sum(errors) / len(errors) if errors else None


def intervals(truth: Path | None = None, limit: int | None = None) -> Iterator[tuple[str, Interval]]:
    """For ``benchmarks.coverage``: the selected model; the same judged by others' margins; what the planner is told; history."""
    train, test = parted(read(truth or TRUTH), limit)
    chosen = select(train, OURS)
    yield from (("run time", i) for i in _stated(chosen, test))
    yield from (("run time, decided by other models and hardware", i) for i in _left_out(chosen, train, test))
    for name, estimator in (("scaling estimator as the planner asks it", ScalingEstimator()), ("history@1" + COMPARED, HistoryEstimator())):
        yield from ((name, i) for i in _as_planned(estimator, train, test))


def _as_planned(estimator: Estimator, train: Sequence[TimedRun], test: Sequence[TimedRun]) -> Iterator[Interval]:
    """A user whose history the training runs are asks for each test run, as the planner would: at one place."""
    history = tuple(_record(str(i), r) for i, r in enumerate(train))
    for run in test:
        work = Workload(model=run.family, samples=run.samples, epochs=run.epochs, batch_size=run.batch)
        try:
            told = estimator.estimate(EstimateRequest("run_time", work, 1e9, node_type=NodeType(run.hardware, 1), history=history))
        except NoEvidence:
            continue
        yield Interval(run.hardware, told.p10, told.p50, told.p90, run.seconds)


def _record(name: str, run: TimedRun) -> HistoryRecord:
    return HistoryRecord(
        name, "run", "me", run.family, "site", "p", run.hardware, 0.0, batch_size=run.batch, samples=run.samples, epochs=run.epochs,
        run_s=run.seconds, cause="finished",
    )  # fmt: skip


def metrics_of(found: Measured) -> dict[str, float]:
    """Plain figures; the ``_off_`` ones are distances from what the interval promises."""
    told, other = found.intervals, found.left_out
    values = {
        "test_runs": float(len(told)),
        "untold_runs": float(found.untold),
        "mape": _mean([i.error for i in told]),
        "median_error": median(i.error for i in told),
        "under_p90": _mean([i.under_p90 for i in told]),
        "under_p90_off_90": _off(told, 0.90, lambda i: i.under_p90),
        "inside_p10_p90": _mean([i.inside for i in told]),
        "inside_p10_p90_off_80": _off(told, 0.80, lambda i: i.inside),
        "left_out_mape": _mean([i.error for i in other]),
        "left_out_under_p90": _mean([i.under_p90 for i in other]),
        "left_out_inside_p10_p90": _mean([i.inside for i in other]),
    }
    for kind in ("cpu", "gpu"):
        some = [i for i in told if i.about.startswith(kind)]
        if some:
            values |= {f"{kind}_under_p90": _mean([i.under_p90 for i in some]), f"{kind}_mape": _mean([i.error for i in some])}
    if found.cold_mape is not None:
        values["never_seen_mape"] = found.cold_mape
    return values | {f"{row.method}_mape": row.mape for row in found.rows}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _off(told: Sequence[Interval], wanted: float, judge: Callable[[Interval], bool]) -> float:
    return round(abs(_mean([judge(i) for i in told]) - wanted), 6)


def show(found: Measured) -> None:
    """The table against the peers."""
    print(f"chosen inside the training runs: {found.selection.words}")
    print(f"{'method':<10} {'own_exam':>9} {'MAPE':>9} {'median':>9} {'under-predicts':>15}")
    for row in sorted(found.rows, key=lambda r: r.mape):
        mark = " <- chosen" if row.method == found.selection.model.name else ""
        print(f"{row.method:<10} {row.own_exam:>9.1%} {row.mape:>9.1%} {row.median:>9.1%} {row.under:>15.1%}{mark}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--truth", type=Path, default=TRUTH, help="a table with HARP's columns")
    parser.add_argument("--limit", type=int, help="judge a seeded sample of that many test runs")
    parser.add_argument("--json", action="store_true", help="only the closing line")
    args = parser.parse_args()
    try:
        found = measure(args.truth, args.limit)
    except BadTruth as sentence:
        print(sentence, file=sys.stderr)
        return 2
    if not args.json:
        show(found)
    bars = [Bar("mape", 0.09), Bar("under_p90_off_90", 0.02), Bar("inside_p10_p90_off_80", 0.05)]
    return finish("walltime", metrics_of(found), bars, as_json=args.json)


if __name__ == "__main__":
    sys.exit(main())
