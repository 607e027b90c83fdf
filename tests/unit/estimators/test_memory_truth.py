"""The memory benchmark's truth: known by its columns, cleaned by the truth alone, sampled by a seed."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from benchmarks.memory_models import two_points
from benchmarks.memory_truth import BadTruth, Point, clean_series, family_of, quantile, read, sample


def series(*totals: float) -> list[Point]:
    """One model's runs at batches 8, 16, 32 ..."""
    return [Point("A100", "m", "m", 8 << place, total) for place, total in enumerate(totals)]


def kept(*totals: float) -> list[float]:
    return [p.truth_mib for p in clean_series(series(*totals))[0]]


def test_a_steady_series_is_kept_whole() -> None:
    assert kept(2000, 3000, 5000, 9000, 17_000) == [2000, 3000, 5000, 9000, 17_000]


@pytest.mark.parametrize(("totals", "left", "reason"), [
    ((2000, 3000, 5000, 2900, 17_000), 3, "failed: far below its predecessors' line"),
    ((21_949, 21_949, 21_949, 21_949), 0, "failed: no more than a smaller batch"),
    ((5000, 9000, 17_000, 33_000, 35_000), 4, "censored: at the card's memory"),
    ((5000, 9000, 17_000, 39_900, 40_300), 3, "censored: at the card's memory"),
    ((3000, 5000, 9000, 9100), 3, "failed: far below its predecessors' line"),
])
def test_runs_that_did_not_end_well_are_left_out(totals: tuple[float, ...], left: int, reason: str) -> None:
    usable, reasons = clean_series(series(*totals))
    assert len(usable) == left
    assert set(reasons) == {reason}
    assert len(usable) + len(reasons) == len(totals)


def test_families_are_the_letters_of_a_name() -> None:
    assert {family_of(m) for m in ("resnet50", "resnet101", "resnet50d", "resnet50.a1_in1k")} == {"resnet"}
    assert family_of("tf_efficientnet_b0") == family_of("efficientnet_b3") == "efficientnet"
    assert family_of("vit_base_patch16_224") != family_of("swin_base_patch4_window7_224")


def written(path: Path, columns: list[str], rows: list[list[object]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([columns, *rows])
    return path


def test_files_are_known_by_their_columns(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    gpemu = read(written(tmp_path / "a.csv", ["gpu", "model", "batch_size", "peak"], [
        ["NVIDIA_A100-SXM4-40GB", "resnet50", 16, 1628.1], ["Tesla_K80", "resnet50", 256, 21_469.0], ["Abacus", "resnet50", 16, 1.0]]))
    assert (gpemu.kind, len(gpemu.points), gpemu.excluded) == ("allocated", 1, {"beyond the card's memory": 1, "unknown card": 1})
    timm = read(written(tmp_path / "b.csv", ["Filename", "Batch Size", "Max GPU Memory (MiB)"], [
        [f"resnet50_{b}.out", b, t] for b, t in ((8, 2875), (16, 3733), (32, 5229))]))
    assert (timm.kind, [p.model for p in timm.points]) == ("device", ["resnet50"] * 3)
    with pytest.raises(BadTruth, match="has the columns x, y"):
        read(written(tmp_path / "c.csv", ["x", "y"], [[1, 2]]))
    with pytest.raises(BadTruth, match="There is no truth file"):
        read(tmp_path / "nowhere.csv")
    with pytest.raises(BadTruth, match="no measurement"):
        read(written(tmp_path / "e.csv", ["Filename", "Batch Size", "Max GPU Memory (MiB)"], [["resnet50_8.out", "", 2875]]))
    with pytest.raises(BadTruth, match="no usable row"):
        read(written(tmp_path / "f.csv", ["gpu", "model", "batch_size", "peak"], []))
    (tmp_path / "d.parquet").write_text("not a table")
    with pytest.raises(BadTruth, match="cannot be read"):
        read(tmp_path / "d.parquet")


def test_a_sample_is_seeded_takes_whole_models_and_many_families(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    rows: list[list[object]] = [[f"{name}{n}_{b}.out", b, 2000 + 20 * b * n] for name in ("vgg", "vit", "bat") for n in (1, 2, 3) for b in (8, 16, 32)]
    truth = read(written(tmp_path / "b.csv", ["Filename", "Batch Size", "Max GPU Memory (MiB)"], rows))
    some = sample(truth, 9)
    assert some == sample(truth, 9)
    assert len(some.points) == 9
    assert {p.family for p in some.points} == {"vgg", "vit", "bat"}
    assert sample(truth, 1000) is truth


def test_the_line_of_two_points_judges_the_others() -> None:
    assert two_points(series(2000, 3000, 5000, 9500)) == {("m", 32): 5000, ("m", 64): 9000}
    assert quantile([1.0, 2.0, 3.0], 0.9) == pytest.approx(2.8)
