"""Answers that come too late, for one earlier try or from an older look."""

from __future__ import annotations

from dataclasses import replace

from world import T0, make_run

from ischeduler.core.jobs import JobState, JobStatus, Observation
from ischeduler.core.run import Run, RunState
from ischeduler.plane.actions import Submit
from ischeduler.plane.decide import absorb, decide
from ischeduler.plane.inputs import CancelAsked, JobEvent, MoveAsked, Observed, SubmitFailed, Submitted, Tick
from ischeduler.plane.pursue import key_of

KEY = key_of("r-1", 1)


def look(state: JobState | None, asked_at: float, *, complete: bool = True, **fields: object) -> Observed:
    jobs = {} if state is None else {KEY: (replace(JobStatus("7", KEY, state), **fields),)}
    return Observed("one", asked_at, Observation(asked_at, jobs, complete))


def sent() -> Run:
    return decide(make_run(), Tick(), T0)[0]


def test_a_refusal_of_an_earlier_try_does_not_reopen_a_later_one():
    run, actions = decide(sent(), look(None, T0 + 100), T0 + 100)
    assert [a.tries for a in actions if isinstance(a, Submit)] == [2]
    late, actions = decide(run, SubmitFailed(KEY, 1, "site_limit", "no"), T0 + 101)
    assert late == run
    assert actions == ()


def test_an_unanswered_submission_is_not_repeated_while_it_may_still_arrive():
    sbatch_waits_s = 60.0
    run, actions = decide(sent(), look(None, T0 + sbatch_waits_s + 5), T0 + sbatch_waits_s + 5)
    assert actions == ()
    run, actions = decide(run, look(JobState.PENDING, T0 + 80), T0 + 80)
    assert (run.state, run.attempts[0].job_id, len(run.attempts)) == (RunState.QUEUED, "7", 1)


def test_a_look_older_than_the_last_is_ignored():
    run, _ = decide(sent(), Submitted(KEY, 1, "7"), T0 + 1)
    run, _ = decide(run, look(JobState.RUNNING, T0 + 100, start_s=T0), T0 + 100)
    for old in (look(JobState.PENDING, T0 + 50), look(None, T0 + 50), look(JobState.CANCELLED, T0 + 99)):
        assert decide(run, old, T0 + 101)[0] == run


def test_a_look_from_before_the_submission_says_nothing_about_it():
    run, _ = decide(sent(), Submitted(KEY, 1, "7"), T0 + 1)
    for seconds in (2, 100, 500):
        run, actions = decide(run, look(None, T0 - 1), T0 + seconds)
        assert run.state is RunState.QUEUED
        assert actions == ()


def test_one_absence_is_not_believed_at_once():
    run, _ = decide(sent(), Submitted(KEY, 1, "7"), T0 + 1)
    run, _ = decide(run, look(None, T0 + 50), T0 + 50)
    assert run.state is RunState.QUEUED
    back, _ = decide(run, look(JobState.PENDING, T0 + 55), T0 + 55)
    assert back.attempts[0].absent_since is None
    gone, _ = decide(run, look(None, T0 + 80), T0 + 80)
    assert gone.state is RunState.BETWEEN_SEGMENTS
    without, _ = decide(run, look(None, T0 + 80, complete=False), T0 + 80)
    assert without.state is RunState.QUEUED


def test_wishes_of_an_ended_or_ending_run_change_nothing():
    run, _ = decide(make_run(), CancelAsked(), T0)
    assert run.verdict is RunState.CANCELLED
    again, _ = absorb(run, MoveAsked(make_run().plan), T0)
    assert again == run
    ended = replace(run, state=RunState.CANCELLED)
    for late in (CancelAsked(), Submitted(KEY, 1, "9"), Tick(), look(JobState.RUNNING, T0 + 5)):
        assert decide(ended, late, T0 + 9) == (ended, ())


def test_events_of_other_runs_and_unknown_attempts_are_ignored():
    from ischeduler.core.event import Event

    run = sent()
    for event in (Event("r-2", "finished", T0, token="1.0"), Event("r-1", "finished", T0, token="8.0"), Event("r-1", "exit", T0)):
        assert decide(run, JobEvent(event), T0 + 1)[0] == run
