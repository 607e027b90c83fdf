"""Which batch would fit, from a straight line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ischeduler.core.memory_model import MemoryModel

models = st.builds(MemoryModel, st.floats(0, 1e11), st.floats(1e3, 1e10))
batches = st.integers(1, 4096)


@given(models, st.floats(0, 1e12))
def test_the_largest_batch_fits_and_the_next_one_does_not(model: MemoryModel, have: float) -> None:
    largest = model.largest_batch(have)
    assert largest == 0 or model.at(largest) <= have
    assert model.at(largest + 1) > have * (1 - 1e-6)


@given(models, batches, st.floats(0, 1e12))
def test_accumulation_keeps_the_batch_and_fits(model: MemoryModel, batch: int, have: float) -> None:
    parts = model.accumulation_that_fits(batch, have)
    if parts is None:
        assert model.at(1) > have * (1 - 1e-6)
    else:
        assert batch % parts == 0
        assert model.at(batch // parts) <= have


@given(models, batches, batches)
def test_a_line_through_two_of_its_points_is_itself(model: MemoryModel, one: int, other: int) -> None:
    if one == other:
        return
    again = MemoryModel.through({one: model.at(one), other: model.at(other)})
    assert again is not None
    assert again.at(100) == pytest.approx(model.at(100), rel=1e-3, abs=1e5)


@given(models, batches, st.floats(1e6, 1e12))
def test_raised_to_an_estimate_it_passes_through_it(model: MemoryModel, batch: int, need: float) -> None:
    assert model.passing(batch, need).at(batch) == pytest.approx(need)


def test_no_line_without_growth() -> None:
    assert MemoryModel.through({32: 1e9}) is None
    assert MemoryModel.through({32: 1e9, 64: 1e9}) is None
    with pytest.raises(ValueError, match="does not grow"):
        MemoryModel(1e9, 0).largest_batch(2e9)
