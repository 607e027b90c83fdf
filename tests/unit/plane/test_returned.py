"""A successor that starts too early by far gives its allocation back: its predecessor goes on, and another is queued in time."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from harness import Foretold, Rig
from world import T0, Training, World, make_plan, make_run

from ischeduler.core.jobs import Cause, JobState
from ischeduler.core.run import Attempt, Caps, Run, RunState
from ischeduler.core.service import Service
from ischeduler.core.sizes import GIB
from ischeduler.plane.attempts import alive_attempts, failure_streak
from ischeduler.plane.policy import DEFAULT
from ischeduler.plane.provisioners import RETURNS_MAX, Informed
from ischeduler.plane.pursue import pursue
from ischeduler.plane.renewal import PILOT_PROGRAM

WALL_S, KEEP_S = 3600.0, 300.0


class Mistaken(Foretold):
    """Says that waits are long until ``wrong`` successors came back, and then that nobody waits."""

    def __init__(self, wrong: int, *, keep_s: float | None = KEEP_S, every_s: float = 0.0) -> None:
        super().__init__(1800.0, keep_s=keep_s, every_s=every_s)
        self.wrong = wrong

    def provisioner(self, run: Run, now: float) -> tuple[Informed, str]:
        alive = alive_attempts(run)
        back = [a for a in run.attempts if a.cause is Cause.RETURNED and alive and a.number > alive[0].number]
        self.wait_s = 1800.0 if len(back) < self.wrong else 40.0
        return super().provisioner(run, now)


def rig(foresight: Foretold, training: Training | None = None, caps: Caps | None = None, *, linger_s: float = 0.0, wait_s: float = 20.0) -> Rig:
    """A training of a bit more than two segments on a cluster where a job starts 20 s after it was submitted."""
    made = Rig(World(wait_s=wait_s, linger_s=linger_s), foresight=foresight)
    made.world.trainings["r-1"] = training or Training(epochs=140)
    made.plane().delegate(make_run(make_plan(epochs=140, walltime_s=WALL_S, memory=16 * GIB), caps=caps))
    return made


def returned(run: Run) -> list[Attempt]:
    return [a for a in run.attempts if a.cause is Cause.RETURNED]


def first_return(of: Rig) -> Run:
    return of.drive(lambda r: bool(returned(r)))


def nothing_ahead(of: Rig) -> None:
    """From now on nothing is queued before the end of what runs."""
    of.options["foresight"] = None
    of._plane = None


def test_it_is_queued_with_the_time_from_which_it_may_stay():
    made = rig(Foretold(1800.0, keep_s=KEEP_S))
    run = made.drive(lambda r: len(r.attempts) == 2)
    first, second = run.attempts
    assert first.keep_from is None
    assert first.started_at is not None
    assert second.keep_from == first.started_at + WALL_S - KEEP_S
    job = made.world.all_jobs("r-1")[1]
    assert job.spec.variables["ISCHED_KEEP_FROM"] == f"{second.keep_from:.0f}"
    assert "ISCHED_HANDOVER_S" in job.spec.variables


def test_without_a_time_to_keep_an_early_successor_takes_over_as_ever():
    made = rig(Foretold(1800.0))
    run = made.drive(lambda r: r.attempts[0].cause is not None)
    assert run.attempts[1].keep_from is None
    assert run.attempts[1].created_at < made.world.now() < T0 + WALL_S
    assert all("ISCHED_KEEP_FROM" not in j.spec.variables for j in made.world.all_jobs())
    assert run.attempts[0].cause is Cause.WALLTIME


@pytest.mark.parametrize("who", ["service", "pilot", "leaving", "pending"])
def test_who_is_never_asked_to_give_back(who: str):
    """A service serves beside its predecessor, a pilot's members move, and without one that runs there is nothing to wait for."""
    made = rig(Foretold(60.0))
    run = made.drive(lambda r: r.state is RunState.RUNNING and r.progress.epochs_done > 2)
    workload = run.plan.workload
    if who == "service":
        run = replace(run, plan=replace(run.plan, workload=replace(workload, service=Service(ready_port=True))))
    elif who == "pilot":
        run = replace(run, plan=replace(run.plan, workload=replace(workload, command=("python", "-m", PILOT_PROGRAM))))
    elif who == "leaving":
        run = replace(run, attempts=(replace(run.attempts[0], exit_reason="checkpointed", checkpoint_step=900),))
    else:
        run = replace(run, attempts=(replace(run.attempts[0], state=JobState.PENDING, started_at=None),))
    policy = replace(DEFAULT, pending_max=2, relay=True)
    after, _ = pursue(run, made.world.now(), policy, made.world.now(), KEEP_S)
    assert len(after.attempts) == 2
    assert after.attempts[1].keep_from is None


def test_the_predecessor_goes_on_and_the_next_one_comes_in_time():
    made = rig(Mistaken(1))
    run = first_return(made)
    before, back = run.attempts
    assert (before.state, run.state) == (JobState.RUNNING, RunState.RUNNING)
    assert run.attempt is before
    assert "gave its allocation back" in run.message
    assert run.not_before is not None
    assert run.not_before - made.world.now() == pytest.approx(DEFAULT.retry_s, abs=1)
    assert (back.exit_code, back.spool_started, failure_streak(run)) == (88, False, 0)
    epochs = run.progress.epochs_done
    run = made.drive(lambda r: r.progress.epochs_done >= epochs + 5)
    assert run.state is RunState.RUNNING
    assert made.world.training("r-1").fence == (1, 0)
    run = made.drive()
    assert run.state is RunState.COMPLETED
    assert [a.cause for a in run.attempts[:2]] == [Cause.WALLTIME, Cause.RETURNED]
    assert run.attempts[0].ended_at is not None
    assert run.attempts[0].started_at is not None
    assert run.attempts[0].ended_at - run.attempts[0].started_at > WALL_S - KEEP_S
    saved = [e for e, _ in made.world.training("r-1").saved]
    assert saved == sorted(saved), "no step was done twice"


@pytest.mark.parametrize(("at_first", "later", "cause"), [(300.0, 3300.0, Cause.WALLTIME), (3300.0, 300.0, Cause.RETURNED)])
def test_a_newer_forecast_changes_what_a_waiting_job_does(at_first: float, later: float, cause: Cause):
    foresight = Foretold(1800.0, keep_s=at_first)
    made = rig(foresight, wait_s=600)
    run = made.drive(lambda r: len(r.attempts) == 2 and r.attempts[1].job_id is not None)
    assert run.attempts[1].told == ""
    assert not made.world.training("r-1").control
    foresight.keep_s = later
    run = made.drive(lambda r: r.attempts[1].told != "")
    assert run.attempts[1].told == ("stay" if later > at_first else "return")
    assert made.world.training("r-1").control == {(2, 0): run.attempts[1].told}
    run = made.drive(lambda r: any(a.cause is not None for a in r.attempts))
    ended = next(a for a in run.attempts if a.cause is not None)
    assert (ended.number, ended.cause) == ((1, cause) if cause is Cause.WALLTIME else (2, cause))


def test_another_is_queued_only_on_a_newer_forecast():
    made = rig(Mistaken(9, every_s=600.0))
    run = first_return(made)
    back_at = run.attempts[1].ended_seen_at
    assert back_at is not None
    run = made.drive(lambda r: len(r.attempts) == 3)
    made_at = run.attempts[2].created_at
    assert made_at - made_at % 600 > back_at
    assert made_at % 600 < 30


def test_after_some_returns_the_next_stays():
    made = rig(Mistaken(99))
    run = made.drive(lambda r: r.attempts[0].cause is not None)
    assert [a.cause for a in run.attempts[1 : 1 + RETURNS_MAX]] == [Cause.RETURNED] * RETURNS_MAX
    assert [a.keep_from is None for a in run.attempts] == [True, *[False] * RETURNS_MAX, True]
    assert run.attempts[0].exit_code == 85
    assert run.attempts[-1].state is JobState.RUNNING
    run = made.drive(lambda r: len(r.attempts) == RETURNS_MAX + 3)
    assert run.attempts[-1].keep_from is not None, "each segment's successors count for themselves"
    assert made.drive().state is RunState.COMPLETED


def test_returned_jobs_do_not_count_as_attempts():
    caps = Caps(max_attempts=4)
    run = rig(Mistaken(2), caps=caps).drive()
    assert run.state is RunState.COMPLETED, run.message
    assert len(returned(run)) >= 4
    assert len(run.attempts) - len(returned(run)) <= 4


@pytest.mark.parametrize("linger_s", [0.0, 30.0])
def test_a_limit_after_a_return_leads_to_the_next_segment(linger_s: float):
    """Nothing more is queued ahead: the end of the predecessor, no longer the newest, must be heeded."""
    made = rig(Mistaken(1), linger_s=linger_s)
    first_return(made)
    nothing_ahead(made)
    run = made.drive(lambda r: r.attempts[0].cause is not None)
    assert run.attempts[0].cause is Cause.WALLTIME
    assert run.message.startswith("segment 1 ended at its limit")
    run = made.drive()
    assert run.state is RunState.COMPLETED
    assert [a.cause for a in run.attempts][:3] == [Cause.WALLTIME, Cause.RETURNED, Cause.WALLTIME]


def test_two_limits_without_a_checkpoint_fail_in_spite_of_a_return():
    made = rig(Mistaken(1), Training(epochs=140, saves=False))
    first_return(made)
    nothing_ahead(made)
    run = made.drive()
    assert run.state is RunState.FAILED
    assert "without a checkpoint" in run.message
    assert [a.cause for a in run.attempts] == [Cause.WALLTIME, Cause.RETURNED, Cause.WALLTIME]


def test_a_failure_after_a_return_gets_its_reaction():
    made = rig(Mistaken(1))
    first_return(made)
    nothing_ahead(made)
    made.world.fail_node(made.world.alive("r-1")[0])
    run = made.drive(lambda r: len(r.attempts) == 3)
    assert run.attempts[0].cause is Cause.NODE_FAILURE
    assert run.excluded_nodes == ("n0",)
    assert failure_streak(run) == 0  # it had made progress
    assert made.world.training("r-1").fence >= (3, 0)


@pytest.mark.parametrize("seen", ["together", "return first", "failure first"])
def test_a_failure_is_reacted_to_once_whichever_end_is_seen_first(seen: str):
    """Out of memory while its successor is starting and giving back: the next one asks for more, by one step."""
    made = rig(Foretold(1800.0, keep_s=KEEP_S))
    run = made.drive(lambda r: len(r.attempts) == 2 and r.attempts[1].job_id is not None)
    old, new = made.world.all_jobs("r-1")
    nothing_ahead(made)

    def fail() -> None:
        made.world.training("r-1").logs[1] = "slurmstepd: error: Step 1.0 exceeded memory limit, being killed"
        made.world._end(old, JobState.OUT_OF_MEMORY, 0, signal=9)

    def give_back() -> None:
        new.state, new.started = JobState.RUNNING, made.world.now()
        made.world._exit(new, 88, "")

    order = {"together": [fail, give_back], "return first": [give_back, made.tick, fail], "failure first": [fail, made.tick, give_back]}
    for act in order[seen]:
        act()
    run = made.drive(lambda r: len(r.attempts) == 3)
    assert [a.cause for a in run.attempts[:2]] == [Cause.OUT_OF_MEMORY, Cause.RETURNED]
    assert run.attempts[2].resources.memory_bytes == 24 * GIB
    assert run.first_plan is not None


def test_a_requeued_predecessor_is_not_taken_for_superseded():
    made = rig(Mistaken(1))
    first_return(made)
    nothing_ahead(made)
    old = made.world.alive("r-1")[0]
    made.world.fail_node(old)
    made.tick()
    assert made.run().state is RunState.BETWEEN_SEGMENTS
    made.world.requeue(old)
    made.tick()
    assert old.state is not JobState.CANCELLED
    run = made.drive()
    assert run.state is RunState.COMPLETED
    assert run.attempts[0].restarts == 1


def test_an_outage_right_after_the_start_does_not_end_the_predecessor():
    """Seen running once, gone since: the batch system's silence does not make it a successor that took over."""
    made = rig(Mistaken(1))
    made.drive(lambda r: len(r.attempts) == 2 and r.attempts[1].job_id is not None)
    old, new = made.world.all_jobs("r-1")
    new.state, new.started = JobState.RUNNING, made.world.now()
    made.tick()
    made.world._exit(new, 88, "")
    made.batches["one"].down = True
    for _ in range(40):
        made.world.advance(10)
        made.tick()
    assert made.run().attempts[0].ending == ""
    made.batches["one"].down = False
    run = made.drive(lambda r: bool(returned(r)))
    assert (old.state, run.state) == (JobState.RUNNING, RunState.RUNNING)


def test_a_successor_that_runs_on_without_a_word_takes_over_in_the_end():
    made = rig(Foretold(1800.0, keep_s=KEEP_S))
    made.drive(lambda r: len(r.attempts) == 2 and r.attempts[1].job_id is not None)
    _, new = made.world.all_jobs("r-1")
    new.state, new.started, new.leaves = JobState.RUNNING, made.world.now(), (made.world.now() + 1e6, JobState.FAILED, 1)
    run = made.drive(lambda r: r.attempts[0].ending == "superseded")
    assert made.world.now() - new.started >= DEFAULT.soft_s
    assert run.attempts[1].state is JobState.RUNNING


def test_it_neither_adds_to_failures_in_a_row_nor_ends_them():
    run = first_return(rig(Mistaken(1)))
    bad, back = replace(run.attempts[0], cause=Cause.UNKNOWN, checkpoint_step=0), run.attempts[1]
    assert failure_streak(replace(run, attempts=(bad, back))) == 1
    assert failure_streak(replace(run, attempts=(bad, back, bad))) == 2


def test_states_go_back_and_forth_and_no_two_jobs_train_at_once():
    made = rig(Mistaken(2))
    states: list[RunState] = []

    def keep(run: Run) -> bool:
        states.append(run.state)
        return run.state.ended

    run = made.drive(keep)
    pairs = {(a, b) for a, b in pairwise(states) if a is not b}
    assert (RunState.HANDING_OVER, RunState.RUNNING) in pairs
    assert run.state is RunState.COMPLETED
    assert {t for _, t in made.world.training("r-1").saved} == {(a.number, 0) for a in run.attempts if a.cause is not Cause.RETURNED}
