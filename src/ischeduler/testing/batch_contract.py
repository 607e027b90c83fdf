"""What every BatchSystem must do. Inherit :class:`BatchContract`, give it a ``rig`` fixture, and pytest runs it all.

A rig (:class:`BatchRig`) connects to the batch system under test, turns :class:`Program` into jobs, and can take it down. The very
same tests run on the fake, on the embedded local batch system and on a real Slurm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pytest

from ischeduler.core.errors import AmendRefused, BatchUnavailable, SubmitRefused
from ischeduler.core.jobs import JobChange, JobRef, JobSpec, JobState, JobStatus
from ischeduler.plane.pools.steering import amending
from ischeduler.ports import Amending, BatchSystem


@dataclass(frozen=True, slots=True)
class Program:
    """A job's doing: print ``text``, run for ``run_s``, end with ``exit_code`` (or kill itself with SIGKILL).

    ``on_usr2`` is the exit code with which it ends when it gets SIGUSR2; None means that it takes no notice.
    """

    run_s: float = 0.0
    exit_code: int = 0
    killed: bool = False
    on_usr2: int | None = None
    text: str = ""

    def argv(self) -> tuple[str, ...]:
        """The program as a real command; ``READY`` is printed once signals are caught."""
        caught = "" if self.on_usr2 is None else f"exit {self.on_usr2}"
        end = "kill -9 $$" if self.killed else f"exit {self.exit_code}"
        wait = f"for i in $(seq {round(self.run_s * 10)}); do sleep 0.1; done"
        return ("bash", "-c", f'trap "{caught}" USR2; echo READY; printf "%s\\n" "$1"; {wait}; {end}', "program", self.text)


class BatchRig(Protocol):
    """One batch system under test. ``walltime_s`` is the shortest it can enforce, ``lead_s`` a warning time that fits in it."""

    walltime_s: float
    lead_s: int

    def connect(self) -> BatchSystem:
        """A new adapter, as after a crash of the last one."""
        ...

    def spec(self, key: str, program: Program, **changes: Any) -> JobSpec:
        """A job that would be taken; ``changes`` replace fields of JobSpec or Resources."""
        ...

    def refused(self, key: str) -> JobSpec:
        """A job that no site would take."""
        ...

    def crowd(self, key: str) -> JobSpec:
        """A long job that leaves no room for :meth:`spec`'s."""
        ...

    def output_of(self, spec: JobSpec) -> str:
        """What the job has printed, '' while there is nothing."""
        ...

    def wait_until(self, condition: Callable[[], bool], timeout_s: float = 30.0) -> bool:
        """Let time pass until the condition holds; whether it did."""
        ...

    def go_down(self) -> None:
        """Nobody answers from now on."""
        ...

    def come_back(self) -> None:
        """It answers again."""
        ...

    def new_key(self) -> str:
        """A key never used before."""
        ...


class BatchContract:
    """The tests. Subclasses define the fixture ``rig``."""

    @pytest.fixture
    def batch(self, rig: BatchRig) -> BatchSystem:
        return rig.connect()

    def test_a_job_is_submitted_observed_and_finishes(self, rig: BatchRig, batch: BatchSystem) -> None:
        spec = rig.spec(rig.new_key(), Program())
        job_id = batch.submit(spec)
        status = ended(rig, batch, spec.key)
        assert (status.job_id, status.key, status.state) == (job_id, spec.key, JobState.COMPLETED)
        assert (status.exit_code, status.signal, status.partition) == (0, None, spec.partition)
        assert status.submit_s is not None
        assert status.start_s is not None
        assert status.end_s is not None
        assert status.submit_s <= status.start_s <= status.end_s
        assert len(status.nodes) == 1
        assert status.limit_s == spec.resources.walltime_s

    def test_an_exit_code_is_told_as_it_is(self, rig: BatchRig, batch: BatchSystem) -> None:
        spec = rig.spec(rig.new_key(), Program(exit_code=85))
        batch.submit(spec)
        status = ended(rig, batch, spec.key)
        assert (status.state, status.exit_code, status.signal) == (JobState.FAILED, 85, None)

    def test_a_death_by_signal_is_told_as_one(self, rig: BatchRig, batch: BatchSystem) -> None:
        spec = rig.spec(rig.new_key(), Program(killed=True))
        batch.submit(spec)
        status = ended(rig, batch, spec.key)
        assert status.state is JobState.FAILED
        assert status.signal == 9 or status.exit_code == 137

    def test_output_goes_to_the_file_of_that_name(self, rig: BatchRig, batch: BatchSystem) -> None:
        spec = rig.spec(rig.new_key(), Program(text="two  words, 100% of \"them\" & 'more'; $HOME"))
        batch.submit(spec)
        ended(rig, batch, spec.key)
        assert rig.wait_until(lambda: "two  words, 100% of \"them\" & 'more'; $HOME\n" in rig.output_of(spec), 5.0)

    def test_cancelling_ends_a_running_job_and_twice_is_no_error(self, rig: BatchRig, batch: BatchSystem) -> None:
        spec = rig.spec(rig.new_key(), Program(run_s=300))
        job_id = batch.submit(spec)
        running(rig, batch, spec)
        batch.cancel(job_id)
        assert ended(rig, batch, spec.key).state is JobState.CANCELLED
        batch.cancel(job_id)
        batch.cancel("99999999")
        assert ended(rig, batch, spec.key).state is JobState.CANCELLED

    def test_a_signal_reaches_the_job(self, rig: BatchRig, batch: BatchSystem) -> None:
        spec = rig.spec(rig.new_key(), Program(run_s=300, on_usr2=85))
        job_id = batch.submit(spec)
        running(rig, batch, spec)
        batch.cancel(job_id, signal="USR2")
        status = ended(rig, batch, spec.key)
        assert (status.state, status.exit_code) == (JobState.FAILED, 85)
        batch.cancel(job_id, signal="USR2")

    def test_the_walltime_is_enforced(self, rig: BatchRig, batch: BatchSystem) -> None:
        spec = rig.spec(rig.new_key(), Program(run_s=600), walltime_s=rig.walltime_s, signal_lead_s=None)
        batch.submit(spec)
        status = ended(rig, batch, spec.key, rig.walltime_s + 90)
        assert status.state is JobState.TIMEOUT
        assert status.start_s is not None
        assert status.end_s is not None
        assert status.end_s - status.start_s >= rig.walltime_s - 1

    def test_the_warning_comes_before_the_limit(self, rig: BatchRig, batch: BatchSystem) -> None:
        spec = rig.spec(rig.new_key(), Program(run_s=600, on_usr2=85), walltime_s=rig.walltime_s, signal_lead_s=rig.lead_s)
        batch.submit(spec)
        status = ended(rig, batch, spec.key, rig.walltime_s + 90)
        assert (status.state, status.exit_code) == (JobState.FAILED, 85)
        assert status.start_s is not None
        assert status.end_s is not None
        assert status.end_s - status.start_s <= rig.walltime_s

    def test_a_job_is_found_by_its_key_alone_after_a_crash(self, rig: BatchRig, batch: BatchSystem) -> None:
        spec = rig.spec(rig.new_key(), Program(run_s=300))
        job_id = batch.submit(spec)
        found = rig.connect().observe([JobRef(spec.key)]).jobs[spec.key]
        assert [s.job_id for s in found] == [job_id]
        rig.connect().cancel(job_id)
        assert ended(rig, rig.connect(), spec.key).state is JobState.CANCELLED

    def test_a_doubled_submission_shows_as_two(self, rig: BatchRig, batch: BatchSystem) -> None:
        spec = rig.spec(rig.new_key(), Program(run_s=300))
        ids = [batch.submit(spec), batch.submit(spec)]
        batch.cancel(ids[0])
        seen = statuses(batch, JobRef(spec.key, ids[1]))
        assert sorted(s.job_id for s in seen) == sorted(ids)
        assert {s.key for s in seen} == {spec.key}
        batch.cancel(ids[1])

    def test_a_key_never_submitted_is_truly_absent(self, rig: BatchRig, batch: BatchSystem) -> None:
        seen = batch.observe([JobRef(rig.new_key())])
        assert (dict(seen.jobs), seen.complete) == ({}, True)

    def test_many_jobs_come_in_one_answer_and_others_stay_out(self, rig: BatchRig, batch: BatchSystem) -> None:
        specs = [rig.spec(rig.new_key(), Program(exit_code=n)) for n in range(3)]
        for spec in specs:
            batch.submit(spec)
        asked = [JobRef(s.key) for s in specs[:2]]
        assert set(batch.observe(asked).jobs) == {s.key for s in specs[:2]}
        assert dict(batch.observe([]).jobs) == {}
        assert [ended(rig, batch, s.key).exit_code for s in specs] == [0, 1, 2]

    def test_a_job_that_follows_another_waits_for_its_end(self, rig: BatchRig, batch: BatchSystem) -> None:
        first = rig.spec(rig.new_key(), Program(run_s=300))
        first_id = batch.submit(first)
        running(rig, batch, first)
        second = replace(rig.spec(rig.new_key(), Program(run_s=300)), after=first_id)
        second_id = batch.submit(second)
        rig.wait_until(lambda: one(batch, second.key).state is JobState.RUNNING, 3.0)
        assert one(batch, second.key).state is JobState.PENDING
        batch.cancel(first_id)
        running(rig, batch, second)
        batch.cancel(second_id)
        assert ended(rig, batch, second.key).state is JobState.CANCELLED

    def test_a_job_waits_for_room_and_then_runs(self, rig: BatchRig, batch: BatchSystem) -> None:
        crowd, spec = rig.crowd(rig.new_key()), rig.spec(rig.new_key(), Program(run_s=300))
        first = batch.submit(crowd)
        assert rig.wait_until(lambda: one(batch, crowd.key).state is JobState.RUNNING)
        second = batch.submit(spec)
        waiting = one(batch, spec.key)
        assert (waiting.state, waiting.start_s, waiting.nodes) == (JobState.PENDING, None, ())
        batch.cancel(first)
        assert rig.wait_until(lambda: one(batch, spec.key).state is JobState.RUNNING)
        batch.cancel(second)
        assert ended(rig, batch, spec.key).state is JobState.CANCELLED

    def test_a_waiting_job_can_be_cancelled(self, rig: BatchRig, batch: BatchSystem) -> None:
        crowd, spec = rig.crowd(rig.new_key()), rig.spec(rig.new_key(), Program(run_s=300))
        first = batch.submit(crowd)
        assert rig.wait_until(lambda: one(batch, crowd.key).state is JobState.RUNNING)
        batch.cancel(batch.submit(spec))
        status = ended(rig, batch, spec.key)
        assert (status.state, status.nodes) == (JobState.CANCELLED, ())
        batch.cancel(first)
        ended(rig, batch, crowd.key)

    def test_a_waiting_job_is_changed_in_place_or_a_sentence_says_that_it_cannot_be(self, rig: BatchRig, batch: BatchSystem) -> None:
        if not isinstance(batch, Amending):
            with pytest.raises(AmendRefused, match="cannot change jobs that wait"):
                amending(batch)
            return
        crowd, spec = rig.crowd(rig.new_key()), rig.spec(rig.new_key(), Program(run_s=300))
        first = batch.submit(crowd)
        assert rig.wait_until(lambda: one(batch, crowd.key).state is JobState.RUNNING)
        second = batch.submit(spec)
        batch.amend(second, JobChange(nice=700))
        batch.amend(second, JobChange(nice=0))
        waiting = one(batch, spec.key)
        assert (waiting.job_id, waiting.state) == (second, JobState.PENDING)
        for job_id, change in ((second, JobChange(partition="no-such-partition")), ("99999999", JobChange(nice=1))):
            with pytest.raises(AmendRefused):
                batch.amend(job_id, change)
        batch.cancel(second)
        batch.cancel(first)
        ended(rig, batch, crowd.key)

    def test_no_answer_is_unavailable_and_says_nothing_of_jobs(self, rig: BatchRig, batch: BatchSystem) -> None:
        spec = rig.spec(rig.new_key(), Program(run_s=300))
        job_id = batch.submit(spec)
        running(rig, batch, spec)
        rig.go_down()
        try:
            for ask in (batch.snapshot, lambda: batch.observe([JobRef(spec.key, job_id)]), lambda: batch.submit(spec)):
                with pytest.raises(BatchUnavailable):
                    ask()
        finally:
            rig.come_back()
        assert rig.wait_until(lambda: _answers(batch), 150.0)
        assert one(batch, spec.key).state is JobState.RUNNING
        batch.cancel(job_id)

    def test_a_snapshot_shows_nodes_and_my_job(self, rig: BatchRig, batch: BatchSystem) -> None:
        spec = rig.spec(rig.new_key(), Program(run_s=300))
        job_id = batch.submit(spec)
        running(rig, batch, spec)
        seen = batch.snapshot()
        assert seen.cluster == batch.name
        assert sum(c.usable for c in seen.counts(spec.partition)) >= 1
        assert all(c.node_type and 0 <= c.idle_gpus <= c.total_gpus for c in seen.nodes)
        mine = [j for j in seen.running(spec.partition) if j.job_id == job_id]
        assert [(j.mine, j.limit_s) for j in mine] == [(True, spec.resources.walltime_s)]
        batch.cancel(job_id)

    def test_a_probe_submits_nothing_and_says_yes(self, rig: BatchRig, batch: BatchSystem) -> None:
        spec = rig.spec(rig.new_key(), Program())
        assert batch.probe(spec).accepted
        assert dict(batch.observe([JobRef(spec.key)]).jobs) == {}

    def test_a_probe_says_no_with_a_reason(self, rig: BatchRig, batch: BatchSystem) -> None:
        answer = batch.probe(rig.refused(rig.new_key()))
        assert not answer.accepted
        assert len(answer.reason) > 5

    def test_a_refused_job_never_waits_or_runs(self, rig: BatchRig, batch: BatchSystem) -> None:
        spec = rig.refused(rig.new_key())
        with pytest.raises(SubmitRefused) as refused:
            batch.submit(spec)
        assert refused.value.kind == "invalid"
        assert all(s.state.ended for s in batch.observe([JobRef(spec.key)]).jobs.get(spec.key, ()))


def statuses(batch: BatchSystem, ref: JobRef) -> tuple[JobStatus, ...]:
    """All jobs of a key."""
    return tuple(batch.observe([ref]).jobs.get(ref.key, ()))


def one(batch: BatchSystem, key: str) -> JobStatus:
    """The only job of a key."""
    (status,) = statuses(batch, JobRef(key))
    return status


def running(rig: BatchRig, batch: BatchSystem, spec: JobSpec) -> None:
    """Wait until the job runs and catches signals."""
    assert rig.wait_until(lambda: one(batch, spec.key).state is JobState.RUNNING), "the job never started"
    assert rig.wait_until(lambda: "READY" in rig.output_of(spec)), "the job never printed READY"


def ended(rig: BatchRig, batch: BatchSystem, key: str, timeout_s: float = 60.0) -> JobStatus:
    """The status of the key's only job once it has ended."""
    assert rig.wait_until(lambda: one(batch, key).state.ended, timeout_s), f"the job did not end within {timeout_s} s"
    return one(batch, key)


def _answers(batch: BatchSystem) -> bool:
    try:
        batch.snapshot()
    except BatchUnavailable:
        return False
    return True
