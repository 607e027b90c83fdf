"""``python -m benchmarks.steptime [--truth FILE] [--limit N] [--json]``: step times of models nobody measured, against measurements.

Vision models (columns phase, gpu, model, Batch_Size, seconds) and transformers (NeuSight's labels). Coefficients are fitted inside the
run on the other model families of the same file, as a site that measured some models would; the shipped prior (which saw no
vision model of GPEmu, but NeuSight's latencies) and the datasheet roofline stand beside. Transformers' peers are NeuSight's own predictions of the same cells.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import mean, median

from benchmarks.coverage import Interval
from benchmarks.report import Bar, finish
from benchmarks.steptime_data import SHARED, BadTruth, Latency, PhaseTime, Truth, read, thinned
from benchmarks.steptime_logs import Logs
from benchmarks.steptime_models import TRACED_BATCH, group_of, transformer_samples, vision_samples
from benchmarks.steptime_peers import cells, neusight_errors
from benchmarks.steptime_study import Held, Sample, after_one_step, bounds, covered, datasheet, held_out, load, quantile
from ischeduler.core.errors import IschedError
from ischeduler.estimators.calibration.fit import Stiffness
from ischeduler.estimators.steptime.architectures import architecture_of
from ischeduler.estimators.steptime.roofline import residual

CARDS_OF_BARS = {"a100": "ampere", "v100": "volta"}
_BAR_FORWARD, _BAR_BACKWARD, _BAR_ONE_STEP, _BAR_LATENCY = 0.08, 0.10, 0.05, 0.10
_COVERAGE, _COVERAGE_WIDTH = 0.80, 0.05
_SMALL_BATCH = 8.0
"""One more batch to fit: batches drawn evenly are nearly all large, and large ones do not show what launches cost."""
Say = Callable[[str], None]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.steptime", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--truth", type=Path, help="a table or folder of measured step times (known by its columns)")
    parser.add_argument("--limit", type=int, metavar="N", help="a seeded sample of N models and N latencies")
    parser.add_argument("--all-cards", action="store_true", help="vision models on every card, not only on those of the bars")
    parser.add_argument("--cache", type=Path, help="folder of the models' operation logs")
    parser.add_argument("--json", action="store_true", help="only the closing line")
    args = parser.parse_args(arguments)
    say: Say = (lambda words: None) if args.json else (lambda words: print(f"  {words}", file=sys.stderr, flush=True))
    try:
        if args.limit is not None and args.limit < 1:
            raise BadTruth(f"--limit cannot be {args.limit}; give at least 1.")
        metrics, bars = study(read(args.truth), args.limit, args.all_cards, Logs(args.cache), args.json, say)
    except (BadTruth, IschedError) as error:
        print(f"benchmarks.steptime: {error}", file=sys.stderr)
        return 2
    return finish("steptime", metrics, bars, as_json=args.json)


def study(
    truth: Truth, limit: int | None, all_cards: bool, logs: Logs, quiet: bool, say: Say
) -> tuple[dict[str, float], list[Bar]]:
    """Metrics and bars of whatever the truth has. BadTruth when no model of it can be traced."""
    show: Say = (lambda words: None) if quiet else print
    metrics: dict[str, float] = {}
    bars: list[Bar] = []
    if truth.phases:
        vision(_on_cards(truth.phases, all_cards), limit, logs, metrics, bars, show, say)
    if truth.latencies:
        latencies = _some(truth.latencies, limit)
        transformers(Truth((), latencies, truth.configurations), logs, metrics, bars, show, say)
    for model, why in sorted(logs.missing.items()):
        show(f"left out: {model}: {why}")
    if not metrics:
        raise BadTruth("No model of the truth could be traced on a known card; see the reasons above or name models of torchvision.")
    metrics["models_left_out"] = len(logs.missing)
    return metrics, bars


def intervals(truth: Path | None, limit: int | None) -> Iterator[tuple[str, Interval]]:
    """Held-out passes and latencies with p10-p90 from the other families, for ``benchmarks.coverage``. BadTruth without data."""
    found, logs = read(truth), Logs()
    held = held_vision(_on_cards(found.phases, False), limit, logs, _silent) if found.phases else []
    promised = bounds([(h.sample.family, h.miss) for h in held]) if held else {}
    for h in held:
        low, high = promised[h.sample.family]
        about = f"{h.sample.card} {h.sample.model} {h.sample.phase} batch {h.sample.batch:g}"
        yield "step time of vision models, families unseen", _interval(about, h.seconds, low, high, h.sample.seconds)
    latencies = Truth((), _some(found.latencies, limit), found.configurations)
    ours, _, _, truths, family = cells(held_transformers(latencies, logs, _silent) if latencies.latencies else [])
    promised = bounds([(family[g], math.log(truths[g] / ours[g])) for g in ours])
    for group, seconds in ours.items():
        yield "transformer latency, families unseen", _interval(group, seconds, *promised[family[group]], truths[group])


def _interval(about: str, seconds: float, low: float, high: float, actual: float) -> Interval:
    bottom, top = sorted((seconds * math.exp(low), seconds * math.exp(high)))
    return Interval(about, bottom, min(max(seconds, bottom), top), top, actual)


def _silent(words: str) -> None:
    """Says nothing."""


def held_vision(phases: Sequence[PhaseTime], limit: int | None, logs: Logs, say: Say) -> list[Held]:
    """Every pass (of ``limit`` models) predicted without its family; empty where there is one family only."""
    samples = vision_samples(thinned(phases, keep=TRACED_BATCH), logs, say)
    if len({s.family for s in samples}) < 2:
        return []
    small = [p for p in phases if p.batch == _SMALL_BATCH]
    teachers = vision_samples(list(dict.fromkeys([*thinned(phases, keep=TRACED_BATCH), *small])), logs, say)
    models = sorted({s.model for s in samples})
    tested = models if limit is None else random.Random(0).sample(models, min(limit, len(models)))
    return held_out([s for s in samples if s.model in tested], teachers=teachers, stiffness=Stiffness.of_models(len(models)), say=say)


def held_transformers(truth: Truth, logs: Logs, say: Say) -> list[Held]:
    """The same of transformers' passes."""
    samples = transformer_samples(truth, logs, say)
    if len({s.family for s in samples}) < 2:
        return []
    fewest = round(mean(len({s.model for s in samples if s.card == c}) for c in {s.card for s in samples}))
    return held_out(samples, stiffness=Stiffness.of_models(fewest), say=say)


def vision(
    phases: Sequence[PhaseTime], limit: int | None, logs: Logs, metrics: dict[str, float], bars: list[Bar], show: Say, say: Say
) -> None:
    """Forward and backward passes, by card."""
    held = held_vision(phases, limit, logs, say)
    if not held:
        return
    models = len({h.sample.model for h in held})
    one = after_one_step(held)
    for phase in ("forward", "backward"):
        at_32 = [_error(s, h.sample) for h, s in after_one_step(held, TRACED_BATCH) if h.sample.phase == phase]
        metrics[f"vision_{phase}_after_a_step_at_batch_{TRACED_BATCH}_median"] = median(at_32)
    show(f"\nVision models, families unseen: {models} models, {len(held)} points; errors of a pass, median / p90")
    show(f"{'':<28}{'fitted on others':>18}{'after one step':>18}{'shipped prior':>18}{'datasheet roofline':>20}")
    for card in sorted({h.sample.card for h in held}):
        _vision_card(card, held, one, metrics, bars, show)
    prior = [(residual(h.sample.kernels, h.sample.device), math.log(h.sample.seconds / _prior_s(h.sample))) for h in held]
    metrics["vision_shipped_prior_coverage"] = mean(low <= miss <= high for (low, high), miss in prior)
    misses = [(h.sample.family, h.miss) for h in held]
    _coverage("vision", misses, metrics, bars)
    corrected = [(h.sample.family, math.log(h.sample.seconds / seconds)) for h, seconds in one]
    metrics["vision_coverage_after_one_step"] = covered(corrected)


def _vision_card(
    card: str, held: Sequence[Held], one: Sequence[tuple[Held, float]], metrics: dict[str, float], bars: list[Bar], show: Say
) -> None:
    short = next((k for k, kind in CARDS_OF_BARS.items() if k in card.lower() and architecture_of(card).name == kind), "")
    for phase, bar in (("forward", _BAR_FORWARD), ("backward", _BAR_BACKWARD)):
        mine = [h for h in held if h.sample.card == card and h.sample.phase == phase]
        columns = {
            "": [_error(h.seconds, h.sample) for h in mine],
            "_after_one_step": [_error(s, h.sample) for h, s in one if h.sample.card == card and h.sample.phase == phase],
            "_shipped_prior": [_error(_prior_s(h.sample), h.sample) for h in mine],
            "_datasheet": [_error(datasheet(h.sample), h.sample) for h in mine],
        }
        show(f"{card[:20] + ' ' + phase:<28}" + "".join(
            f"{(f'{median(e):.1%} / {quantile(e, 0.9):.1%}' if e else '-'):>18}" for e in columns.values()))
        name = f"{short or card.lower()}_{phase}"
        metrics |= {f"{name}{suffix}_median": median(errors) for suffix, errors in columns.items() if errors}
        if short and mine:
            bars.append(Bar(f"{name}_median", bar))
            if columns["_after_one_step"]:
                bars.append(Bar(f"{name}_after_one_step_median", _BAR_ONE_STEP))


def transformers(truth: Truth, logs: Logs, metrics: dict[str, float], bars: list[Bar], show: Say, say: Say) -> None:
    """Latencies of whole passes: mean absolute error, as NeuSight reports it."""
    held = held_transformers(truth, logs, say)
    if not held:
        return
    ours, prior, sheet, truths, family = cells(held)
    errors = {g: abs(ours[g] / truths[g] - 1) for g in ours}
    peers = neusight_errors(SHARED / "neusight_summary", [one for one in truth.latencies if group_of(one) in errors])
    show(f"\nTransformers, families unseen: {len(errors)} latencies; mean error / median")
    rows = {
        "fitted on others": list(errors.values()), "shipped prior, in sample": [abs(prior[g] / truths[g] - 1) for g in prior],
        "datasheet roofline": [abs(sheet[g] / truths[g] - 1) for g in sheet],
        **{f"{name} (its own column)": list(found.values()) for name, found in peers.items()},
        **{f"ours, where {name} has a figure": [errors[g] for g in found] for name, found in peers.items() if name == "neusight"},
    }
    for name, values in rows.items():
        show(f"{name:<36}{mean(values):>8.1%} / {median(values):.1%}   n = {len(values)}")
        key = name.replace(" (its own column)", "").replace(",", "").replace(" ", "_")
        metrics[f"transformer_{key}_mean"] = mean(values)
    metrics["transformer_latency_mean"] = mean(errors.values())
    bars.append(Bar("transformer_latency_mean", _BAR_LATENCY))
    _coverage("transformer", [(family[g], math.log(truths[g] / ours[g])) for g in ours], metrics, bars)


def _coverage(name: str, misses: Sequence[tuple[str, float]], metrics: dict[str, float], bars: list[Bar]) -> None:
    """p10-p90 of each family from the other families' errors; 75-85 % must be inside."""
    if len({family for family, _ in misses}) < 2:
        return  # nobody else's errors to read an interval off
    metrics[f"{name}_coverage"] = covered(misses)
    metrics[f"{name}_coverage_distance_from_80"] = abs(metrics[f"{name}_coverage"] - _COVERAGE)
    bars.append(Bar(f"{name}_coverage_distance_from_80", _COVERAGE_WIDTH))


def _prior_s(sample: Sample) -> float:
    """What the shipped coefficients say."""
    return load(sample, sample.device.coefficients.phases[sample.phase]).seconds


def _error(seconds: float, sample: Sample) -> float:
    return abs(seconds / sample.seconds - 1)


def _some(latencies: Sequence[Latency], limit: int | None) -> tuple[Latency, ...]:
    return tuple(latencies) if limit is None else tuple(random.Random(0).sample(latencies, min(limit, len(latencies))))


def _on_cards(phases: Sequence[PhaseTime], all_cards: bool) -> list[PhaseTime]:
    """Those on the bars' cards, or on all where none of them is one."""
    wanted = [p for p in phases if any(k in p.card.lower() for k in CARDS_OF_BARS)]
    return list(phases) if all_cards or not wanted else wanted


if __name__ == "__main__":
    sys.exit(main())
