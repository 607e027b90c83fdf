"""Predicted against actual."""

from __future__ import annotations

from helper_builders import T0, attempt, plan, run, seconds

from ischeduler.core.jobs import Cause
from ischeduler.core.run import Progress, RunState
from ischeduler.core.sizes import GIB
from ischeduler.helper.report import report_of


def lines(report):  # type: ignore[no-untyped-def]
    return {line.name: line for line in report.lines}


def test_run_time_and_wait_add_over_attempts() -> None:
    found = lines(report_of(run(), [], T0))
    assert found["run"].actual == 7200
    assert found["run"].inside is True
    assert found["run"].error == 0
    assert found["wait"].actual == 1200
    assert found["wait"].inside is False
    assert found["cost"].actual == 0.3


def test_gpu_memory_is_compared_with_its_own_estimate() -> None:
    found = lines(report_of(run(), [], T0))
    assert found["gpu memory"].actual == 23 * GIB
    assert found["gpu memory"].inside is True
    assert found["gpu memory"].error is not None
    assert round(found["gpu memory"].error, 3) == -0.042
    assert "gpu memory" not in lines(report_of(run(plan=plan(gpus=0)), [], T0))


def test_what_was_not_observed_is_said_so() -> None:
    found = lines(report_of(run(progress=Progress(), attempts=()), [], T0))
    assert found["memory"].actual is None
    assert found["memory"].inside is None
    assert found["run"].actual is None


def test_a_moved_run_is_judged_by_what_was_promised_first() -> None:
    moved = run(plan=plan(partition="cpu"), first_plan=plan(run_h=1))
    report = report_of(moved, [], T0)
    assert lines(report)["run"].predicted.p50 == 3600
    assert report.notes == ("predicted for pitzer/gpu; moved to pitzer/cpu",)


def test_next_time_one_job_gets_its_own_time_plus_a_margin() -> None:
    once = run(attempts=(attempt(1, ran_s=7860, cause=Cause.FINISHED),))
    assert report_of(once, [], T0).next_time == ("--mem=5G", "--time=02:35:00")


def test_next_time_a_cascade_keeps_its_segments() -> None:
    assert report_of(run(), [], T0).next_time == ("--mem=5G", "--time=02:00:00 x 2")


def test_a_job_that_gave_its_allocation_back_waited_for_nothing_and_is_no_segment() -> None:
    once = (attempt(1, ran_s=7860, cause=Cause.FINISHED), attempt(2, ran_s=3, cause=Cause.RETURNED))
    report = report_of(run(attempts=once), [], T0)
    assert lines(report)["wait"].actual == 600
    assert report.next_time == ("--mem=5G", "--time=02:35:00")


def test_nothing_measured_nothing_advised() -> None:
    assert report_of(run(progress=Progress(), attempts=()), [], T0).next_time == ()


def test_a_run_under_way_says_so_and_counts_until_now() -> None:
    going = run(state=RunState.RUNNING, attempts=(attempt(1, ran_s=None, cause=None, wait_s=0),), plan=plan(wait=seconds(0)))
    report = report_of(going, [], T0 + 100)
    assert lines(report)["run"].actual == 100
    assert report.notes[0].startswith("the run goes on")
