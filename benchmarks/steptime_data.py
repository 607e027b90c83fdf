"""Reads measured step times and knows their kind by their columns."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
DEFAULTS = (SHARED / "gpemu" / "compute_time.parquet", SHARED / "neusight")
BATCHES_A_MODEL = 10


class BadTruth(Exception):
    """One sentence: what was wrong with the file and what was expected."""


@dataclass(frozen=True)
class PhaseTime:
    """A vision model's forward or backward pass in fp32."""

    card: str
    model: str
    phase: str
    batch: float
    seconds: float


@dataclass(frozen=True)
class Latency:
    """A transformer's forward pass (mode 'inf') or forward and backward pass ('train') in fp32."""

    card: str
    model: str
    mode: str
    length: int
    batch: int
    forward_s: float
    backward_s: float

    @property
    def seconds(self) -> float:
        """Both passes."""
        return self.forward_s + self.backward_s


@dataclass(frozen=True)
class Truth:
    """What was found. ``configurations`` maps a transformer's name to its config.json."""

    phases: tuple[PhaseTime, ...] = ()
    latencies: tuple[Latency, ...] = ()
    configurations: Mapping[str, Path] | None = None


def read(path: Path | None) -> Truth:
    """Everything a file or folder has; BadTruth where nothing is recognised."""
    paths = [path] if path is not None else [p for p in DEFAULTS if p.exists()]
    if not paths or not all(p.exists() for p in paths):
        raise BadTruth(f"{path or DEFAULTS[0]} is not there; give measured step times with --truth FILE.")
    parts = [_folder(p) if p.is_dir() else _file(p) for p in paths]
    phases = tuple(x for part in parts for x in part.phases)
    latencies = tuple(dict.fromkeys(x for part in parts for x in part.latencies))
    if not phases and not latencies:
        raise BadTruth(
            f"{paths[0]} has no step times: expected columns phase, gpu, model, Batch_Size, seconds, or device, model, mode, seqlen, "
            "batch, e2e_latency, or a folder DEVICE/MODEL-MODE-LENGTH-BATCH.json with e2e_latency."
        )
    return Truth(phases, latencies, {**_configurations(SHARED / "neusight"), **_configurations(paths[0])})


def _folder(folder: Path) -> Truth:
    labels = [x for p in sorted(folder.rglob("*.json")) for x in _label(p)]
    tables = [_file(p) for p in sorted(folder.rglob("*")) if p.suffix in (".csv", ".parquet")] if not labels else []
    phases = tuple(x for t in tables for x in t.phases)
    return Truth(phases, (*labels, *(x for t in tables for x in t.latencies)))


def _file(path: Path) -> Truth:
    if path.suffix == ".json":
        return Truth(latencies=tuple(_label(path)))
    rows = _rows(path)
    first = rows[0] if rows else {}
    if {"phase", "gpu", "model", "batch_size"} <= set(first) and _time(first):
        return Truth(phases=tuple(_phase(r) for r in rows if float(r[_time(r)]) > 0))
    if {"device", "model", "mode", "seqlen", "batch", "e2e_latency"} <= set(first):
        return Truth(latencies=tuple(x for r in rows for x in _measured(r)))
    return Truth()


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        if path.suffix == ".parquet":
            import pandas

            table = pandas.read_parquet(path)
            table.columns = [str(c).lower() for c in table.columns]
            return table.to_dict("records")  # type: ignore[return-value]
        with path.open(newline="", encoding="utf-8") as lines:
            return [{str(k).lower(): v for k, v in row.items()} for row in csv.DictReader(lines)]
    except (OSError, ValueError, UnicodeDecodeError, csv.Error) as error:
        raise BadTruth(f"{path} cannot be read ({error}); expected a CSV or Parquet table of step times.") from None


def _time(row: Mapping[str, Any]) -> str:
    return next((c for c in ("time_in_seconds", "seconds", "time_s") if c in row), "")


def _phase(row: Mapping[str, Any]) -> PhaseTime:
    return PhaseTime(str(row["gpu"]), str(row["model"]), str(row["phase"]), float(row["batch_size"]), float(row[_time(row)]))


def _measured(row: Mapping[str, Any]) -> Iterator[Latency]:
    if not str(row["batch"]).isdigit() or not str(row["seqlen"]).isdigit() or str(row.get("option") or "nan") != "nan":
        return  # several cards or fused kernels: another question
    backward = float(row.get("bwall_latency") or 0) / 1e3
    total = float(row["e2e_latency"]) / 1e3
    yield Latency(str(row["device"]), str(row["model"]), str(row["mode"]), int(row["seqlen"]), int(row["batch"]),
                  total - backward, backward)


def _label(path: Path) -> Iterator[Latency]:
    parts = path.stem.split("-")
    if len(parts) != 4 or parts[1] not in ("inf", "train") or not (parts[2] + parts[3]).isdigit():
        return
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return
    if isinstance(data, dict) and "e2e_latency" in data:
        row = {**data, "device": path.parent.name, "model": parts[0], "mode": parts[1], "seqlen": parts[2], "batch": parts[3]}
        yield from _measured(row)


def _configurations(place: Path) -> dict[str, Path]:
    folders = place.rglob("DLmodel_configs") if place.is_dir() else ()
    return {p.stem: p for folder in folders for p in sorted(folder.glob("*.json"))}


def thinned(
    phases: Iterable[PhaseTime], batches: int = BATCHES_A_MODEL, seed: int = 0, keep: float = 32
) -> list[PhaseTime]:
    """At most so many batches of every model and card, spread evenly over those measured; forward and backward alike.

    ``keep`` is always among them where it was measured: the step that corrects the others.
    """
    curves: dict[tuple[str, str], dict[float, list[PhaseTime]]] = {}
    for one in phases:
        curves.setdefault((one.card, one.model), {}).setdefault(one.batch, []).append(one)
    kept: list[PhaseTime] = []
    for curve in curves.values():
        chosen = _spread(sorted(curve), batches, random.Random(seed))
        for batch in sorted({*chosen, *({keep} & set(curve))}):
            kept += curve[batch]
    return kept


def _spread(ordered: Sequence[float], count: int, chance: random.Random) -> list[float]:
    """One at random from each of ``count`` equal stretches."""
    if len(ordered) <= count:
        return list(ordered)
    edges = [round(i * len(ordered) / count) for i in range(count + 1)]
    return [ordered[chance.randrange(a, b)] for a, b in pairwise(edges)]
