"""The run-time law of jobs alive: causal, ordered, reproducible, and better than the plain law where users repeat themselves."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

pytest.importorskip("lightgbm", reason="LightGBM is not installed")
pytest.importorskip("numba", reason="numba is not installed")

from ischeduler.core.errors import BadInput
from ischeduler.estimators.jobruntime import empirical
from ischeduler.estimators.jobruntime.history import FEATURES, features
from ischeduler.estimators.jobruntime.instants import instants, running_rows, settled
from ischeduler.estimators.jobruntime.model import RuntimeLaw, fit, pinball_h
from ischeduler.estimators.jobruntime.sampling import draw_remaining_s, uniforms
from ischeduler.estimators.jobruntime.table import JobTable, job_table

DAY = 86400


@cache
def jobs(seed: int = 0, count: int = 4000) -> JobTable:
    """Users of two kinds of job each: one kind ends early, the other runs to its limit; only the limit tells them apart."""
    rng = np.random.default_rng(seed)
    user = rng.integers(0, 12, count)
    long = rng.random(count) < 0.5
    limit = np.where(long, 36000, 21600)
    share = np.where(long, rng.uniform(0.9, 1.0, count), rng.uniform(0.02, 0.3, count))
    submit = np.sort(rng.integers(0, 90 * DAY, count))
    return job_table({
        "submit_s": submit, "start_s": submit + rng.integers(0, 3600, count), "run_s": limit * share, "req_units": 1 + long,
        "req_walltime_s": limit, "user": user.astype(str),
    })  # fmt: skip


@cache
def law() -> RuntimeLaw:
    return fit(jobs(), until_s=60 * DAY, looks=150, seed=1)


def test_law_beats_the_plain_one_where_kinds_differ():
    table = jobs()
    rows, at = running_rows(table, instants(61 * DAY, 89 * DAY, 80, np.random.default_rng(3)))
    assert len(rows) > 100
    truth = table.end_s[rows] - at
    plain = pinball_h(truth, empirical.remaining_deciles(table, rows, at))
    assert pinball_h(truth, law().remaining_deciles(table, rows, at)) < 0.7 * plain


def test_deciles_never_decrease_and_stay_within_the_limit():
    table = jobs()
    rows, at = running_rows(table, np.array([70 * DAY, 75 * DAY]))
    found = law().remaining_deciles(table, rows, at)
    left = table.limit_s[rows] - (at - table.start_s[rows])
    assert (np.diff(found, axis=1) >= -1e-9).all()
    assert (found >= 0).all()
    assert (found <= left[:, None] + 1e-6).all()
    assert law().remaining_deciles(table, rows[:0], at[:0]).shape == (0, 9)


def test_shuffled_future_moves_nothing():
    table, now = jobs(), 70 * DAY
    rows, at = running_rows(table, np.array([now]))
    rng = np.random.default_rng(5)
    unknown = np.flatnonzero(table.end_s > now)
    run = table.run_s.copy()
    gone = np.maximum(now - table.start_s[unknown], 0)
    run[unknown] = np.minimum(table.limit_s[unknown], gone + 1 + rng.integers(0, 40000, len(unknown)))
    start = table.start_s.copy()
    waiting = np.flatnonzero(table.start_s > now)
    start[waiting] += rng.integers(0, 90000, len(waiting))
    other = JobTable(table.submit_s, start, run, table.limit_s, table.units, table.user, table.name, table.queue)
    assert np.array_equal(features(table, rows, at), features(other, rows, at), equal_nan=True)
    assert np.array_equal(empirical.remaining_deciles(table, rows, at), empirical.remaining_deciles(other, rows, at))
    assert np.array_equal(law().remaining_deciles(table, rows, at), law().remaining_deciles(other, rows, at))


def test_training_reads_nothing_beyond_its_end():
    table, until = jobs(), 60 * DAY
    rng = np.random.default_rng(6)
    late = np.flatnonzero(table.end_s > until)
    run = table.run_s.copy()
    gone = np.maximum(until - table.start_s[late], 0)
    run[late] = np.minimum(table.limit_s[late], gone + 1 + rng.integers(0, 40000, len(late)))
    other = JobTable(table.submit_s, table.start_s, run, table.limit_s, table.units, table.user, table.name, table.queue)
    again = fit(other, until_s=until, looks=150, seed=1)
    assert again.as_data()["boosters"] == law().as_data()["boosters"]


def test_rows_are_settled_whatever_their_outcome():
    table = jobs()
    rows = running_rows(table, np.array([50 * DAY]))
    kept = settled(table, rows, 50 * DAY + 20000)
    assert ((kept[1] + table.limit_s[kept[0]] - (kept[1] - table.start_s[kept[0]])) <= 50 * DAY + 20000).all()
    assert len(kept[0]) < len(rows[0])


def test_law_survives_its_file():
    table = jobs()
    rows, at = running_rows(table, np.array([72 * DAY]))
    again = RuntimeLaw.from_data(law().as_data())
    assert np.allclose(again.remaining_deciles(table, rows, at), law().remaining_deciles(table, rows, at))


def test_draws_follow_the_deciles_and_groups_move_together():
    deciles = np.tile(np.arange(100, 1000, 100), (6, 1)).astype(float)
    noise = uniforms(np.array([0, 0, 1, 2, 3, 4]), 20000, seed=2, together=0.6)
    drawn = draw_remaining_s(deciles, np.full(6, 1000), noise)
    assert np.allclose(np.quantile(drawn, np.arange(1, 10) / 10, axis=1).T, deciles, atol=25)
    assert drawn.min() >= 1
    assert drawn.max() <= 1000
    moves = np.corrcoef(drawn)
    assert moves[0, 1] > 0.5
    assert abs(moves[0, 2]) < 0.05
    assert np.array_equal(noise, uniforms(np.array([0, 0, 1, 2, 3, 4]), 20000, seed=2, together=0.6))


def test_features_have_a_name_each():
    table = jobs()
    rows, at = running_rows(table, np.array([40 * DAY]))
    assert features(table, rows, at).shape == (len(rows), len(FEATURES))


def test_bad_tables_are_refused_in_a_sentence():
    with pytest.raises(BadInput, match="no column run_s"):
        job_table({"submit_s": [0], "start_s": [0], "req_units": [1], "req_walltime_s": [1]})
    with pytest.raises(BadInput, match="longer trace"):
        fit(jobs(), until_s=DAY // 2, looks=5)
