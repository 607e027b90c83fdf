"""``python -m benchmarks.memory [--truth FILE] [--limit N] [--json]``: estimated beside measured GPU memory.

Two kinds of truth, known by their columns: GPEmu's table of allocated memory (gpu, model, batch_size, peak) and GPUMemNet's
table of nvidia-smi's maximum for timm models (Filename, Batch Size, Max GPU Memory (MiB)). Without ``--truth`` both are looked
for beside the project, and failures over random models and the time of tracing are measured too. ``--limit`` takes a seeded
sample, whole models, one of each family in turn. Traces are kept in the user's cache: a second run takes a minute.

Nothing is fitted on a table's own models: the device total's calibration is learned on other families (five folds), as a site
would learn it from its own measurements.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import memory_models as models
from benchmarks.memory_truth import BadTruth, Point, Truth, median, quantile, read, sample
from benchmarks.report import Bar, finish
from ischeduler.core.errors import BadInput
from ischeduler.core.sizes import MIB
from ischeduler.estimators.memory.calibration import DeviceCalibration, Measured
from ischeduler.estimators.memory.replay import replayed
from ischeduler.estimators.memory.spec import TraceSpec
from ischeduler.estimators.memory.tracer import Tracer

SHARED = Path(__file__).resolve().parents[1].parent / "shared" / "data"
DEFAULTS = (SHARED / "gpemu" / "memory.parquet", SHARED / "gpumemnet" / "timm_a100_40gb_nvidia_smi.csv")
TIMES = (("resnet50", "timm:resnet50", "sgd", 3.0), ("bert_base", "transformers:bert-base-uncased", "adamw", 8.0),
         ("gpt2_xl", "transformers:gpt2-xl", "adamw", 20.0))
Metrics = dict[str, Any]


def errors(metrics: Metrics, name: str, pairs: Sequence[tuple[float, float]]) -> None:
    """Median and 90 % quantile of the relative error of (estimate, truth), and the share of estimates that are too low."""
    off = [abs(estimate / truth - 1) for estimate, truth in pairs]
    metrics[f"{name}_median_error"] = median(off)
    metrics[f"{name}_p90_error"] = quantile(off, 0.9)


def allocated(truth: Truth, tracer: Tracer, metrics: Metrics) -> list[Bar]:
    """GPEmu's kind: ``max_memory_allocated`` as sampled by hooks."""
    traced = models.trace_all(tracer, "torchvision", truth.points, models.GPEMU, say)
    pairs: dict[str, list[tuple[float, float]]] = defaultdict(list)
    peers: dict[str, list[tuple[float, float]]] = defaultdict(list)
    peaks: dict[tuple[str, int], float] = {}
    for point in truth.points:
        report = traced.of(point.model, point.batch)
        if report is None or report.log is None:
            continue
        key = point.model, point.batch
        if key not in peaks:
            peaks[key] = replayed(report.log, point.batch).peak_allocated / MIB
        pairs[point.gpu].append((peaks[key], point.truth_mib))
        peers["tensor_sum"].append((models.tensors(report, point.batch) / MIB, point.truth_mib))
        peers["accelerate"].append((models.parameter_count(report) / MIB, point.truth_mib))
    every = [pair for found in pairs.values() for pair in found]
    metrics |= {"allocated_points": len(every), "allocated_models": len(traced.reports),
                "allocated_excluded": truth.excluded, "allocated_failures": dict(traced.failures)}
    errors(metrics, "allocated_all", every)
    a100 = [pair for gpu, found in pairs.items() if "A100" in gpu for pair in found]
    bars = [Bar("allocated_all_median_error", 0.005), Bar("allocated_all_p90_error", 0.05)]
    if a100:
        errors(metrics, "allocated_a100", a100)
        bars += [Bar("allocated_a100_median_error", 0.003), Bar("allocated_a100_p90_error", 0.01)]
    for gpu, found in sorted(pairs.items()):
        metrics[f"allocated_{gpu}_median_error"] = median([abs(e / t - 1) for e, t in found])
    for peer, found in peers.items():
        errors(metrics, f"allocated_peer_{peer}", found)
    return bars


def device_total(truth: Truth, tracer: Tracer, metrics: Metrics) -> list[Bar]:
    """nvidia-smi's kind, with the calibration learned on other families."""
    traced = models.trace_all(tracer, "timm", truth.points, models.SGD, say)
    usable = [(p, r) for p in truth.points if (r := traced.of(p.model, p.batch)) is not None]
    points = [p for p, _ in usable]
    beside = [models.measured(p, r) for p, r in usable]
    calibrations = models.held_out(points, beside)
    below, above = _judged(metrics, "device", beside, calibrations)
    fitted = sorted({(c.searching.searched, c.searching.kept) for c in calibrations})
    metrics |= {
        "device_points": len(points), "device_models": len({p.model for p in points}), "device_excluded": truth.excluded,
        "device_failures": dict(traced.failures), "device_under_p90": above, "device_coverage": 1 - below - above,
        "device_workspaces_searched_kept": fitted,
    }
    ruled = [models.by_rules(one) for one in beside]
    bare = [models.without_workspaces(p, r, one) for (p, r), one in zip(usable, beside, strict=True)]
    for name, others in (("device_by_rules", ruled), ("device_no_workspaces", bare)):
        below, above = _judged(metrics, name, others, models.held_out(points, others))
        metrics |= {f"{name}_under_p90": above, f"{name}_coverage": 1 - below - above}
    metrics |= {f"device_small_site_{k}": v for k, v in models.small_sites(points, beside).items()}
    metrics["device_coverage_off"] = abs(metrics["device_coverage"] - 0.80)
    _peers(metrics, points, usable)
    return [Bar("device_median_error", 0.03), Bar("device_p90_error", 0.10), Bar("device_under_p90", 0.10),
            Bar("device_coverage_off", 0.05)]


def _judged(
    metrics: Metrics, name: str, beside: Sequence[Measured], calibrations: Sequence[DeviceCalibration]
) -> tuple[float, float]:
    """Errors of the middle and the mean width of p10-p90 beside the truth; returns the shares of runs below p10 and above p90."""
    pairs: list[tuple[float, float]] = []
    below = above = 0
    width = 0.0
    for one, calibration in zip(beside, calibrations, strict=True):
        low, middle, high = calibration.quantiles(one.reserved, one.inputs, one.borrowers, one.benchmark)
        pairs.append((middle, one.total))
        below += one.total < low
        above += one.total > high
        width += (high - low) / one.total
    errors(metrics, name, pairs)
    metrics[f"{name}_interval_width"] = width / len(beside)
    return below / len(beside), above / len(beside)


def _peers(metrics: Metrics, points: Sequence[Point], usable: Sequence[tuple[Point, Any]]) -> None:
    errors(metrics, "device_peer_tensor_sum", [(models.tensors(r, p.batch) / MIB, p.truth_mib) for p, r in usable])
    errors(metrics, "device_peer_accelerate", [(models.parameter_count(r) / MIB, p.truth_mib) for p, r in usable])
    fake = [(p.peer_mib, p.truth_mib) for p in points if p.peer_mib is not None]
    if fake:
        errors(metrics, "device_peer_gpumemnet_faketensor", fake)
    lines = models.two_points(points)
    two = [(lines[p.model, p.batch], p.truth_mib) for p in points if (p.model, p.batch) in lines]
    if two:
        errors(metrics, "device_peer_two_point_profiling", two)


def failures(tracer: Tracer, metrics: Metrics, count: int, transformers: Sequence[str]) -> list[Bar]:
    """The share of models that get no estimate from a trace, each with its reason."""
    tried, reasons = models.failing(tracer, count, transformers, say)
    metrics |= {"failed_models_tried": tried, "failed_reasons": reasons, "failed_share": len(reasons) / tried}
    return [Bar("failed_share", 0.03)]


def times(metrics: Metrics) -> list[Bar]:
    """Seconds of a first trace, as a whole subprocess, and of the second answer."""
    bars: list[Bar] = []
    second: list[float] = []
    for name, model, optimizer, limit in TIMES:
        taken: list[float] = []
        for _ in range(3):
            with tempfile.TemporaryDirectory() as folder:
                spec = TraceSpec(model, 8, optimizer=optimizer)
                taken.append(_seconds(Tracer(Path(folder)), spec))
                second.append(_seconds(Tracer(Path(folder)), spec))
        metrics[f"trace_{name}_s"] = min(taken)
        bars.append(Bar(f"trace_{name}_s", limit))
    metrics["cached_answer_s"] = max(second)
    return [*bars, Bar("cached_answer_s", 0.05)]


def _seconds(tracer: Tracer, spec: TraceSpec) -> float:
    began = time.perf_counter()
    tracer.report(spec)
    return time.perf_counter() - began


def say(text: str) -> None:
    """Progress, away from the result."""
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--truth", type=Path, help="a table of measured memory, parquet or csv")
    parser.add_argument("--limit", type=int, help="about this many points of each table, and a tenth of the random models")
    parser.add_argument("--json", action="store_true", help="only the closing line")
    args = parser.parse_args()
    metrics: Metrics = {}
    bars: list[Bar] = []
    tracer = Tracer(time_limit_s=300.0)
    try:
        if args.limit is not None and args.limit < 1:
            raise BadTruth(f"--limit must be at least 1, not {args.limit}.")
        for path in [args.truth] if args.truth else DEFAULTS:
            truth = sample(read(path), args.limit)
            judge = allocated if truth.kind == "allocated" else device_total
            bars += judge(truth, tracer, metrics)
    except (BadTruth, BadInput) as error:
        print(error, file=sys.stderr)
        return 2
    if not args.truth:
        few = args.limit is not None
        bars += failures(tracer, metrics, 30 if few else 300, models.TRANSFORMERS[:5] if few else models.TRANSFORMERS)
        bars += times(metrics)
    return finish("memory", metrics, bars, as_json=args.json)


if __name__ == "__main__":
    sys.exit(main())
