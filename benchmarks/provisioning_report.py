"""The provisioning experiment's table, figures and bars."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.report import Bar
from ischeduler.helper.provisioning.judge import Record, classes, difference_h, interval_h, reduction
from ischeduler.helper.provisioning.methods import STAYING, Method
from ischeduler.helper.provisioning.setting import Setting

MIRAGE_SUM_H = {1: 1.6, 8: 1.6}
WARM_SUM_H = {1: 1.8, 8: 2.1}


@dataclass(frozen=True)
class Table:
    """Records of one size of segment. ``ours``: the name of the method that is deployed; ``curves``: it at each price, ``trained`` the same of
    the training episodes (see ``Method.training_outcomes``), beside reactive there."""

    records: list[Record]
    chosen: Method
    ours: str
    handover: Record
    bounds: list[Record]
    trained_peers: list[str]
    curves: dict[tuple[int, int], Record]
    trained: dict[tuple[int, int], Record]
    trained_reactive: Record

    @property
    def rows(self) -> tuple[Record, ...]:
        """All lines: methods, hand-over, bounds."""
        return *self.records, self.handover, *self.bounds

    def of(self, method: str) -> Record:
        """A method's record."""
        return next(r for r in self.records if r.method == method)


def figures_text(of: Record) -> str:
    """A record in short: interruption + overlap = sum, in hours."""
    f = of.figures()
    return f"{f['interruption_h']:.2f} + {f['overlap_h']:.2f} = {f['sum_h']:.2f} h"


def print_table(table: Table, units: int, setting: Setting) -> None:
    """One line a method over all episodes, then by load class, and how far chance goes."""
    groups = classes(table.of("reactive"))
    counts = ", ".join(f"{name} {int(chosen.sum())}" for name, chosen in groups.items())
    print(f"\n{setting.source}, {setting.protocol} protocol, segments of {units} units and {setting.segment_s / 3600:g} h")
    print(f"{len(table.of('reactive').cost)} validation episodes ({counts}); hours: interruption + overlap = sum")
    print(f"{'method':<22}{'interr.':>9}{'overlap':>9}{'sum':>8}{'zero':>7}{'segment':>9}{'back':>6}")
    for r in table.rows:
        f = r.figures()
        mark = " *" if r.method == table.ours else ""
        print(
            f"{r.method + mark:<22}{f['interruption_h']:>9.2f}{f['overlap_h']:>9.2f}{f['sum_h']:>8.2f}{f['zero_share']:>7.2f}"
            f"{f['segment_h']:>9.1f}{f['given_back']:>6.2f}"
        )
    print("back: starts that came too early and were given back, a transition; * what is deployed; hand_over uses its forecasts;")
    print("the last three lines are bounds, not methods; told_in_hindsight: with the margin that turns out cheapest")
    print("by load class: interruption + overlap (zero-interruption share)")
    print("\n".join(by_load(table)))
    print(f"{table.ours}, 95 % block bootstrap (hours; of heavy starts also the twin that is told the true run times):")
    for name, (value, low, high) in spreads(table).items():
        print(f"  {name:<26}{value:>6.2f}  [{low:.2f}, {high:.2f}]")
    print(f"cost of {table.ours} below others, 95 % paired block bootstrap:")
    for r in table.records:
        if r.method != table.ours:
            more, low, high = difference_h(table.of(table.ours), r)
            print(f"  {r.method:<22}{more:>6.2f} h  [{low:.2f}, {high:.2f}]")
    print(f"cost of {STAYING}, which gives no start back, below those that are trained:")
    for name in table.trained_peers:
        more, low, high = difference_h(table.of(STAYING), table.of(name))
        print(f"  {name:<22}{more:>6.2f} h  [{low:.2f}, {high:.2f}]")


def by_load(table: Table) -> list[str]:
    """A table in Markdown, one line a method: its figures in each load class."""
    groups = classes(table.of("reactive"))
    head = "| method | " + " | ".join(f"{name} ({int(chosen.sum())})" for name, chosen in groups.items()) + " |"
    rows = [" | ".join((r.method, *(_pair_text(r.figures(chosen)) for chosen in groups.values()))) for r in table.rows]
    return [head, "|" + " --- |" * (1 + len(groups)), *(f"| {row} |" for row in rows)]


def spreads(table: Table) -> dict[str, tuple[float, float, float]]:
    """Mean hours of what is deployed, with an interval of resampled neighbouring starts; of heavy starts, if any, the told twin's besides."""
    ours, told, heavy = table.of(table.ours), table.bounds[0], classes(table.of("reactive"))["heavy"]
    found = {"sum": (ours.cost, np.ones_like(heavy))}
    for name, r in (("heavy", ours), ("heavy_told", told)) if heavy.any() else ():
        found |= {f"{name}_interruption": (r.interruption, heavy), f"{name}_overlap": (r.overlap, heavy)}
    return {name: (float(hours[chosen].mean()), *interval_h(hours, chosen)) for name, (hours, chosen) in found.items()}


def _pair_text(figures: dict[str, float]) -> str:
    return f"{figures['interruption_h']:.2f} + {figures['overlap_h']:.2f} ({figures['zero_share']:.2f})"


def print_curves(table: Table) -> None:
    """What dearer interruption buys."""
    heavy, before = classes(table.of("reactive"))["heavy"], classes(table.trained_reactive)["heavy"]
    print(
        "price of an hour of interruption : overlap -> interruption + overlap (zero-interruption share), of heavy starts, and of the "
        f"{int(before.sum())} heavy ones in training"
    )
    for (i, o), r in table.curves.items():
        trained = _pair_text(table.trained[i, o].figures(before))
        print(f"  {i:>3}:{o:<3} {_pair_text(r.figures()):<24}{_pair_text(r.figures(heavy)):<24}{trained}")


def summary(table: Table, units: int) -> dict[str, Any]:
    """Figures for the closing JSON line, prefixed with the segment's size."""
    heavy, before = classes(table.of("reactive"))["heavy"], classes(table.trained_reactive)["heavy"]
    ours = table.of(table.ours)
    found: dict[str, Any] = {"method": table.ours}
    for r in (*table.records, *table.bounds):
        f = r.figures()
        found |= {f"{r.method}_sum_h": f["sum_h"], f"{r.method}_interruption_h": f["interruption_h"], f"{r.method}_overlap_h": f["overlap_h"]}
        found |= {f"{r.method}_zero_share": f["zero_share"], f"{r.method}_given_back": f["given_back"]}
    for r in table.records:
        if r is not ours:
            found[f"{r.method}_costs_more_h"] = [round(hours, 4) for hours in difference_h(ours, r)]
    value, low, high = reduction(ours, [table.of("reactive"), table.of("average")])
    full = ours.figures()
    found |= {
        "sum_h": full["sum_h"], "episodes": full["episodes"], "heavy_episodes": int(heavy.sum()),
        "heavy_interruption_h": ours.figures(heavy)["interruption_h"], "heavy_overlap_h": ours.figures(heavy)["overlap_h"],
        "cost_share_of_baseline": 1 - value, "cost_share_high": 1 - low, "cost_share_low": 1 - high,
        "trained_peers_not_beaten": sum(difference_h(ours, table.of(p))[1] <= 0 for p in table.trained_peers),
    }
    for name in table.trained_peers:
        found[f"{name}_costs_more_than_staying_h"] = [round(hours, 4) for hours in difference_h(table.of(STAYING), table.of(name))]
    found |= {f"{name}_95_h": [round(low, 4), round(high, 4)] for name, (_, low, high) in spreads(table).items()}
    hand = table.handover.figures()
    found |= {
        "handover_interruption_h": hand["interruption_h"], "handover_overlap_min": 60 * hand["overlap_h"],
        "handover_interrupted_share": 1 - hand["zero_share"], "handover_segment_lost_h": 48.0 - hand["segment_h"],
    }
    for (i, o), r in table.curves.items():
        shown = r.figures(), r.figures(heavy), table.trained[i, o].figures(before)
        found[f"price_{i}_{o}"] = [round(f[k], 4) for f in shown for k in ("interruption_h", "overlap_h", "zero_share")]
    return {f"n{units}_{k}": v for k, v in found.items()}


def bars(table: Table, units: int, protocol: str, *, absolute: bool) -> list[Bar]:
    """The bars of a protocol: in hours for the trace they were set on (``absolute``), as a share of the baseline for any other."""
    name = f"n{units}_"
    if protocol == "mirage":
        return [Bar(f"{name}sum_h", MIRAGE_SUM_H.get(units, 1.6)), Bar(f"{name}trained_peers_not_beaten", 0)] if absolute else []
    hand = [
        Bar(f"{name}handover_interruption_h", 0.12), Bar(f"{name}handover_interrupted_share", 0.07),
        Bar(f"{name}handover_overlap_min", 5.0), Bar(f"{name}handover_segment_lost_h", 6.0),
    ]  # fmt: skip
    if not absolute:
        return [Bar(f"{name}cost_share_of_baseline", 0.55), Bar(f"{name}cost_share_high", 0.75)]
    heavy = [Bar(f"{name}heavy_interruption_h", 3.0), Bar(f"{name}heavy_overlap_h", 1.2)]
    return [Bar(f"{name}sum_h", WARM_SUM_H.get(units, 2.1)), *heavy, *hand]
