"""HARP's regressors and its policy; skipped where scikit-learn is not installed."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from ischeduler.core.errors import EstimatorFailed
from ischeduler.estimators.walltime.harp import HARP, HarpModel, adjustment, judged, split
from ischeduler.estimators.walltime.regressors import LEAST_S, LINEAR, TREE
from ischeduler.estimators.walltime.timed import TimedRun

SIZES = (100, 200, 400, 800)


def runs() -> list[TimedRun]:
    return [
        TimedRun("m", "a", b, s, e, 5 + 0.01 * s * e, (float(s), float(e), float(s * e), float(b)))
        for s in SIZES for e in (1, 2) for b in (8, 16)
    ]


def wanted(samples: int) -> TimedRun:
    return TimedRun("m", "a", 8, samples, 1, 0.0, (float(samples), 1.0, float(samples), 8.0))


def test_a_straight_line_goes_on_and_a_tree_does_not() -> None:
    pytest.importorskip("sklearn")
    assert LINEAR.fit(runs()).predict(wanted(8000)).seconds == pytest.approx(85, rel=1e-6)
    assert TREE.fit(runs()).predict(wanted(8000)).seconds <= max(r.seconds for r in runs())
    assert LINEAR.fit(runs()).predict(wanted(-9000)).seconds == LEAST_S


def test_the_policy_prefers_what_under_predicts_least_and_adjusts_it() -> None:
    pytest.importorskip("sklearn")
    harp = HarpModel((LINEAR, TREE))
    best = harp.chosen(runs())
    assert best.under_share == 0.0
    assert harp.fit(runs()).factor == best.factor
    assert harp.chosen(runs()).name == best.name


def test_the_adjustment_is_the_mean_error_of_the_under_predictions() -> None:
    check = [replace(wanted(1), seconds=s) for s in (10.0, 10.0, 10.0)]
    assert adjustment(check, [8.0, 6.0, 12.0]) == pytest.approx(1.3)
    assert adjustment(check, [10.0, 11.0, 12.0]) == 1.0
    found = judged("x", None, 1.3, check, [8.0, 6.0, 12.0])
    assert found.under_share == pytest.approx(1 / 3)
    assert found.over_error == pytest.approx((0.04 + 0.56) / 2)


def test_full_scale_is_the_largest_size_and_a_quarter_of_it_validates() -> None:
    small, full, check = split(runs())
    assert max(r.samples for r in small) == 400
    assert {r.samples for r in [*full, *check]} == {800}
    assert (len(full), len(check)) == (len(small), 1)
    assert not set(full) & set(check)
    with pytest.raises(EstimatorFailed, match="one size"):
        split([r for r in runs() if r.samples == 800])
    with pytest.raises(EstimatorFailed, match="at least 4"):
        split([r for r in runs() if r.samples < 800 or r.batch == 8])


def test_without_scikit_learn_or_columns_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    with pytest.raises(EstimatorFailed, match="no columns"):
        HARP.fit([replace(r, features=()) for r in runs()])
    monkeypatch.setitem(sys.modules, "sklearn.exceptions", None)
    with pytest.raises(EstimatorFailed, match="pip install"):
        LINEAR.fit(runs())
