"""The benchmarks of run times and of coverage, on a made-up campaign and, where they are beside the project, on HARP's runs."""

from __future__ import annotations

import csv
import json
import math
import random
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks import coverage, walltime

from ischeduler.estimators.walltime.selection import select
from ischeduler.estimators.walltime.timed import TimedRun

HARP = walltime.TRUTH
COLUMNS = [*walltime.NEEDED, "learning_rate", "epochs_times_one"]


@pytest.fixture(scope="module")
def runs() -> list[TimedRun]:
    if not HARP.exists():
        pytest.skip("HARP's runs are not shipped")
    return walltime.read(HARP)


def write(path: Path, rows: list[dict[str, object]], columns: list[str] = COLUMNS) -> Path:
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, columns, extrasaction="ignore")
        table.writeheader()
        table.writerows(rows)
    return path


def campaign(seed: int = 1, sizes: tuple[int, ...] = (100, 200, 400, 1000, 2000, 5000, 10_000)) -> list[dict[str, object]]:
    rng = random.Random(seed)
    rows: list[dict[str, object]] = []
    for gpu, cores in ((0, 28), (1, 40)):
        for model in (1, 2):
            for batch in (8, 32, 128):
                for epochs in (1, 2):
                    for size in sizes:
                        seconds = (8 + epochs * (1 + size * (0.1 + 1 / batch) / (1 + 9 * gpu))) * math.exp(rng.gauss(0, 0.03))
                        values = (gpu, cores, cores, size, model, batch, epochs, round(seconds, 2), 0.001, 1.0)
                        rows.append(dict(zip(COLUMNS, values, strict=True)))
    return rows


def closing(text: str) -> dict[str, object]:
    return json.loads(text.splitlines()[-1])


def test_a_campaign_of_the_same_columns_is_judged(tmp_path: Path) -> None:
    found = walltime.measure(write(tmp_path / "runs.csv", campaign()), peers=False)
    metrics = walltime.metrics_of(found)
    assert found.selection.model.name == "law"
    assert metrics["test_runs"] == 24
    assert metrics["mape"] < 0.06
    assert metrics["near-rate_mape"] > metrics["mape"]
    assert metrics["never_seen_mape"] > metrics["left_out_mape"]


def test_measured_epoch_times_are_no_columns_to_learn_from(tmp_path: Path) -> None:
    rows = campaign()
    told = walltime.read(write(tmp_path / "a.csv", rows))
    for row in rows:
        row["epochs_times_one"] = 99.0
    assert walltime.read(write(tmp_path / "b.csv", rows)) == told


def test_the_test_runs_decide_nothing(tmp_path: Path) -> None:
    rows = campaign()
    path = write(tmp_path / "a.csv", rows)
    plain = walltime.measure(path, peers=False)
    for row in rows:
        if row["data_rr_count"] == 10_000:
            row["fit_time"] = 5.0
    other = walltime.measure(write(tmp_path / "b.csv", rows), peers=False)
    assert [i.p90 for i in other.intervals] == [i.p90 for i in plain.intervals]
    assert other.selection.exams == plain.selection.exams


@pytest.mark.parametrize(("change", "words"), [
    (lambda rows: write(Path("x.csv"), rows, ["GPU"]), "has no column"),
    (lambda rows: write(Path("x.csv"), [{**rows[0], "fit_time": "soon"}]), "no positive number"),
    (lambda rows: write(Path("x.csv"), [{**rows[0], "fit_time": -1}]), "no positive number"),
    (lambda rows: write(Path("x.csv"), [r for r in rows if r["data_rr_count"] == 100]), "at most half"),
    (lambda rows: write(Path("x.csv"), [r for r in rows if r["data_rr_count"] in (100, 5000)]), "too few runs"),
    (lambda rows: Path("none.csv"), "cannot be read"),
])  # fmt: skip
def test_a_file_that_cannot_serve_is_one_sentence_and_exit_2(
    change, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["walltime", "--truth", str(change(campaign()))])
    monkeypatch.setattr(walltime, "PEERS", ())
    assert walltime.main() == 2
    said = capsys.readouterr()
    assert words in said.err
    assert len(said.err.splitlines()) == 1


def test_a_missed_bar_is_exit_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    rows = campaign()
    for row in rows:
        if row["data_rr_count"] == 10_000:
            row["fit_time"] = float(str(row["fit_time"])) * 2
    monkeypatch.setattr("sys.argv", ["walltime", "--json", "--truth", str(write(tmp_path / "x.csv", rows))])
    monkeypatch.setattr(walltime, "PEERS", ())
    assert walltime.main() == 1
    told = closing(capsys.readouterr().out)
    assert told["bars"]["mape"]["met"] is False  # type: ignore[index]


def test_coverage_names_what_it_leaves_out(tmp_path: Path) -> None:
    path = write(tmp_path / "runs.csv", campaign())
    rows, skipped = coverage.collect(("walltime", "nothing", "plan"), path, 12)
    assert {r.n for r in rows} == {12}
    assert [s.split(" ")[0] for s in skipped] == ["nothing", "plan"]
    metrics, bars = coverage.metrics_of(rows)
    assert {b.metric for b in bars} <= set(metrics)
    assert not any("compared" in b.metric for b in bars)


def test_harps_large_runs_from_small_ones(runs: list[TimedRun]) -> None:
    found = walltime.metrics_of(walltime.measure(HARP, peers=False))
    assert found["untold_runs"] == 0
    assert found["mape"] <= 0.09
    assert 0.88 <= found["under_p90"] <= 0.92
    assert 0.75 <= found["inside_p10_p90"] <= 0.85
    assert 0.70 <= found["left_out_inside_p10_p90"] <= 0.90


def test_the_planners_own_path_tells_the_same(runs: list[TimedRun]) -> None:
    rows, _ = coverage.collect(("walltime",), HARP, None)
    by_name = {r.name: r for r in rows}
    planned, chosen = by_name["scaling estimator as the planner asks it"], by_name["run time"]
    assert (planned.n, planned.inside, planned.under_p90) == (chosen.n, chosen.inside, chosen.under_p90)
    assert chosen.ratio < by_name["history@1 (compared)"].ratio


def test_it_does_not_hang_on_one_oddity_or_half_the_runs(runs: list[TimedRun]) -> None:
    train, test = walltime.parted(runs, None)
    rng = random.Random(0)
    worlds = {
        "half": [r for r in train if rng.random() < 0.5],
        "no odd size": [replace(r, seconds=r.seconds * 1.25) if r.samples == 5000 else r for r in train],
        "largest gone": [r for r in train if r.samples < 5000],
    }
    for name, world in worlds.items():
        told = list(walltime._stated(select(world), test))  # pyright: ignore[reportPrivateUsage]
        assert sum(i.error for i in told) / len(told) <= 0.09, name
        assert sum(i.under_p90 for i in told) / len(told) >= 0.85, name


def test_harps_regressors_are_far_off_when_scaling_up(runs: list[TimedRun]) -> None:
    pytest.importorskip("sklearn")
    from ischeduler.estimators.walltime.regressors import LINEAR, TREE

    train, test = walltime.parted(runs, None)
    for model in (LINEAR, TREE):
        fitted = model.fit(train)
        errors = [abs(fitted.predict(r).seconds / r.seconds - 1) for r in test]
        assert sum(errors) / len(errors) > 0.4
