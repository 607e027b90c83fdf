"""Charts as inline SVG, made on the server: no script is needed to read them. Places are in percent, so text never stretches.

Every figure has a text alternative; colours come from the style sheet's classes, nothing is styled inline.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from markupsafe import Markup

from ischeduler.service.dashboard.views.curves import Curve
from ischeduler.service.dashboard.views.plans import OptionRow
from ischeduler.service.dashboard.views.run import Compared
from ischeduler.service.dashboard.views.timeline import Lane, Timeline
from ischeduler.service.dashboard.words import plural

PLOT = 100.0
"""The side of a plot's own square; it is stretched to its frame, its strokes are not."""


def sparkline(values: Sequence[float], words: str) -> Markup:
    """A small line of the last values; nothing for fewer than two."""
    if len(values) < 2:
        return Markup("")
    low, high = min(values), max(values)
    points = " ".join(
        f"{i / (len(values) - 1) * PLOT:.1f},{_flip(v, low, high, PLOT * 0.9) + PLOT * 0.05:.1f}" for i, v in enumerate(values)
    )
    return Markup(
        '<svg class="spark" viewBox="0 0 100 100" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<polyline class="line-0" points="{}"/></svg>'
    ).format(words, points)


def curve_plot(curve: Curve) -> Markup:
    """The plot area of a curve: bands for what was predicted, one line a series."""
    low, high = y_range(curve)
    left, right = curve.x[0], curve.x[-1]
    parts: list[Markup] = [_grid()]
    for i, limit in enumerate(curve.limits):
        top, bottom = _flip(min(limit.high, high), low, high), _flip(max(limit.low, low), low, high)
        parts.append(
            Markup('<rect class="band band-{}" x="0" width="100" y="{:.2f}" height="{:.2f}"/>').format(i, top, max(0.6, bottom - top))
        )
    for i, line in enumerate(curve.lines):
        for points in _stretches(curve.x, line.y, left, right, low, high):
            parts.append(Markup('<polyline class="line-{}" points="{}"/>').format(i, points))
    return Markup('<svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>').format(
        curve_words(curve), Markup("").join(parts)
    )


def curve_words(curve: Curve) -> str:
    """The curve as a sentence."""
    told = []
    for line in curve.lines:
        seen = [v for v in line.y if v is not None]
        if seen:
            unit = f" {curve.unit}" if curve.unit else ""
            told.append(f"{line.name} from {seen[0]:.3g} to {seen[-1]:.3g}{unit}, lowest {min(seen):.3g}, highest {max(seen):.3g}")
    limits = [f"{x.name} {x.low:.3g} to {x.high:.3g} {curve.unit}" for x in curve.limits]
    return f"{curve.title} by {curve.x_name}: " + "; ".join([*told, *limits]) + "."


def curve_data(curve: Curve) -> str:
    """What the script draws from: x, lines and limits as JSON."""
    return json.dumps({
        "title": curve.title, "x": curve.x, "xName": curve.x_name, "unit": curve.unit,
        "lines": [{"name": line.name, "y": line.y} for line in curve.lines],
        "limits": [{"name": x.name, "low": x.low, "high": x.high} for x in curve.limits],
    })  # fmt: skip


def y_range(curve: Curve) -> tuple[float, float]:
    """What the y axis spans: from 0 for amounts, else around the values."""
    seen = [v for line in curve.lines for v in line.y if v is not None]
    high = max([*seen, *(x.high for x in curve.limits)], default=1.0)
    if curve.unit == "%":
        return 0.0, 100.0
    low = 0.0 if curve.unit else min(seen, default=0.0)
    return (low, high) if high > low else (low, low + 1.0)


def y_ticks(curve: Curve) -> list[str]:
    """Three labels, from the top down."""
    low, high = y_range(curve)
    return [_figure(v) for v in (high, (low + high) / 2, low)]


def x_ticks(curve: Curve) -> list[str]:
    """Three labels, from left to right."""
    left, right = curve.x[0], curve.x[-1]
    return [_figure(v) for v in (left, (left + right) / 2, right)]


def gantt_lane(lane: Lane, axis: Timeline) -> Markup:
    """One job's strip: waiting, running, checkpoints, its end, now, and the promised end."""
    parts: list[Markup] = []
    if axis.promised is not None:
        low, middle, high = axis.promised
        parts.append(Markup('<rect class="promise" x="{}" width="{}" y="0" height="100%"/>').format(_pc(low), _pc(high - low)))
        parts.append(Markup('<line class="promise-line" x1="{0}" x2="{0}" y1="0" y2="100%"/>').format(_pc(middle)))
    for bar in lane.bars:
        box = ("30%", "40%") if bar.kind == "wait" else ("15%", "70%")
        shape = Markup('<rect class="bar-{} tone-live" x="{}" width="{}" y="{}" height="{}" rx="2"/>')
        parts.append(shape.format(bar.kind, _pc(bar.start), _pc(max(0.002, bar.end - bar.start)), *box))
    for at in lane.checkpoints:
        parts.append(Markup('<line class="saved" x1="{0}" x2="{0}" y1="20%" y2="80%"/>').format(_pc(at)))
    if lane.bars and lane.ended_by:
        parts.append(Markup('<circle class="end tone-{}" cx="{}" cy="50%" r="4.5"/>').format(lane.end_tone, _pc(lane.bars[-1].end)))
    if axis.now is not None:
        parts.append(Markup('<line class="now" x1="{0}" x2="{0}" y1="0" y2="100%"/>').format(_pc(axis.now)))
    return Markup('<svg class="strip" width="100%" height="26" role="img" aria-label="{}">{}</svg>').format(
        lane_words(lane), Markup("").join(parts)
    )


def lane_words(lane: Lane) -> str:
    """One job as a sentence."""
    saved = f", {plural(lane.saves, 'checkpoint')}" if lane.saves else ""
    end = f", ended by {lane.ended_by}" if lane.ended_by else f", {lane.state}"
    return f"Job {lane.number} on {lane.where}: waited {lane.waited}, ran {lane.ran}{saved}{end}."


def axis_ticks(axis: Timeline) -> Markup:
    """The Gantt's axis: labels at their places, the last one kept inside."""
    parts = [
        Markup('<text x="{}" y="12" text-anchor="{}">{}</text>').format(
            _pc(t.at), "start" if t.at < 0.02 else "end" if t.at > 0.96 else "middle", t.words
        )
        for t in axis.ticks
    ]
    return Markup('<svg class="axis" width="100%" height="16" aria-hidden="true">{}</svg>').format(Markup("").join(parts))


def compared_strip(row: Compared) -> Markup:
    """p10 to p90 as a bar, the median as a line, the truth as a dot."""
    parts: list[Markup] = [Markup('<line class="rail" x1="0" x2="100%" y1="50%" y2="50%"/>')]
    if row.low is not None and row.high is not None and row.middle is not None:
        parts.append(
            Markup('<rect class="band band-0" x="{}" width="{}" y="25%" height="50%" rx="2"/>').format(
                _pc(row.low), _pc(max(0.006, row.high - row.low))
            )
        )
        parts.append(Markup('<line class="median" x1="{0}" x2="{0}" y1="20%" y2="80%"/>').format(_pc(row.middle)))
    if row.truth is not None:
        parts.append(Markup('<circle class="truth tone-{}" cx="{}" cy="50%" r="4.5"/>').format(row.tone, _pc(row.truth)))
    words = f"{row.name}: predicted {row.predicted}, actual {row.actual}, {row.verdict}"
    return Markup('<svg class="strip thin" width="100%" height="18" role="img" aria-label="{}">{}</svg>').format(
        words, Markup("").join(parts)
    )


def option_strip(row: OptionRow) -> Markup:
    """When an option would be done: waiting, then training, then how late it might become."""
    shape = Markup('<rect class="{}" x="{}" width="{}" y="{}" height="{}" rx="2"/>')
    end = row.wait_share + row.run_share
    parts = [
        shape.format("bar-wait", "0", _pc(row.wait_share), "32%", "36%"),
        shape.format("bar-run tone-live", _pc(row.wait_share), _pc(max(0.004, row.run_share)), "18%", "64%"),
        Markup('<line class="late" x1="{}" x2="{}" y1="50%" y2="50%"/>').format(_pc(end), _pc(end + row.late_share)),
    ]
    words = f"{row.where}: waits {row.wait}, runs {row.run}, done in {row.done}"
    return Markup('<svg class="strip thin" width="100%" height="18" role="img" aria-label="{}">{}</svg>').format(
        words, Markup("").join(parts)
    )


def share_bar(share: float, words: str, tone: str = "live", target: float | None = None) -> Markup:
    """A share of 0 to 1 as a bar; ``target`` marks what it should be."""
    mark = Markup('<line class="target" x1="{0}" x2="{0}" y1="0" y2="100%"/>').format(_pc(target)) if target is not None else ""
    return Markup(
        '<svg class="share" width="100%" height="6" role="img" aria-label="{}"><rect class="rail" width="100%" height="100%" rx="3"/>'
        '<rect class="fill tone-{}" width="{}" height="100%" rx="3"/>{}</svg>'
    ).format(words, tone, _pc(min(1.0, max(0.0, share))), mark)


def ratio_dots(ratios: Sequence[tuple[float, bool]], words: str) -> Markup:
    """actual / predicted of many, on a logarithmic line from a quarter to four times; the middle is exact, colour says inside."""
    dots = Markup("").join(
        Markup('<circle class="tone-{}" cx="{}" cy="50%" r="3.5"/>').format(
            "good" if inside else "warn", _pc(min(1.0, max(0.0, 0.5 + math.log2(max(ratio, 1e-6)) / 4)))
        )
        for ratio, inside in ratios
    )
    return Markup(
        '<svg class="strip thin dots" width="100%" height="16" role="img" aria-label="{}"><line class="rail" x1="0" x2="100%" y1="50%" y2="50%"/>'
        '<line class="median" x1="50%" x2="50%" y1="10%" y2="90%"/>{}</svg>'
    ).format(words, dots)


def _grid() -> Markup:
    lines = [Markup('<line class="grid" x1="0" x2="100" y1="{0}" y2="{0}"/>').format(y) for y in (0.4, 50, 99.6)]
    return Markup("").join(lines)


def _stretches(x: Sequence[float], y: Sequence[float | None], left: float, right: float, low: float, high: float) -> list[str]:
    """Points of each stretch without a gap."""
    found: list[list[str]] = [[]]
    for a, b in zip(x, y, strict=True):
        if b is None:
            found.append([])
        else:
            found[-1].append(f"{(a - left) / ((right - left) or 1) * PLOT:.2f},{_flip(b, low, high):.2f}")
    return [" ".join(points) for points in found if len(points) > 1]


def _flip(value: float, low: float, high: float, side: float = PLOT) -> float:
    """A value's place from the top."""
    return side / 2 if high <= low else side - (value - low) / (high - low) * side


def _pc(share: float) -> str:
    return f"{share * 100:.3f}%"


def _figure(value: float) -> str:
    if value >= 10_000:
        return f"{value / 1000:,.0f}k"
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
