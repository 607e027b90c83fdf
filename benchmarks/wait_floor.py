"""``python -m benchmarks.wait --floor``: why snapshots of a queue can be foretold so well and no better.

Jobs of one account in one partition on one day share one fate, so the error has two parts: what is common to such a group, and what
differs inside it. An oracle that is told each group's mean error, and corrects the forecasts by it, has the second part only. How much the choice of test days
decides is said by drawing them anew; whether more days would help, by learning from a quarter and from half of the training days; and what
the method does on days that chose nothing, by four folds of the training days. Curve and folds are grown from one draw of equal jobs
instead of three, to be done in a third of the time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.wait_pending import Column, first_days, lesson_of, spread, trees
from benchmarks.wait_snapshots import Snapshots, by_seed, read
from ischeduler.core.errors import BadInput

FOLDS = 4
SHARES = (0.25, 0.5, 1.0)


def judge_floor(table: Any, name: str, *, limit: int = 0, seed: int = 7, quiet: bool = False) -> dict[str, float]:
    """Figures by name; BadInput when a column is missing."""
    try:
        shots = read(table)
    except KeyError as error:
        raise BadInput(f"{name} looks like snapshots of a queue and has no column {error.args[0]}.") from error
    shots = first_days(shots, limit) if limit else shots
    test = by_seed(shots.days)[1]
    found = _parts(shots, test, seed) | _curve(shots, test, seed) | _folds(shots, test, seed)
    if not quiet:
        _print(name, shots, test, found)
    return {f"{name}_{k}": v for k, v in found.items()}


def groups_of(shots: Snapshots, rows: Column) -> Column:
    """One code for the jobs of one account in one partition on one day."""
    columns = [shots.day[rows], *(shots.features[rows, shots.names.index(n)] for n in ("account_id", "partition_id_x"))]
    return np.unique(np.column_stack(columns), axis=0, return_inverse=True)[1].ravel()


def common(off: Column, group: Column) -> float:
    """The mean square of what is common to a group: of the groups' mean errors, each job counting."""
    count = np.bincount(group)
    return float((np.bincount(group, off) ** 2 / count).sum() / len(off))


def _parts(shots: Snapshots, test: Column, seed: int) -> dict[str, float]:
    lesson = lesson_of(shots, test, late=True)
    off = trees(shots, lesson, seed) - _log_wait(shots, lesson.asked)
    group = groups_of(shots, lesson.asked)
    mse = float((off**2).mean())
    return {
        "groups": float(groups_of(shots, np.arange(len(shots.day))).max() + 1), "test_groups": float(group.max() + 1), "mse_log10": mse,
        "common_share": common(off, group) / mse, "mse_log10_oracle": mse - common(off, group),
        **spread(np.abs(off), shots.day[lesson.asked]),
    }  # fmt: skip


def _curve(shots: Snapshots, test: Column, seed: int) -> dict[str, float]:
    train = np.random.default_rng(seed).permutation(np.setdiff1d(np.arange(shots.days), test))
    return {f"mse_log10_from_{round(s * len(train))}_days": _error(shots, test, train[: round(s * len(train))], seed) for s in SHARES}


def _folds(shots: Snapshots, test: Column, seed: int) -> dict[str, float]:
    """Training days alone: each quarter foretold by the other three; days' jobs count as in the test."""
    train = np.setdiff1d(np.arange(shots.days), test)
    parts = np.array_split(np.random.default_rng(seed).permutation(train), FOLDS)
    errors = [_error(shots, part, np.setdiff1d(train, part), seed) for part in parts]
    jobs = [int(np.isin(shots.day, part).sum()) for part in parts]
    return {"mse_log10_folds": float(np.average(errors, weights=jobs)), **{f"mse_log10_fold_{i}": e for i, e in enumerate(errors, 1)}}


def _error(shots: Snapshots, asked: Column, days: Column, seed: int) -> float:
    """The error on some days of what was learned from others."""
    lesson = lesson_of(shots, asked, late=True, only=days)
    return float(((trees(shots, lesson, seed, seeds=1) - _log_wait(shots, lesson.asked)) ** 2).mean())


def _log_wait(shots: Snapshots, rows: Column) -> Column:
    return np.log10(np.maximum(1.0, shots.wait_s[rows]))


def _print(name: str, shots: Snapshots, test: Column, found: dict[str, float]) -> None:
    print(f"{name}: {len(shots.day)} pending jobs in {found['groups']:.0f} groups of an account, a partition and a day, {found['test_groups']:.0f} of them on")
    print(f"the {len(test)} test days; MSE of log10 of the wait:")
    rows = [
        ("ours", f"{found['mse_log10']:.3f}, {found['common_share']:.0%} of it common to groups"),
        ("other draws of as many days", f"{found['mse_log10_p05']:.2f} to {found['mse_log10_p95']:.2f} (90 %)"),
        ("an oracle of groups' mean errors", f"{found['mse_log10_oracle']:.3f}"),
        *((f"learned from {k.split('_')[3]} days", f"{v:.3f}") for k, v in found.items() if k.startswith("mse_log10_from_")),
        (f"{FOLDS} folds of the training days", f"{found['mse_log10_folds']:.3f} ({', '.join(f'{v:.2f}' for k, v in found.items() if '_fold_' in k)})"),
    ]
    for what, said in rows:
        print(f"  {what:<36}{said}")
    print()
