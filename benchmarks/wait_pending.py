"""How long pending jobs go on waiting, by snapshots of a queue: our trees against a network and constants, on two splits of the days.

``seed46`` draws the test days as the publication of the data does (other days, later ones too, are learned from); ``chronological`` tests
the last fifth and learns from what was known as it began: waits that were not over then are known from below only.

Hundreds of jobs of one account in one snapshot share one fate, so a learner sees at most :data:`KEPT` of a kind and each account's jobs
in a partition weigh like the square root of their number. Figures count every job, as published.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.report import AtLeast, Bar
from benchmarks.wait_snapshots import Snapshots, by_seed, chronological, read
from ischeduler.core.errors import BadInput, EstimatorFailed
from ischeduler.estimators.queuewait.learner import Settings, fit_value

KEPT = 20
SEEDS = 3
LEAST_DAYS = 20
BARS = {"seed46": (0.20, 0.60), "chronological": (0.26, 0.56)}
TREES = Settings(rounds=200, learning_rate=0.05, leaves=31, least_in_leaf=40, columns=0.2, rows=0.5, l2=3.0)
PUBLISHED = {"drac_graham_2021_snapshots_seed46": ("published network (quoted)", 0.658, 0.416)}
Column = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Lesson:
    """What is learned from: rows, log10 waits as known (``ended`` False: at least), and what to answer for."""

    rows: Column
    log_wait: Column
    ended: Column
    asked: Column


def judge_snapshots(table: Any, name: str, *, limit: int = 0, seed: int = 7, quiet: bool = False) -> tuple[dict[str, Any], list[Bar]]:
    """Metrics and bars of both splits; BadInput when columns or days are missing."""
    try:
        shots = read(table)
    except KeyError as error:
        raise BadInput(f"{name} looks like snapshots of a queue and has no column {error.args[0]}.") from error
    shots = first_days(shots, limit) if limit else shots
    if shots.days < LEAST_DAYS:
        raise BadInput(f"{name} holds {shots.days} snapshots; expected {LEAST_DAYS} days or more.")
    metrics: dict[str, Any] = {}
    for split, days in (("seed46", by_seed(shots.days)[1]), ("chronological", chronological(shots.days)[1])):
        metrics |= {f"{name}_{split}_{k}": v for k, v in _split(shots, f"{name}_{split}", days, seed, quiet, late=split == "seed46").items()}
    bars = [b for split, (mse, near) in BARS.items() for b in (Bar(f"{name}_{split}_mse_log10", mse), AtLeast(f"{name}_{split}_within_2x", near))]
    return metrics, bars


def first_days(shots: Snapshots, days: int) -> Snapshots:
    keep = shots.day < days
    return Snapshots(shots.features[keep], shots.names, shots.day[keep], shots.poll_s[keep], shots.wait_s[keep])


def _split(shots: Snapshots, split: str, days: Column, seed: int, quiet: bool, *, late: bool) -> dict[str, float]:
    lesson = lesson_of(shots, days, late=late)
    truth = np.log10(np.maximum(1.0, shots.wait_s[lesson.asked]))
    methods: dict[str, Callable[[], Column]] = {
        "ours": lambda: trees(shots, lesson, seed), "TROUT's network": lambda: _network(shots, lesson, seed),
        "account's last waits": lambda: _account(shots, lesson), "constant median": lambda: np.full(len(truth), np.median(lesson.log_wait)),
    }  # fmt: skip
    found: dict[str, float] = {}
    lines = []
    for method, told in methods.items():
        began = time.perf_counter()
        try:
            off = np.abs(told() - truth)
        except EstimatorFailed as error:
            lines.append(f"{method}: {error}")
            continue
        figures = (float((off**2).mean()), float((off <= np.log10(2)).mean()), float((off <= np.log10(3)).mean()))
        lines.append(f"{method:<28}{figures[0]:>10.3f}{figures[1]:>10.3f}{figures[2]:>10.3f}{time.perf_counter() - began:>8.1f}")
        word = "" if method == "ours" else method.lower().replace("'s", "").replace(" ", "_") + "_"
        found |= dict(zip((f"{word}mse_log10", f"{word}within_2x", f"{word}within_3x"), figures, strict=True))
        if method == "ours":
            found |= spread(off, shots.day[lesson.asked])
    if not quiet:
        _print(split, len(truth), len(days), lines, found)
    return found


def lesson_of(shots: Snapshots, days: Column, *, late: bool, only: Column | None = None) -> Lesson:
    """What may be learned when ``days`` are asked about. ``late``: from all other days (or ``only`` some) and their answers; else only from
    what lay before."""
    test = np.isin(shots.day, days)
    asked = np.flatnonzero(test)
    if late:
        rows = np.flatnonzero(~test & (np.isin(shots.day, only) if only is not None else True))
        return Lesson(rows, np.log10(np.maximum(1.0, shots.wait_s[rows])), np.ones(len(rows), dtype=bool), asked)
    now = float(shots.poll_s[asked].min())
    rows = np.flatnonzero(shots.day < days.min())
    seen = now - shots.poll_s[rows]
    ended = shots.wait_s[rows] < seen
    return Lesson(rows, np.log10(np.maximum(1.0, np.where(ended, shots.wait_s[rows], seen))), ended, asked)


def trees(shots: Snapshots, lesson: Lesson, seed: int, seeds: int | None = None) -> Column:
    """The mean of boosted trees of both losses, with and without the past of earlier snapshots, on other draws of equal jobs (``seeds`` of
    them, as a rule :data:`SEEDS`)."""
    group, kind = (_codes(shots, lesson.rows, names) for names in (("account_id", "partition_id_x"), ("account_id", "partition_id_x", "limit_s", "cpu", "gpu")))
    known = [i for i, n in enumerate(shots.names) if n != "account_id"]
    present = [i for i in known if not shots.names[i].startswith(("past_", "started_", "drained_", "used_"))]
    told, goal = [], lesson.log_wait
    if not lesson.ended.all():
        goal = _filled(shots, lesson, present, group, kind, seed)
    for draw in range(seeds or SEEDS):
        for columns in (known, present):
            for loss in ("regression", "l1"):
                keep, weight = sampled(group, kind, seed + draw)
                model = fit_value(shots.features[lesson.rows[keep]][:, columns], goal[keep], _seeded(seed + draw), loss, weight)
                told.append(model.predict(shots.features[lesson.asked][:, columns]))
    return np.mean(told, axis=0)


def _even(table: Column) -> Column:
    """Logarithms of sizes and times, signs kept: what a network can bear."""
    return np.sign(table) * np.log1p(np.abs(table))


def _filled(shots: Snapshots, lesson: Lesson, columns: list[int], group: Column, kind: Column, seed: int) -> Column:
    """Waits that were not over: as long as a model of those that were says, and at least as long as seen."""
    keep, weight = sampled(group, kind, seed)
    done = lesson.ended[keep]
    table = shots.features[lesson.rows][:, columns]
    first = fit_value(table[keep[done]], lesson.log_wait[keep[done]], _seeded(seed), "regression", weight[done])
    return np.where(lesson.ended, lesson.log_wait, np.maximum(lesson.log_wait, first.predict(table)))


def sampled(group: Column, kind: Column, seed: int) -> tuple[Column, Column]:
    """(rows, weights): at most :data:`KEPT` jobs of a kind; a group weighs like the square root of its jobs."""
    random = np.random.default_rng(seed)
    order = random.permutation(len(kind))
    ranked = order[np.argsort(kind[order], kind="stable")]
    first = np.searchsorted(kind[ranked], kind[ranked], side="left")
    keep = np.sort(ranked[np.arange(len(ranked)) - first < KEPT])
    whole, kept = np.bincount(group), np.bincount(group[keep], minlength=int(group.max()) + 1)
    weight = (np.sqrt(whole) / np.maximum(1, kept))[group[keep]]
    return keep, weight / weight.mean()


def _seeded(seed: int) -> Settings:
    return replace(TREES, seed=seed)


def _codes(shots: Snapshots, rows: Column, names: tuple[str, ...]) -> Column:
    """One code for the rows of a snapshot that agree in those columns."""
    columns = [shots.day[rows], *(shots.features[rows, shots.names.index(n)] for n in names)]
    return np.unique(np.column_stack(columns), axis=0, return_inverse=True)[1].ravel()


def _network(shots: Snapshots, lesson: Lesson, seed: int) -> Column:
    from ischeduler.estimators.queuewait.trout import perceptron

    table = _even(shots.features)
    known = lesson.rows[lesson.ended]
    return perceptron(table[known], lesson.log_wait[lesson.ended], table[lesson.asked], seed=seed, epochs=6)


def _account(shots: Snapshots, lesson: Lesson) -> Column:
    """The mean log wait, as far as it was known, of the account's jobs in the last fortnight's snapshots."""
    told = shots.features[lesson.asked, shots.names.index("past_account_wait_14")].astype(float)
    return np.where(np.isnan(told), np.median(lesson.log_wait), told)


def spread(off: Column, day: Column, draws: int = 500) -> dict[str, float]:
    """A 90 % interval of the error by drawing the test's days anew: how much the choice of days decides."""
    days = np.unique(day)
    sums = np.array([(np.sum(off[day == d] ** 2), np.sum(day == d)) for d in days])
    picked = sums[np.random.default_rng(0).integers(0, len(days), (draws, len(days)))].sum(axis=1)
    low, high = np.quantile(picked[:, 0] / picked[:, 1], (0.05, 0.95))
    return {"mse_log10_p05": float(low), "mse_log10_p95": float(high)}


def _print(split: str, jobs: int, days: int, lines: list[str], found: dict[str, float]) -> None:
    print(f"{split}: {jobs} pending jobs of {days} days; other days would have given ours {found['mse_log10_p05']:.2f} to {found['mse_log10_p95']:.2f}")
    print(f"{'method':<28}{'MSE log10':>10}{'within 2x':>10}{'within 3x':>10}{'s':>8}")
    for line in lines:
        print(line)
    if split in PUBLISHED:
        name, mse, near = PUBLISHED[split]
        print(f"{name:<28}{mse:>10.3f}{near:>10.3f}{'-':>10}{'-':>8}")
    print()
