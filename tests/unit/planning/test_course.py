"""How a run is cut into jobs, and what the cut adds up to."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from planning_scenes import HOUR, seconds

from ischeduler.core.estimate import Estimate
from ischeduler.core.plan import Needs
from ischeduler.planning.course import First, Timing, cascade, jobs_at_p90, one_job

limits = st.floats(120, 8 * 86400)


@st.composite
def intervals(draw: st.DrawFn, low: float, high: float) -> Estimate:
    return seconds(*sorted(draw(st.lists(st.floats(low, high), min_size=3, max_size=3))))


@st.composite
def timings(draw: st.DrawFn) -> Timing:
    return Timing.of(Needs(
        run=draw(intervals(1, 40 * HOUR)), wait=draw(intervals(0, 40 * HOUR)), startup=draw(st.none() | intervals(0, 600)),
        checkpoint=draw(st.none() | intervals(0, 300)),
    ))  # fmt: skip


def practical(timing: Timing, limit_s: float) -> None:
    """Only limits that leave progress, and no thousands of jobs."""
    useful = timing.useful_s(limit_s)
    assume(useful > 1 and timing.run.p90 / useful < 500)


@given(timings(), limits)
def test_the_segments_cover_the_runs_p90_within_the_limit(timing: Timing, limit: float) -> None:
    practical(timing, limit)
    course = cascade(timing, limit)
    assert sum(s.useful_s for s in course.segments) + timing.startup_s >= timing.run.p90 * (1 - 1e-9) - 1e-3
    assert all(0 < s.walltime_s <= limit for s in course.segments)
    assert [s.index for s in course.segments] == list(range(len(course.segments)))
    assert len(course.segments) == jobs_at_p90(timing, limit)


@given(timings(), limits)
def test_the_figures_are_ordered_finite_and_not_below_their_parts(timing: Timing, limit: float) -> None:
    practical(timing, limit)
    course = cascade(timing, limit)
    for estimate in (course.run, course.wait, course.finish):
        quantiles = (estimate.p10, estimate.p50, estimate.p90)
        assert all(math.isfinite(q) and q >= 0 for q in quantiles)
        assert list(quantiles) == sorted(quantiles)
    assert course.finish.p50 == pytest.approx(course.run.p50 + course.wait.p50)
    assert course.run.p50 >= timing.run.p50 - 1e-6
    assert course.wait.p50 >= timing.wait.p50 - 1e-6


@given(timings(), limits)
def test_what_is_charged_is_the_time_in_jobs(timing: Timing, limit: float) -> None:
    practical(timing, limit)
    course = cascade(timing, limit)
    for used, quantile in zip(course.used_s, (course.run.p10, course.run.p50, course.run.p90), strict=True):
        assert sum(used) == pytest.approx(quantile)
        assert all(0 <= job <= limit * (1 + 1e-9) + 1e-6 for job in used)
    assert len(course.used_s[0]) <= len(course.used_s[1]) <= len(course.used_s[2]) == len(course.segments)


@given(timings(), limits, limits)
def test_more_limit_never_means_more_jobs_nor_a_later_end(timing: Timing, one: float, other: float) -> None:
    low, high = sorted((one, other))
    practical(timing, low)
    short, long = cascade(timing, low), cascade(timing, high)
    assert len(long.segments) <= len(short.segments)
    assert long.finish.p50 <= short.finish.p50 + 1e-3
    assert long.run.p90 <= short.run.p90 + 1e-3


@given(timings(), st.floats(1, 3))
def test_a_longer_run_never_ends_sooner(timing: Timing, factor: float) -> None:
    practical(timing, HOUR)
    longer = replace(timing, run=timing.run.scaled(factor))
    practical(longer, HOUR)
    assert cascade(longer, HOUR).finish.p50 >= cascade(timing, HOUR).finish.p50 - 1e-3


@given(timings(), limits)
def test_the_signal_leaves_room_for_the_checkpoint_and_a_third_at_most(timing: Timing, limit: float) -> None:
    practical(timing, limit)
    course = cascade(timing, limit)
    assert 1 <= course.signal_lead_s <= course.segments[0].walltime_s / 3
    useful = timing.useful_s(course.segments[0].walltime_s)
    assert useful + timing.startup_p90_s + course.signal_lead_s <= course.segments[0].walltime_s + 1e-6


def test_one_job_has_the_run_and_the_wait_as_they_are() -> None:
    course = cascade(Timing.of(Needs(run=seconds(3000, 3600, 4200), wait=seconds(60, 600, 1200))), math.inf)
    assert (course.run.p10, course.run.p50, course.run.p90) == (3000, 3600, 4200)
    assert (course.wait.p10, course.wait.p50, course.wait.p90) == (60, 600, 1200)
    assert course.finish.p90 == pytest.approx(4200 + 600 * math.sqrt(2))
    assert [s.walltime_s for s in course.segments] == [4500]


def test_waits_add_up_as_independent_ones() -> None:
    timing = Timing.of(Needs(run=seconds(9000, 9000, 9000), wait=seconds(300, 600, 900)))
    course = cascade(timing, HOUR)
    assert len(course.segments) == 3
    assert course.wait.p50 == 1800
    assert course.wait.p90 - course.wait.p50 == pytest.approx(300 * math.sqrt(3))


def test_without_chaining_there_is_one_job_however_tight() -> None:
    timing = Timing.of(Needs(run=seconds(3000, 3300, 3600), wait=seconds(0, 0, 0), startup=seconds(30, 60, 90)))
    course = one_job(timing, HOUR)
    assert [s.walltime_s for s in course.segments] == [HOUR]
    assert course.run.p90 == 3600


def test_a_first_job_in_a_hole_has_its_own_limit_and_wait() -> None:
    timing = Timing.of(Needs(run=seconds(9000, 9000, 9000), wait=seconds(HOUR, 2 * HOUR, 3 * HOUR)))
    hole = First(1800, seconds(0, 60, 7200))
    course = cascade(timing, 2 * HOUR, hole)
    assert [s.walltime_s for s in course.segments][:2] == [1800, 7200]
    assert course.segments[0].wait is hole.wait
    assert course.wait.p50 == 60 + 2 * HOUR * (len(course.segments) - 1)


@given(timings(), st.floats(120, HOUR), limits)
def test_a_hole_still_covers_the_run(timing: Timing, hole: float, limit: float) -> None:
    practical(timing, limit)
    assume(timing.useful_s(hole) > 0)
    course = cascade(timing, limit, First(hole, timing.wait))
    assert sum(s.useful_s for s in course.segments) + timing.startup_s >= timing.run.p90 * (1 - 1e-9) - 1e-3
    assert course.segments[0].walltime_s <= hole


def test_a_run_of_unknown_length_is_not_cut() -> None:
    with pytest.raises(ValueError, match="must be known"):
        Timing.of(Needs(wait=seconds(0, 0, 0)))
    with pytest.raises(ValueError, match="no useful time"):
        cascade(Timing.of(Needs(run=seconds(1, 2, 3), wait=seconds(0, 0, 0), startup=seconds(60, 60, 60))), 60)
