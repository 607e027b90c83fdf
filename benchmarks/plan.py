"""``python -m benchmarks.plan [--json]``: how quickly a plan is made, the command line starts, and how gently Slurm is asked.

- ``isched plan`` for ten catalog clusters, all partitions, two batch sizes, as a whole process, once the model has been traced;
- start of ``isched --version`` beside importing submitit and typer in the same Python (medians, and ratios);
- controller calls a minute for 1, 10 and 100 active runs, counted at the commands of the Slurm adapter on a simulated clock.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import Bar, finish

CLUSTERS = "pitzer,ascend,cardinal,frontera,lonestar6,vista,stampede3,delta,anvil,expanse"
PLAN = ("plan", "--model", "timm:resnet50", "--samples", "20000", "--epochs", "50", "--batch-size", "32,64", "--clusters", CLUSTERS)


def isched(*arguments: str, home: Path) -> float:
    """Seconds a whole isched process takes; raises when it fails."""
    began = time.perf_counter()
    environment = {**os.environ, "HOME": str(home), "XDG_STATE_HOME": str(home / "state"), "ISCHED_BATCH_KIND": "local"}
    argv = [sys.executable, "-m", "ischeduler.cli.main", *arguments]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"isched {' '.join(arguments)} failed: {done.stderr.strip()}")
    return time.perf_counter() - began


def median_ms(argv: Sequence[str], times: int = 11) -> float:
    """Median wall time of a process over some runs, the first (cold) one left out."""
    taken: list[float] = []
    for _ in range(times + 1):
        began = time.perf_counter()
        subprocess.run(list(argv), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        taken.append((time.perf_counter() - began) * 1000)
    return statistics.median(taken[1:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="only the closing line")
    args = parser.parse_args()
    metrics: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        metrics["plan_first_s"] = isched(*PLAN, home=home)
        metrics["plan_traced_s"] = statistics.median(isched(*PLAN, home=home) for _ in range(5))
    metrics["cli_start_ms"] = median_ms([sys.executable, "-m", "ischeduler.cli.main", "--version"])
    for peer in ("submitit", "typer"):
        metrics[f"import_{peer}_ms"] = median_ms([sys.executable, "-c", f"import {peer}"])
        metrics[f"cli_start_over_{peer}"] = metrics["cli_start_ms"] / metrics[f"import_{peer}_ms"]
    from benchmarks.controller import calls_per_minute

    for runs in (1, 10, 100):
        metrics[f"controller_calls_per_min_{runs}_runs"] = calls_per_minute(runs)
    metrics["calls_growth_1_to_100_runs"] = metrics["controller_calls_per_min_100_runs"] / metrics["controller_calls_per_min_1_runs"]
    bars = [Bar("plan_traced_s", 2.0), Bar("cli_start_ms", 300.0), Bar("calls_growth_1_to_100_runs", 1.05)]
    return finish("plan", metrics, bars, as_json=args.json)


if __name__ == "__main__":
    sys.exit(main())
