"""Curves of a training from its own events: loss by step, memory and utilisation by time. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ischeduler.core.event import Event
from ischeduler.core.sizes import GIB

MOST_POINTS = 240
QUALITIES = ("accuracy", "fmeasure", "precision", "recall")
MEASURED = ("heartbeat", "utilisation")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a curve; None where nothing was measured."""

    name: str
    y: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Limit:
    """A level to compare with: a predicted p10-p90 band, or one figure (low equals high)."""

    name: str
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Curve:
    """Lines over one x. ``unit`` is the y's, ``x_name`` says what x is ('step', 'hours')."""

    title: str
    x_name: str
    unit: str
    x: tuple[float, ...]
    lines: tuple[Line, ...]
    limits: tuple[Limit, ...] = field(default=())

    @property
    def empty(self) -> bool:
        """Nothing to draw yet: fewer than two points."""
        return len(self.x) < 2


def loss_curve(events: Iterable[Event]) -> Curve:
    """Loss by step of the whole run. A step done twice (after a resume) counts as it was done last."""
    by_step: dict[float, float] = {}
    for event in events:
        loss = _number(event.data.get("loss"))
        if event.kind == "progress" and loss is not None:
            by_step[_number(event.data.get("step")) or 0.0] = loss
    points = thinned(sorted(by_step.items()))
    return Curve("Loss", "step", "", tuple(p[0] for p in points), (Line("loss", tuple(p[1] for p in points)),))


def memory_curve(events: Iterable[Event], since: float, limits: Sequence[Limit] = ()) -> Curve:
    """Memory in GB by hours since ``since``: the host's resident set, and the fullest card."""
    points = thinned([
        ((e.at - since) / 3600, _gb(e.data.get("rss_peak_bytes") or e.data.get("rss_bytes")), _gb(max(_cards(e, "memory_bytes"), default=None)))
        for e in sorted(events, key=lambda e: e.at) if e.kind in MEASURED
    ])  # fmt: skip
    lines = [Line("host", tuple(p[1] for p in points)), Line("GPU", tuple(p[2] for p in points))]
    shown = tuple(line for line in lines if any(v is not None for v in line.y))
    return Curve("Memory", "hours", "GB", tuple(p[0] for p in points), shown, tuple(limits))


def busy_curve(events: Iterable[Event], since: float) -> Curve:
    """GPU utilisation in percent by hours, the mean over a job's cards."""
    found = [((e.at - since) / 3600, cards) for e in events if e.kind in MEASURED and (cards := list(_cards(e, "utilisation")))]
    points = thinned(sorted((x, 100 * sum(cards) / len(cards)) for x, cards in found))
    return Curve("GPU busy", "hours", "%", tuple(p[0] for p in points), (Line("GPU", tuple(p[1] for p in points)),))


def quality_curve(events: Iterable[Event], since: float) -> Curve:
    """What the training says of its model (accuracy, F-measure, precision, recall) by hours."""
    told = sorted((e for e in events if e.kind == "performance"), key=lambda e: e.at)
    points = thinned(told)
    lines = [Line(name, tuple(_number(e.data.get(name)) for e in points)) for name in QUALITIES]
    shown = tuple(line for line in lines if any(v is not None for v in line.y))
    return Curve("Quality", "hours", "", tuple((e.at - since) / 3600 for e in points) if shown else (), shown)


def losses(events: Iterable[Event], count: int = 24) -> tuple[float, ...]:
    """The last losses, for a sparkline."""
    found = [loss for e in events if e.kind == "progress" and (loss := _number(e.data.get("loss"))) is not None]
    return tuple(found[-count:])


def thinned(points: Sequence, most: int = MOST_POINTS) -> list:  # type: ignore[type-arg]
    """At most ``most`` of them, evenly chosen, the last one always among them."""
    if len(points) <= most:
        return list(points)
    step = (len(points) - 1) / (most - 1)
    return [points[round(i * step)] for i in range(most)]


def _cards(event: Event, what: str) -> Iterator[float]:
    """A figure of each card; whatever a job sent instead of a list of tables is passed over."""
    cards = event.data.get("gpu")
    for card in cards if isinstance(cards, (list, tuple)) else ():
        value = _number(card.get(what)) if isinstance(card, dict) else None
        if value is not None:
            yield value


def _gb(value: object) -> float | None:
    number = _number(value)
    return None if number is None else number / GIB


def _number(value: object) -> float | None:
    """A finite number, else None: events come from inside jobs and may hold anything."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)
