"""Whole families of models are held out, the rest is fitted, the held-out ones are predicted: as a site that measured some models."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from ischeduler.estimators.calibration.fit import Point, Stiffness, fit_phase
from ischeduler.estimators.steptime.coefficients import Load, Shares
from ischeduler.estimators.steptime.correction import MeasuredStep, corrected_by
from ischeduler.estimators.steptime.devices import Device
from ischeduler.estimators.steptime.work import Work


@dataclass(frozen=True, eq=False)
class Sample:
    """One measured phase of a model on a card. ``group`` ties the phases of one step together."""

    card: str
    model: str
    phase: str
    batch: float
    seconds: float
    kernels: tuple[Work, ...]
    device: Device
    group: str = ""

    @property
    def family(self) -> str:
        """What is held out together: ``vgg13_bn`` and ``vgg19`` are vgg, ``gpt3_xl`` and ``gpt2_large`` gpt."""
        found = re.match(r"[a-z_]*?[a-z](?=_?v?\d|_|$)", self.model.lower())
        return found.group(0) if found else self.model


def load(sample: Sample, shares: Shares) -> Load:
    """What the roofline says of a sample."""
    busy = launches = 0.0
    for work in sample.kernels:
        peak, mode = sample.device.peak(work, "fp32")
        busy += work.count * shares.kernel_seconds(work, peak, mode, sample.device.bandwidth_bytes_s, sample.device.units)
        launches += work.count * work.launches
    return Load(busy, launches * shares.dispatch_s + 1e-30)


def datasheet(sample: Sample) -> float:
    """The plain roofline: every peak is reached, nothing else costs time."""
    total = 0.0
    for work in sample.kernels:
        peak, _ = sample.device.peak(work, "fp32")
        total += work.count * max(work.flops / peak, work.bytes / sample.device.bandwidth_bytes_s)
    return total


@dataclass(frozen=True, eq=False)
class Held:
    """A sample and what was predicted of it without its family."""

    sample: Sample
    load: Load

    @property
    def seconds(self) -> float:
        """The prediction."""
        return self.load.seconds

    @property
    def miss(self) -> float:
        """log(measured / predicted)."""
        return math.log(self.sample.seconds / self.seconds)


def held_out(
    samples: Sequence[Sample], *, teachers: Sequence[Sample] | None = None, partners: Callable[[str, str], float] = lambda target, other: 1.0,
    start: Shares | None = None, stiffness: Stiffness | None = None, say: Callable[[str], None] = lambda words: None,
) -> list[Held]:
    """Every sample predicted by a fit that saw nothing of its family on any card.

    ``teachers`` are what is fitted (default: the samples themselves, their own family always left out).
    ``partners(target, other)`` is the weight of another card's measurements in the fit for a card, 0 for none.
    """
    found: list[Held] = []
    for phase in sorted({s.phase for s in samples}):
        mine = [s for s in samples if s.phase == phase]
        for family in sorted({s.family for s in mine}):
            rest = [s for s in (samples if teachers is None else teachers) if s.phase == phase and s.family != family]
            test = [s for s in mine if s.family == family]
            say(f"{phase} without {family}")
            found += _predicted(test, rest, partners, start, stiffness or Stiffness())
    return found


def _predicted(
    test: Sequence[Sample], rest: Sequence[Sample], partners: Callable[[str, str], float], start: Shares | None,
    stiffness: Stiffness,
) -> list[Held]:
    fits: dict[tuple[tuple[str, float], ...], dict[str, Shares]] = {}
    found: list[Held] = []
    for card in sorted({s.card for s in test}):
        weights = tuple(sorted((c, partners(card, c)) for c in {s.card for s in rest} if partners(card, c) > 0))
        if weights not in fits:
            used = dict(weights)
            points = [Point(_named(s), s.kernels, "fp32", s.seconds, used[s.card]) for s in rest if s.card in used]
            if not points:
                continue
            extra = {"start": start} if start is not None else {}
            shared, own = fit_phase(points, stiffness=stiffness, **extra)
            fits[weights] = {"": shared, **own}
        shares = fits[weights].get(card, fits[weights][""])
        found += [Held(s, load(s, shares)) for s in test if s.card == card]
    return found


def _named(sample: Sample) -> Device:
    return replace(sample.device, name=sample.card)


def after_one_step(held: Iterable[Held], batch: float | None = None) -> list[tuple[Held, float]]:
    """(held, predicted seconds) of all other batches once one step of that model was measured on that card.

    Which one: any of the model's batches, drawn with a seed, the same for both phases; or the one nearest to ``batch``.
    """
    curves: dict[tuple[str, str, str], list[Held]] = {}
    for one in held:
        curves.setdefault((one.sample.card, one.sample.model, one.sample.phase), []).append(one)
    found: list[tuple[Held, float]] = []
    for (card, model, _), curve in curves.items():
        wanted = batch or random.Random(f"{card} {model}").choice(sorted({h.sample.batch for h in curve}))
        known = min(curve, key=lambda h, wanted=wanted: abs(math.log(h.sample.batch / wanted)))
        factor = corrected_by([MeasuredStep((known.load,), known.sample.seconds)])
        found += [(h, factor.seconds([h.load])) for h in curve if h is not known]
    return found


def bounds(misses: Sequence[tuple[str, float]], low: float = 0.10, high: float = 0.90) -> dict[str, tuple[float, float]]:
    """Family -> p10 and p90 of the log errors of all other families: what could be promised of a family before it was seen."""
    found: dict[str, tuple[float, float]] = {}
    for family in sorted({f for f, _ in misses}):
        others = [m for f, m in misses if f != family]
        found[family] = quantile(others, low), quantile(others, high)
    return found


def covered(misses: Sequence[tuple[str, float]]) -> float:
    """The share of (family, log error) inside its :func:`bounds`."""
    promised = bounds(misses)
    return sum(promised[f][0] <= m <= promised[f][1] for f, m in misses) / len(misses)


def quantile(values: Sequence[float], share: float) -> float:
    """By linear interpolation; 0 of none."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
