"""What others predicted of the same transformers, and how held-out samples add up to latencies."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.steptime_data import Latency
from benchmarks.steptime_models import group_of
from benchmarks.steptime_study import Held, datasheet, load

PEERS = ("neusight", "roofline", "habitat", "micro")
_SAME_S = 0.02

Sums = dict[str, float]


def cells(held: Iterable[Held]) -> tuple[Sums, Sums, Sums, Sums, dict[str, str]]:
    """(fitted, shipped prior, datasheet, measured seconds, family) by latency: the passes of one step added up."""
    ours, prior, sheet, truth = ({} for _ in range(4))
    family: dict[str, str] = {}
    for one in held:
        sample = one.sample
        shares = sample.device.coefficients.phases[sample.phase]
        figures = (one.seconds, load(sample, shares).seconds, datasheet(sample), sample.seconds)
        for sums, seconds in zip((ours, prior, sheet, truth), figures, strict=True):
            sums[sample.group] = sums.get(sample.group, 0.0) + seconds
        family[sample.group] = sample.family
    return ours, prior, sheet, truth, family


def neusight_errors(folder: Path, latencies: Sequence[Latency]) -> dict[str, Sums]:
    """Peer -> latency -> its relative error, from NeuSight's published summary; nothing where the summary is not there."""
    path = next(iter(sorted(folder.glob("*summary__summary.csv"))), None) if folder.is_dir() else None
    if path is None:
        return {}
    wanted = {(x.card, x.model, x.mode, x.length, x.batch): x for x in latencies}
    found: dict[str, Sums] = {}
    with path.open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            if row["option"] or not row["batch"].isdigit():
                continue
            one = wanted.get((row["device"], row["model_name"], row["mode"], int(row["seqlen"]), int(row["batch"])))
            label = row["label_all_e2e_latency"]
            if one is None or not label or abs(float(label) / 1e3 / one.seconds - 1) > _SAME_S:
                continue
            for peer in PEERS:
                if row[f"{peer}_all_e2e_latency"]:
                    error = abs(float(row[f"{peer}_all_e2e_latency"]) / 1e3 / one.seconds - 1)
                    found.setdefault(peer, {})[group_of(one)] = error
    return found
