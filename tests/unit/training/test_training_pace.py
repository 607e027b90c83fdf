"""Will the next step fit? Robust to outliers, careful about the unknown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ischeduler.training.deadline import job_deadline
from ischeduler.training.pace import MARGIN_S, Pace, upper_s


def paced(steps: list[float], saves: tuple[float, ...] = (2.0,), tails: tuple[float, ...] = ()) -> Pace:
    pace = Pace()
    for value in steps:
        pace.note_step(value)
    for value in saves:
        pace.note_save(value)
    for value in tails:
        pace.note_epoch_tail(value)
    return pace


def test_the_boundary_is_exact() -> None:
    pace = paced([1.0] * 50)
    need_s = 1.1 + 3.0 + MARGIN_S
    assert pace.fits(100.0, 100.0 + need_s + 1e-6)
    assert not pace.fits(100.0, 100.0 + need_s - 1e-6)


def test_no_deadline_always_fits() -> None:
    assert paced([1e9]).fits(0.0, None)


def test_one_outlier_in_many_does_not_stop_training() -> None:
    assert upper_s([1.0] * 99 + [500.0]) == pytest.approx(1.1)
    assert upper_s([1.0, 500.0]) == pytest.approx(550.0)


def test_unknown_saves_reserve_the_given_time() -> None:
    pace = Pace(unknown_save_s=30.0)
    assert pace.save_s == 30.0
    assert not pace.fits(0.0, 30.0)
    assert pace.fits(0.0, 32.0)


def test_evaluation_counts_after_the_last_step_of_an_epoch() -> None:
    pace = paced([1.0] * 10, tails=(60.0,))
    assert pace.fits(0.0, 30.0)
    assert not pace.fits(0.0, 30.0, epoch_tail=True)


def test_old_saves_are_forgotten() -> None:
    assert paced([1.0], saves=(100.0, 1.0, 1.0, 1.0, 1.0, 1.0)).save_s == 1.5


def test_what_was_measured_travels() -> None:
    heir = Pace()
    heir.load_state(paced([2.0] * 40, tails=(7.0,)).to_state())
    assert heir.step_s == 2.0
    assert heir.save_s == 3.0
    assert heir.next_s(epoch_tail=True) == pytest.approx(9.9)


@given(st.lists(st.floats(1e-4, 1e4), min_size=1, max_size=200))
def test_the_bound_lies_within_the_measured_range(values: list[float]) -> None:
    assert min(values) * 1.1 <= upper_s(values) * (1 + 1e-9)
    assert upper_s(values) <= max(values) * 1.1 * (1 + 1e-9)
    assert sum(value * 1.1 > upper_s(values) * (1 + 1e-9) for value in values) <= 0.05 * len(values)


@pytest.mark.parametrize(
    ("env", "deadline"),
    [
        ({}, None),
        ({"ISCHED_WALLTIME_S": "3600"}, 4600.0),
        ({"ISCHED_WALLTIME_S": "3600", "SLURM_JOB_END_TIME": "4500"}, 4500.0),  # 100 s of set-up before the wrapper
        ({"ISCHED_WALLTIME_S": "3600", "SLURM_JOB_END_TIME": "8200"}, 4600.0),  # the controller's clock is an hour ahead
        ({"ISCHED_WALLTIME_S": "3600", "SLURM_JOB_END_TIME": "1060"}, 4600.0),  # an hour behind
        ({"ISCHED_WALLTIME_S": "3600", "SLURM_JOB_END_TIME": "900"}, 4600.0),
        ({"SLURM_JOB_END_TIME": "2000"}, 2000.0),
        ({"SLURM_JOB_END_TIME": "900"}, None),
        ({"ISCHED_WALLTIME_S": "soon", "SLURM_JOB_END_TIME": "nan"}, None),
    ],
)
def test_the_deadline_is_on_the_local_clock(env: dict[str, str], deadline: float | None) -> None:
    assert job_deadline(env, 1000.0) == deadline
