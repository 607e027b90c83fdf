"""``python -m benchmarks.wait``: knows files by their columns, judges ours beside the peers, refuses the rest in a sentence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("lightgbm", reason="LightGBM is not installed")
pytest.importorskip("numba", reason="numba is not installed")
pytest.importorskip("sklearn", reason="scikit-learn is not installed")
pytest.importorskip("pandas", reason="pandas is not installed")

import pandas as pd
from benchmarks import wait_pending
from benchmarks.wait import main
from benchmarks.wait_floor import common, groups_of
from benchmarks.wait_pending import KEPT, lesson_of, sampled
from benchmarks.wait_snapshots import by_seed, chronological, read

from ischeduler.simulator.kernel import starts

DAYS = 24


def trace_file(folder: Path) -> Path:
    rng = np.random.default_rng(1)
    units, run = 2 ** rng.integers(0, 5, 900), rng.integers(300, 30000, 900)
    submit = np.sort(rng.uniform(0, (units * run).sum() / 64, 900)).astype(int)
    limit = np.maximum(3600, run // 3600 * 3600 + 3600)
    start = starts(submit, units, run, limit, 64)
    path = folder / "site.parquet"
    pd.DataFrame({"submit_s": submit, "start_s": start, "end_s": start + run, "req_units": units, "req_walltime_s": limit}).to_parquet(path)
    return path


def snapshots() -> Any:
    """A queue seen at noon on :data:`DAYS` days; jobs of an account wait alike, ten times longer with ten times the time asked for."""
    rng = np.random.default_rng(2)
    rows = []
    for day in range(DAYS):
        noon = pd.Timestamp("2021-05-01 12:00") + pd.Timedelta(days=day)
        for account in range(8):
            for _ in range(int(rng.integers(5, 60))):
                limit = float(rng.choice([3600, 36000]))
                rows.append({
                    "poll_time": noon, "submit_time": noon - pd.Timedelta(seconds=int(rng.integers(60, 90000))),
                    "poll_wait_sec": limit * (1 + account) * float(rng.uniform(0.8, 1.2)), "req_tres": "cpu=8,mem=1000M,node=1,billing=8",
                    "time_limit_sec": limit, "account_id": account, "partition_id_x": account % 2, "priority_y": float(rng.uniform()),
                })  # fmt: skip
    return pd.DataFrame(rows)


def closing(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return json.loads(capsys.readouterr().out.strip().splitlines()[-1])


def test_a_trace_is_judged_beside_the_peers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--trace", str(trace_file(tmp_path)), "--train-until", "0.7"])
    out = capsys.readouterr().out
    for method in ("ours", "TROUT's network", "BMBP, last 500", "QBETS", "Slurm's plan (limits)", "free at limits", "mean of last 100", "constant median"):
        assert f"\n{method}" in out
    told = json.loads(out.strip().splitlines()[-1])
    assert told["benchmark"] == "wait"
    assert 0.85 < told["metrics"]["site_coverage"] <= 1
    assert told["metrics"]["site_auc_10min"] > told["metrics"]["site_bmbp_last_500_auc_10min"]
    assert set(told["bars"]) == {"site_coverage_off", "site_mse_against_best_peer", "site_median_bound_h", "site_auc_10min"}
    assert code == (0 if all(b["met"] for b in told["bars"].values()) else 1)


def test_snapshots_are_judged_on_both_splits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait_pending, "SEEDS", 1)
    monkeypatch.setattr(wait_pending, "TREES", replace(wait_pending.TREES, rounds=60, columns=0.5))
    path = tmp_path / "queue.csv"
    snapshots().to_csv(path, index=False)
    main(["--trace", str(path), "--json"])
    told = closing(capsys)
    for split in ("seed46", "chronological"):
        assert told["metrics"][f"queue_{split}_mse_log10"] < told["metrics"][f"queue_{split}_constant_median_mse_log10"] / 4
        assert {f"queue_{split}_mse_log10", f"queue_{split}_within_2x"} <= set(told["bars"])


def test_the_floor_says_whose_the_error_is(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Here every account has a day's luck that nothing foretells, and its jobs differ little: nearly all of the error is common to groups."""
    monkeypatch.setattr(wait_pending, "SEEDS", 1)
    monkeypatch.setattr(wait_pending, "TREES", replace(wait_pending.TREES, rounds=60, columns=0.5))
    table = snapshots()
    luck = np.random.default_rng(5).uniform(-1, 1, (DAYS, 8))
    day = (table["poll_time"] - table["poll_time"].min()).dt.days
    table["poll_wait_sec"] *= 10 ** luck[day, table["account_id"]]
    path = tmp_path / "queue.csv"
    table.to_csv(path, index=False)
    assert main(["--floor", "--trace", str(path), "--json"]) == 0
    told = {k.removeprefix("queue_"): v for k, v in closing(capsys)["metrics"].items()}
    assert told["groups"] == DAYS * 8
    assert told["test_groups"] == 3 * 8
    assert told["common_share"] > 0.8
    assert told["mse_log10_oracle"] == pytest.approx(told["mse_log10"] * (1 - told["common_share"]))
    assert told["mse_log10"] > 0.2 > told["mse_log10_oracle"]
    assert told["mse_log10_p05"] < told["mse_log10"] < told["mse_log10_p95"]
    assert {"mse_log10_from_5_days", "mse_log10_from_10_days", "mse_log10_from_21_days", "mse_log10_folds", "mse_log10_fold_4"} <= set(told)
    assert main(["--floor", "--trace", str(trace_file(tmp_path))]) == 2
    assert "holds no snapshots" in capsys.readouterr().err


def test_what_is_common_to_groups_is_their_mean_error() -> None:
    assert common(np.array([1.0, -1.0, 2.0, 2.0]), np.array([0, 0, 1, 1])) == pytest.approx(2.0)
    shots = read(snapshots())
    rows = np.flatnonzero(shots.day == 3)
    assert len(np.unique(groups_of(shots, rows))) == 8


def test_learning_from_some_days_only() -> None:
    shots = read(snapshots())
    lesson = lesson_of(shots, np.array([4, 5]), late=True, only=np.array([1, 5, 9]))
    assert set(shots.day[lesson.rows]) == {1, 9}
    assert set(shots.day[lesson.asked]) == {4, 5}


def test_estimates_are_judged_by_their_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "narval_estimates.csv"
    path.write_text("true_start_time,estimate_start_time\n2022-12-01 12:00:00,2022-12-01 11:00:00\n2022-12-01 12:00:00,2022-12-01 12:01:40\n")
    assert main(["--trace", str(path), "--json"]) == 0
    metrics = closing(capsys)["metrics"]
    assert metrics["narval_slurm_median_error_s"] == 1850.0
    assert metrics["narval_slurm_late"] == 0.5
    assert metrics["narval_slurm_mean_log10_error_s"] == pytest.approx((np.log10(3600) + 2) / 2)


def test_other_files_are_refused_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = tmp_path / "odd.csv"
    odd.write_text("a,b\n1,2\n")
    for arguments in (["--trace", str(odd)], ["--trace", str(tmp_path / "none.parquet")], ["--trace", str(trace_file(tmp_path)), "--train-until", "soon"]):
        assert main(arguments) == 2
        said = capsys.readouterr()
        assert said.err.startswith("wait: ")
        assert said.err.count("\n") == 1


def test_snapshot_features_and_chronological_answers_do_not_look_ahead() -> None:
    table = snapshots()
    shots = read(table)
    first = chronological(shots.days)[1].min()
    now = shots.poll_s[shots.day == first][0]
    other = table.copy()
    ahead = pd.to_datetime(table["poll_time"]).astype("datetime64[s]").astype("int64") + table["poll_wait_sec"] >= now
    assert ahead.any()
    other.loc[ahead, "poll_wait_sec"] *= np.random.default_rng(0).uniform(1, 9, int(ahead.sum()))
    again = read(other)
    seen = shots.day <= first
    np.testing.assert_array_equal(shots.features[seen], again.features[seen])
    one, two = (lesson_of(s, chronological(s.days)[1], late=False) for s in (shots, again))
    np.testing.assert_array_equal(one.log_wait, two.log_wait)
    np.testing.assert_array_equal(one.ended, two.ended)
    assert not one.ended.all()
    assert (shots.day[one.rows] < first).all()


def test_the_published_draw_and_the_samples() -> None:
    validation, test = by_seed(61)
    assert len(validation) == len(test) == 7
    assert not set(validation) & set(test)
    kind = np.repeat([0, 1, 2], [5, 200, 60])
    keep, weight = sampled(kind, kind, seed=3)
    assert np.bincount(kind[keep]).tolist() == [5, KEPT, KEPT]
    sums = np.bincount(kind[keep], weight)
    assert sums / sums[0] == pytest.approx(np.sqrt([1, 40, 12]))
