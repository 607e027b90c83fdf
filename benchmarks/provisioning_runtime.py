"""The run-time law of jobs alive against the plain per-user law of used to requested time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import Bar
from ischeduler.estimators.jobruntime import empirical
from ischeduler.estimators.jobruntime.instants import instants, running_rows
from ischeduler.estimators.jobruntime.model import fit, pinball_h
from ischeduler.helper.provisioning.setting import read_setting

LOOKS = 3000
"""Instants after training at which the jobs alive are asked about: of 300, another draw moves the figure by .03."""
SHARE = 0.85


def runtime_model(
    traces: Sequence[Path], train_until: str, *, seed: int = 0, json: bool = False
) -> tuple[dict[str, Any], list[Bar]]:
    """Pinball loss (hours, mean over nine deciles of the remaining time) at random instants after training ends."""
    metrics: dict[str, Any] = {}
    limits = []
    if not json:
        print(f"{'trace':<28}{'rows':>7}{'jobs':>7}{'limit':>9}{'per user':>10}{'law':>8}{'share':>8}{'by hand':>9}   (pinball, hours)")
    for path in traces:
        table = read_setting(path, units=1, train_until=train_until, protocol="corrected")
        jobs, until = table.table, table.train_until_s
        law = fit(jobs, until_s=until, seed=seed)
        rows, at = running_rows(jobs, instants(until, float(jobs.submit_s[-1]), LOOKS, np.random.default_rng(seed + 1)))
        truth = jobs.start_s[rows] + jobs.run_s[rows] - at
        left = (jobs.limit_s[rows] + jobs.start_s[rows] - at).astype(float)
        losses = {
            "limit": pinball_h(truth, np.repeat(left[:, None], 9, axis=1)),
            "per_user": pinball_h(truth, empirical.remaining_deciles(jobs, rows, at)),
            "without_learned_weights": pinball_h(truth, replace(law, weights=None).remaining_deciles(jobs, rows, at)),
            "law": pinball_h(truth, law.remaining_deciles(jobs, rows, at)),
        }
        share, without = (losses[which] / losses["per_user"] for which in ("law", "without_learned_weights"))
        if not json:
            cells = f"{losses['limit']:>9.3f}{losses['per_user']:>10.3f}{losses['law']:>8.3f}{share:>8.3f}{without:>9.3f}"
            print(f"{path.stem:<28}{len(rows):>7}{len(np.unique(rows)):>7}{cells}")
        metrics |= {f"{path.stem}_{k}_pinball_h": v for k, v in losses.items()} | {f"{path.stem}_share": share}
        limits.append(Bar(f"{path.stem}_share", SHARE))
    return metrics, limits
