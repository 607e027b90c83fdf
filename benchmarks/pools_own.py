"""Our own rounds beside Gavel's: completion times and worst-case fairness on the same jobs, and the makespan against its lower bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.pools_reference import Reference, worst_ratio
from benchmarks.report import AtLeast, Bar
from ischeduler.policies.problem import Accelerators, Throughputs
from ischeduler.policies.registry import objective_of
from ischeduler.simulator.pools.compare import Asked, Setting, isolated_jct_s, simulate_pool
from ischeduler.simulator.pools.results import lower_bound_makespan_s

POLICY = "srpt_bounded"
MAKESPAN = "min_total_duration_perf"
RESTART_S, PER_NODE = 30.0, 8
GAVELS_RESET_S = 1920
PAIRED = (
    ("srpt_bounded", "srpt_bounded_packed"), ("max_min_fairness_perf", "max_min_fairness_packed"), ("fifo_perf", "fifo_packed"), ("srpt_perf", "srpt_packed"),
)


def own_runs(references: Sequence[Reference], throughputs: Throughputs, say: Any, *, pairs: bool = False) -> tuple[dict[str, Any], list[Bar]]:
    """Metrics and bars of every scenario that has a stream of jobs, and of those where all jobs are there at once; ``pairs``: each policy with
    space sharing, too."""
    scenarios: dict[Any, list[Reference]] = {}
    for r in references:
        if float(r.says.get("min_time_between_allocation_resets_s", GAVELS_RESET_S)) == GAVELS_RESET_S:
            scenarios.setdefault(r.scenario, []).append(r)
    metrics: dict[str, Any] = {}
    better = streams = 0
    bars: list[Bar] = []
    for runs in scenarios.values():
        first = runs[0]
        if len(runs) < 2 or first.accelerators.count.sum() > 24:
            continue
        stem = first.name.split("_")[0]
        if first.says.get("lam_s") == 0.0:
            metrics[f"{stem}_makespan_over_bound"] = _makespan(first, throughputs, say)
            bars.append(Bar(f"{stem}_makespan_over_bound", 1.10))
        elif len(first.workload) > 50:
            streams += 1
            better += _stream(stem, runs, throughputs, metrics, say)
            if pairs:
                _with_pairs(stem, first, throughputs, metrics, say)
    if streams:
        metrics["scenarios_beaten_by_5_percent"] = better
        bars.append(AtLeast("scenarios_beaten_by_5_percent", min(3, streams)))
    return metrics, bars


def _nodes(r: Reference) -> Accelerators:
    return replace(r.accelerators, per_node=np.full(len(r.accelerators.types), PER_NODE, np.int64))


def _stream(stem: str, runs: list[Reference], throughputs: Throughputs, metrics: dict[str, Any], say: Any) -> bool:
    best = min(runs, key=lambda r: float(r.says["average_jct_s"]))
    setting = Setting("own", restart_s=RESTART_S, window=best.window)
    cluster = _nodes(best)
    isolated = isolated_jct_s(best.workload, throughputs, cluster, setting)
    run = simulate_pool(POLICY, best.workload, throughputs, cluster, setting, Asked(objective_of(POLICY)))
    ours = {int(i): float(run.jct_s[i]) for i in np.flatnonzero(run.judged)}
    theirs = best.theirs()
    mean = float(np.mean(list(ours.values())))
    gain = 100 * (1 - mean / float(best.says["average_jct_s"]))
    fair, their_fair = worst_ratio(ours, isolated), worst_ratio(theirs, isolated)
    metrics |= {
        f"{stem}_own_mean_jct_s": mean, f"{stem}_gavel_best_mean_jct_s": float(best.says["average_jct_s"]), f"{stem}_gain_percent": gain,
        f"{stem}_own_worst_fairness": fair, f"{stem}_gavel_worst_fairness": their_fair,
        f"{stem}_longest_over_gavels": max(ours.values()) / max(theirs.values()),
    }  # fmt: skip
    say(f"{stem}: ours {mean:,.0f} s against {best.policy} {float(best.says['average_jct_s']):,.0f} s: {gain:+.1f} %; "
        f"worst fairness {fair:.3f} against {their_fair:.3f}")  # fmt: skip
    return gain >= 5.0 and fair <= their_fair


def _with_pairs(stem: str, r: Reference, throughputs: Throughputs, metrics: dict[str, Any], say: Any) -> None:
    """The same policy without and with pairs of jobs on the same accelerators, in our rounds."""
    setting, cluster = Setting("own", restart_s=RESTART_S, window=r.window), _nodes(r)
    isolated = isolated_jct_s(r.workload, throughputs, cluster, setting)
    for alone, packed in PAIRED:
        runs = [simulate_pool(name, r.workload, throughputs, cluster, setting) for name in (alone, packed)]
        mean = [float(np.nanmean(run.jct_s[run.judged])) for run in runs]
        worst = [float(np.nanmax(run.jct_s[run.judged] / isolated[run.judged])) for run in runs]
        gain = 100 * (1 - mean[1] / mean[0])
        metrics |= {f"{stem}_{packed}_gain_percent": gain, f"{stem}_{packed}_mean_jct_s": mean[1], f"{stem}_{packed}_worst_fairness": worst[1]}
        say(f"{stem}: {alone} {mean[0]:,.0f} s, in pairs {mean[1]:,.0f} s ({-gain:+.1f} %); worst {worst[0]:.2f}, in pairs {worst[1]:.2f}")


def _makespan(r: Reference, throughputs: Throughputs, say: Any) -> float:
    setting = Setting("own", restart_s=RESTART_S, window=r.window)
    run = simulate_pool(MAKESPAN, r.workload, throughputs, _nodes(r), setting)
    bound = lower_bound_makespan_s(r.workload, throughputs, r.accelerators)
    say(f"{r.name.split('_')[0]}: makespan {run.makespan_s:,.0f} s, lower bound {bound:,.0f} s")
    return run.makespan_s / bound
