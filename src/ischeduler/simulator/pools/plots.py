"""Pictures of simulated pools: completion times, accelerators over time, fairness, use and cost, one colour a policy; PNG, SVG or HTML."""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ischeduler.core.errors import BadInput
from ischeduler.policies.problem import Accelerators, Floats
from ischeduler.simulator.plots import DAY_S, _figure_class  # pyright: ignore[reportPrivateUsage]
from ischeduler.simulator.pools.figures import PoolSummary
from ischeduler.simulator.pools.results import PoolRun, ratios
from ischeduler.simulator.results import replaced

COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#777777", "#000000")
BINS = 300
STYLE = "body{font-family:sans-serif;margin:2em auto;max-width:70em}td,th{padding:.15em .8em .15em 0;text-align:right}svg{width:100%;height:auto}"


def write_pool_plot(
    path: Path, runs: Sequence[PoolRun], summaries: Sequence[PoolSummary], accelerators: Accelerators, isolated_s: Floats | None,
) -> None:  # fmt: skip
    """Draw to ``path`` by its suffix. The file appears complete or not at all."""
    kind = path.suffix.lower().lstrip(".")
    if kind not in ("png", "svg", "html"):
        raise BadInput(f"A picture cannot be written as '{path.suffix}'; give a name ending in .png, .svg or .html.")
    drawn = _draw(runs, summaries, accelerators, isolated_s, "svg" if kind == "html" else kind)
    with replaced(path) as temporary:
        temporary.write_bytes(_page(summaries, drawn).encode() if kind == "html" else drawn)


def _draw(runs: Sequence[PoolRun], summaries: Sequence[PoolSummary], accelerators: Accelerators, isolated_s: Floats | None, kind: str) -> bytes:
    figure = _figure_class()(figsize=(11, 10), layout="constrained")
    (jct, fair), (share, use), (cost, active) = figure.subplots(3, 2)
    for number, (run, summary) in enumerate(zip(runs, summaries, strict=True)):
        colour = COLOURS[number % len(COLOURS)]
        _cdf(jct, run.jct_s[run.judged] / 3600, run.policy, colour)
        ratio = ratios(run, isolated_s)
        if ratio is not None:
            _cdf(fair, ratio, run.policy, colour)
        _over_time(use, active, run, accelerators, colour)
        cost.bar(number, summary.cost, color=colour)
    _shares(share, runs, accelerators)
    jct.set(xscale="log", xlabel="completion time, hours", ylabel="jobs, %")
    jct.legend(frameon=False, fontsize=8)
    fair.set(xlabel="completion time over that on an equal slice", ylabel="jobs, %")
    fair.axvline(1.0, color="#999999", linewidth=0.8)
    use.set(ylabel="accelerators in use, %", xlabel="days", ylim=(0, 105))
    active.set(ylabel="active jobs", xlabel="days", ylim=(0, None))
    priced = bool((accelerators.price_per_h > 0).any())
    cost.set(ylabel="cost, price units" if priced else "cost (no prices given)", xticks=range(len(runs)))
    cost.set_xticklabels([r.policy for r in runs], rotation=20, ha="right", fontsize=8)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=110, metadata={"Date": None} if kind == "svg" else None)
    return buffer.getvalue()


def _cdf(axes: Any, values: Floats, label: str, colour: str) -> None:
    found = np.sort(values[np.isfinite(values)])
    axes.step(found, 100 * np.arange(1, len(found) + 1) / max(len(found), 1), where="post", color=colour, label=label)
    axes.grid(alpha=0.3)


def _binned(run: PoolRun) -> tuple[Floats, Floats]:
    """The timeline's columns as means over equal spans of time."""
    seconds = run.timeline[:, 0]
    edges = np.linspace(seconds[0], max(run.makespan_s, seconds[-1] + 1.0), BINS + 1)
    at = np.clip(np.searchsorted(seconds, edges[:-1], "right") - 1, 0, len(seconds) - 1)
    return edges[:-1] / DAY_S, run.timeline[at, 1:]


def _over_time(use: Any, active: Any, run: PoolRun, accelerators: Accelerators, colour: str) -> None:
    if not len(run.timeline):
        return
    days, columns = _binned(run)
    use.plot(days, 100 * columns[:, 1:].sum(axis=1) / accelerators.count.sum(), color=colour, linewidth=0.9)
    active.plot(days, columns[:, 0], color=colour, linewidth=0.9)


def _shares(axes: Any, runs: Sequence[PoolRun], accelerators: Accelerators) -> None:
    """The first policy's accelerators at work by type, over time."""
    axes.set(ylabel="accelerators at work", xlabel="days", title=f"by type, {runs[0].policy}")
    if len(runs[0].timeline):
        days, columns = _binned(runs[0])
        axes.stackplot(days, columns[:, 1:].T, labels=accelerators.types, colors=COLOURS, linewidth=0)
        axes.legend(frameon=False, fontsize=8, loc="upper right")


def _page(summaries: Sequence[PoolSummary], svg: bytes) -> str:
    names = list(asdict(summaries[0]))
    head = "".join(f"<th>{html.escape(n.replace('_', ' '))}</th>" for n in names)
    rows = "".join("<tr>" + "".join(f"<td>{html.escape(_shown(v))}</td>" for v in asdict(s).values()) + "</tr>" for s in summaries)
    picture = svg.decode()
    picture = picture[picture.index("<svg") :]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Pools by policy</title><style>{STYLE}</style></head>'
        f"<body><h1>Pools by policy</h1>{picture}<table><tr>{head}</tr>{rows}</table></body></html>\n"
    )


def _shown(value: object) -> str:
    return "-" if value is None else f"{value:,.4g}" if isinstance(value, float) else str(value)
