"""Gavel's own runs, replayed: which jobs a run had, and how far our mean completion time and end are from its."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ischeduler.core.errors import BadInput
from ischeduler.policies.problem import Accelerators, Throughputs
from ischeduler.simulator.pools.gavel.policies import POLICIES, prepared
from ischeduler.simulator.pools.gavel.simulate import Options, Outcome, simulate
from ischeduler.simulator.pools.generated import generate
from ischeduler.simulator.pools.readers import read_jobs
from ischeduler.simulator.pools.workload import Workload

EXACT = ("fifo", "fifo_perf", "allox")
LINEAR = ("max_min_fairness", "max_min_fairness_perf", "max_min_fairness_water_filling_perf", "max_sum_throughput_perf")
MAKESPAN = ("min_total_duration", "min_total_duration_perf")
FINISH_TIME = ("finish_time_fairness", "finish_time_fairness_perf")
NEEDED = ("policy", "cluster_spec_v100_p100_k80", "seed", "average_jct_s", "makespan_s", "cpu_s", "jobs")
TYPES = ("v100", "p100", "k80")
SPARE = 2.0
DOCUMENTED_ALLOX_S, ALLOX_SEED, ALLOX_GAP_S, WINDOW = 59770.441018, 42, 4500.0, (4000, 5000)
LARGE = {"v100": 36, "p100": 36, "k80": 36}


@dataclass(frozen=True, slots=True)
class Reference:
    """One of Gavel's runs: its file's name, what it says, and the jobs it had."""

    name: str
    says: dict[str, Any]
    workload: Workload
    accelerators: Accelerators

    @property
    def policy(self) -> str:
        """Gavel's name of the policy."""
        return str(self.says["policy"])

    @property
    def window(self) -> tuple[int, int] | None:
        """The judged jobs, None for all."""
        first, last = self.says.get("window") or (0, 0)
        return None if self.says.get("trace") or last <= first else (int(first), int(last))

    @property
    def scenario(self) -> tuple[Any, ...]:
        """Runs with the same jobs on the same cluster are of one scenario."""
        s = self.says
        return s["cluster_spec_v100_p100_k80"], s.get("lam_s"), bool(s.get("multi_gpu")), s.get("trace"), s["seed"], self.window

    def theirs(self) -> dict[int, float]:
        """Completion times by job as Gavel's simulator gave them."""
        return {int(j["id"]): float(j["jct_s"]) for j in self.says["jobs"] if j.get("jct_s") is not None}


@dataclass(frozen=True, slots=True)
class Replayed:
    """A replay against its reference; percentages of theirs, CPU seconds of ours."""

    reference: Reference
    outcome: Outcome
    cpu_s: float

    @property
    def off_s(self) -> float:
        """Our mean completion time less theirs."""
        return self.outcome.mean_jct_s - float(self.reference.says["average_jct_s"])

    @property
    def off_percent(self) -> float:
        """The same in percent of theirs."""
        return 100 * self.off_s / float(self.reference.says["average_jct_s"])

    @property
    def makespan_off_percent(self) -> float:
        """Our end against theirs; below zero is better."""
        return 100 * (self.outcome.makespan_s / float(self.reference.says["makespan_s"]) - 1)


def read_references(folder: Path, traces: Path, throughputs: Throughputs, only: str) -> list[Reference]:
    """The runs in ``folder``/runs whose policy we have. BadInput when there are none or a file lacks what is needed."""
    runs = folder / "runs"
    if not runs.is_dir():
        raise BadInput(f"--reference {folder} has no folder runs; give a folder with runs/*.json and jobs/*.jsonl.")
    found = [r for path in sorted(runs.glob("*.json")) if only in path.stem and (r := _reference(path, folder, traces, throughputs)) is not None]
    if not found and not only:
        raise BadInput(f"{runs} holds no run of a policy of Gavel's ({', '.join(POLICIES)}).")
    return found


def _reference(path: Path, folder: Path, traces: Path, throughputs: Throughputs) -> Reference | None:
    try:
        says = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        raise BadInput(f"{path} is no JSON; expected one of Gavel's runs with {', '.join(NEEDED)}.") from None
    lacking = [key for key in NEEDED if key not in says]
    if lacking:
        raise BadInput(f"{path} has no {', '.join(lacking)}; expected one of Gavel's runs.")
    if says["policy"] not in POLICIES:
        return None
    counts = [int(n) for n in str(says["cluster_spec_v100_p100_k80"]).split(":")]
    accelerators = Accelerators.of({t: n for t, n in zip(TYPES, counts, strict=True) if n})
    return Reference(path.stem, says, _jobs(says, path.stem, folder, traces, throughputs), accelerators)


def _jobs(says: dict[str, Any], stem: str, folder: Path, traces: Path, throughputs: Throughputs) -> Workload:
    """The very jobs: a trace of that name, a file of the same scenario, or the generator they were drawn from."""
    if says.get("trace"):
        there = sorted(traces.glob(f"*{says['trace']}"))
        if not there:
            raise BadInput(f"{stem} ran on {says['trace']}, which is not in {traces}; give its folder with --traces.")
        return read_jobs(there[0], throughputs)
    files = sorted((folder / "jobs").glob(f"{stem.split('_')[0]}_*.jsonl"))
    if files:
        return read_jobs(files[0], throughputs)
    last = max(int(says["window"][1]), int(says.get("jobs_completed_total", 0)))
    gap_s = float(says.get("lam_s") or 0.0)
    count = int(last * SPARE) + 500 if gap_s else last
    return generate(throughputs, count, gap_s, seed=int(says["seed"]), several=bool(says.get("multi_gpu")))


def replay(reference: Reference, throughputs: Throughputs) -> Replayed:
    """Our run of the same."""
    says = reference.says
    options = Options(
        float(says.get("round_s", 360.0)), float(says.get("min_time_between_allocation_resets_s", 1920.0)), int(says["seed"]), reference.window,
    )  # fmt: skip
    began = time.process_time()
    done = simulate(reference.workload, throughputs.on(reference.accelerators), reference.accelerators,
                    *prepared(reference.policy, reference.accelerators, options))  # fmt: skip
    return Replayed(reference, done, time.process_time() - began)


def documented_allox(throughputs: Throughputs) -> float:
    """AlloX' mean completion time in the run that Gavel's documentation quotes."""
    accelerators = Accelerators.of(LARGE)
    jobs = generate(throughputs, 5700, ALLOX_GAP_S, seed=ALLOX_SEED)
    options = Options(seed=ALLOX_SEED, window=WINDOW)
    return simulate(jobs, throughputs.on(accelerators), accelerators, *prepared("allox", accelerators, options)).mean_jct_s


def published(path: Path, throughputs: Throughputs, rates: list[float], only: str) -> Iterator[tuple[str, float, float, float]]:
    """(policy, jobs an hour, their hours, ours) of the single-accelerator table, all rates where none is named; each cell is one run."""
    try:
        table = json.loads(path.read_text("utf-8"))["tables"]["single_gpu_mean_jct_hours"]
    except (OSError, ValueError, KeyError):
        raise BadInput(f"{path} holds no table single_gpu_mean_jct_hours; give the published tables.") from None
    accelerators = Accelerators.of(LARGE)
    at = throughputs.on(accelerators)
    for policy, cells in table.items():
        for rate in rates or [float(r) for r in cells]:
            theirs = cells.get(f"{rate:g}", cells.get(f"{rate:.1f}"))
            if policy not in POLICIES or POLICIES[policy].sharing or theirs is None or (only and only not in f"published_{policy}_{rate:g}"):
                continue
            jobs = generate(throughputs, 9000, 3600.0 / rate)
            done = simulate(jobs, at, accelerators, *prepared(policy, accelerators, Options(window=WINDOW)))
            yield policy, rate, float(theirs), done.mean_jct_s / 3600.0


def worst_ratio(jct_s: dict[int, float], isolated_s: Any) -> float:
    """The largest completion time over that on an equal slice."""
    return float(np.nanmax([t / isolated_s[i] for i, t in jct_s.items()]))
