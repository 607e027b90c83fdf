"""EASY that looks at a few jobs only: the kernel equals its twin, and all jobs are the same as no bound."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ischeduler.core.errors import BadInput
from ischeduler.simulator.kernel import FOREVER, starts
from ischeduler.simulator.reference import starts as plainly

job = st.tuples(st.integers(0, 9), st.integers(1, 5), st.integers(0, 9), st.integers(1, 9), st.integers(-6, 6))


@settings(max_examples=300, deadline=None)
@given(st.lists(job, max_size=16), st.integers(1, 6), st.integers(0, 4))
def test_a_bounded_look_equals_the_twin(jobs: list[tuple[int, ...]], capacity: int, depth: int) -> None:
    jobs = sorted(jobs, key=lambda j: j[0])
    submit, units, run, limit, fixed = ([j[i] for j in jobs] for i in range(5))
    run = [min(r, m) for r, m in zip(run, limit, strict=True)]
    columns = [np.array(c, dtype=np.int64) for c in (submit, units, run, limit)]
    found = starts(*columns, capacity, fixed_start_s=np.array(fixed, dtype=np.int64), depth=depth)
    ranks = list(range(len(jobs)))
    expected = plainly(
        submit, units, run, limit, capacity, scheduler="easy", fixed_start_s=fixed, until_s=FOREVER, rank=ranks, depth=depth
    )
    assert found.tolist() == expected
    unbounded = starts(*columns, capacity, fixed_start_s=np.array(fixed, dtype=np.int64))
    assert starts(*columns, capacity, fixed_start_s=np.array(fixed, dtype=np.int64), depth=len(jobs)).tolist() == unbounded.tolist()


def test_a_negative_depth_is_a_sentence() -> None:
    with pytest.raises(BadInput, match="depth is -1"):
        starts([0], [1], [1], [1], 1, depth=-1)
