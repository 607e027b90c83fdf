"""The page of ``isched report --estimators``."""

from __future__ import annotations

import time

from ischeduler.cli import output
from ischeduler.cli.invocation import session
from ischeduler.core.codec import to_plain
from ischeduler.estimators.learning.accuracy import Accuracy
from ischeduler.helper.estimator_report import EstimatorReport, report_estimators

HEADER = ("QUANTITY", "ESTIMATOR", "WHERE", "MODEL", "N", "MEDIAN", "MEAN", "BIAS", "P10-P90", "<=P90", "MEDIAN BY MONTH")
MONTHS = 3


def show_accuracy(*, as_json: bool) -> int:
    """Ask and print. Always exit code 0: a wrong estimate is no failure of this command."""
    found = report_estimators(session())
    if as_json:
        output.document("isched.estimator-report/1", {"report": to_plain(found)})
        return 0
    if found.accuracies:
        output.table(HEADER, [_row(a) for a in found.accuracies], right=(4, 5, 6, 7, 8, 9))
        output.line("Errors are |predicted median / actual - 1|; P10-P90 should be 80 %, <=P90 90 %.")
    for words in _drifts(found):
        output.line(words)
    for words in found.notes:
        output.line(f"Note: {words}.")
    output.line(_evidence(found))
    return 0


def _row(a: Accuracy) -> tuple[str, ...]:
    f = a.figures
    months = "  ".join(f"{m.month} {m.figures.median_error:.0%}" for m in a.months[-MONTHS:])
    return (
        a.quantity.replace("_", " "), a.estimator, a.site or "all", a.family or "all", str(f.n), f"{f.median_error:.0%}", f"{f.mape:.0%}",
        f"{f.bias - 1:+.0%}".replace("-", "−"), f"{f.inside:.0%}", f"{f.under_p90:.0%}", months,
    )  # fmt: skip


def _drifts(found: EstimatorReport) -> list[str]:
    """One sentence a drift."""
    told: list[str] = []
    for a in found.accuracies:
        if a.drift is not None:
            day = time.strftime("%Y-%m-%d", time.gmtime(a.drift.at))
            what = f"{a.quantity.replace('_', ' ')} at {a.site}" + (f" of {a.family}" if a.family else "")
            change = f"{a.drift.factor - 1:+.0%}".replace("-", "−")
            told.append(f"Drift: since {day} {what} is {change} against what {a.estimator} predicts ({a.drift.n} figures).")
    return told


def _evidence(found: EstimatorReport) -> str:
    runs = f"{found.runs} finished run{'' if found.runs == 1 else 's'}"
    jobs = f"{found.jobs} finished job{'' if found.jobs == 1 else 's'}"
    new = f", {found.learnt} of them new from the accounting" if found.learnt else ""
    return f"Evidence: {runs}, {jobs}{new}."
