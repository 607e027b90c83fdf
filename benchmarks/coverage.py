"""``python -m benchmarks.coverage [--truth FILE] [--limit N] [--json]``: do the stated intervals hold on data that took no part?

For every estimator that has truth beside the project: the share of truths inside p10-p90 (80 % would be right, 75-85 % is the
bar) and the share not beyond p90 (90 %). A benchmark module takes part by a function ``intervals(truth, limit)`` that yields
(row name, :class:`Interval`) of held-out data; it raises an exception with one sentence where its data are not there or have
other columns. GPU memory has shares alone: its benchmark's own figures for families that took no part in the fit. Rows
whose name ends in :data:`COMPARED` stand beside for comparison, without a bar. ``--limit`` is for a quick look: forty figures decide
a share to six points either way.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.report import Bar, finish
from ischeduler.core.errors import IschedError

MODULES = ("walltime", "memory", "steptime")
WANTED_INSIDE, WANTED_UNDER = 0.80, 0.90
WIDTH = 0.05
COMPARED = " (compared)"
"""A row whose name ends so is a peer, not ours: no bar."""


@dataclass(frozen=True)
class Interval:
    """A stated interval beside the truth, all in one unit. ``about`` says for what."""

    about: str
    p10: float
    p50: float
    p90: float
    actual: float

    @property
    def inside(self) -> bool:
        return self.p10 <= self.actual <= self.p90

    @property
    def under_p90(self) -> bool:
        return self.actual <= self.p90

    @property
    def error(self) -> float:
        return abs(self.p50 / self.actual - 1)


@dataclass(frozen=True)
class Coverage:
    """One row: how many intervals, how many held, and how wide they are (p90 / p10, in the median)."""

    name: str
    n: int
    inside: float
    under_p90: float
    ratio: float

    @property
    def judged(self) -> bool:
        return not self.name.endswith(COMPARED)


def coverage(name: str, found: Sequence[Interval]) -> Coverage:
    """Of at least one interval."""
    n = len(found)
    ratios = sorted(i.p90 / i.p10 if i.p10 > 0 else float("inf") for i in found)
    return Coverage(name, n, sum(i.inside for i in found) / n, sum(i.under_p90 for i in found) / n, ratios[n // 2])


class LeftOut(Exception):
    """One sentence: why a module has no row."""


def collect(modules: Iterable[str], truth: Path | None, limit: int | None) -> tuple[list[Coverage], list[str]]:
    """Rows of every module that can, and a sentence for each that cannot."""
    rows: list[Coverage] = []
    skipped: list[str] = []
    for name in modules:
        try:
            rows += _rows(name, truth, limit)
        except (LeftOut, ValueError, IschedError) as sentence:
            skipped.append(f"{name} is left out: {str(sentence).rstrip('.')}")
    return rows, skipped


def _rows(name: str, truth: Path | None, limit: int | None) -> list[Coverage]:
    if importlib.util.find_spec(f"benchmarks.{name}") is None:
        raise LeftOut("there is no such benchmark")
    module = importlib.import_module(f"benchmarks.{name}")
    if not hasattr(module, "intervals"):
        if name in SHARES:
            return SHARES[name](truth, limit)
        raise LeftOut(f"benchmarks.{name} has no function intervals(truth, limit)")
    found: dict[str, list[Interval]] = {}
    try:
        for row, interval in module.intervals(truth, limit):
            found.setdefault(row, []).append(interval)
    except getattr(module, "BadTruth", LeftOut) as sentence:
        raise LeftOut(str(sentence)) from None
    if not found:
        raise LeftOut("it has nothing held out")
    return [coverage(row, some) for row, some in found.items()]


def device_memory(truth: Path | None, limit: int | None) -> list[Coverage]:
    """The device total by nvidia-smi, each family with the calibration of the others, as ``benchmarks.memory`` measures it.

    Needs traces of every model of the table (kept in the user's cache; minutes the first time).
    """
    from benchmarks import memory, memory_truth
    from ischeduler.estimators.memory.tracer import Tracer

    metrics: dict[str, Any] = {}
    try:
        table = memory_truth.sample(memory_truth.read(truth or memory.DEFAULTS[1]), limit)
        if table.kind == "allocated":
            raise LeftOut("this table holds allocated memory, which is stated without an interval")
        memory.device_total(table, Tracer(time_limit_s=300.0), metrics)
        inside, beyond = float(metrics["device_coverage"]), float(metrics["device_under_p90"])
    except memory_truth.BadTruth as sentence:
        raise LeftOut(str(sentence)) from None
    except KeyError as missing:
        raise LeftOut(f"benchmarks.memory no longer says {missing}") from None
    return [Coverage("GPU memory in all, families not in the fit", int(metrics["device_points"]), inside, 1 - beyond, math.nan)]


SHARES: dict[str, Callable[[Path | None, int | None], list[Coverage]]] = {"memory": device_memory}
"""Modules that say shares and no single intervals."""


def show(rows: Sequence[Coverage], skipped: Sequence[str]) -> None:
    """The table."""
    print(f"{'held out':<54} {'n':>6} {'p10-p90':>9} {'<=p90':>9} {'p90/p10':>9}")
    for row in rows:
        missed = row.judged and round(abs(row.inside - WANTED_INSIDE), 6) > WIDTH
        print(f"{row.name:<54} {row.n:>6} {row.inside:>9.1%} {row.under_p90:>9.1%} {row.ratio:>9.2f}{'   MISSED' if missed else ''}")
    for sentence in skipped:
        print(sentence)


def metrics_of(rows: Sequence[Coverage]) -> tuple[dict[str, float], list[Bar]]:
    """Figures by row, and a bar for each row of ours: at most 5 points from 80 %."""
    metrics: dict[str, float] = {}
    bars: list[Bar] = []
    for row in rows:
        key = "_".join(row.name.replace(",", " ").replace("(", " ").replace(")", " ").split())
        metrics |= {f"{key}_n": float(row.n), f"{key}_inside": row.inside, f"{key}_under_p90": row.under_p90}
        if row.judged:
            metrics[f"{key}_off_80"] = round(abs(row.inside - WANTED_INSIDE), 6)
            bars.append(Bar(f"{key}_off_80", WIDTH))
    return metrics, bars


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--truth", type=Path, help="judge by this file; it is known by its columns")
    parser.add_argument("--limit", type=int, help="a seeded sample of that many for each module")
    parser.add_argument("--json", action="store_true", help="only the closing line")
    args = parser.parse_args()
    rows, skipped = collect(MODULES, args.truth, args.limit)
    if not rows:
        print(f"There is nothing to judge: {'; '.join(skipped)}.", file=sys.stderr)
        return 2
    if not args.json:
        show(rows, skipped)
    metrics, bars = metrics_of(rows)
    return finish("coverage", metrics, bars, as_json=args.json)


if __name__ == "__main__":
    sys.exit(main())
