"""What a simulated pool came to under one policy: completion times, fairness, use, cost; and the curves the pictures are drawn from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ischeduler.policies.problem import Accelerators, Floats, Throughputs
from ischeduler.simulator.pools.figures import PoolSummary
from ischeduler.simulator.pools.workload import Workload


@dataclass(frozen=True, slots=True, eq=False)
class PoolRun:
    """One policy's run. ``jct_s`` (n,) NaN where a job never ended; ``judged`` (n,); ``timeline`` (events, 2 + K): second, active jobs,
    accelerators of each type at work. ``promised_s`` and ``received_s`` (n, K), ``restarts`` (n,): None where the mode keeps no accounts."""

    policy: str
    mode: str
    jct_s: Floats
    judged: Any
    makespan_s: float
    utilisation: float
    timeline: Floats
    cpu_s: float
    decisions: int
    promised_s: Floats | None = None
    received_s: Floats | None = None
    restarts: Any = None
    started_s: Floats | None = None


def summarise(run: PoolRun, accelerators: Accelerators, isolated_s: Floats | None = None) -> PoolSummary:
    """The figures; ``isolated_s`` (n,): the jobs' completion times on equal slices."""
    jct = run.jct_s[run.judged]
    done = jct[~np.isnan(jct)]
    points = np.quantile(done, (0.5, 0.9, 0.99)) if len(done) else np.full(3, np.nan)
    ratio = ratios(run, isolated_s)
    return PoolSummary(
        run.policy, run.mode, len(jct), len(done), float(done.mean()) if len(done) else float("nan"), float(points[0]), float(points[1]),
        float(points[2]), run.makespan_s, run.utilisation, cost(run, accelerators),
        None if run.restarts is None else float(np.mean(run.restarts[run.judged])),
        None if ratio is None else float(np.nanmax(ratio)), None if ratio is None else float(np.nanmean(ratio)), run.decisions, run.cpu_s,
    )  # fmt: skip


def ratios(run: PoolRun, isolated_s: Floats | None) -> Floats | None:
    """Completion time over that on an equal slice, for the judged jobs that ended."""
    if isolated_s is None:
        return None
    ratio = run.jct_s[run.judged] / isolated_s[run.judged]
    return ratio if np.isfinite(ratio).any() else None


def cost(run: PoolRun, accelerators: Accelerators) -> float:
    """Hours at work times the price, summed over types."""
    seconds, table = run.timeline[:, 0], run.timeline[:, 2:]
    span = np.diff(np.append(seconds, max(run.makespan_s, float(seconds[-1]) if len(seconds) else 0.0)))
    return float((span[:, None] * table * accelerators.price_per_h[None, :]).sum() / 3600.0)


def lower_bound_makespan_s(workload: Workload, throughputs: Throughputs, accelerators: Accelerators) -> float:
    """No schedule ends all jobs sooner (arrivals aside): the linear programme of the makespan over all of them."""
    from ischeduler.policies.program import raise_level

    rate = throughputs.on(accelerators).rate[workload.job_class]
    rate = np.where(workload.accelerators[:, None] <= accelerators.count[None, :], rate, 0.0)
    unit = workload.total_steps / rate.max(axis=1)
    level = raise_level(rate / workload.total_steps[:, None] * unit.max(), workload.accelerators, accelerators.count).level
    return float(unit.max() / level)
