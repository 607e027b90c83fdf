"""``python -m benchmarks.wait [--trace FILE ...] [--train-until DATE_OR_FRACTION] [--limit N] [--prior] [--floor] [--json]``: how long jobs will wait.

A file is known by its columns:

- a job trace (submit_s, start_s, end_s, req_units, req_walltime_s; user, queue, name where known): every job is foretold once, at its
  submission, from what was known at that second. Models begin with the jobs before ``--train-until`` (default: four fifths of the time) and
  grow again as time passes. Judged: the 95 % upper bound, the chance of a start within 10 minutes, the median.
- snapshots of a queue (poll_time, poll_wait_sec, ...): how long pending jobs go on waiting; days drawn by seed 46 and in order of time.
- the batch system's own estimates (true_start_time, estimate_start_time): how far they are off.

``--floor`` says of snapshots what part of the error is whose: groups that share a fate, the choice of days, the number of days.

Default: the traces of Lonestar6, KTH and Theta, the snapshots of Graham, the estimates of Cedar and Narval beside the project.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import Bar, finish
from benchmarks.wait_estimates import is_estimates, judge_estimates
from benchmarks.wait_pending import judge_snapshots
from benchmarks.wait_snapshots import is_snapshots
from benchmarks.wait_traces import is_trace, judge_trace
from ischeduler.core.errors import BadInput, IschedError

DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data" / "traces"
DEFAULT = (
    "mirage_ls6_a100.parquet", "kth_sp2_original.parquet", "alcf_theta_2022.parquet", "drac_graham_2021_snapshots.parquet",
    "cedar_true_start_time_vs_slurm_estimate.csv", "narval_true_start_time_vs_slurm_estimate.csv",
)  # fmt: skip
PRIOR = (*DEFAULT[:3], "metacentrum_wagap_2013.parquet")
KINDS = (
    "a trace (submit_s, start_s, end_s, req_units, req_walltime_s), snapshots (poll_time, poll_wait_sec) "
    "or estimates (true_start_time, estimate_start_time)"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when every bar is met, 1 when one is missed, 2 on bad input."""
    asked = _parser().parse_args(arguments)
    if asked.prior:
        return _prior(asked.trace or [DATA / name for name in PRIOR])
    if asked.floor:
        return _floor(asked.trace or [DATA / DEFAULT[3]], asked)
    metrics: dict[str, Any] = {}
    bars: list[Bar] = []
    try:
        for path in asked.trace or [DATA / name for name in DEFAULT]:
            found, limits = _judged(path, asked)
            metrics |= found
            bars += limits
    except IschedError as error:
        print(f"wait: {error}", file=sys.stderr)
        return 2
    return finish("wait", metrics, bars, as_json=asked.json)


def _prior(paths: Sequence[Path]) -> int:
    from benchmarks.wait_prior import print_prior

    try:
        print_prior([(path, _read(path)) for path in paths])
    except (IschedError, KeyError) as error:
        print(f"wait: {error}", file=sys.stderr)
        return 2
    return 0


def _floor(paths: Sequence[Path], asked: Any) -> int:
    from benchmarks.wait_floor import judge_floor

    metrics: dict[str, Any] = {}
    try:
        for path in paths:
            table = _read(path)
            if not is_snapshots(list(table.columns)):
                raise BadInput(f"{path} holds no snapshots of a queue (poll_time, poll_wait_sec).")
            metrics |= judge_floor(table, path.stem, limit=asked.limit, seed=asked.seed, quiet=asked.json)
    except IschedError as error:
        print(f"wait: {error}", file=sys.stderr)
        return 2
    return finish("wait", metrics, [], as_json=asked.json)


def _judged(path: Path, asked: Any) -> tuple[dict[str, Any], list[Bar]]:
    table = _read(path)
    columns = list(table.columns)
    if is_snapshots(columns):
        return judge_snapshots(table, path.stem, limit=asked.limit, seed=asked.seed, quiet=asked.json)
    if is_estimates(columns):
        return judge_estimates(table, path.stem, quiet=asked.json)
    if is_trace(columns):
        return judge_trace(table, path.stem, asked.train_until, limit=asked.limit, seed=asked.seed, quiet=asked.json)
    raise BadInput(f"{path} has the columns {', '.join(columns[:8])}, ...; expected {KINDS}.")


def _read(path: Path) -> Any:
    """The file as a pandas table; BadInput with a sentence."""
    import pandas as pd

    if not path.is_file():
        raise BadInput(f"{path} is not here; give a parquet or csv file with --trace.")
    try:
        return pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    except (OSError, ValueError, ImportError) as error:
        raise BadInput(f"{path} cannot be read ({str(error).splitlines()[0]}); give a parquet or csv file.") from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wait", description="How long jobs will wait, against the named peers.")
    parser.add_argument("--trace", type=Path, action="append", help="a file to judge by; may be given again (default: the six beside the project)")
    parser.add_argument("--train-until", help="a date (2023-03-01) or the fraction of a trace's time where the forecasts begin")
    parser.add_argument("--limit", type=int, default=0, help="only the last N jobs of a trace, the first N days of snapshots")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--prior", action="store_true", help="print the prior for new sites, from these traces, and what it loses")
    parser.add_argument("--floor", action="store_true", help="print what snapshots of a queue could give at best, and what decides it")
    parser.add_argument("--json", action="store_true", help="only the closing line")
    return parser


if __name__ == "__main__":
    sys.exit(main())
