"""``python -m benchmarks.steptime_prior --write``: fits the shipped coefficients (``steptime/prior.json``) to licensed measurements.

NeuSight's transformers in fp32 on ten cards (MIT), timm's training throughput with mixed precision on an RTX 3090 (Apache-2.0), Gavel's
ResNet-50 in fp32 on V100, P100 and K80 (MIT). Nothing else is read. Without ``--write`` it only says how well it would do.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.steptime_data import SHARED, BadTruth, read
from benchmarks.steptime_logs import Logs, rescaled
from benchmarks.steptime_models import TRACED_BATCH, device_of, transformer_samples
from benchmarks.steptime_study import Sample, after_one_step, held_out, load, quantile
from ischeduler.estimators.calibration.fit import START, Point, Stiffness, fit_phase
from ischeduler.estimators.steptime import prior
from ischeduler.estimators.steptime.coefficients import Coefficients, Shares
from ischeduler.estimators.steptime.devices import Device
from ischeduler.estimators.steptime.work import KINDS, Work, kernels

TIMM = SHARED / "timm" / "benchmark-train-amp-nchw-pt112-cu113-rtx3090.csv"
TIMM_CARD = "rtx3090"
GAVEL = SHARED / "gavel" / "simulation_throughputs.json"
GAVEL_CARDS = {"v100": "Tesla_V100-SXM2-16GB", "p100": "Tesla_P100-PCIE-16GB", "k80": "Tesla_K80"}
TIMM_MODELS = (
    "resnet50", "resnet18", "resnet101", "resnext50_32x4d", "vgg16", "densenet121", "mobilenetv2_100",
    "mobilenetv3_large_100", "efficientnet_b0", "regnety_032", "convnext_tiny", "vit_base_patch16_224",
    "swin_tiny_patch4_window7_224", "wide_resnet50_2", "hrnet_w18", "inception_v3", "resnet34", "resnet152", "seresnet50",
    "cspdarknet53", "repvgg_a2", "vovnet39a", "ghostnet_100", "res2net50_26w_4s", "dpn68", "vit_small_patch16_224",
    "deit_tiny_patch16_224", "mixer_b16_224", "resmlp_12_224", "efficientnetv2_rw_t", "fbnetc_100", "skresnet34",
    "gernet_m", "rexnet_100", "vgg19_bn", "efficientnet_b3", "dla60", "xception", "mixnet_s", "resnest50d", "darknet53",
    "nfnet_l0", "poolformer_s12", "pit_s_224", "regnetx_032", "coat_lite_small", "spnasnet_100", "lcnet_100", "inception_v4",
)
STIFFNESS = Stiffness(shared=1e-4, device=1e-3, level=1e-4, exponent=1e-3)
PHASES = ("forward", "backward")
_ROUNDS = 3
_FEWEST_IMAGES = 64
"""Gavel's steps include loading and Python's own time, which smaller batches do not hide."""


class Whole:
    """A step of which only the sum of its phases was measured."""

    def __init__(self, card: str, model: str, batch: float, seconds: float, parts: Mapping[str, tuple[Work, ...]], device: Device):
        self.card, self.model, self.batch, self.seconds = card, model, batch, seconds
        self.parts, self.device = parts, device

    def samples(self, shares: Mapping[str, Shares]) -> list[Sample]:
        """The phases, each with its predicted share of the measured sum."""
        made = [Sample(self.card, self.model, p, self.batch, 1.0, self.parts[p], self.device, self._group) for p in PHASES]
        seconds = [load(s, shares[s.phase]).seconds for s in made]
        whole = sum(seconds) + _update_s(self)
        return [replace(s, seconds=self.seconds * part / whole) for s, part in zip(made, seconds, strict=True)]

    @property
    def _group(self) -> str:
        return f"{self.card}/{self.model}-{self.batch}"


def _update_s(whole: Whole) -> float:
    """The optimizer's part, by the start figures: small, and nowhere measured apart."""
    return load(Sample(whole.card, whole.model, "optimizer", whole.batch, 1.0, whole.parts["optimizer"], whole.device), START).seconds


def timm_steps(logs: Logs) -> list[Whole]:
    """Training steps on the RTX 3090."""
    device = device_of(TIMM_CARD)
    found: list[Whole] = []
    with TIMM.open(newline="", encoding="utf-8") as lines:
        rows = {r["model"]: r for r in csv.DictReader(lines)}
    for model in TIMM_MODELS:
        row = rows.get(model)
        if row is None or device is None:
            continue
        side, batch = int(row["train_img_size"]), int(row["train_batch_size"])
        log = logs.rows(f"timm:{model}", batch, precision="fp16", input_shape=(3, side, side))
        if log:
            found.append(Whole(TIMM_CARD, model, batch, float(row["train_step_time"]) / 1e3, kernels(log), device))
    return found


def gavel_steps(logs: Logs) -> list[Whole]:
    """ResNet-50 on ImageNet, alone on one card, at the batches that keep it busy."""
    log = logs.rows("torchvision:resnet50", TRACED_BATCH)
    found: list[Whole] = []
    for card, jobs in json.loads(GAVEL.read_text()).items():
        device = device_of(GAVEL_CARDS[card]) if card in GAVEL_CARDS else None
        for job, rates in jobs.items():
            match = re.fullmatch(r"\('ResNet-50 \(batch size (\d+)\)', 1\)", job)
            if match and device is not None and log and rates.get("null") and int(match[1]) >= _FEWEST_IMAGES:
                batch = int(match[1])
                works = kernels(rescaled(log, TRACED_BATCH, batch))
                found.append(Whole(GAVEL_CARDS[card], "resnet50", batch, 1 / rates["null"], works, device))
    return found


def fitted(samples: Sequence[Sample], wholes: Sequence[Whole]) -> tuple[dict[str, Shares], dict[str, dict[str, Shares]]]:
    """(shared figures by phase, card -> figures by phase): sums are split as predicted, fitted, and split again."""
    shared: dict[str, Shares] = dict.fromkeys(PHASES, START)
    own: dict[str, dict[str, Shares]] = {}
    for _ in range(_ROUNDS if wholes else 1):
        split = [s for w in wholes for s in w.samples(own.get(w.card, shared))]
        own = {}
        for phase in PHASES:
            points = [_point(s) for s in (*samples, *split) if s.phase == phase]
            shared[phase], cards = fit_phase(points, stiffness=STIFFNESS)
            for card, shares in cards.items():
                own.setdefault(card, {})[phase] = shares
    return shared, {card: {**shared, **phases} for card, phases in own.items()}


def _point(sample: Sample) -> Point:
    return Point(replace(sample.device, name=sample.card), sample.kernels, "fp32", sample.seconds)


def as_shipped(samples: Sequence[Sample], wholes: Sequence[Whole]) -> dict[str, list[float]]:
    """Family -> log(measured / predicted) of its steps by a prior that saw nothing of the family, nor, where its architecture
    has several cards, of the card: what a user's model meets on a card of a known architecture."""
    misses: dict[str, list[float]] = {}
    split = [s for w in wholes for s in w.samples(dict.fromkeys(PHASES, START))]
    for family in sorted({s.family for s in (*samples, *split)}):
        rest = [w for w in wholes if w.samples(dict.fromkeys(PHASES, START))[0].family != family]
        shared, own = fitted([s for s in samples if s.family != family], rest)
        kinds = {s.card: s.device.architecture for s in (*samples, *split)}
        for card in sorted({s.card for s in (*samples, *split) if s.family == family}):
            cousins = [c for c in own if kinds[c] == kinds[card]]
            cousins = [c for c in cousins if c != card] or cousins
            shares = {p: _middle([own[c][p] for c in cousins]) for p in PHASES} if cousins else shared
            steps: dict[str, list[Sample]] = {}
            for sample in samples:
                if (sample.family, sample.card) == (family, card):
                    steps.setdefault(sample.group, []).append(sample)
            for parts in steps.values():
                misses.setdefault(family, []).append(_miss(parts, shares))
            for whole in wholes:
                parts = whole.samples(shares)
                if (parts[0].family, whole.card) == (family, card):
                    misses.setdefault(family, []).append(_whole_miss(whole, parts, shares))
    return misses


def _miss(parts: Sequence[Sample], shares: Mapping[str, Shares]) -> float:
    return math.log(sum(s.seconds for s in parts) / sum(load(s, shares[s.phase]).seconds for s in parts))


def _whole_miss(whole: Whole, parts: Sequence[Sample], shares: Mapping[str, Shares]) -> float:
    return math.log(whole.seconds / (sum(load(s, shares[s.phase]).seconds for s in parts) + _update_s(whole)))


def unseen_cards(samples: Sequence[Sample]) -> dict[str, list[float]]:
    """Architecture -> log(measured / predicted) of latencies on its cards, all of which were left out."""
    misses: dict[str, list[float]] = {}
    for architecture in sorted({s.device.architecture for s in samples}):
        shared, _ = fitted([s for s in samples if s.device.architecture != architecture], [])
        misses[architecture] = [
            math.log(s.seconds / load(s, shared[s.phase]).seconds) for s in samples if s.device.architecture == architecture
        ]
    return misses


def unlike_models(samples: Sequence[Sample], wholes: Sequence[Whole]) -> dict[str, list[float]]:
    """Family -> log(measured / predicted) of steps of a kind that was left out whole: vision from transformers alone, and one
    source from others."""
    misses: dict[str, list[float]] = {}
    for card in sorted({w.card for w in wholes}):
        shared, own = fitted(samples, [w for w in wholes if (w.card == TIMM_CARD) != (card == TIMM_CARD)])
        shares = own.get(card, shared)
        for whole in (w for w in wholes if w.card == card):
            parts = whole.samples(shares)
            misses.setdefault(parts[0].family, []).append(_whole_miss(whole, parts, shares))
    return misses


def document(logs: Logs) -> dict[str, Any]:
    """The prior with its provenance and residuals."""
    truth = read(SHARED / "neusight")
    samples = transformer_samples(truth, logs, lambda words: None)
    wholes = [*timm_steps(logs), *gavel_steps(logs)]
    shared, own = fitted(samples, wholes)
    split = [s for w in wholes for s in w.samples(own[w.card])]
    held = held_out([*samples, *split], stiffness=STIFFNESS, say=lambda words: print(f"  {words}", file=sys.stderr, flush=True))
    after = [math.log(h.sample.seconds / seconds) for h, seconds in after_one_step(held)]
    shipped = as_shipped(samples, wholes)
    language = {s.family for s in samples}
    products = {f: m for f, m in shipped.items() if f in language}
    vision = {f: m for f, m in shipped.items() if f not in language}
    unseen = unseen_cards(samples)
    unlike = unlike_models(samples, wholes)
    corrected = _interval(after, least=0.10)
    places, kinds = of_groups(unseen), of_groups(unlike)
    anywhere = min(places[0], kinds[0]), max(places[1], kinds[1])
    architectures = {"": _coefficients(shared, anywhere, anywhere, corrected, "all architectures")}
    for name in sorted({s.device.architecture for s in (*samples, *split)} - {""}):
        cards = sorted({s.card for s in (*samples, *split) if s.device.architecture == name})
        phases = {p: _middle([own[c][p] for c in cards]) for p in PHASES}
        ways = {f: [*vision.get(f, ()), *unlike.get(f, ())] for f in {*vision, *unlike}}
        architectures[name] = _coefficients(phases, of_groups(ways), of_groups(products), corrected, ", ".join(cards))
    return {
        "schema": "isched.steptime-prior/1", "architectures": architectures,
        "provenance": _provenance(len(samples), wholes, {
            "unseen transformer families and cards": _all(products), "unseen vision families": _all(vision),
            "unseen architectures": _all(unseen), "vision models from other sources": _all(unlike), "after one step": after,
        }),
    }


def of_groups(misses: Mapping[str, Sequence[float]]) -> tuple[float, float]:
    """p10 and p90 to state of a group nobody saw: the tenth of the groups' own p10s and p90s that are widest, the very widest
    where there are fewer than nineteen groups (group-wise conformal ranks)."""
    rank = max(0, math.floor(0.1 * (len(misses) + 1)) - 1)
    lows = sorted(quantile(group, 0.1) for group in misses.values())
    highs = sorted((quantile(group, 0.9) for group in misses.values()), reverse=True)
    return min(0.0, lows[rank]), max(0.0, highs[rank])


def _all(groups: Mapping[str, Sequence[float]]) -> list[float]:
    return [m for group in groups.values() for m in group]


def _provenance(
    latencies: int, wholes: Sequence[Whole], residuals: Mapping[str, Sequence[float]]
) -> dict[str, Any]:
    timm = sum(w.card == TIMM_CARD for w in wholes)
    return {
        "command": "python -m benchmarks.steptime_prior --write", "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "data": [
            {"name": "NeuSight labels, sitar-lab/NeuSight @6945927", "licence": "MIT", "phases": latencies},
            {"name": "timm benchmark-train-amp-nchw-pt112-cu113-rtx3090", "licence": "Apache-2.0", "steps": timm},
            {"name": "Gavel simulation_throughputs, stanford-futuredata/gavel", "licence": "MIT", "steps": len(wholes) - timm},
        ],
        "residuals": {name: _summary(misses) for name, misses in residuals.items()},
    }


def _summary(misses: Sequence[float]) -> dict[str, float]:
    sizes = [abs(math.expm1(-m)) for m in misses]
    return {"n": len(misses), "p10": round(quantile(misses, 0.1), 4), "p90": round(quantile(misses, 0.9), 4),
            "median_error": round(quantile(sizes, 0.5), 4)}


def _interval(misses: Sequence[float], least: float = 0.0) -> tuple[float, float]:
    return min(-least, quantile(misses, 0.1)), max(least, quantile(misses, 0.9))


def _coefficients(
    phases: Mapping[str, Shares], residual: tuple[float, float], products: tuple[float, float], corrected: tuple[float, float],
    origin: str,
) -> dict[str, Any]:
    whole = Coefficients({**phases, "optimizer": phases["backward"]}, residual, corrected, origin, products=products).to_json()
    return {k: v for k, v in whole.items() if k != "provenance"}


def _middle(shares: Sequence[Shares]) -> Shares:
    """Geometric means of cards of one architecture."""
    def mean(values: Iterable[float]) -> float:
        logs = [math.log(v) for v in values]
        return math.exp(sum(logs) / len(logs))

    return Shares(
        {m: {k: mean(s.flops[m][k] for s in shares) for k in KINDS} for m in shares[0].flops},
        {k: mean(s.bytes[k] for s in shares) for k in KINDS}, shares[0].exponents, mean(s.kernel_s for s in shares),
        mean(s.dispatch_s for s in shares),
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.steptime_prior", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="replace the shipped file")
    parser.add_argument("--cache", type=Path, help="folder of the models' operation logs")
    args = parser.parse_args()
    try:
        if not (TIMM.exists() and GAVEL.exists()):
            raise BadTruth(f"The measurements are not in {SHARED}; they are needed to fit the prior.")
        found = document(Logs(args.cache))
    except BadTruth as error:
        print(f"benchmarks.steptime_prior: {error}", file=sys.stderr)
        return 2
    print(json.dumps(found["provenance"], indent=1))
    if args.write:
        path = Path(prior.__file__).with_name("prior.json")
        path.write_text(json.dumps(found, separators=(",", ":")) + "\n", encoding="utf-8")
        print(f"{path} written, {path.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
