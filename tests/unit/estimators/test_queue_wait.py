"""Queue wait: idle nodes, backlogs, past waits, and how they are weighed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from estimator_worlds import NOW, finished, request
from hypothesis import given
from hypothesis import strategies as st

from ischeduler.core.estimate import Estimate
from ischeduler.core.jobs import Resources
from ischeduler.core.snapshot import NodeCounts, QueuedJob, QueueSnapshot
from ischeduler.core.waits import probability_within
from ischeduler.estimators.queuewait.estimator import QueueEstimator
from ischeduler.estimators.queuewait.live import live_wait
from ischeduler.estimators.queuewait.past import past_waits, weighted_quantile

ONE_GPU = Resources(gpus_per_node=1)


def snapshot(idle_gpus: int = 0, running: int = 8, pending: int = 0, limit_s: float = 36000, total: int = 8) -> QueueSnapshot:
    """Eight GPUs; each running job holds one and started an hour ago."""
    idle = idle_gpus // 2
    counts = NodeCounts("gpu", "gpu", idle=idle, allocated=4 - idle, idle_gpus=idle_gpus, total_gpus=total)
    jobs = [QueuedJob(f"r{i}", "gpu", "RUNNING", gpus=1, start_s=NOW - 3600, limit_s=limit_s) for i in range(running)]
    jobs += [QueuedJob(f"p{i}", "gpu", "PENDING", gpus=1, submit_s=NOW - 60, limit_s=limit_s) for i in range(pending)]
    return QueueSnapshot("pitzer", NOW, (counts,), tuple(jobs))


def ask(**changes: object) -> Estimate:
    return QueueEstimator().estimate(request("queue_wait", **changes))


def test_idle_now_means_soon_and_says_so() -> None:
    answer = ask(snapshot=snapshot(idle_gpus=4, running=4))
    assert answer.p90 <= 600
    assert answer.basis == "live"
    assert "4 GPUs idle now" in answer.reason
    assert probability_within(answer) > 0.85


def test_pending_jobs_that_want_the_idle_ones_are_counted() -> None:
    free = live_wait(snapshot(idle_gpus=2, running=6, pending=1), "gpu", "gpu", ONE_GPU, NOW)
    busy = live_wait(snapshot(idle_gpus=2, running=6, pending=20), "gpu", "gpu", ONE_GPU, NOW)
    assert free is not None
    assert busy is not None
    assert free.idle
    assert not busy.idle
    assert busy.p50 > free.p90


@given(st.integers(0, 40), st.floats(3600, 3e5))
def test_a_longer_queue_never_waits_less(pending: int, limit_s: float) -> None:
    first = live_wait(snapshot(pending=pending, limit_s=limit_s), "gpu", "gpu", ONE_GPU, NOW)
    longer = live_wait(snapshot(pending=pending + 8, limit_s=limit_s), "gpu", "gpu", ONE_GPU, NOW)
    assert first is not None
    assert longer is not None
    assert first.p10 <= first.p50 <= first.p90
    assert longer.p90 >= first.p90


def test_at_the_limits_the_wait_is_the_first_end() -> None:
    live = live_wait(snapshot(), "gpu", "gpu", ONE_GPU, NOW)
    assert live is not None
    assert live.p90 == pytest.approx(36000 - 3600)


def test_more_than_there_is_never_starts_soon() -> None:
    down = replace(snapshot().nodes[0], allocated=0, down=4)
    answer = ask(snapshot=QueueSnapshot("pitzer", NOW, (down,)))
    assert "only 0 usable GPUs where 1 are needed" in answer.reason
    assert answer.p50 >= 86400


def test_nothing_known_is_wide_and_analytic() -> None:
    answer = ask()
    assert answer.basis == "analytic"
    assert answer.p90 / answer.p10 > 1000
    assert "neither" in answer.reason


def test_past_waits_decide_without_a_queue() -> None:
    history = tuple(finished(run_id=f"r{i}", wait_s=3600.0 + i) for i in range(20))
    answer = ask(history=history)
    assert answer.basis == "history"
    assert answer.p50 == pytest.approx(3610, abs=5)
    assert "20 past waits" in answer.reason


def test_live_and_past_are_mixed_by_weight() -> None:
    history = tuple(finished(run_id=f"r{i}", wait_s=50_000.0) for i in range(40))
    alone, mixed = ask(snapshot=snapshot(pending=0)), ask(snapshot=snapshot(pending=0), history=history)
    assert alone.p50 < mixed.p50 < 50_000
    assert "the live queue counts" in mixed.reason


def test_recent_waits_count_more() -> None:
    old = [finished(run_id=f"o{i}", wait_s=10_000.0, finished_at=NOW - 80 * 86400) for i in range(10)]
    new = [finished(run_id=f"n{i}", wait_s=100.0) for i in range(10)]
    waits = past_waits([*old, *new], "gpu", 1, NOW)
    assert waits is not None
    assert waits.p50 < 200
    assert past_waits([], "gpu", 1, NOW) is None


def test_the_batch_systems_guess_is_one_weak_signal() -> None:
    base = ask(snapshot=snapshot(pending=10))
    early = ask(snapshot=snapshot(pending=10), options={"probe_start_s": NOW + 60})
    assert base.p10 <= early.p50 < base.p50
    assert early.p90 == base.p90
    assert "the batch system says 60s" in early.reason


def test_an_old_snapshot_is_said_and_widens() -> None:
    fresh, stale = ask(snapshot=snapshot(pending=4)), ask(snapshot=snapshot(pending=4), now=NOW + 7200)
    assert stale.p90 > fresh.p90
    assert "ago" in stale.reason


@given(st.lists(st.tuples(st.floats(1, 1e6), st.floats(0.01, 10)), min_size=1, max_size=20), st.floats(0, 1), st.floats(0, 1))
def test_weighted_quantiles_are_monotone_and_inside(pairs: list[tuple[float, float]], one: float, other: float) -> None:
    pairs.sort()
    low, high = weighted_quantile(pairs, min(one, other)), weighted_quantile(pairs, max(one, other))
    assert pairs[0][0] <= low <= high <= pairs[-1][0] or low == pytest.approx(high)


@given(st.floats(1, 1e5), st.floats(1, 10), st.floats(1, 10), st.floats(1, 1e6), st.floats(1, 100))
def test_probabilities_grow_with_time(low: float, first: float, second: float, seconds: float, more: float) -> None:
    wait = Estimate(low, low * first, low * first * second, "s", "x@1")
    assert 0 < probability_within(wait, seconds) <= probability_within(wait, seconds * more) < 1
