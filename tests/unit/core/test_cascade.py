"""Cutting a training into jobs: the same arithmetic for the planner and for whoever submits."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ischeduler.core.cascade import (
    margin_s,
    next_walltime_s,
    round_walltime_s,
    segment_walltimes_s,
    segments_needed,
    signal_lead_s,
    useful_time_s,
)

limits = st.floats(60, 30 * 86400)
works = st.floats(0, 30 * 86400)
startups = st.floats(0, 1800)
checkpoints = st.floats(0, 900)


@pytest.mark.parametrize(
    ("limit", "checkpoint", "lead"),
    [(60, 0, 10), (60, 2, 10), (60, 5, 15), (60, 100, 20), (120, 0, 20), (3600, 0, 30), (3600, 20, 45), (math.inf, 60, 125), (2, 9, 1)],
)  # fmt: skip
def test_signal_leads(limit: float, checkpoint: float, lead: int) -> None:
    assert signal_lead_s(limit, checkpoint) == lead


def test_a_slow_step_makes_the_signal_earlier() -> None:
    assert signal_lead_s(3600, 20, step_s=15) == 75


@given(limits, checkpoints)
def test_a_lead_is_at_least_ten_seconds_and_at_most_a_third(limit: float, checkpoint: float) -> None:
    lead = signal_lead_s(limit, checkpoint)
    assert 10 <= lead <= limit / 3


@given(limits, startups, checkpoints)
def test_useful_time_and_overheads_fill_the_limit(limit: float, startup: float, checkpoint: float) -> None:
    useful = useful_time_s(limit, startup, checkpoint)
    parts = useful + startup + checkpoint + margin_s(limit, checkpoint)
    assert parts == pytest.approx(limit) if useful > 0 else parts >= limit - 1e-6


@given(limits, limits, startups, checkpoints)
def test_a_longer_limit_never_leaves_less_useful_time(one: float, other: float, startup: float, checkpoint: float) -> None:
    low, high = sorted((one, other))
    assert useful_time_s(low, startup, checkpoint) <= useful_time_s(high, startup, checkpoint) + 1e-6


@given(works, limits, limits, startups, checkpoints)
def test_more_limit_never_means_more_jobs(work: float, one: float, other: float, startup: float, checkpoint: float) -> None:
    low, high = sorted((one, other))
    assume(useful_time_s(low, startup, checkpoint) > 1)
    few = segments_needed(work, useful_time_s(high, startup, checkpoint))
    assert few <= segments_needed(work, useful_time_s(low, startup, checkpoint))


@given(works, limits, startups, checkpoints)
def test_the_jobs_cover_the_work_and_none_is_beyond_the_limit(work: float, limit: float, startup: float, checkpoint: float) -> None:
    useful = useful_time_s(limit, startup, checkpoint)
    assume(useful > 1 and work / useful < 5000)
    walltimes = segment_walltimes_s(work, limit, startup, checkpoint)
    assert all(0 < w <= limit for w in walltimes)
    covered = sum(useful_time_s(w, startup, checkpoint) for w in walltimes)
    assert covered >= work * (1 - 1e-6) - 1e-3
    assert sum(useful_time_s(w, startup, checkpoint) for w in walltimes[:-1]) <= work * (1 + 1e-6)


def test_the_last_job_asks_only_for_what_is_left() -> None:
    assert segment_walltimes_s(8_940, 3600, 90, 4) == (3600, 3600, 2100)
    assert segment_walltimes_s(600, math.inf, 60, 5) == (900,)


def test_one_minute_limits_of_a_sandbox_make_progress() -> None:
    walltimes = segment_walltimes_s(120, 60, 5, 1)
    assert walltimes == (60, 60, 60)
    assert useful_time_s(60, 5, 1) == 45


def test_no_useful_time_is_said() -> None:
    assert useful_time_s(60, 70) == 0
    with pytest.raises(ValueError, match="no progress"):
        segment_walltimes_s(100, 60, 70)
    assert segments_needed(0, 0) == 1


@given(st.floats(0, 1e7), limits)
def test_requests_are_rounded_up_to_whole_steps_within_the_limit(seconds: float, limit: float) -> None:
    asked = round_walltime_s(seconds, limit)
    assert asked <= limit
    assert asked >= min(seconds, limit) - 1e-6
    assert asked == limit or asked % 60 == 0


@given(works, works, limits, startups, checkpoints)
def test_more_work_never_asks_for_less(one: float, other: float, limit: float, startup: float, checkpoint: float) -> None:
    low, high = sorted((one, other))
    assert next_walltime_s(low, limit, startup, checkpoint) <= next_walltime_s(high, limit, startup, checkpoint)
