"""Trained wait models: no look ahead, ordered answers, files that are read back, and better than the past alone."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("lightgbm", reason="LightGBM is not installed")
pytest.importorskip("numba", reason="numba is not installed")

from queue_wait_worlds import UNITS, shuffled_after, trace

from ischeduler.core.errors import BadInput, EstimatorFailed
from ischeduler.estimators.queuewait.features import of_trace
from ischeduler.estimators.queuewait.jobs import Jobs
from ischeduler.estimators.queuewait.learner import Labels, Settings, fit_quantiles
from ischeduler.estimators.queuewait.model import CALIBRATED, WaitModel, load, save, train
from ischeduler.estimators.queuewait.service import serve

QUICK = Settings(rounds=20, leaves=15, least_in_leaf=30)
TRAINED = 1100


@cache
def model() -> WaitModel:
    jobs = trace()
    return train(jobs, now_s=float(jobs.submit_s[TRAINED]), settings=QUICK, capacity=UNITS, data="a simulated cluster", validation={"auc": 0.9})


def later(jobs: Jobs) -> np.ndarray:
    return of_trace(jobs, capacity=UNITS)[TRAINED:]


def test_another_future_changes_no_prediction() -> None:
    jobs = trace()
    now = float(jobs.submit_s[1200])
    other = shuffled_after(jobs, now)
    first = float(jobs.submit_s[1000])
    one, two = (serve(j, of_trace(j), first, settings=(QUICK,), refits=1) for j in (jobs, other))
    before = int((jobs.submit_s[one.first :] <= now).sum())
    assert before > 100
    np.testing.assert_array_equal(one.log_waits[:before], two.log_waits[:before])
    np.testing.assert_array_equal(one.chances[:before], two.chances[:before])
    assert not np.array_equal(one.log_waits[before:], two.log_waits[before:])


def test_a_model_is_trained_on_what_was_known() -> None:
    jobs = trace()
    now = float(jobs.submit_s[TRAINED])
    again = train(shuffled_after(jobs, now), now_s=now, settings=QUICK, capacity=UNITS)
    np.testing.assert_array_equal(model().waits_s(later(jobs)), again.waits_s(later(jobs)))


def test_answers_are_ordered_and_better_than_a_constant() -> None:
    jobs = trace()
    waits = model().waits_s(later(jobs))
    assert waits.shape == (len(jobs) - TRAINED, len(CALIBRATED))
    assert (np.diff(waits, axis=1) >= 0).all()
    truth = np.log1p(jobs.wait_s[TRAINED:])
    error = np.abs(np.log1p(waits[:, 1]) - truth).mean()
    constant = np.median(np.log1p(jobs.wait_s[:TRAINED]))
    assert error < 0.7 * np.abs(constant - truth).mean()


def test_chances_rise_with_the_time_that_is_given() -> None:
    table = later(trace())
    told = np.column_stack([model().chance_by(table, s) for s in (60.0, 600.0, 3600.0, 86400.0, 30 * 86400.0)])
    assert ((told >= 0) & (told <= 1)).all()
    assert (told[:, 0] <= model().chances(table)[:, 0]).all()
    assert (told[:, 3] >= model().chances(table)[:, 1] - 1e-12).all()
    assert told[:, 4].mean() > 0.95


def test_a_file_says_the_same_as_the_model(tmp_path: Path) -> None:
    path = tmp_path / "models" / "site.json"
    save(model(), path)
    back = load(path)
    table = later(trace())
    np.testing.assert_allclose(back.waits_s(table), model().waits_s(table))
    np.testing.assert_allclose(back.chances(table), model().chances(table))
    assert back.provenance["data"] == "a simulated cluster"
    assert back.provenance["validation"] == {"auc": 0.9}
    assert back.capacity == UNITS


def test_files_that_are_none_are_refused_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    for text in ("", "[]", '{"format": "other"}', '{"format": "ischeduler-queue-wait-1"}'):
        path.write_text(text)
        with pytest.raises(EstimatorFailed, match="train it again"):
            load(path)
    with pytest.raises(EstimatorFailed, match="cannot be read"):
        load(tmp_path / "none.json")


def test_too_few_jobs_are_refused() -> None:
    jobs = trace()
    with pytest.raises(BadInput, match="at least 200"):
        train(jobs, now_s=float(jobs.submit_s[100]))


def test_jobs_that_still_wait_pull_the_upper_quantiles_up() -> None:
    rng = np.random.default_rng(5)
    table, waits = rng.uniform(size=(2000, 3)), rng.normal(8, 1, 2000)
    seen_for = np.full(2000, 9.0)  # whoever waits longer than this has not started yet
    ended = waits < seen_for
    labels = Labels(np.where(ended, waits, seen_for), ended)
    upper, left_out = (
        fit_quantiles(table[rows], Labels(labels.log_wait[rows], ended[rows]), QUICK, (0.5, 0.75))[1].predict(table).mean()
        for rows in (np.arange(2000), np.flatnonzero(ended))
    )
    truth = np.quantile(waits, 0.75)
    assert left_out < upper
    assert abs(upper - truth) < 0.5 * abs(left_out - truth)
