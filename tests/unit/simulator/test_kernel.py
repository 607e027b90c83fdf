"""The compiled kernel equals its readable twin, on traces full of ties, given starts, priorities and limits."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ischeduler.core.errors import BadInput
from ischeduler.simulator import kernel
from ischeduler.simulator.kernel import FOREVER, SCHEDULERS, rollouts, starts
from ischeduler.simulator.reference import starts as plainly

compiled_here = pytest.mark.skipif(find_spec("numba") is None, reason="numba is not installed")
job = st.tuples(st.integers(0, 12), st.integers(1, 6), st.integers(0, 9), st.integers(0, 9), st.integers(0, 2), st.integers(-6, 14))


@st.composite
def traces(draw: Any) -> list[Any]:
    """Jobs, a machine, and how far to go. A job's last field below 0: scheduled; else its given start."""
    jobs = sorted(draw(st.lists(job, max_size=14)), key=lambda j: j[0])
    columns = [list(c) for c in zip(*jobs, strict=True)] or [[] for _ in range(6)]
    fixed = columns[5] if draw(st.booleans()) else [-1] * len(jobs)
    priority = columns[4] if draw(st.booleans()) else [0] * len(jobs)
    until = draw(st.one_of(st.none(), st.integers(0, 40)))
    target = draw(st.one_of(st.none(), st.integers(0, len(jobs) - 1))) if jobs else None
    return [*columns[:4], priority, fixed, draw(st.integers(1, 7)), until, target]


def twin(trace: list[Any], scheduler: str) -> list[int]:
    submit, units, run, limit, priority, fixed, capacity, until, target = trace
    limit = [max(1, x) for x in limit]
    run = [min(a, b) for a, b in zip(run, limit, strict=True)]
    rank = [0] * len(submit)
    for place, k in enumerate(sorted(range(len(submit)), key=lambda k: (-priority[k], k))):
        rank[k] = place
    return plainly(
        submit, units, run, limit, capacity, scheduler=scheduler, fixed_start_s=fixed, until_s=FOREVER if until is None else until,
        rank=rank, target=-1 if target is None else target,
    )


def compiled(trace: list[Any], scheduler: str) -> list[int]:
    submit, units, run, limit, priority, fixed, capacity, until, target = trace
    columns = [np.array(c, np.int64) for c in (submit, units, run, limit)]
    return starts(
        *columns, capacity, scheduler=scheduler, fixed_start_s=np.array(fixed, np.int64), until_s=until,
        priority=np.array(priority, np.int64), stop_at_job=target,
    ).tolist()


@compiled_here
@pytest.mark.parametrize("scheduler", SCHEDULERS)
@settings(max_examples=250, deadline=None)
@given(trace=traces())
def test_the_kernel_equals_its_twin(scheduler: str, trace: list[Any]) -> None:
    assert compiled(trace, scheduler) == twin(trace, scheduler)


@compiled_here
@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("seed", range(2))
def test_the_kernel_equals_its_twin_on_long_queues(scheduler: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 90 if scheduler == "conservative" else 250
    submit = np.sort(rng.integers(0, n, n))
    limit = rng.integers(1, 60, n)
    trace = [x.tolist() for x in (submit, rng.integers(1, 9, n), rng.integers(0, 70, n), limit, rng.integers(0, 3, n) * (seed % 2))]
    trace += [[-1] * n, 12, None, None]
    assert compiled(trace, scheduler) == twin(trace, scheduler)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@settings(max_examples=60, deadline=None)
@given(trace=traces())
def test_the_machine_is_never_oversubscribed_and_nobody_starts_before_submission(scheduler: str, trace: list[Any]) -> None:
    trace[5], trace[7], trace[8] = [-1] * len(trace[0]), None, None
    submit, units, run, limit, capacity = trace[0], trace[1], trace[2], trace[3], trace[6]
    begin = compiled(trace, scheduler)
    held = [(s, s + min(r, max(1, m)), u) for s, r, m, u in zip(begin, run, limit, units, strict=True) if s >= 0]
    assert all(s == -1 if u > capacity else s >= t for s, t, u in zip(begin, submit, units, strict=True))
    assert all(sum(u for b, e, u in held if b <= at < e) <= capacity for at, _, _ in held)


def test_fcfs_never_overtakes() -> None:
    begin = starts([0, 1, 2], [4, 4, 1], [10, 10, 1], [10, 10, 1], 4, scheduler="fcfs")
    assert begin.tolist() == [0, 10, 20]


def test_easy_backfills_what_does_not_delay_the_head() -> None:
    begin = starts([0, 1, 2, 3], [3, 4, 1, 1], [10, 10, 7, 9], [10, 10, 7, 9], 4)
    assert begin.tolist() == [0, 10, 2, 20], "the third ends by the head's reservation, the fourth would not"


def test_conservative_delays_nobody_where_easy_does() -> None:
    """The last job fits beside the head's reservation, but would push back the second in the queue."""
    submit, units, run = [0, 1, 2, 3], [3, 2, 4, 1], [10, 10, 10, 30]
    assert starts(submit, units, run, run, 4).tolist() == [0, 10, 33, 3]
    assert starts(submit, units, run, run, 4, scheduler="conservative").tolist() == [0, 10, 20, 30]


def test_a_job_ends_at_its_limit() -> None:
    assert starts([0, 0], [1, 1], [100, 1], [7, 1], 1).tolist() == [0, 7]


def test_jobs_wider_than_the_machine_block_nobody() -> None:
    assert starts([0, 0], [5, 1], [1, 1], [1, 1], 4).tolist() == [-1, 0]


def test_a_warm_start_holds_its_units() -> None:
    begin = starts([0, 50], [4, 4], [100, 1], [100, 1], 4, fixed_start_s=[0, -1])
    assert begin.tolist() == [0, 100]


def test_until_is_the_last_second() -> None:
    assert starts([0, 0], [1, 1], [5, 5], [5, 5], 1, until_s=5).tolist() == [0, 5]
    assert starts([0, 0], [1, 1], [5, 5], [5, 5], 1, until_s=4).tolist() == [0, -1]


def test_priority_goes_first() -> None:
    assert starts([0, 1, 2], [1, 1, 1], [9, 9, 9], [9, 9, 9], 1, priority=[0, 0, 5]).tolist() == [0, 18, 9]


def test_rollouts_are_starts_row_by_row() -> None:
    rng = np.random.default_rng(3)
    submit, units, limit = np.sort(rng.integers(0, 500, 60)), rng.integers(1, 6, 60), rng.integers(20, 90, 60)
    run = rng.integers(1, 90, (25, 60))
    submits = np.sort(rng.integers(0, 500, (25, 60)), axis=1)
    for scheduler in SCHEDULERS:
        together = rollouts(submit, units, run, limit, 8, scheduler=scheduler)
        apart = np.stack([starts(submit, units, r, limit, 8, scheduler=scheduler) for r in run])
        assert (together == apart).all()
        moved = rollouts(submits, units, run, limit, 8, scheduler=scheduler)
        assert (moved[7] == starts(submits[7], units, run[7], limit, 8, scheduler=scheduler)).all()


def test_threads_do_not_disturb_each_other() -> None:
    rng = np.random.default_rng(5)
    submit, units, run = np.sort(rng.integers(0, 9000, 3000)), rng.integers(1, 20, 3000), rng.integers(1, 400, 3000)
    alone = starts(submit, units, run, run + 50, 32)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: starts(submit, units, run, run + 50, 32), range(8)))
    assert all((f == alone).all() for f in found)


def test_a_watcher_hears_the_end() -> None:
    heard: list[float] = []
    starts([0, 1], [1, 1], [1, 1], [1, 1], 1, watch=heard.append)
    assert heard[-1] == 1.0


@compiled_here
def test_without_numba_the_twin_answers_with_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = starts([0, 1, 2], [3, 4, 1], [9, 9, 3], [9, 9, 3], 4).tolist()
    monkeypatch.setitem(sys.modules, "ischeduler.simulator.compiled", None)
    monkeypatch.delattr("ischeduler.simulator.compiled")
    kernel.machine_code.cache_clear()
    try:
        with pytest.warns(RuntimeWarning, match="numba is not installed"):
            assert starts([0, 1, 2], [3, 4, 1], [9, 9, 3], [9, 9, 3], 4).tolist() == fast
    finally:
        monkeypatch.undo()
        kernel.machine_code.cache_clear()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"scheduler": "sjf"}, "no scheduler 'sjf'"),
        ({"capacity": 0}, "at least 1"),
        ({"submit_s": [3, 1]}, "not sorted"),
        ({"units": [1, 0]}, "fewer than 1 unit"),
        ({"run_s": [1, -1]}, "negative"),
        ({"run_s": [1, float("nan")]}, "missing values"),
        ({"run_s": [1]}, "run_s has 1 entries"),
        ({"run_s": [[1, 1]]}, "2 dimensions"),
        ({"run_s": ["a", "b"]}, "expected whole numbers"),
        ({"stop_at_job": 2}, "from 0 to 1"),
    ],
)
def test_what_does_not_fit_together_is_one_sentence(change: dict[str, Any], words: str) -> None:
    fine: dict[str, Any] = {"submit_s": [0, 1], "units": [1, 1], "run_s": [1, 1], "limit_s": [1, 1], "capacity": 4}
    with pytest.raises(BadInput, match=words):
        starts(**{**fine, **change})


def test_an_empty_trace_has_no_starts() -> None:
    empty = np.zeros(0, np.int64)
    assert starts(empty, empty, empty, empty, 4).shape == (0,)
