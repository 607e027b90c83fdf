"""Chain episodes: worlds, gaps, hand-over; and that nothing of the future is seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ischeduler.core.errors import BadInput
from ischeduler.simulator.chain import (
    World,
    cold_world,
    episode,
    gaps_s,
    outcome,
    queue_at,
    succeed,
    successor_start_s,
    warm_world,
)
from ischeduler.simulator.rollouts import Arrivals, start_waits_s

HOUR = 3600


def world(jobs: list[tuple[int, int, int, int]], capacity: int = 4) -> World:
    """Jobs as (submit, units, run, limit)."""
    submit, units, run, limit = (np.array(c, np.int64) for c in zip(*jobs, strict=True))
    return World(capacity, submit, units, run, limit, np.full(len(jobs), -1, np.int64), np.arange(len(jobs)))


def random_world(seed: int, count: int = 150, capacity: int = 8) -> World:
    rng = np.random.default_rng(seed)
    submit = np.sort(rng.integers(0, 40 * HOUR, count))
    limit = rng.integers(600, 8 * HOUR, count)
    run = (limit * rng.uniform(0.05, 1, count)).astype(np.int64)
    return World(capacity, submit, rng.integers(1, 5, count), run, limit, np.full(count, -1, np.int64), np.arange(count))


def test_empty_machine_has_no_wait_and_no_gap():
    of = episode(world([(0, 1, 10, 10)]), 100, 2, 7200, 600)
    assert of is not None
    assert (of.start_s, of.end_s, len(of.looks_s)) == (100, 7300, 13)
    gaps = gaps_s(of)
    assert gaps[-1] == 0
    assert gaps.tolist() == (of.looks_s - of.end_s).tolist()


def test_gap_of_a_full_machine_is_what_the_blocker_leaves():
    of = episode(world([(0, 2, 9000, 9000), (50, 2, 4 * HOUR, 4 * HOUR)]), 0, 2, 7200, 600)
    assert of is not None
    assert of.start_s == 0
    assert gaps_s(of)[-1] == 9000 - 7200


@pytest.mark.parametrize("seed", range(6))
def test_start_from_the_state_equals_the_whole_world_with_the_successor(seed: int):
    of = episode(random_world(seed), 6 * HOUR, 2, 8 * HOUR, 600)
    assert of is not None
    for look in of.looks_s[:: len(of.looks_s) // 7]:
        full, place = of.world.with_job(int(look), 2, 8 * HOUR)
        assert successor_start_s(of.world, int(look), 2, 8 * HOUR) == full.start_s[place]


@pytest.mark.parametrize("seed", range(3))
def test_warm_world_keeps_the_running_and_queues_the_waiting(seed: int):
    trace = random_world(seed)
    now = 15 * HOUR
    warm = warm_world(trace, trace.start_s, now, 10 * HOUR)
    queue = queue_at(warm, now)
    assert set(warm.row[queue.running]) >= set(np.flatnonzero((trace.start_s <= now) & (trace.end_s > now)))
    later = np.flatnonzero(trace.submit_s > now + 10 * HOUR)
    assert not set(warm.row) & set(later)
    seen = {int(r): int(s) for r, s in zip(warm.row, warm.start_s, strict=True)}
    waiting = np.flatnonzero((trace.submit_s <= now) & (trace.start_s > now))
    assert all(seen[int(j)] >= now for j in waiting)


def test_cold_world_starts_empty_and_arrivals_stop():
    trace = random_world(1)
    cold = cold_world(trace, 10 * HOUR, 5 * HOUR)
    assert cold.submit_s.min() >= 10 * HOUR
    assert cold.submit_s.max() <= 15 * HOUR
    assert (cold.fixed_start_s == -1).all()


def test_outcomes_with_and_without_hand_over():
    assert outcome(600, 7200).interruption_s == 600
    assert outcome(-600, 7200).overlap_s == 600
    handed = outcome(-600, 7200, checkpoint_s=60)
    assert (handed.interruption_s, handed.overlap_s, handed.segment_s) == (0, 60, 6660)
    assert outcome(-30, 7200, checkpoint_s=60).overlap_s == 30


def test_hand_over_gives_the_units_back_early():
    of = episode(world([(0, 2, 20 * HOUR, 20 * HOUR), (3 * HOUR, 1, HOUR, HOUR)]), 0, 1, 4 * HOUR, 600)
    assert of is not None
    kept, released = succeed(of, 2 * HOUR, 600), succeed(of, 2 * HOUR, 600, checkpoint_s=60)
    assert kept is not None
    assert released is not None
    assert kept[0].overlap_s == 2 * HOUR
    assert released[0].overlap_s == 60
    other = int(np.flatnonzero(released[1].world.row == 1)[0])
    assert released[1].world.start_s[other] == 3 * HOUR
    assert kept[1].world.start_s[other] > 3 * HOUR


def test_twin_with_true_run_times_and_arrivals_is_the_truth():
    trace = random_world(4)
    now = 12 * HOUR
    queue = queue_at(trace, now)
    later = trace.submit_s > now
    arrivals = Arrivals(trace.submit_s[later], trace.units[later], trace.run_s[later], trace.limit_s[later])
    found = start_waits_s(trace, queue, trace.run_s[queue.alive][None, :], 3, 6 * HOUR, arrivals)
    assert found[0] == successor_start_s(trace, now, 3, 6 * HOUR) - now


def test_shuffled_future_moves_no_forecast():
    trace = random_world(5)
    now = 12 * HOUR
    queue = queue_at(trace, now)
    rng = np.random.default_rng(0)
    run = trace.run_s.copy()
    unknown = np.flatnonzero(trace.end_s > now)
    run[unknown] = np.minimum(
        trace.limit_s[unknown],
        np.where(trace.start_s[unknown] <= now, now - trace.start_s[unknown] + 1, 0) + rng.integers(0, 9 * HOUR, len(unknown)),
    )
    other = replace(trace, run_s=run)
    same = queue_at(other, now)
    assert same.running.tolist() == queue.running.tolist()
    assert same.waiting.tolist() == queue.waiting.tolist()
    drawn = np.minimum(trace.limit_s[queue.alive], 5 * HOUR)[None, :] + np.zeros((3, 1), np.int64)
    before = start_waits_s(trace, queue, drawn, 2, HOUR, Arrivals.as_before(trace, now, 6 * HOUR, 5 * HOUR))
    after = start_waits_s(other, same, drawn, 2, HOUR, Arrivals.as_before(other, now, 6 * HOUR, 5 * HOUR))
    assert before.tolist() == after.tolist()


def test_segment_wider_than_the_machine_is_refused_in_a_sentence():
    with pytest.raises(BadInput, match="never starts on a machine of 4"):
        episode(world([(0, 1, 10, 10)]), 0, 5, 3600, 600)
