"""``python -m benchmarks.simulator [--trace FILE --units N] [--conformance] [--limit N] [--json]``: the simulator's speed and faithfulness.

- speed: EASY on each trace, jobs a second in the kernel, and end to end (file in, each job's fate out as parquet), on one core; beside
  a plain heapq EASY in Python and accasim 1.1.3 (on its first jobs, since it is slow);
- scale: synthetic traces on 10,000 nodes up to a million jobs: time, peak memory, and the exponent of time over jobs;
- ``--conformance``: instead, agreement job by job with starts that pyss's EASY recorded.

A trace needs the columns submit_s, run_s, req_units and req_walltime_s, for conformance also start_s or wait_s.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import AtLeast, Bar, finish
from ischeduler.core.errors import BadInput
from ischeduler.simulator.trace import Trace

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "traces"
SPEED = (("kth_sp2_pyss_easy", 100), ("sdsc_sp2_pyss_easy", 128), ("mirage_ls6_a100", 76))
ORACLES = (("kth_sp2_pyss_easy", 100), ("sdsc_sp2_pyss_easy", 128), ("sdsc_blue_pyss_easy", 1152), ("cea_curie_pyss_easy", 80640))
KERNEL_BAR, END_TO_END_BAR, NODES, MILLION, GROWTH_BAR, MEMORY_BAR_MIB = 1e6, 2e5, 10_000, 1_000_000, 1.15, 1024
LOAD, HEAVY_LOAD = 0.85, 1.1
PEER_JOBS, REPEATS = 2000, 7


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.simulator", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, help="one trace (parquet, csv, SWF or sacct -P) instead of the usual ones")
    parser.add_argument("--units", type=int, help="nodes or processors of that trace's machine; default: the most that were in use at once")
    parser.add_argument("--conformance", action="store_true", help="compare with the recorded starts instead of measuring speed")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N jobs (conformance replays all, compares N)")
    parser.add_argument("--json", action="store_true", help="only the closing line")
    args = parser.parse_args(arguments)
    try:
        metrics, bars = _measure(args)
    except BadInput as error:
        print(f"benchmarks.simulator: {error}", file=sys.stderr)
        return 2
    return finish("simulator", metrics, bars, as_json=args.json)


def _measure(args: argparse.Namespace) -> tuple[dict[str, Any], list[Bar]]:
    if args.limit is not None and args.limit < 100:
        raise BadInput(f"--limit {args.limit} is too few to measure; give 100 or more.")
    chosen = _chosen(args)
    metrics: dict[str, Any] = {}
    bars: list[Bar] = []
    for path, trace, units in chosen:
        if args.conformance:
            found, judged = _conformance(trace, units, path.stem, args.limit)
        else:
            found, judged = _speed(path, trace, units, whole=args.limit is None)
        metrics |= found
        bars += judged
    if not args.conformance and args.trace is None:
        found, judged = _scale(args.limit or MILLION)
        metrics |= found
        bars += judged
    return metrics, bars


def _chosen(args: argparse.Namespace) -> list[tuple[Path, Trace, int]]:
    from ischeduler.simulator.readers import read_trace

    if args.units is not None and (args.trace is None or args.units < 1):
        raise BadInput("--units goes with --trace and is at least 1.")
    usual = [(DATA / f"{name}.parquet", units) for name, units in (ORACLES if args.conformance else SPEED)]
    wanted = [(args.trace, args.units)] if args.trace else usual
    chosen = []
    for path, units in wanted:
        if not path.exists():
            raise BadInput(f"{path} is not here; give another trace with --trace FILE --units N.")
        trace = read_trace(path)
        part = trace if args.limit is None or args.conformance else trace.head(args.limit)
        chosen.append((path, part, units or trace.capacity or trace.peak_units()))
    return chosen


def _conformance(trace: Trace, units: int, stem: str, limit: int | None) -> tuple[dict[str, Any], list[Bar]]:
    from benchmarks.simulator_conformance import conformance

    if (trace.start_s < 0).any():
        raise BadInput(f"{trace.name} has jobs without a recorded start; conformance needs start_s or wait_s of every job.")
    return conformance(trace, units, stem, limit)


def _speed(path: Path, trace: Trace, units: int, *, whole: bool) -> tuple[dict[str, Any], list[Bar]]:
    """Jobs a second in the kernel and end to end, and the peers'. A part of a trace is not measured end to end."""
    from benchmarks.simulator_peers import accasim_easy, heapq_easy
    from ischeduler.simulator.kernel import starts
    from ischeduler.simulator.readers import read_trace
    from ischeduler.simulator.results import write_results

    def kernel(t: Trace) -> Any:
        return starts(t.submit_s, t.units, t.run_s, t.limit_s, units)

    stem, jobs = path.stem, len(trace)
    metrics: dict[str, Any] = {f"{stem}_jobs": jobs, f"{stem}_kernel_jobs_per_s": jobs / _best(lambda: kernel(trace))}
    bars: list[Bar] = [AtLeast(f"{stem}_kernel_jobs_per_s", KERNEL_BAR)]
    if whole:
        with tempfile.TemporaryDirectory() as folder:

            def everything() -> None:
                t = read_trace(path)
                write_results(Path(folder, "out.parquet"), t, kernel(t))

            metrics[f"{stem}_end_to_end_jobs_per_s"] = jobs / _best(everything)
        bars.append(AtLeast(f"{stem}_end_to_end_jobs_per_s", END_TO_END_BAR))
    metrics[f"{stem}_heapq_easy_jobs_per_s"] = jobs / heapq_easy(trace, units)
    few = min(jobs, PEER_JOBS)
    seconds = accasim_easy(trace, units, few)
    if seconds is not None:
        metrics[f"{stem}_accasim_first_{few}_jobs_per_s"] = few / seconds
    return metrics, bars


def _scale(most: int) -> tuple[dict[str, Any], list[Bar]]:
    from benchmarks.simulator_scale import growth, in_a_child

    sizes = [most // 16, most // 8, most // 4, most // 2, most]
    runs = [in_a_child(n, NODES, LOAD) for n in sizes]
    heavy = [in_a_child(n, NODES, HEAVY_LOAD) for n in sizes]
    last = runs[-1]
    metrics = {
        "synthetic_jobs": most, "synthetic_nodes": NODES, "synthetic_utilisation": last["utilisation"], "synthetic_seconds": last["seconds"],
        "synthetic_jobs_per_s": most / last["seconds"], "synthetic_peak_memory_mib": last["peak_mib"],
        "synthetic_growth_exponent": growth(sizes, [r["own_s"] for r in runs]),
        "overloaded_seconds": heavy[-1]["seconds"], "overloaded_mean_queue": heavy[-1]["queue_depth"],
        "overloaded_growth_exponent": growth(sizes, [r["own_s"] for r in heavy]),
    }  # fmt: skip
    return metrics, [Bar("synthetic_growth_exponent", GROWTH_BAR), Bar("synthetic_peak_memory_mib", MEMORY_BAR_MIB)]


def _best(action: Callable[[], Any]) -> float:
    """Seconds of the quickest of some runs; the first one, which loads the machine code, is not counted."""
    action()
    taken = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        action()
        taken.append(time.perf_counter() - began)
    return min(taken)


if __name__ == "__main__":
    sys.exit(main())
