"""Traces for the memory benchmark, and the peers it is compared with."""

from __future__ import annotations

import contextlib
import io
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from benchmarks.memory_truth import Point
from ischeduler.core.errors import IschedError
from ischeduler.core.sizes import MIB
from ischeduler.estimators.memory.calibration import DeviceCalibration, Measured, learn
from ischeduler.estimators.memory.replay import replayed, tensor_sum
from ischeduler.estimators.memory.spec import TraceReport, TraceSpec
from ischeduler.estimators.memory.tracer import Tracer
from ischeduler.estimators.memory.workspaces import Borrowers, Workspaces, borrowers

K = TypeVar("K")
TRACED_BATCH, SECOND_BATCH = 16, 32
SGD = {"optimizer.momentum": "0.9", "optimizer.weight_decay": "0.0001"}
GPEMU = {**SGD, "zero_grad": "keep"}
"""GPEmu's script zeroes gradients before the backward pass; gradients then stay allocated over the forward pass."""
AT_SITE = Workspaces("ampere", benchmark=True)
"""timm's training script on an A100."""


@dataclass(frozen=True)
class Traced:
    """Reports by model, reports of single batches where one log does not serve all, and a reason for each that failed."""

    reports: Mapping[str, TraceReport]
    single: Mapping[tuple[str, int], TraceReport]
    failures: Mapping[str, str]

    def of(self, model: str, batch: int) -> TraceReport | None:
        """The report whose log holds for that batch."""
        report = self.reports.get(model)
        if report is None or report.log is None:
            return None
        if report.log.linear or report.log.batch == batch:
            return report
        return self.single.get((model, batch))


def trace_all(
    tracer: Tracer, library: str, points: Sequence[Point], options: Mapping[str, str], say: Callable[[str], None],
    processes: int = 2,
) -> Traced:
    """One trace a model (two batches at once), from the cache where it was made before."""
    models = sorted({p.model for p in points})
    base = TraceSpec("", TRACED_BATCH, second_batch=SECOND_BATCH, options=dict(options))
    reports, failures = _many(tracer, {m: _named(base, f"{library}:{m}") for m in models}, say, processes)
    bent = {(p.model, p.batch) for p in points
            if (r := reports.get(p.model)) is not None and r.log is not None and not r.log.linear and p.batch != r.log.batch}
    single, _ = _many(tracer, {key: _named(base, f"{library}:{key[0]}", key[1]) for key in sorted(bent)}, say, processes)
    return Traced(reports, single, failures)


def _named(base: TraceSpec, model: str, batch: int = 0) -> TraceSpec:
    if batch:
        return TraceSpec(model, batch, options=base.options)
    return TraceSpec(model, base.batch, second_batch=base.second_batch, options=base.options)


def _many(
    tracer: Tracer, wanted: Mapping[K, TraceSpec], say: Callable[[str], None], processes: int
) -> tuple[dict[K, TraceReport], dict[K, str]]:
    reports: dict[K, TraceReport] = {}
    failures: dict[K, str] = {}
    with ThreadPoolExecutor(processes) as pool:
        answers = pool.map(partial(_one, tracer), wanted.values())
        for done, (key, answer) in enumerate(zip(wanted, answers, strict=True), 1):
            if isinstance(answer, str):
                failures[key] = answer
            else:
                reports[key] = answer
            if done % 25 == 0:
                say(f"{done} of {len(wanted)} traced")
    return reports, failures


def _one(tracer: Tracer, spec: TraceSpec) -> TraceReport | str:
    try:
        report = tracer.report(spec)
    except IschedError as error:
        return str(error)
    if report.backend == "parameters":
        return "; ".join(report.notes) or "only its parameters could be counted"
    return report


def measured(point: Point, report: TraceReport, rules: Workspaces = AT_SITE) -> Measured:
    """A truth point beside its replay."""
    assert report.log is not None
    reserved = replayed(report.log, point.batch, workspaces=rules).peak_reserved
    inputs = report.inputs_bytes / report.batch * point.batch
    return Measured(point.truth_mib * MIB, reserved, inputs, borrowers(report.log, point.batch), rules.benchmark, point.family)


def by_rules(one: Measured) -> Measured:
    """The same without a family: nothing can be held out, so nothing of the workspaces is fitted."""
    return replace(one, family="")


def without_workspaces(point: Point, report: TraceReport, one: Measured) -> Measured:
    """The same as if neither cuDNN nor cuBLAS borrowed anything."""
    assert report.log is not None
    return replace(one, reserved=replayed(report.log, point.batch).peak_reserved, borrowers=Borrowers(), family="")


def held_out(points: Sequence[Point], beside: Sequence[Measured], folds: int = 5) -> list[DeviceCalibration]:
    """For each point the calibration learned on the other folds' families, as a site would with its own measurements."""
    families = sorted({p.family for p in points})
    fold = {family: place % folds for place, family in enumerate(families)}
    learned = [
        learn([m for p, m in zip(points, beside, strict=True) if fold[p.family] != number]) for number in range(folds)
    ]
    return [learned[fold[p.family]] for p in points]


def small_sites(points: Sequence[Point], beside: Sequence[Measured], sites: int = 30, models: int = 12) -> dict[str, float]:
    """What a fit of the workspaces does for sites that measured few models: a seeded draw of one model from each of some families.

    Judged on all other families: at how many sites one was used, how often it was better or worse than the rules in the mean
    relative error (at most 1/2 each), and both errors' means over all sites. Empty where a draw would leave too little.
    """
    of_model: dict[str, list[Measured]] = {}
    of_family: dict[str, set[str]] = {}
    for point, one in zip(points, beside, strict=True):
        of_model.setdefault(point.model, []).append(one)
        of_family.setdefault(point.family, set()).add(point.model)
    if len(of_family) < 2 * models:
        return {}
    source = random.Random(0)
    used = better = worse = 0
    sums = [0.0, 0.0]
    for _ in range(sites):
        drawn = source.sample(sorted(of_family), models)
        own = [one for family in drawn for one in of_model[source.choice(sorted(of_family[family]))]]
        others = [one for one in beside if one.family not in drawn]
        fitted = learn(own)
        errors = [_mean_error(c, others) for c in (fitted, learn([by_rules(one) for one in own]))]
        used += fitted.searching.searched > 0 or fitted.searching.kept > 0
        better += errors[0] < errors[1]
        worse += errors[0] > errors[1]
        sums = [total + error for total, error in zip(sums, errors, strict=True)]
    return {"count": sites, "fits_used": used, "fits_better": better, "fits_worse": worse,
            "fitted_mean_error": sums[0] / sites, "by_rules_mean_error": sums[1] / sites}


def _mean_error(calibration: DeviceCalibration, beside: Sequence[Measured]) -> float:
    middles = [calibration.quantiles(one.reserved, one.inputs, one.borrowers, one.benchmark)[1] for one in beside]
    return sum(min(0.5, abs(middle / one.total - 1)) for middle, one in zip(middles, beside, strict=True)) / len(beside)


def parameter_count(report: TraceReport) -> float:
    """``accelerate estimate-memory``: four times the weights for training with Adam, whatever the batch."""
    return 4.0 * report.parameters * 4


def tensors(report: TraceReport, batch: int) -> float:
    """The tensor-level sum."""
    assert report.log is not None
    return float(tensor_sum(report.log, batch))


def two_points(points: Sequence[Point]) -> dict[tuple[str, int], float]:
    """Two-point profiling: the line through a model's two smallest measured batches, for the others. MiB."""
    by_model: dict[str, list[Point]] = {}
    for point in points:
        by_model.setdefault(point.model, []).append(point)
    found: dict[tuple[str, int], float] = {}
    for series in by_model.values():
        ordered = sorted(series, key=lambda p: p.batch)
        if len(ordered) < 3:
            continue
        first, second = ordered[:2]
        slope = (second.truth_mib - first.truth_mib) / (second.batch - first.batch)
        found |= {(p.model, p.batch): first.truth_mib + slope * (p.batch - first.batch) for p in ordered[2:]}
    return found


def random_models(count: int, seed: int = 0) -> list[str]:
    """That many of timm's models by a seeded draw."""
    from ischeduler.estimators.memory import torch_private

    torch_private.mend_torchvision()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        import timm

    names = timm.list_models()
    return random.Random(seed).sample(names, min(count, len(names)))


TRANSFORMERS = (
    "bert-base-uncased", "bert-large-uncased", "roberta-base", "distilbert-base-uncased", "gpt2", "gpt2-medium", "gpt2-large",
    "gpt2-xl", "opt-125m", "opt-1.3b", "t5-small", "t5-base", "vit-base-patch16-224", "vit-large-patch16-224", "electra", "albert",
    "llama", "mistral", "gpt_neox", "deberta-v2",
)
"""Twenty configurations: known sizes, and model types with their library's default sizes."""


def failing(
    tracer: Tracer, count: int, transformers: Iterable[str], say: Callable[[str], None], processes: int = 2
) -> tuple[int, dict[str, str]]:
    """How many models were tried, and a reason for each without an estimate from a trace."""
    wanted = {f"timm:{m}": TraceSpec(f"timm:{m}", TRACED_BATCH, second_batch=SECOND_BATCH, options=SGD) for m in random_models(count)}
    wanted |= {f"transformers:{m}": TraceSpec(f"transformers:{m}", 4, optimizer="adamw") for m in transformers}
    _, failures = _many(tracer, wanted, say, processes)
    return len(wanted), failures
