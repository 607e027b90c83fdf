"""One measured step corrects the curve: it is believed where it speaks, and not where it does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ischeduler.estimators.steptime.coefficients import Load
from ischeduler.estimators.steptime.correction import Correction, MeasuredStep, corrected_by


def curve(batch: float) -> Load:
    """A device 1 ms a sample, a CPU that needs 10 ms to launch."""
    return Load(1e-3 * batch, 1e-2)


def test_nothing_measured_changes_nothing() -> None:
    assert corrected_by([]) == Correction()


@given(st.floats(0.5, 2.5))
def test_a_device_bound_step_moves_the_device_and_not_the_launches(factor: float) -> None:
    found = corrected_by([MeasuredStep((curve(128),), factor * curve(128).seconds)])
    assert found.device == pytest.approx(factor, rel=0.05)
    assert found.launch == pytest.approx(1.0, rel=0.02)


@given(st.floats(0.6, 2.0))
def test_a_launch_bound_step_says_nothing_of_large_batches(factor: float) -> None:
    found = corrected_by([MeasuredStep((curve(1),), factor * curve(1).seconds)])
    assert found.launch == pytest.approx(factor, rel=0.05)
    assert found.seconds([curve(256)]) == pytest.approx(curve(256).seconds, rel=0.03)


def test_two_steps_tell_both() -> None:
    truth = Correction(1.6, 0.7)
    steps = [MeasuredStep((curve(b),), truth.seconds([curve(b)])) for b in (2, 64)]
    found = corrected_by(steps)
    assert found.seconds([curve(200)]) == pytest.approx(truth.seconds([curve(200)]), rel=0.04)
    assert found.seconds([curve(1)]) == pytest.approx(truth.seconds([curve(1)]), rel=0.04)


def test_one_bad_measurement_among_several_weighs_little() -> None:
    steps = [MeasuredStep((curve(b),), 1.2 * curve(b).seconds * (3.0 if b == 96 else 1.0)) for b in (32, 64, 96, 128, 160)]
    assert corrected_by(steps).device == pytest.approx(1.2, rel=0.15)


def test_phases_add_up() -> None:
    step = (curve(32), curve(64))
    assert Correction(2.0, 2.0).seconds(step) == pytest.approx(2 * sum(load.seconds for load in step))
