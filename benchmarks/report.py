"""How every benchmark reports: a table for people, one JSON line for machines, exit code 1 when a bar is missed."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Bar:
    """A metric that must not exceed ``bar``."""

    metric: str
    bar: float

    def met(self, value: float) -> bool:
        return value <= self.bar


@dataclass(frozen=True)
class AtLeast(Bar):
    """A metric that must reach ``bar``."""

    def met(self, value: float) -> bool:
        return value >= self.bar


def finish(name: str, metrics: Mapping[str, Any], bars: list[Bar], *, as_json: bool) -> int:
    """Print the table (unless ``as_json``) and the closing JSON line; the exit code."""
    judged = {b.metric: {"bar": b.bar, "value": metrics[b.metric], "met": b.met(metrics[b.metric])} for b in bars}
    if not as_json:
        for metric, value in metrics.items():
            shown = f"{value:.4g}" if isinstance(value, float) else str(value)
            verdict = judged.get(metric)
            words = f"   bar {verdict['bar']:g} {'met' if verdict['met'] else 'MISSED'}" if verdict else ""
            print(f"{metric:<44} {shown:>12}{words}")
    print(json.dumps({"benchmark": name, "metrics": dict(metrics), "bars": judged}))
    return 0 if all(v["met"] for v in judged.values()) else 1


def count(text: str) -> int:
    """A whole number of at least 1, for a parser of arguments."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no whole number of at least 1")
    return int(text)
