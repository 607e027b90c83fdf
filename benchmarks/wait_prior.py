"""The prior for a site nobody has learned from: its table from traces, and what it loses on each trace when made from the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ischeduler.core.jobs import Resources
from ischeduler.core.snapshot import NodeCounts, QueuedJob, QueueSnapshot
from ischeduler.estimators.queuewait.features import names, of_trace
from ischeduler.estimators.queuewait.jobs import NEEDED, Jobs, from_columns
from ischeduler.estimators.queuewait.live import live_wait
from ischeduler.estimators.queuewait.prior import LOADS, SHARE, SIZES
from ischeduler.estimators.queuewait.service import pinball

LEVELS = (0.1, 0.5, 0.9)
_SKIPPED = 10  # a tenth of a trace: how large the cluster is must have shown
_ASKED = 400
_KIN = 0.1  # weight of other sizes under the same load
Column = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Seen:
    """A trace's jobs after its first tenth: whether each fitted, load and size class, log wait. ``first`` is the first row of them."""

    jobs: Jobs
    first: int
    whole: float
    cell: Column
    log_wait: Column


def print_prior(tables: Sequence[tuple[Path, Any]]) -> None:
    """The table, then the mean pinball loss on each trace of prior, replayed queue and both mixed."""
    seen = {path.stem: seen_of(table) for path, table in tables}
    whole = table_of(list(seen.values()))
    for fits in (1, 0):
        print("enough is free" if fits else "not enough is free")
        for size in range(len(SIZES) + 1):
            print("  ", [tuple(float(f"{np.expm1(v):.2g}") for v in whole[_cell(fits, load, size)]) for load in range(len(LOADS) + 2)])
    if len(seen) < 2:
        return
    print(f"{'trace, the prior from the others':<36}{'prior':>8}{'replayed':>10}{'mixed':>8}")
    losses = []
    for name, held in seen.items():
        rest = table_of([s for n, s in seen.items() if n != name])
        rows = np.sort(np.random.default_rng(0).choice(len(held.log_wait), min(_ASKED, len(held.log_wait)), replace=False))
        prior, replayed = rest[held.cell[rows]], np.log1p([_replayed(held, int(r)) for r in rows])
        mixed = SHARE * prior + (1 - SHARE) * replayed
        losses.append([pinball(t, held.log_wait[rows], LEVELS) for t in (prior, replayed, mixed)])
        print(f"{name:<36}{losses[-1][0]:>8.3f}{losses[-1][1]:>10.3f}{losses[-1][2]:>8.3f}")
    print(f"{'mean':<36}" + "{:>8.3f}{:>10.3f}{:>8.3f}".format(*np.mean(losses, axis=0)))


def seen_of(table: Any) -> Seen:
    """What the prior needs of a trace."""
    jobs = from_columns({c: table[c].to_numpy() for c in NEEDED})
    features = of_trace(jobs)
    fits, pending, share = (features[:, names(twin=False).index(n)] for n in ("fits_free", "pending_units", "units_share"))
    load = np.where(pending <= 0, 0, np.searchsorted(LOADS, pending, side="right") + 1)
    cell = _cell(fits.astype(int), load, np.searchsorted(SIZES, share, side="right"))
    first = len(jobs) // _SKIPPED
    whole = float(np.round(2 ** features[-1, 0] / features[-1, 1]))
    return Seen(jobs, first, whole, cell[first:], np.log1p(jobs.wait_s[first:]))


def table_of(traces: Sequence[Seen]) -> Column:
    """Log waits (cells, levels), each trace counting the same; never shorter under a higher load."""
    cells = _cell(1, len(LOADS) + 1, len(SIZES)) + 1
    found = np.full((cells, len(LEVELS)), np.nan)
    for cell in range(cells):
        kin = cell - cell % (len(SIZES) + 1)
        values, weights = [], []
        for seen in traces:
            near = (seen.cell >= kin) & (seen.cell <= kin + len(SIZES))
            values.append(seen.log_wait[near])
            weights.append(np.where(seen.cell[near] == cell, 1.0 + _KIN, _KIN) / len(seen.log_wait))
        found[cell] = _quantiles(np.concatenate(values), np.concatenate(weights))
    for cell in range(cells):
        lower = cell - (len(SIZES) + 1)
        if lower // (cells // 2) == cell // (cells // 2) and lower >= 0:
            found[cell] = np.fmax(found[cell], found[lower])
    return found


def _cell(fits: Any, load: Any, size: Any) -> Any:
    return (fits * (len(LOADS) + 2) + load) * (len(SIZES) + 1) + size


def _quantiles(values: Column, weights: Column) -> Column:
    if not len(values):
        return np.full(len(LEVELS), np.nan)
    order = np.argsort(values)
    passed = np.cumsum(weights[order]) / weights.sum()
    return values[order][np.minimum(len(values) - 1, np.searchsorted(passed, LEVELS))]


def _replayed(seen: Seen, row: int) -> tuple[float, float, float]:
    """What the replayed queue says of that job, as squeue would have shown it."""
    jobs, row = seen.jobs, row + seen.first
    now = float(jobs.submit_s[row])
    alive = np.flatnonzero(jobs.end_s[:row] >= now)
    runs = jobs.start_s[alive] < now
    shown = tuple(
        QueuedJob(str(k), "p", "RUNNING" if r else "PENDING", nodes=int(jobs.units[k]), submit_s=float(jobs.submit_s[k]),
                  start_s=float(jobs.start_s[k]) if r else None, limit_s=float(jobs.limit_s[k]))
        for k, r in zip(alive.tolist(), runs.tolist(), strict=True)
    )  # fmt: skip
    idle = max(0, round(seen.whole - float(jobs.units[alive][runs].sum())))
    snapshot = QueueSnapshot("trace", now, (NodeCounts("p", "n", idle=idle, allocated=round(seen.whole) - idle),), shown)
    told = live_wait(snapshot, "p", "n", Resources(nodes=int(min(seen.whole, jobs.units[row]))), now)
    assert told is not None
    return told.p10, told.p50, told.p90
