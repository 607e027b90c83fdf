"""The live queue's word on a successor's wait: asked seldom, given up when stale, and turned into a moment by the rule of the settings."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from helper_builders import plan
from helper_builders import run as make_run

from ischeduler.core.errors import BadInput, BatchUnavailable
from ischeduler.core.jobs import JobState, Resources
from ischeduler.core.run import Attempt, Progress, Run, RunState
from ischeduler.core.snapshot import FinishedJob, NodeCounts, QueuedJob, QueueSnapshot
from ischeduler.helper.foresight import HAND_OVER_SHARE, LiveForesight, mean_wait_s
from ischeduler.plane.provisioners import REACTIVE

pytest.importorskip("numba", reason="numba is not installed")

NOW = 1_800_000_000.0
HOUR = 3600.0
SEGMENT_S = 48 * HOUR


class Batch:
    """A queue of eight GPUs, all taken by one job for ``left_h`` more hours at most."""

    def __init__(self, left_h: float) -> None:
        self.left_h, self.asked, self.down = left_h, 0, False

    def snapshot(self) -> QueueSnapshot:
        self.asked += 1
        if self.down:
            raise BatchUnavailable("the controller does not answer")
        jobs = (
            QueuedJob("11", "gpu", "RUNNING", 1, 1, NOW - 60, NOW - 60, SEGMENT_S, mine=True),
            QueuedJob("12", "gpu", "RUNNING", 1, 7, NOW - 60, NOW - 60, self.left_h * HOUR + 60, user="ann", name="x"),
        )
        return QueueSnapshot("one", NOW, (NodeCounts("gpu", "v100", mixed=2, idle_gpus=0, total_gpus=8),), jobs)


USES_ALL = [FinishedJob("ann", "x", "gpu", 0, 9, 1e4 + 9, 1e4)] * 60


def foresight(kind: str, batch: Batch, finished: Any = tuple(USES_ALL), **prices: float) -> tuple[LiveForesight, SimpleNamespace]:
    services = SimpleNamespace(batches={"one": batch}, troubles=[], finished_jobs=lambda name, age_s: tuple(finished))
    settings = {"plane.provisioner": kind, "plane.provisioner_model": "", "plane.pending_successors": 1, "plane.interruption_price": 1.0, "plane.overlap_price": 1.0, **prices}
    return LiveForesight(services, settings), services  # pyright: ignore[reportArgumentType]


def running(**change: Any) -> Run:
    run = make_run(plan=plan(cluster="one", run_h=40 * 48, segments=40), state=RunState.RUNNING, progress=Progress())
    fields: dict[str, Any] = {
        "number": 1, "key": "r-1", "cluster": "one", "partition": "gpu", "resources": Resources(gpus_per_node=1, walltime_s=SEGMENT_S),
        "batch_size": 8, "state": JobState.RUNNING, "job_id": "11", "started_at": NOW, "spool_started": True, "spool_started_at": NOW,
    }  # fmt: skip
    return replace(run, attempts=(Attempt(**(fields | change)),))


@pytest.mark.parametrize("kind", ["twin", "hand-over"])
def test_the_successor_is_queued_one_predicted_wait_ahead(kind: str) -> None:
    found, _ = foresight(kind, Batch(left_h=6))
    at = found.provisioner(running(), NOW)[0].submit_at(running(), NOW)
    assert at is not None
    lead_h = (NOW + SEGMENT_S - at) / HOUR
    assert 5 <= lead_h <= 6.1  # ann's jobs use all of their time: it ends in six hours


def test_a_hand_over_leaves_most_of_the_segment() -> None:
    found, _ = foresight("hand-over", Batch(left_h=40))
    at = found.provisioner(running(), NOW)[0].submit_at(running(), NOW)
    assert at == NOW + SEGMENT_S * (1 - HAND_OVER_SHARE)


def test_dearer_interruptions_are_met_earlier() -> None:
    shares = tuple(FinishedJob("ann", "x", "gpu", 0, 0, share * 1e4, 1e4) for share in [i / 60 for i in range(60)])
    leads = []
    for price in (1.0, 19.0):
        found, _ = foresight("twin", Batch(left_h=20), shares, **{"plane.interruption_price": price})
        at = found.provisioner(running(), NOW)[0].submit_at(running(), NOW)
        assert at is not None
        leads.append(NOW + SEGMENT_S - at)
    assert leads[1] > 1.3 * leads[0]


def test_the_average_is_of_the_last_starts_here() -> None:
    jobs = [FinishedJob("a", "j", "gpu", 0, 3 * HOUR, 4 * HOUR, 2 * HOUR), FinishedJob("a", "j", "gpu", 0, HOUR, 4 * HOUR, 2 * HOUR),
            FinishedJob("a", "j", "cpu", 0, 90 * HOUR, 99 * HOUR, 2 * HOUR)]  # fmt: skip
    assert mean_wait_s(jobs, "gpu") == 2 * HOUR
    assert mean_wait_s(jobs, "none") is None
    batch = Batch(6)
    found, _ = foresight("average", batch, jobs)
    assert found.provisioner(running(), NOW)[0].submit_at(running(), NOW) == NOW + SEGMENT_S - 2 * HOUR
    assert batch.asked == 0


def test_the_queue_is_asked_seldom_and_once_for_all_runs() -> None:
    batch = Batch(6)
    found, _ = foresight("twin", batch)
    for second in range(0, 290, 10):
        found.provisioner(running(), NOW + second)
        found.provisioner(replace(running(), id="r-2"), NOW + second)
    assert batch.asked == 1
    found.provisioner(running(), NOW + 301)
    assert batch.asked == 2


def test_a_silent_controller_is_told_of_and_in_the_end_nothing_is_queued_ahead() -> None:
    batch = Batch(6)
    found, _ = foresight("twin", batch)
    known = found.provisioner(running(), NOW)[0].submit_at(running(), NOW)
    batch.down = True
    for second in range(600, 700, 10):
        assert found.provisioner(running(), NOW + second)[0].submit_at(running(), NOW + second) == known
    assert batch.asked == 2, "a controller in trouble is not asked at every tick"
    rule, words = found.provisioner(running(), NOW + 3600)
    assert rule is REACTIVE
    assert "does not answer" in words
    batch.down = False
    assert found.provisioner(running(), NOW + 4000)[1] == ""


def test_no_accounting_is_said() -> None:
    found, _ = foresight("average", Batch(6), ())
    rule, words = found.provisioner(running(), NOW)
    assert rule is REACTIVE
    assert "no job that started in gpu" in words


def test_nothing_is_asked_for_a_run_that_does_not_run_alone() -> None:
    batch = Batch(6)
    found, _ = foresight("twin", batch)
    two = running()
    two = replace(two, attempts=(*two.attempts, replace(two.attempts[0], number=2, key="r-2", state=JobState.PENDING)))
    for run in (make_run(attempts=()), running(state=JobState.PENDING), running(cluster="elsewhere"), two):
        assert found.provisioner(run, NOW) == (REACTIVE, "")
    assert batch.asked == 0


def test_prices_that_are_none_are_refused() -> None:
    with pytest.raises(BadInput, match="not both 0"):
        foresight("twin", Batch(6), **{"plane.interruption_price": 0.0, "plane.overlap_price": 0.0})
