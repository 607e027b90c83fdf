"""What a run-time law can hope for: laws told of the jobs to come, chance over users, and how much training helps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ischeduler.estimators.jobruntime import alike, empirical
from ischeduler.estimators.jobruntime.alike import BURST_S
from ischeduler.estimators.jobruntime.empirical import FEWEST, LEVELS
from ischeduler.estimators.jobruntime.instants import Rows, instants, running_rows
from ischeduler.estimators.jobruntime.model import fit
from ischeduler.estimators.jobruntime.table import JobTable
from ischeduler.helper.provisioning.setting import read_setting

LOOKS = 300
NEAR_S = 30 * 86400
DRAWS = 2000
PARTS = (0.25, 0.5, 1.0)


def floors(traces: Sequence[Path], train_until: str, *, seed: int = 0, json: bool = False) -> dict[str, Any]:
    """Shares of the plain per-user law's pinball loss, at a tenth of the instants of ``--runtime-model``."""
    found: dict[str, Any] = {}
    for path in traces:
        setting = read_setting(path, units=1, train_until=train_until, protocol="corrected")
        jobs, until = setting.table, setting.train_until_s
        rows, at = running_rows(jobs, instants(until, float(jobs.submit_s[-1]), LOOKS, np.random.default_rng(seed + 1)))
        truth = jobs.end_s[rows] - at
        plain = losses(truth, empirical.remaining_deciles(jobs, rows, at))
        laws = {f"law, training x {part:g}": _fitted(jobs, until, part, seed).remaining_deciles(jobs, rows, at) for part in PARTS}
        laws["alike jobs alone"] = alike.remaining_deciles(jobs, rows, at)
        kind = _dense(jobs.user, jobs.limit_s, jobs.units)
        laws["told the user's month"] = told(jobs, (rows, at), _dense(jobs.user))
        laws["told the month's jobs of the kind"] = told(jobs, (rows, at), kind)
        laws["told the burst's jobs of the kind"] = told(jobs, (rows, at), kind, burst=True)
        clusters = _dense(jobs.user)[rows] if jobs.user.max() else _dense(jobs.limit_s, jobs.units)[rows]
        for name, deciles in laws.items():
            value, low, high = share(losses(truth, deciles), plain, clusters, seed)
            found[f"{path.stem}: {name}"] = {"share": value, "low": low, "high": high}
            if not json:
                print(f"{path.stem:<26}{name:<36}{value:>7.3f} [{low:.3f}, {high:.3f}]")
    return found


def losses(truth_s: NDArray[Any], deciles_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Pinball loss of each row, mean over its deciles."""
    miss = np.asarray(truth_s, float)[:, None] - deciles_s
    return np.maximum(LEVELS * miss, (LEVELS - 1) * miss).mean(axis=1)


def told(jobs: JobTable, rows: Rows, group: NDArray[np.int64], *, burst: bool = False) -> NDArray[np.float64]:
    """Deciles by all other jobs of the group that started within a month of the row's, those to come included: no method.

    ``burst``: by those submitted within ten minutes of it. The plain law where the group has too few that lasted as long.
    """
    clock, near_s = (jobs.submit_s, BURST_S) if burst else (jobs.start_s, NEAR_S)
    out = empirical.remaining_deciles(jobs, *rows)
    members = {int(g): np.flatnonzero(group == g) for g in np.unique(group[rows[0]])}
    used = jobs.run_s / jobs.limit_s
    for i, (job, at) in enumerate(zip(*rows, strict=True)):
        others = members[int(group[job])]
        others = others[(np.abs(clock[others] - clock[job]) <= near_s) & (others != job)]
        left = used[others] * jobs.limit_s[job] - (at - jobs.start_s[job])
        left = left[left > 0]
        if len(left) >= FEWEST:
            out[i] = np.quantile(left, LEVELS)
    return out


def share(ours: NDArray[np.float64], plain: NDArray[np.float64], cluster: NDArray[np.int64], seed: int) -> tuple[float, float, float]:
    """Our loss over the plain one, and 90 % of its bootstrap over whole clusters (users; kinds where they are not named)."""
    code = _dense(cluster)
    a, b = np.bincount(code, ours), np.bincount(code, plain)
    drawn = np.random.default_rng(seed).integers(0, len(a), (DRAWS, len(a)))
    ratios = a[drawn].sum(axis=1) / b[drawn].sum(axis=1)
    return float(a.sum() / b.sum()), float(np.quantile(ratios, 0.05)), float(np.quantile(ratios, 0.95))


def _fitted(jobs: JobTable, until: float, part: float, seed: int) -> Any:
    """A law from the last part of the training span."""
    first = float(jobs.submit_s[0])
    recent = jobs.take(jobs.submit_s >= until - part * (until - first))
    return fit(recent, until_s=until, looks=300, seed=seed)


def _dense(*columns: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.unique(np.stack(columns), axis=1, return_inverse=True)[1].astype(np.int64)
