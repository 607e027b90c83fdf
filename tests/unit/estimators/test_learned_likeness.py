"""The learned weights of past jobs: what is shipped, pieces by hand, the fit's formula is the law's, nothing of the future."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("numba", reason="numba is not installed")

from ischeduler.core.errors import BadInput
from ischeduler.estimators.jobruntime import alike, learned
from ischeduler.estimators.jobruntime.alike import Likeness
from ischeduler.estimators.jobruntime.learned import CONTEXT, TOLD, Weights, described, remaining_deciles, shipped
from ischeduler.estimators.jobruntime.table import NEVER, JobTable, job_table

HOUR, DAY = 3600, 86400
BY_HAND = Weights(("by_hand",), (1.0,), (1.0,), (0.0,) * len(CONTEXT), (1.0,) * len(CONTEXT))
"""The weights by hand, as they are."""


def table(*rows: tuple[int, int, float], limit_h: float = 10.0, users: str | None = None) -> JobTable:
    """Jobs (submitted, started, run hours)."""
    return job_table({
        "submit_s": [r[0] for r in rows], "start_s": [r[1] for r in rows], "run_s": [r[2] * HOUR for r in rows],
        "req_units": [1] * len(rows), "req_walltime_s": [limit_h * HOUR] * len(rows), "user": list(users or "a" * len(rows)),
    })  # fmt: skip


def world(count: int = 400) -> JobTable:
    rng = np.random.default_rng(0)
    submit = np.sort(rng.integers(0, 40 * DAY, count))
    limit = rng.choice([2.0, 10.0, 24.0], count)
    return job_table({
        "submit_s": submit, "start_s": submit + rng.integers(0, 9000, count), "run_s": limit * HOUR * rng.uniform(0.01, 0.95, count),
        "req_units": rng.choice([1, 1, 4], count), "req_walltime_s": limit * HOUR, "user": rng.choice(list("abcd"), count),
        "name": rng.choice(["train", "eval"], count),
    })  # fmt: skip


def alive(jobs: JobTable, now: int) -> np.ndarray:
    return np.flatnonzero((jobs.submit_s <= now) & (jobs.end_s > now))


def test_with_the_weights_by_hand_it_is_the_law_by_hand():
    """Of the user's own jobs; those of others come twice, and two steps at one place have no order."""
    jobs = world(100)
    rows = np.arange(20, 100)
    at = jobs.start_s[rows] + 600
    own = replace(BY_HAND, pieces=("by_hand", "one"), own=(1.0, 0.0), others=(0.0, -99.0))
    by_hand = alike.remaining_deciles(jobs, rows, at, Likeness(others=0.0))
    assert remaining_deciles(jobs, rows, at, own) == pytest.approx(by_hand, rel=1e-6, abs=1.0)


def test_pieces_weigh_as_their_numbers_say():
    """Two kinds of past jobs, and a number for one of them: hers rule."""
    jobs = table(*((i, i, 1.0 if i % 2 else 8.0) for i in range(40)), (5 * DAY, NEVER, 1.0))
    def ruled(piece: str, number: float) -> float:
        of = replace(BY_HAND, pieces=("by_hand", piece), own=(1.0, number), others=(1.0, number))
        return float(remaining_deciles(jobs, np.array([40]), np.array([5 * DAY]), of)[0, 4]) / HOUR

    assert ruled("used", 9.0) == pytest.approx(8.0)
    assert ruled("used", -9.0) == pytest.approx(1.0)
    assert ruled("used>0.5", -30.0) == pytest.approx(1.0)
    assert ruled("used*waiting", 9.0) == pytest.approx(8.0), "it waits"
    assert ruled("used*elapsed_share", -9.0) == ruled("one", 0.0), "nothing has elapsed"


def test_what_is_told_of_a_past_job():
    jobs = table((0, 0, 2.0), (DAY, DAY, 9.9), (DAY + 300, NEVER, 1.0), (DAY + 400, DAY + 400, 5.0), limit_h=10.0, users="abab")
    of = described(jobs, np.array([2]), np.array([2 * DAY]))
    assert (of.own[0], of.count[0]) == (1, 7), "its user's; everybody's, and those of its limit, who are the same"
    own = dict(zip(TOLD, of.told[0, 0].tolist(), strict=True))
    assert own["age"] == pytest.approx(np.log1p(48) / 4)
    assert own["ended_ago"] == pytest.approx(np.log1p(46) / 4)
    assert (own["same_limit"], own["burst"], own["submitted_later"], own["running"], own["full"]) == (1, 0, -1, 0, 0)
    newest = dict(zip(TOLD, of.told[0, 1].tolist(), strict=True))
    assert (newest["burst"], newest["submitted_later"], newest["used"]) == (1, 1, pytest.approx(0.5))
    assert of.context[0].tolist()[:3] == pytest.approx([0.0, np.log1p(10 * HOUR), 1.0])


def test_the_fit_weighs_as_the_law_does():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from benchmarks.likeness import PIECES, log_weights

    jobs, now = world(), 30 * DAY
    rows = alive(jobs, now)
    rng = np.random.default_rng(1)
    own, others = rng.normal(0, 0.5, (2, len(PIECES)))
    of = Weights(PIECES, tuple(own), tuple(others), (0.1, 10.0, 0.2, 2.0, -0.5), (0.2, 1.0, 0.4, 0.5, 1.0))
    seen = described(jobs, rows, np.full(len(rows), now))
    context = np.clip((seen.context - np.array(of.mean)) / np.array(of.spread), -3, 3)[:, None].repeat(learned.PLACES, axis=1)
    told = np.concatenate([seen.told, context, np.ones((*seen.share.shape, 1))], axis=2)
    mine = np.arange(learned.PLACES) < seen.own[:, None]
    by_fit = log_weights(torch, torch.from_numpy(told), torch.from_numpy(mine), torch.from_numpy(np.array([own, others])), of).numpy()
    parts = of.parts()
    for r, count in enumerate(seen.count):
        for p in range(count):
            assert learned._log_weight(told[r, p], parts, np.array([own, others])[0 if mine[r, p] else 1]) == pytest.approx(by_fit[r, p])


def test_the_future_moves_nothing():
    jobs, now = world(), 20 * DAY
    rows = alive(jobs, now)
    at = np.full(len(rows), now)
    unknown = np.flatnonzero(jobs.end_s > now)
    run, start, rng = jobs.run_s.copy(), jobs.start_s.copy(), np.random.default_rng(2)
    run[unknown] = np.minimum(jobs.limit_s[unknown], np.maximum(now - start[unknown], 0) + 1 + rng.integers(0, 40000, len(unknown)))
    start[jobs.start_s > now] += rng.integers(0, 90000, int((jobs.start_s > now).sum()))
    other = replace(jobs, run_s=run, start_s=start)
    assert np.array_equal(remaining_deciles(jobs, rows, at), remaining_deciles(other, rows, at))


def test_deciles_are_ordered_and_within_the_limit_and_the_limit_where_nothing_is_known():
    jobs, now = world(), 20 * DAY
    rows = alive(jobs, now)
    found = remaining_deciles(jobs, rows, np.full(len(rows), now))
    left = jobs.limit_s[rows] - np.maximum(now - jobs.start_s[rows], 0)
    assert (np.diff(found, axis=1) >= 0).all()
    assert (found <= left[:, None] + 1).all()
    alone = jobs.take(rows[:1])
    assert remaining_deciles(alone, np.array([0]), alone.submit_s)[0] == pytest.approx(np.full(9, float(alone.limit_s[0])))


def test_weights_survive_their_file_and_strange_ones_are_refused():
    of = shipped()
    assert Weights.from_data(json.loads(json.dumps(of.as_data()))) == of
    with pytest.raises(BadInput, match="a piece 'moon_phase', which this version does not know"):
        replace(BY_HAND, pieces=("moon_phase",))
    with pytest.raises(BadInput, match="one number for each"):
        replace(BY_HAND, own=())
    with pytest.raises(BadInput, match="means and spreads"):
        replace(BY_HAND, mean=())
    for broken in ({"own": (np.nan,)}, {"spread": (0.0,) * len(CONTEXT)}):
        with pytest.raises(BadInput, match="not finite, or spreads that are not above 0"):
            replace(BY_HAND, **broken)


def test_weights_are_fitted_judged_and_written(tmp_path, capsys):
    """On a world where a job does as its user's last one of the name did."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("lightgbm", reason="LightGBM is not installed")
    import pandas as pd
    from benchmarks.likeness import PIECES, main

    rng, count = np.random.default_rng(3), 1200
    submit = np.sort(rng.integers(0, 90 * DAY, count))
    name = rng.choice(["long", "short"], count)
    share = np.where(name == "long", rng.uniform(0.6, 0.9, count), rng.uniform(0.02, 0.1, count))
    frame = pd.DataFrame({
        "submit_s": submit, "start_s": submit + rng.integers(0, 600, count), "run_s": share * 10 * HOUR, "req_units": 1, "req_walltime_s": 10 * HOUR,
        "user": rng.choice(list("abcd"), count), "name": name,
    })  # fmt: skip
    frame.to_csv(tmp_path / "jobs.csv", index=False)
    options = ["--trace", str(tmp_path / "jobs.csv"), "--epochs", "5", "--json"]
    assert main([*options, "--cuts", "0.5"]) in (0, 1)
    found = json.loads(capsys.readouterr().out)["metrics"]
    assert found["jobs 0.5 law"] < found["jobs 0.5 without"] < 1.0, "names tell everything here"
    assert main([*options, "--out", str(tmp_path / "numbers.json")]) == 0
    written = Weights.from_data(json.loads((tmp_path / "numbers.json").read_text()))
    assert written.pieces == PIECES
    assert dict(zip(PIECES, written.own, strict=True))["same_name"] > 0
    assert main([*options, "--train-until", "0.001"]) == 2
    assert "give longer traces" in capsys.readouterr().err
    assert main([*options, "--cuts", "0.9999"]) == 2
    assert "no running job between 0.9999" in capsys.readouterr().err
    for strange in (["--cuts", "1.5"], ["--cuts", "x"], ["--epochs", "0"]):
        with pytest.raises(SystemExit):
            main([*options, *strange])
