"""The law of alike jobs: Kaplan and Meier's estimate by hand, jobs that still run, likeness, nothing of the future."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba", reason="numba is not installed")

from ischeduler.estimators.jobruntime.alike import Likeness, remaining_deciles
from ischeduler.estimators.jobruntime.table import NEVER, JobTable, job_table

HOUR = 3600
DAY = 24 * HOUR
EQUAL = Likeness(other_time=1.0, user_rank=1e12, kind_rank=1e12, days=1e12, others=0.0)
"""All jobs of the user with the same limit, size and name weigh the same, others nothing."""


def table(*rows: tuple[int, int, float], limit_h: float = 10.0, users: str | None = None, limits_h: list[float] | None = None) -> JobTable:
    """Jobs (submitted, started, run hours)."""
    limits = limits_h or [limit_h] * len(rows)
    return job_table({
        "submit_s": [r[0] for r in rows], "start_s": [r[1] for r in rows], "run_s": [r[2] * HOUR for r in rows],
        "req_units": [1] * len(rows), "req_walltime_s": [x * HOUR for x in limits], "user": list(users or "a" * len(rows)),
    })  # fmt: skip


def asked(jobs: JobTable, row: int, at_s: int, likeness: Likeness = EQUAL) -> np.ndarray:
    return remaining_deciles(jobs, np.array([row]), np.array([at_s]), likeness)[0]


def test_deciles_lie_straight_between_the_middles_of_the_steps():
    jobs = table((0, 0, 1.0), (1, 1, 2.0), (2, 2, 3.0), (3, 3, 4.0), (5 * DAY, 5 * DAY, 5.0))
    found = asked(jobs, 4, 5 * DAY)
    assert found[[0, 4, 8]] / HOUR == pytest.approx([1.0, 2.5, 4.0])  # steps of a quarter, their middles at 1/8, 3/8, 5/8, 7/8
    assert found[1] / HOUR == pytest.approx(1 + (0.2 - 0.125) / 0.25)


def test_what_has_elapsed_leaves_only_those_that_lasted_longer():
    jobs = table((0, 0, 1.0), (1, 1, 2.0), (2, 2, 6.0), (3, 3, 8.0), (5 * DAY, 5 * DAY, 9.0))
    found = asked(jobs, 4, 5 * DAY + 4 * HOUR)
    assert found[[0, 8]] / HOUR == pytest.approx([2.0, 4.0])


def test_jobs_that_still_run_make_the_law_longer():
    """Of eight that started together two ended within the first hour: the other six have used five hours at least."""
    begun = 10 * DAY
    jobs = table(*((begun + i, begun + i, 0.5 if i < 2 else 9.0) for i in range(8)), (begun + 9, NEVER, 9.0))
    found = asked(jobs, 8, begun + 5 * HOUR)
    assert found[0] / HOUR == pytest.approx(0.5)
    assert found[4] / HOUR > 5.0
    over = asked(jobs.take(np.array([0, 1, 8])), 2, begun + 5 * HOUR)
    assert over[8] / HOUR == pytest.approx(0.5), "without them the ended ones are all there is"


def test_jobs_with_the_same_limit_tell_more_than_others():
    rows = [(i * 60, i * 60, 9.5 if i % 2 else 0.4) for i in range(40)]
    jobs = table(*rows, (5 * DAY, NEVER, 1.0), limits_h=[10.0 if i % 2 else 2.0 for i in range(40)] + [2.0])
    assert asked(jobs, 40, 5 * DAY, Likeness())[4] / HOUR == pytest.approx(0.4, rel=0.01)


def test_a_new_user_gets_everybodys_law_and_an_empty_world_the_limit():
    jobs = table(*((i, i, 3.0) for i in range(5)), (DAY, NEVER, 1.0), users="bbbbba")
    assert asked(jobs, 5, DAY, Likeness())[[0, 8]] / HOUR == pytest.approx([3.0, 3.0])
    assert asked(jobs.take(np.array([5])), 0, DAY, Likeness())[[0, 8]] / HOUR == pytest.approx([10.0, 10.0])


def test_the_newest_jobs_of_a_user_weigh_most():
    rows = [(i * HOUR, i * HOUR, 1.0 if i < 60 else 8.0) for i in range(80)]
    found = asked(table(*rows, (5 * DAY, NEVER, 1.0)), 80, 5 * DAY, Likeness())
    assert found[4] / HOUR == pytest.approx(8.0), "a quarter of all, but the newest twenty"


def test_the_future_moves_nothing():
    rng = np.random.default_rng(0)
    count, now = 400, 20 * DAY
    submit = np.sort(rng.integers(0, 40 * DAY, count))
    rows = [(int(s), int(s + rng.integers(0, 9000)), float(rng.uniform(0.1, 10))) for s in submit]
    jobs = table(*rows, users="".join(rng.choice(list("abcd"), count)))
    alive = np.flatnonzero((jobs.submit_s <= now) & (jobs.end_s > now))
    assert len(alive) >= 1
    run, start = jobs.run_s.copy(), jobs.start_s.copy()
    unknown = jobs.end_s > now
    run[unknown] = np.maximum(jobs.limit_s[unknown] // 2, now - start[unknown] + 1)
    start[start > now] += rng.integers(1, 90000, int((start > now).sum()))
    other = JobTable(jobs.submit_s, start, run, jobs.limit_s, jobs.units, jobs.user, jobs.name, jobs.queue)
    at = np.full(len(alive), now)
    assert np.array_equal(remaining_deciles(jobs, alive, at), remaining_deciles(other, alive, at))
