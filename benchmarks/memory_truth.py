"""Truth files of the memory benchmark, known by their columns, with what is excluded and why."""

from __future__ import annotations

import random
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GPEMU_COLUMNS = {"gpu", "model", "batch_size", "peak"}
TIMM_COLUMNS = {"Filename", "Batch Size", "Max GPU Memory (MiB)"}
CARD_MIB = {"A100": 40536, "V100": 32510, "RTX_6000": 24220, "P100": 16280, "M40": 11448, "K80": 11441}
TIMM_CAPACITY_MIB = 40363
"""The most nvidia-smi ever showed of that card."""
_FULL = 0.90
_FLAT = 1.02
_BELOW_LINE = 0.85


class BadTruth(Exception):
    """The file cannot be used; the sentence says why."""


@dataclass(frozen=True)
class Point:
    """One measured run: MiB. ``family`` groups models for held-out splits; ``peer_mib`` is a peer's own column, if any."""

    gpu: str
    model: str
    family: str
    batch: int
    truth_mib: float
    peer_mib: float | None = None


@dataclass(frozen=True)
class Truth:
    """Usable points, and how many rows were left out for which reason. ``kind`` is 'allocated' or 'device'."""

    kind: str
    points: tuple[Point, ...]
    excluded: dict[str, int]


def read(path: Path) -> Truth:
    """The truth in a parquet or csv file; BadTruth with a sentence when it is none of the known kinds."""
    if not path.is_file():
        raise BadTruth(f"There is no truth file {path}; give one with --truth.")
    table = _table(path)
    columns = set(table.columns)
    kind = _gpemu if columns >= GPEMU_COLUMNS else _timm if columns >= TIMM_COLUMNS else None
    if kind is not None:
        try:
            return _some(path, kind(table.to_dict("records")))
        except (TypeError, ValueError) as error:
            raise BadTruth(f"{path.name} has a row that is no measurement ({error}); correct or remove it.") from None
    wanted = f"{', '.join(sorted(GPEMU_COLUMNS))} or {', '.join(sorted(TIMM_COLUMNS))}"
    raise BadTruth(f"{path.name} has the columns {', '.join(sorted(columns))}; expected {wanted}.")


def _some(path: Path, truth: Truth) -> Truth:
    if not truth.points:
        raise BadTruth(f"{path.name} holds no usable row ({truth.excluded}); give a table with some.")
    return truth


def _table(path: Path) -> Any:
    try:
        import pandas
    except ImportError:
        raise BadTruth("The package pandas is missing; install it to read truth files.") from None
    try:
        return pandas.read_parquet(path) if path.suffix == ".parquet" else pandas.read_csv(path)
    except Exception as error:
        raise BadTruth(f"{path.name} cannot be read ({type(error).__name__}); expected a parquet or csv table.") from None


def _gpemu(rows: Iterable[dict[str, Any]]) -> Truth:
    """Rows above 90 % of the card's memory are extrapolations of its authors (no run fits there): excluded."""
    kept: list[Point] = []
    excluded = {"beyond the card's memory": 0, "unknown card": 0}
    for row in rows:
        card = next((mib for name, mib in CARD_MIB.items() if name in row["gpu"]), None)
        if card is None:
            excluded["unknown card"] += 1
        elif row["peak"] > _FULL * card:
            excluded["beyond the card's memory"] += 1
        else:
            model = str(row["model"])
            kept.append(Point(str(row["gpu"]), model, family_of(model), int(row["batch_size"]), float(row["peak"])))
    return Truth("allocated", tuple(kept), excluded)


def _timm(rows: Iterable[dict[str, Any]]) -> Truth:
    """Failed and out-of-memory runs stand in the table as whatever they had reached: see :func:`clean_series`."""
    series: dict[str, list[Point]] = defaultdict(list)
    for row in rows:
        model = str(row["Filename"]).removesuffix(".out").rpartition("_")[0]
        peer = row.get("Last Numeric Value")
        peer = float(peer) if isinstance(peer, (int, float)) and peer == peer else None  # NaN is not itself
        point = Point("A100", model, family_of(model), int(row["Batch Size"]), float(row["Max GPU Memory (MiB)"]), peer)
        series[model].append(point)
    kept: list[Point] = []
    excluded: dict[str, int] = defaultdict(int)
    for points in series.values():
        usable, reasons = clean_series(sorted(points, key=lambda p: p.batch))
        kept += usable
        for reason in reasons:
            excluded[reason] += 1
    return Truth("device", tuple(kept), dict(excluded))


def clean_series(points: Sequence[Point], capacity_mib: float = TIMM_CAPACITY_MIB) -> tuple[list[Point], list[str]]:
    """One model's runs by batch: those that ended well, and a reason for each that did not. Looks at the truth alone.

    - a run that needs hardly more than a smaller batch did (under 2 %) has failed, and so have all larger ones; where the
      first two are equal, the first failed too;
    - a run within 10 % of the card's memory, or whose predecessors' line ends there, ran out of it or was close to (then
      PyTorch gives cached blocks back, so the figure says nothing): censored, with all larger ones;
    - a run more than 15 % below the line through its two predecessors broke off early: failed, with all larger ones.
    """
    kept: list[Point] = []
    for place, point in enumerate(points):
        reason = _fault(kept, point, capacity_mib)
        if reason:
            if reason.startswith("failed") and len(kept) == 1:
                kept, place = [], 0
            return kept, [reason] * (len(points) - place)
        kept.append(point)
    return kept, []


def _fault(kept: Sequence[Point], point: Point, capacity_mib: float) -> str:
    full = "censored: at the card's memory"
    if point.truth_mib > _FULL * capacity_mib:
        return full
    if not kept:
        return ""
    if len(kept) >= 2:
        first, second = kept[-2:]
        slope = (second.truth_mib - first.truth_mib) / (second.batch - first.batch)
        line = second.truth_mib + slope * (point.batch - second.batch)
        if line > _FULL * capacity_mib:
            return full
        if point.truth_mib < _BELOW_LINE * line:
            return "failed: far below its predecessors' line"
    return "failed: no more than a smaller batch" if point.truth_mib < _FLAT * kept[-1].truth_mib else ""


def family_of(model: str) -> str:
    """The letters a model's name starts with: 'resnet50d' and 'resnet101' are one family, so are 'tf_efficientnet...'."""
    plain = model.removeprefix("tf_").removeprefix("test_").split(".")[0]
    head = plain.split("_")[0]
    letters = head.rstrip("0123456789")
    while letters and letters[-1].isalpha() and any(c.isdigit() for c in letters):
        letters = letters[:-1].rstrip("0123456789") if letters[-2:-1].isdigit() else letters[:-1]
    return letters or head


def sample(truth: Truth, limit: int | None, seed: int = 0) -> Truth:
    """About ``limit`` points: whole models, one of each family in turn, by a seeded shuffle."""
    if limit is None or limit >= len(truth.points):
        return truth
    models: dict[str, list[str]] = defaultdict(list)
    of_model: dict[str, list[Point]] = defaultdict(list)
    for point in truth.points:
        if point.model not in of_model:
            models[point.family].append(point.model)
        of_model[point.model].append(point)
    source = random.Random(seed)
    queues = [source.sample(found, len(found)) for _, found in sorted(models.items())]
    source.shuffle(queues)
    chosen: list[Point] = []
    while len(chosen) < limit and any(queues):
        for queue in queues:
            if queue and len(chosen) < limit:
                chosen += of_model[queue.pop()]
    return Truth(truth.kind, tuple(chosen), truth.excluded)


def quantile(values: Sequence[float], share: float) -> float:
    """The empirical quantile, by linear interpolation; NaN of nothing."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def median(values: Sequence[float]) -> float:
    """The median; NaN of nothing."""
    return statistics.median(values) if values else float("nan")
