"""Every query of the shipped Grafana dashboard names a metric that exists, with labels that it has."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ischeduler.service.telemetry.metrics import LOOKED_UP, METRICS, Metric

DASHBOARD = Path(__file__).resolve().parents[3] / "deploy" / "grafana" / "ischeduler.json"
SUFFIXES = {"histogram": ("_bucket", "_count", "_sum"), "counter": ("",), "gauge": ("",)}
PROMETHEUS_OWN = {"le", "instance", "job"}
ALL = {**METRICS, **LOOKED_UP}
EXPOSED: dict[str, Metric] = {name + suffix: metric for name, metric in ALL.items() for suffix in SUFFIXES[metric.kind]}


def targets() -> list[tuple[str, dict[str, Any]]]:
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    return [(panel["title"], target) for panel in panels for target in panel["targets"]]


@pytest.mark.parametrize(("title", "target"), targets(), ids=lambda v: v if isinstance(v, str) else v["refId"])
def test_a_query_names_what_exists(title: str, target: dict[str, Any]) -> None:
    expression = target["expr"]
    names = re.findall(r"\bisched_\w+", expression)
    assert names
    assert [n for n in names if n not in EXPOSED] == []
    labels = {label for name in names for label in EXPOSED[name].labels} | PROMETHEUS_OWN
    used = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", expression))
    used |= {word.strip() for group in re.findall(r"by \(([^)]*)\)", expression) for word in group.split(",")}
    used |= set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
    assert used - labels == set()
    assert expression.count("(") == expression.count(")")


def test_everything_that_is_measured_is_on_a_chart() -> None:
    shown = " ".join(target["expr"] for _, target in targets())
    assert [name for name in ALL if name not in shown] == []
