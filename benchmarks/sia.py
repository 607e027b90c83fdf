"""Sia's workloads under our Sia: completion times against its own simulator's, the integer programme against the exact one, and our variant.

``python -m benchmarks.sia [--workloads DIR] [--traces DIR] [--all] [--skip-ours] [--lots N] [--unlike SPREAD] [--json]``. DIR holds csv files
(name, time, application, num_replicas, batch_size), also in folders; without ``--all`` only those called ``workload-1.csv`` of philly and saturn
are run, where there are such. Its own simulator's figures (64 accelerators): Philly-1 1,950 s, Saturn-1 2,091 s.
"""

from __future__ import annotations

import argparse
import copy
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # matrices of a few rows: threads only get in each other's way

import numpy as np

from benchmarks.report import Bar, finish
from ischeduler.core.errors import BadInput, IschedError
from ischeduler.policies.problem import Ints
from ischeduler.simulator.pools.sia.applications import Application
from ischeduler.simulator.pools.sia.simulate import (
    CLUSTER,
    Chooser,
    ElasticJob,
    Problem,
    Result,
    Rules,
    Simulation,
    by_solver,
    mean_jct_s,
    read_workload,
)  # fmt: skip

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "sia"
THEIRS = {"philly": (1950.0, 28_390.0, 56_020.0), "saturn": (2091.0, 27_765.0, 45_260.0)}
"""Mean and 99th percentile of the completion times, and the last end, of Sia's simulator on workload 1 (seconds)."""
EVERY = 25
OURS = Rules(decimals=None, shared=True, measured_restarts=True)
"""Our variant: what one job of an application saw is known to the later ones, restarts count as much as they cost, costs are not rounded."""


def main(argv: list[str] | None = None) -> int:
    """Exit code 0, 1 when a bar is missed, 2 on bad input."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sia", description=__doc__)
    parser.add_argument("--workloads", type=Path, default=DATA / "workloads", metavar="DIR", help="a folder of workloads, or one csv")
    parser.add_argument("--traces", type=Path, metavar="DIR", help="the applications' measurements (default: traces beside the workloads)")
    parser.add_argument("--all", action="store_true", help="every csv in the folder, not only workload-1 of philly and saturn")
    parser.add_argument("--skip-ours", action="store_true", help="leave out our variant")
    parser.add_argument("--lots", type=int, default=0, metavar="N", help="run Sia N times more, choices of one rounded cost taken by lot")
    parser.add_argument("--unlike", type=float, default=0.0, metavar="SPREAD", help="every job's speed on every type, and its noise, drawn apart by so much")
    parser.add_argument("--json", action="store_true", help="only the closing line")
    args = parser.parse_args(argv)
    say = (lambda words: None) if args.json else (lambda words: print(words, flush=True))
    try:
        files = _files(args.workloads, everything=args.all)
        traces = args.traces or _traces(args.workloads)
        metrics, bars = measure(files, traces, ours=not args.skip_ours, lots=args.lots, spread=args.unlike, say=say)
    except IschedError as error:
        print(error, file=sys.stderr)
        return 2
    return finish("sia", metrics, bars, as_json=args.json)


def _files(folder: Path, *, everything: bool) -> list[Path]:
    if folder.is_file():
        return [folder]
    found = sorted(folder.rglob("*.csv"))
    usual = [f for f in found if f.name == "workload-1.csv" and f.parent.name in THEIRS]
    chosen = found if everything or not usual else usual
    if not chosen:
        raise BadInput(f"--workloads {folder} holds no csv file; give a folder with workloads (name, time, application, num_replicas, batch_size).")
    return chosen


def _traces(folder: Path) -> Path:
    near = [p / "traces" for p in (folder, *folder.resolve().parents) if (p / "traces").is_dir()]
    return near[0] if near else DATA / "traces"


def measure(files: list[Path], traces: Path, *, ours: bool, lots: int, spread: float, say: Any) -> tuple[dict[str, Any], list[Bar]]:
    """Every workload under Sia and, with ``ours``, under our variant. Sia's own figures are of jobs that are alike (``spread`` 0)."""
    metrics: dict[str, Any] = {}
    bars: list[Bar] = []
    worst_gap, rounds_checked = 0.0, 0
    for path in files:
        stem = f"{path.parent.name}_{path.stem}".replace("-", "_")
        judge = Judge()
        result, cpu_s = run(path, traces, Rules(), judge, spread=spread)
        jct = np.array(list(result.jct_s.values()))
        metrics |= {f"{stem}_mean_jct_s": mean_jct_s(result), f"{stem}_p99_jct_s": float(np.quantile(jct, 0.99)),
                    f"{stem}_makespan_s": result.makespan_s, f"{stem}_cpu_s": cpu_s}  # fmt: skip
        worst_gap, rounds_checked = max(worst_gap, judge.worst), rounds_checked + judge.checked
        theirs = THEIRS.get(path.parent.name) if path.name == "workload-1.csv" and not spread else None
        say(f"{stem}: mean {mean_jct_s(result):,.0f} s, p99 {np.quantile(jct, 0.99):,.0f} s, end {result.makespan_s:,.0f} s"
            + (f"; Sia's own simulator {theirs[0]:,.0f}, {theirs[1]:,.0f}, {theirs[2]:,.0f} s" if theirs else ""))  # fmt: skip
        if theirs:
            metrics[f"{stem}_off_percent"] = 100 * abs(mean_jct_s(result) / theirs[0] - 1)
            bars.append(Bar(f"{stem}_off_percent", 5.0))
        if ours:
            mine, cpu_s = run(path, traces, OURS, Judge(every=0), spread=spread)
            jct = np.array(list(mine.jct_s.values()))
            metrics |= {f"{stem}_ours_mean_jct_s": mean_jct_s(mine), f"{stem}_ours_p99_jct_s": float(np.quantile(jct, 0.99)),
                        f"{stem}_ours_makespan_s": mine.makespan_s, f"{stem}_ours_cpu_s": cpu_s}  # fmt: skip
            say(f"{stem}: our variant mean {mean_jct_s(mine):,.0f} s ({mean_jct_s(mine) / mean_jct_s(result) - 1:+.1%}), p99 {np.quantile(jct, 0.99):,.0f} s,"
                f" end {mine.makespan_s:,.0f} s; restarts {sum(mine.restarts.values())} instead of {sum(result.restarts.values())}")  # fmt: skip
            if theirs:
                bars.append(Bar(f"{stem}_ours_mean_jct_s", theirs[0]))
        means = [mean_jct_s(run(path, traces, Rules(), Judge(every=0), by_lot(seed), spread=spread)[0]) for seed in range(lots)]
        if means:
            metrics[f"{stem}_lots_mean_jct_s"] = means
            say(f"{stem}: ties by lot: mean {', '.join(f'{m:,.0f}' for m in means)} s")
    metrics |= {"programme_gap": worst_gap, "programmes_checked": rounds_checked}
    bars.append(Bar("programme_gap", 1e-4))
    return metrics, bars


def run(
    path: Path, traces: Path, rules: Rules, judge: Judge, chooser: Chooser = by_solver, *, spread: float = 0.0,
) -> tuple[Result, float]:  # fmt: skip
    """One simulation and its CPU seconds."""
    jobs = read_workload(path, traces, tuple(CLUSTER))
    if spread:
        draw_apart(jobs, spread)
    began = time.process_time()
    result = Simulation(jobs, CLUSTER, rules, chooser, judge).run()
    return result, time.process_time() - began


def by_lot(seed: int) -> Chooser:
    """The solver, with costs that differ by less than their rounding, so that it has no ties to break in its own way."""
    draw = np.random.default_rng(seed)
    return lambda problem: by_solver(problem._replace(cost=problem.cost + 1e-6 * draw.random(problem.cost.shape)))


def draw_apart(jobs: list[ElasticJob], spread: float) -> None:
    """Every job's step times on every type, and its gradient's variance, times a lognormal factor of its own."""
    draw = np.random.default_rng(7)
    for job in jobs:
        job.apps = {kind: _apart(app, *np.exp(spread * draw.standard_normal(2))) for kind, app in job.apps.items()}


def _apart(app: Application, slower: float, noisier: float) -> Application:
    def seconds(placement: tuple[int, ...], local: int) -> tuple[float, float] | None:
        found = app.seconds(placement, local)
        return None if found is None else (found[0] * slower, found[1] * slower)

    def noise(batch: float, epoch: int) -> tuple[float, float]:
        sqr, var = app.noise(batch, epoch)
        return sqr, var * noisier

    own = copy.copy(app)
    own.seconds, own.noise = seconds, noise
    return own


class Judge:
    """Solves every so many rounds' programme exactly and keeps the worst relative gap."""

    def __init__(self, every: int = EVERY) -> None:
        self.every, self.seen, self.checked, self.worst = every, 0, 0, 0.0

    def __call__(self, problem: Problem, chosen: Ints) -> None:
        self.seen += 1
        if not self.every or self.seen % self.every:
            return
        best = exact(problem)
        self.worst = max(self.worst, (value(problem, chosen) - best) / max(abs(best), 1e-12))
        self.checked += 1


def value(problem: Problem, chosen: Ints) -> float:
    """The objective of a choice: the costs of those served and the cost of each who is not."""
    served = np.flatnonzero(chosen >= 0)
    return float(problem.cost[served, chosen[served]].sum()) + problem.unserved * (len(chosen) - len(served))


def exact(problem: Problem) -> float:
    """The least objective, by HiGHS' branch and bound to a gap of zero."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_array

    job, column = np.nonzero(np.isfinite(problem.cost))
    at = np.arange(len(job))
    kinds = len(problem.there)
    once = coo_array((np.ones(len(job)), (job, at)), shape=(len(problem.cost), len(job)))
    room = coo_array((problem.configs.accelerators[column], (problem.configs.kind[column], at)), shape=(kinds, len(job)))
    found = milp(
        problem.cost[job, column] - problem.unserved, integrality=np.ones(len(job)), bounds=Bounds(0, 1),
        constraints=[LinearConstraint(once.tocsr(), -np.inf, 1), LinearConstraint(room.tocsr(), -np.inf, problem.there)],  # pyright: ignore[reportArgumentType]
        options={"mip_rel_gap": 0.0},
    )  # fmt: skip
    if found.x is None:
        raise IschedError("HiGHS did not solve a round's programme; run the benchmark again.")
    return float(found.fun) + problem.unserved * len(problem.cost)


if __name__ == "__main__":
    sys.exit(main())
