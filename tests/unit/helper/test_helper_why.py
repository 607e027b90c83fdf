"""Every state in words, with something to do."""

from __future__ import annotations

import dataclasses

import pytest
from helper_builders import T0, attempt, plan, run

from ischeduler.core.jobs import Cause, JobState
from ischeduler.core.run import RunState
from ischeduler.core.snapshot import NodeCounts, QueuedJob, QueueSnapshot
from ischeduler.helper.why import explain_run

PENDING = attempt(
    1, ran_s=None, cause=None, state=JobState.PENDING, started_at=None, reason="Priority", expected_start_s=T0 + 9000
)


def waiting(**changes: object):  # type: ignore[no-untyped-def]
    return run(state=RunState.QUEUED, attempts=(PENDING,), **changes)


def test_pending_says_reason_nodes_and_rank() -> None:
    others = (QueuedJob(str(i), "gpu", "PENDING", priority=200) for i in range(6))
    jobs = (*others, QueuedJob("101", "gpu", "PENDING", priority=100, mine=True))
    snapshot = QueueSnapshot("pitzer", T0, (NodeCounts("gpu", "gpu-node", allocated=3, drained=1),), jobs)
    text = explain_run(waiting(), T0 + 720, snapshot=snapshot)
    assert "PENDING 12m · reason Priority" in text
    assert "3 allocated, 1 drained" in text
    assert "6 jobs" in text
    assert "Act: " in text


def test_pending_offers_a_better_place_by_its_command() -> None:
    better = dataclasses.replace(plan(partition="cpu"), number=2)
    assert "isched move r-1 pitzer/cpu" in explain_run(waiting(), T0 + 720, better=better)


def test_running_says_where_how_far_and_when_the_limit_comes() -> None:
    going = run(
        state=RunState.RUNNING, attempts=(attempt(1, ran_s=None, cause=None, state=JobState.RUNNING, wait_s=0, nodes=("g01",)),)
    )
    text = explain_run(going, T0 + 600)
    assert text.startswith("RUNNING 10m · attempt 1, job 101 on pitzer/gpu (g01): epoch 50 of 50.")
    assert "limit is in 50m" in text
    assert text.endswith("Act: nothing needed.")


def test_a_job_that_gave_its_allocation_back_explains_nothing() -> None:
    going = attempt(1, ran_s=None, cause=None, state=JobState.RUNNING, wait_s=0, nodes=("g01",))
    back = attempt(2, ran_s=2, cause=Cause.RETURNED, state=JobState.FAILED)
    assert explain_run(run(state=RunState.RUNNING, attempts=(going, back)), T0 + 600).startswith("RUNNING 10m · attempt 1")
    failed = run(state=RunState.FAILED, attempts=(attempt(1, cause=Cause.OUT_OF_MEMORY), back), message="it failed")
    assert "ask for more memory" in explain_run(failed, T0)


def test_a_silent_controller_is_no_failed_job() -> None:
    lost = run(state=RunState.UNKNOWN, query_failures=4, state_before_unknown=RunState.RUNNING, state_since=T0)
    text = explain_run(lost, T0 + 60)
    assert "has not answered 4 time(s), it was running before; that says nothing about the job" in text


@pytest.mark.parametrize("cause", [c for c in Cause if c not in (Cause.FINISHED, Cause.CANCELLED, Cause.MOVED, Cause.SUPERSEDED)])
def test_a_failed_run_says_what_to_do(cause: Cause) -> None:
    failed = run(state=RunState.FAILED, attempts=(attempt(1, cause=cause),), message="it failed")
    text = explain_run(failed, T0)
    assert text.startswith("FAILED: it failed.")
    assert "Act: " in text
    assert "RUN" not in text


def test_without_a_plane_it_says_how_to_start_one() -> None:
    assert "isched plane run" in explain_run(waiting(), T0 + 10, plane_alive=False)
    assert "isched plane run" not in explain_run(run(), T0 + 10, plane_alive=False)


@pytest.mark.parametrize("state", list(RunState))
def test_every_state_has_words(state: RunState) -> None:
    text = explain_run(run(state=state, attempts=()), T0)
    assert text
    assert "Act: " in text
