"""Pictures of the provisioning table: cost by method and load class, and what dearer interruption buys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.provisioning_report import Table
from ischeduler.helper.provisioning.judge import classes
from ischeduler.helper.provisioning.setting import Setting

DARK, LIGHT = "#b3404a", "#5b8db8"


def plot(table: Table, units: int, setting: Setting, folder: Path) -> Path:
    """One SVG of one size of segment; its path."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "ischeduler", "svg.fonttype": "none", "font.size": 8})
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4), width_ratios=(3, 2))
    _bars(left, table)
    _curve(right, table)
    figure.suptitle(f"{setting.source}, {setting.protocol} protocol, segments of {units} units and {setting.segment_s / 3600:g} h")
    figure.tight_layout()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"provisioning-{Path(setting.source).stem}-{setting.protocol}-{units}.svg"
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return path


def _bars(axes: Any, table: Table) -> None:
    """Interruption and overlap of every method, for all episodes and each load class."""
    groups = {"all": np.ones(len(table.of("reactive").cost), bool), **classes(table.of("reactive"))}
    rows = [*table.records, table.handover, *table.bounds]
    place = np.arange(len(rows))
    for number, (_, chosen) in enumerate(groups.items()):
        figures = [r.figures(chosen) for r in rows]
        at = place + 0.2 * (number - 1.5)
        interruption = [f["interruption_h"] for f in figures]
        faded = 1.0 if number == 0 else 0.75 - 0.15 * number
        axes.bar(at, interruption, 0.18, color=DARK, alpha=faded)
        axes.bar(at, [f["overlap_h"] for f in figures], 0.18, bottom=interruption, color=LIGHT, alpha=faded)
    axes.set_xticks(place, [r.method for r in rows], rotation=60, ha="right")
    axes.set_ylabel("hours a transition: interruption (red) + overlap (blue)")
    axes.set_title("bars: " + ", ".join(f"{name} ({int(chosen.sum())})" for name, chosen in groups.items()))


def _curve(axes: Any, table: Table) -> None:
    """Mean overlap against mean interruption over the price ratio, beside the other methods at equal prices."""
    points = [(r.figures()["overlap_h"], r.figures()["interruption_h"]) for r in table.curves.values()]
    axes.plot(*zip(*points, strict=True), marker="o", color=DARK, label=f"{table.ours}, by price ratio")
    for (i, o), point in zip(table.curves, points, strict=True):
        axes.annotate(f"{i}:{o}", point, xytext=(3, 3), textcoords="offset points")
    others = [*(r for r in table.records if r.method != table.ours), table.handover, table.bounds[-1]]
    for number, r in enumerate(others):
        f = r.figures()
        axes.scatter([f["overlap_h"]], [f["interruption_h"]], marker="xsdv^<>P*+"[number % 10], label=r.method, s=18)
    axes.set_xlabel("overlap, hours a transition")
    axes.set_ylabel("interruption, hours a transition")
    axes.legend(fontsize=6)
