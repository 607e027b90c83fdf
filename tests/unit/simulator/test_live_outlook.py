"""A live queue run forward: what is counted, what a job's wait comes to, and that less never makes it later."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ischeduler.core.errors import NotFound
from ischeduler.core.snapshot import FinishedJob, NodeCounts, QueuedJob, QueueSnapshot
from ischeduler.simulator.live import LiveQueue, live_queue, pool_of
from ischeduler.simulator.outlook import Ask, Draws, Hole, draws, holes, waits
from ischeduler.simulator.runlaw import RunLaw

pytest.importorskip("numba", reason="numba is not installed")

NOW = 1_800_000_000.0
HOUR = 3600.0


def running(job_id: str, gpus: int, since_h: float, limit_h: float, user: str = "ann") -> QueuedJob:
    return QueuedJob(job_id, "gpu", "RUNNING", 1, gpus, NOW - since_h * HOUR - 9, NOW - since_h * HOUR, limit_h * HOUR, user=user, name="a")


def waiting(job_id: str, gpus: int, limit_h: float, priority: int = 5, reason: str = "Priority") -> QueuedJob:
    return QueuedJob(job_id, "gpu", "PENDING", 1, gpus, NOW - 60, None, limit_h * HOUR, priority, reason=reason)


def snapshot(*jobs: QueuedJob, idle: int = 0, total: int = 8) -> QueueSnapshot:
    return QueueSnapshot("c", NOW, (NodeCounts("gpu", "v100", mixed=2, idle_gpus=idle, total_gpus=total),), jobs)


def sure(queue: LiveQueue, share: float = 1.0, rolls: int = 16) -> Draws:
    """Draws without chance: everyone uses that share of the limit, and nobody comes later."""
    law = RunLaw([FinishedJob("ann", "a", "gpu", 0, 0, share * 1e6, 1e6)] * 50)
    assert law.n == 50
    nothing = np.empty(0, dtype=np.int64)
    runs = np.maximum((share * queue.limit_s).astype(np.int64), np.maximum(queue.elapsed_s, 0) + 1)
    return Draws(np.tile(runs, (rolls, 1)), np.zeros(rolls), ((nothing,) * 4,))


def test_an_empty_machine_starts_at_once_and_offers_all_of_itself() -> None:
    shot = snapshot(idle=8)
    queue = live_queue(shot, pool_of(shot, "gpu"))
    assert waits(queue, Ask(1, 4, 3600), sure(queue)).tolist() == [0.0] * 16
    assert holes(queue) == (Hole(8.0, None),)


def test_the_wait_is_the_first_end_that_makes_room() -> None:
    shot = snapshot(running("1", 4, 1, 3), running("2", 4, 1, 9))
    queue = live_queue(shot, pool_of(shot, "gpu"))
    assert waits(queue, Ask(1, 4, 3600), sure(queue)).tolist() == [2 * HOUR] * 16
    assert waits(queue, Ask(1, 8, 3600), sure(queue)).tolist() == [8 * HOUR] * 16
    assert waits(queue, Ask(1, 9, 3600), sure(queue)).tolist() == [math.inf] * 16
    assert waits(queue, Ask(1, 4, 3600), sure(queue, 0.5)).tolist() == [0.5 * HOUR] * 16


def test_who_waits_goes_first_by_priority_and_a_short_job_goes_into_the_hole() -> None:
    shot = snapshot(running("1", 4, 1, 5), waiting("9", 8, 10), idle=4)
    queue = live_queue(shot, pool_of(shot, "gpu"))
    assert holes(queue) == (Hole(4.0, 4 * 3600),)
    assert waits(queue, Ask(1, 4, 4 * 3600), sure(queue)).tolist() == [0.0] * 16
    assert waits(queue, Ask(1, 4, 5 * 3600), sure(queue)).tolist() == [14 * HOUR] * 16


def test_who_could_start_waits_for_the_scheduler_s_rhythm() -> None:
    shot = snapshot(idle=8)
    queue = live_queue(shot, pool_of(shot, "gpu"))
    alone = waits(queue, Ask(1, 1, 3600), draws(queue, RunLaw(), (), np.random.default_rng(0), 64))
    assert ((alone >= 0) & (alone <= 60)).all()
    past = [FinishedJob("ann", "a", "gpu", NOW - 900, NOW - 893, NOW - 100, 9e4)] * 30
    assert set(waits(queue, Ask(1, 1, 3600), draws(queue, RunLaw(past), past, np.random.default_rng(0), 64)).tolist()) == {7.0}


def test_held_jobs_stand_in_nobodys_way() -> None:
    shot = snapshot(waiting("9", 8, 10, reason="Dependency"), waiting("8", 8, 10, reason="JobHeldUser"), idle=8)
    queue = live_queue(shot, pool_of(shot, "gpu"))
    assert (len(queue.jobs), waits(queue, Ask(1, 8, 3600), sure(queue)).max()) == (0, 0.0)


def test_nodes_held_by_jobs_of_other_partitions_are_not_taken_for_free() -> None:
    shot = snapshot(running("1", 2, 1, 5), total=8)
    pool = pool_of(shot, "gpu")
    assert (pool.capacity, pool.free, pool.outside) == (8000, 0, 6000)
    queue = live_queue(shot, pool)
    assert (waits(queue, Ask(1, 8, 3600), sure(queue)) > 0).all()


def test_jobs_that_share_nodes_hold_shares_of_them() -> None:
    counts = (NodeCounts("cpu", "n", idle=1, mixed=2),)
    jobs = tuple(QueuedJob(str(i), "cpu", "RUNNING", 1, 0, NOW - 99, NOW - 90, HOUR) for i in range(8))
    pool = pool_of(QueueSnapshot("c", NOW, counts, jobs), "cpu")
    assert (pool.unit, pool.node_share, pool.capacity) == ("node", 0.25, 3000)


def test_a_partition_without_nodes_is_a_sentence() -> None:
    with pytest.raises(NotFound, match=r"no nodes of partition 'huge'; it shows those of gpu"):
        pool_of(snapshot(), "huge")


def test_the_law_follows_the_user_and_what_has_elapsed() -> None:
    past = [FinishedJob("ann", f"train{i}", "gpu", 0, 0, 0.5 * 1e5, 1e5) for i in range(45)]
    shot = snapshot(running("1", 1, 1, 10), replace(running("2", 1, 8, 10), name="train7"), running("3", 1, 1, 10, user="bob"))
    queue = live_queue(shot, pool_of(shot, "gpu"))
    runs = RunLaw(past).sample(queue, 400, np.random.default_rng(1))
    assert ((runs > queue.elapsed_s) & (runs <= queue.limit_s)).all()
    assert (runs[:, 0] == 5 * 3600).mean() > 0.8
    assert (runs[:, 1] > 8 * 3600).all()
    assert (runs[:, 2] == 5 * 3600).mean() < 0.5


jobs = st.lists(
    st.builds(running, st.uuids().map(str), st.integers(1, 4), st.floats(0, 5), st.floats(6, 20))
    | st.builds(waiting, st.uuids().map(str), st.integers(1, 8), st.floats(1, 20), st.integers(1, 9)),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(jobs, st.integers(1, 8))
def test_every_forecast_is_a_time_ahead_and_the_same_for_the_same_seed(queued: list[QueuedJob], gpus: int) -> None:
    busy = sum(j.gpus for j in queued if j.state == "RUNNING")
    shot = snapshot(*queued, idle=max(0, 8 - busy), total=max(8, busy))
    queue = live_queue(shot, pool_of(shot, "gpu"))
    found = [waits(queue, Ask(1, gpus, 3600), draws(queue, RunLaw(), (), np.random.default_rng(3), 24)) for _ in range(2)]
    assert (found[0] >= 0).all()
    assert (found[0] == found[1]).all()


def test_what_happens_later_does_not_reach_the_forecast() -> None:
    """Only past jobs and the queue as it is are read: a job that ends after the snapshot changes nothing when it is not finished yet."""
    past = [FinishedJob("ann", "a", "gpu", NOW - 9e4, NOW - 8e4, NOW - 7e4, 2e4, gpus=2) for _ in range(30)]
    late = [FinishedJob("zoe", "a", "gpu", NOW + 100, NOW + 200, NOW + 9e4, 9e4, gpus=8) for _ in range(30)]
    shot = snapshot(running("1", 8, 1, 5))
    queue = live_queue(shot, pool_of(shot, "gpu"))
    one, other = (
        waits(queue, Ask(1, 4, 3600), draws(queue, RunLaw(past), past + more, np.random.default_rng(0), 64)) for more in ([], late)
    )
    assert (one == other).all()
