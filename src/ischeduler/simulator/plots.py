"""The picture of a simulation: utilisation, queue depth, distribution of waits; as PNG, or as one HTML file that needs nothing else."""

from __future__ import annotations

import html
import io
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ischeduler.core.errors import BadInput
from ischeduler.simulator.figures import Summary
from ischeduler.simulator.results import replaced
from ischeduler.simulator.summary import Curves, thinned

DAY_S = 86400.0


def write_plot(path: Path, summary: Summary, curves: Curves) -> None:
    """Draw to ``path``: .png, .svg or .html. The file appears complete or not at all."""
    kind = path.suffix.lower().lstrip(".")
    if kind not in ("png", "svg", "html"):
        raise BadInput(f"A picture cannot be written as '{path.suffix}'; give a name ending in .png, .svg or .html.")
    drawn = _draw(summary, curves, "svg" if kind == "html" else kind)
    data = _page(summary, drawn).encode() if kind == "html" else drawn
    with replaced(path) as temporary:
        temporary.write_bytes(data)


def _draw(summary: Summary, curves: Curves, kind: str) -> bytes:
    figures = _figure_class()
    figure = figures(figsize=(9, 8.5), layout="constrained")
    use, depth, wait = figure.subplots(3, 1)
    days = (lambda s: (s - curves.second[0]) / DAY_S) if len(curves.second) else (lambda s: s)
    second, mean, _ = thinned(curves.second, curves.used)
    use.fill_between(days(second), 100 * mean / summary.nodes, step="post", color="#4477aa", linewidth=0)
    use.set(ylabel="units in use, %", ylim=(0, 105), title=f"{summary.trace}: {summary.scheduler} on {summary.nodes:,} units")
    second, mean, highest = thinned(curves.second, curves.depth)
    depth.plot(days(second), highest, color="#ee6677", linewidth=0.8, label="highest")
    depth.plot(days(second), mean, color="#aa3377", linewidth=1.0, label="mean")
    depth.set(ylabel="jobs waiting", xlabel="days since the first submission", ylim=(0, None))
    for axes in (use, depth):
        axes.margins(x=0)
    depth.legend(loc="upper right", frameon=False)
    _draw_waits(wait, curves.waits_s)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=120, metadata={"Date": None} if kind == "svg" else None)
    return buffer.getvalue()


def _draw_waits(axes: Any, waits: Any) -> None:
    share = 100 * np.linspace(0, 1, 1001)
    axes.step(np.quantile(waits, share / 100).clip(1) / 60 if len(waits) else share * 0 + 1, share, color="#228833", where="post")
    axes.set(xscale="log", xlabel="wait, minutes (a second or less stands at the left edge)", ylabel="jobs that waited no longer, %")
    axes.set_ylim(0, 101)
    axes.grid(alpha=0.3)


def _figure_class() -> Any:
    """matplotlib's Figure without pyplot: no window system, no global state."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise BadInput("Pictures need matplotlib; pip install 'ischeduler[simulator]'.") from None
    return Figure


def _page(summary: Summary, svg: bytes) -> str:
    rows = "".join(
        f"<tr><td>{html.escape(name.replace('_', ' '))}</td><td>{html.escape(_shown(value))}</td></tr>"
        for name, value in asdict(summary).items()
    )
    picture = svg.decode()
    picture = picture[picture.index("<svg") :]
    title = html.escape(f"{summary.trace}: {summary.scheduler} on {summary.nodes:,} units")
    style = "body{font-family:sans-serif;margin:2em auto;max-width:60em}td{padding:.15em 1em .15em 0}svg{width:100%;height:auto}"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{style}</style></head>'
        f"<body><h1>{title}</h1>{picture}<table>{rows}</table></body></html>\n"
    )


def _shown(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,.4g}" if isinstance(value, float) and abs(value) < 1000 else f"{value:,.0f}" if isinstance(value, float) else str(value)
