"""The strings of the fake: each does what its name says, at its own simulated time."""

from __future__ import annotations

import pytest

from ischeduler.core.errors import SubmitRefused, SubmitUncertain
from ischeduler.core.jobs import JobRef, JobSpec, JobState, JobStatus, Resources
from ischeduler.testing.fake_batch import Behaviour, FakeBatch
from ischeduler.testing.sim_clock import SimClock


def spec(key: str = "k", walltime_s: float = 600.0, lead_s: int | None = 60, nodes: int = 1) -> JobSpec:
    return JobSpec(key, "n", "gpu", Resources(nodes=nodes, walltime_s=walltime_s), ("x",), "/d", f"/d/{key}", signal_lead_s=lead_s)


def seen(batch: FakeBatch, key: str = "k") -> tuple[JobStatus, ...]:
    return tuple(batch.observe([JobRef(key)]).jobs.get(key, ()))


def test_everything_happens_at_its_own_time_however_far_the_clock_jumps() -> None:
    batch = FakeBatch(slots=1, behave=lambda s: Behaviour(run_s=100.0))
    start = batch.clock.now()
    for key in ("a", "b", "c"):
        batch.submit(spec(key))
    batch.clock.advance(1000)
    times = [(s.start_s - start, s.end_s - start) for k in ("a", "b", "c") for s in seen(batch, k) if s.start_s and s.end_s]
    assert times == [(0, 100), (100, 200), (200, 300)]


def test_the_warning_comes_once_at_its_lead_and_the_limit_after_it() -> None:
    batch = FakeBatch(behave=lambda s: Behaviour(run_s=None))
    job_id = batch.submit(spec(walltime_s=600, lead_s=60))
    batch.clock.advance(539)
    seen(batch)
    assert batch.signals == []
    batch.clock.advance(1)
    seen(batch)
    assert batch.signals == [(job_id, "USR2")]
    batch.clock.advance(60)
    assert seen(batch)[0].state is JobState.TIMEOUT
    assert batch.signals == [(job_id, "USR2")]


def test_lose_duplicate_and_requeue() -> None:
    batch = FakeBatch(behave=lambda s: Behaviour(run_s=None))
    first = batch.submit(spec())
    second = batch.duplicate(first)
    assert [s.job_id for s in seen(batch)] == [first, second]
    batch.lose(first)
    assert [s.job_id for s in seen(batch)] == [second]
    batch.requeue(second)
    (waiting,) = seen(batch)
    assert (waiting.state, waiting.restarts, waiting.start_s) == (JobState.PENDING, 1, None)
    batch.start(second, ("n7",))
    assert seen(batch)[0].nodes == ("n7",)


@pytest.mark.parametrize("accepted", [True, False])
def test_an_uncertain_answer_hides_what_happened(accepted: bool) -> None:
    batch = FakeBatch()
    batch.uncertain_next(accepted=accepted)
    with pytest.raises(SubmitUncertain):
        batch.submit(spec())
    assert len(seen(batch)) == accepted


def test_a_refusal_has_its_kind_and_happens_once() -> None:
    batch = FakeBatch()
    batch.refuse_next("too many jobs.", kind="site_limit")
    with pytest.raises(SubmitRefused) as refused:
        batch.submit(spec())
    assert refused.value.kind == "site_limit"
    batch.submit(spec())


def test_without_memory_absence_proves_nothing() -> None:
    batch = FakeBatch()
    batch.remembers = False
    batch.submit(spec())
    assert batch.observe([JobRef("k")]).complete
    assert not batch.observe([JobRef("k"), JobRef("gone")]).complete


def test_jobs_wait_until_started_by_hand() -> None:
    batch = FakeBatch(auto_start=False)
    job_id = batch.submit(spec())
    batch.clock.advance(1000)
    assert seen(batch)[0].state is JobState.PENDING
    batch.start(job_id)
    batch.end(job_id, JobState.NODE_FAIL, exit_code=None, reason="NodeDown")
    assert (seen(batch)[0].state, seen(batch)[0].reason) == (JobState.NODE_FAIL, "NodeDown")


def test_time_never_goes_back() -> None:
    clock = SimClock(5.0)
    clock.sleep(-3)
    assert clock.now() == 5.0
    with pytest.raises(ValueError, match="back"):
        clock.advance(-1)
