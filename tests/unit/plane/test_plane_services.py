"""Services under the plane's judgement: who yields to whom, what counts as a failure, when it ends, how much it was up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from world import T0, make_plan, make_run

from ischeduler.core.errors import BadInput
from ischeduler.core.event import Event
from ischeduler.core.jobs import Cause, JobState, Resources
from ischeduler.core.run import Attempt, Caps, Run, RunState
from ischeduler.core.service import Service
from ischeduler.helper.service_fields import read_service
from ischeduler.helper.why import explain_run
from ischeduler.plane.actions import CancelJob, Control, SignalJob, Submit
from ischeduler.plane.availability import availability
from ischeduler.plane.decide import decide
from ischeduler.plane.inputs import JobEvent, Tick
from ischeduler.plane.provisioners import REACTIVE
from ischeduler.plane.provisioners.standby import LOOK_S, Standby
from ischeduler.plane.reestimate import training_left
from ischeduler.plane.segments import job_spec, next_walltime_s

LIMIT = 3600.0


def attempt(number: int, **changes: Any) -> Attempt:
    usual: dict[str, Any] = {
        "state": JobState.RUNNING, "job_id": str(100 + number), "submitted_at": T0, "started_at": T0 + 10, "spool_started": True,
        "spool_started_at": T0 + 11, "last_seen_at": T0 + 11, "node_type": make_plan().node_type,
    }  # fmt: skip
    return Attempt(number, f"r-1-{number}", "one", "gpu", Resources(walltime_s=LIMIT), 32, **{**usual, **changes})


def service_run(*attempts: Attempt, caps: Caps | None = None, **service: Any) -> Run:
    plan = make_plan()
    plan = replace(plan, workload=replace(plan.workload, service=Service(ready_port=0, **service)))
    return replace(make_run(plan, caps=caps or Caps()), state=RunState.RUNNING, attempts=attempts)


def said(kind: str, at: float, token: str = "1.0", seq: int = 2, **data: Any) -> Event:
    return Event("r-1", kind, at, source="job", token=token, seq=seq, data=data)


def test_nothing_of_a_service_is_ever_done_so_each_job_takes_the_whole_segment():
    run = service_run(attempt(1))
    assert training_left(run) is None
    assert next_walltime_s(run) == max(s.walltime_s for s in run.plan.segments)


def test_the_job_is_told_what_it_serves():
    run = service_run(attempt(1, state=JobState.PENDING))
    assert '"ready_port": 0' in job_spec(run, run.attempts[0]).variables["ISCHED_SERVICE"]


@pytest.mark.parametrize("ready", [False, True])
def test_a_predecessor_yields_only_to_a_successor_that_is_ready(ready: bool):
    run = service_run(attempt(1, serving=True, ready_at=T0 + 12), attempt(2))
    run, _ = decide(run, Tick(), T0 + 100)
    assert run.attempts[0].ending == ""
    if not ready:
        return
    run, actions = decide(run, JobEvent(said("ready", T0 + 101, "2.0", host="n1", port=8000)), T0 + 101)
    assert run.attempts[1].endpoint == "n1:8000"
    assert run.attempts[0].ending == "handed_over"
    assert not [a for a in actions if isinstance(a, CancelJob)]  # it is asked, and leaves by itself
    assert [type(a) for a in actions if isinstance(a, (Control, SignalJob))] == [Control, SignalJob]


def test_a_service_is_never_taken_for_stalled_nor_for_done():
    run = service_run(attempt(1, ready_at=T0 + 12, heard_at=T0 + 1e6, progressed_at=T0))
    run, _ = decide(run, Tick(), T0 + 1e6)
    assert run.state is RunState.RUNNING
    ended = attempt(1, state=JobState.COMPLETED, exit_code=0, exit_reason="completed", ended_seen_at=T0 + 50, ended_at=T0 + 50)
    run, _ = decide(service_run(ended), Tick(), T0 + 100)
    assert run.verdict is None
    assert run.attempts[0].cause is Cause.UNKNOWN


def test_two_jobs_that_were_never_ready_end_it_with_the_reason():
    left = {"state": JobState.FAILED, "exit_code": 85, "exit_reason": "left", "ended_seen_at": T0 + 50, "ended_at": T0 + 50}
    run = service_run(attempt(1, **left, cause=Cause.WALLTIME), attempt(2, **left))
    run, _ = decide(run, Tick(), T0 + 100)
    assert run.verdict is RunState.FAILED
    assert "never ready in job 2" in run.message
    good = service_run(attempt(1, **left, cause=Cause.WALLTIME, ready_at=T0 + 20), attempt(2, **left))
    assert decide(good, Tick(), T0 + 100)[0].verdict is None


def test_a_restart_in_the_job_is_told_in_the_status():
    run = service_run(attempt(1, serving=True, ready_at=T0 + 12))
    run, _ = decide(run, JobEvent(said("restarting", T0 + 20, seq=9, code=7, failures=1, of=5)), T0 + 21)
    assert run.attempts[0].service_restarts == 1
    assert not run.attempts[0].serving
    assert "exit code 7" in run.message
    again, _ = decide(run, JobEvent(said("restarting", T0 + 20, seq=9, code=7, failures=1, of=5)), T0 + 21)
    assert again.attempts[0].service_restarts == 1


def test_served_jobs_do_not_count_against_the_cap_on_attempts():
    ended = {"state": JobState.FAILED, "exit_code": 85, "exit_reason": "left", "ended_seen_at": T0 + 50, "cause": Cause.WALLTIME}
    run = service_run(*(attempt(n, **ended, ready_at=T0 + 20) for n in (1, 2, 3)), caps=Caps(max_attempts=3))
    _, actions = decide(run, Tick(), T0 + 100)
    assert [a.number for a in actions if isinstance(a, Submit)] == [4]


def test_its_end_is_counted_from_when_it_was_first_ready_and_is_a_success():
    run = service_run(attempt(1), for_s=600.0)
    run, _ = decide(run, Tick(), T0 + 5000)
    assert run.caps.deadline is None
    run, _ = decide(run, JobEvent(said("ready", T0 + 6000, host="n1", port=1)), T0 + 6001)
    assert run.caps.deadline == T0 + 6001 + 600
    run, _ = decide(run, Tick(), T0 + 6700)
    assert run.attempts[0].ending == "deadline"
    run = replace(run, attempts=(replace(run.attempts[0], state=JobState.FAILED, exit_reason="left", ended_seen_at=T0 + 6710),))
    assert decide(run, Tick(), T0 + 6800)[0].verdict is RunState.COMPLETED


def test_a_successor_is_queued_before_the_limit_by_what_waits_and_start_ups_were():
    rule = Standby(REACTIVE)
    first = service_run(attempt(1, startup_s=20.0))
    planned = (first.plan.needs.wait or first.plan.wait).p90
    wait_s = max(planned, 10.0)
    at = rule.submit_at(first, T0 + 20)
    assert at == pytest.approx(T0 + 10 + LIMIT - min(1.5 * (20 + wait_s) + LOOK_S, LIMIT / 2))
    assert rule.submit_at(service_run(attempt(1, state=JobState.PENDING, started_at=None)), T0) is None


@given(st.floats(0, 1e5), st.floats(0, 1e5))
def test_never_earlier_than_half_a_segment(startup_s: float, wait_s: float):
    run = service_run(attempt(1, startup_s=startup_s, submitted_at=T0 + 10 - wait_s), attempt(2, startup_s=startup_s))
    at = Standby(REACTIVE).submit_at(run, T0)
    assert at is not None
    assert at >= T0 + 10 + LIMIT / 2


def test_up_time_is_the_union_of_what_any_job_served():
    ended = {"ended_seen_at": T0 + 500, "state": JobState.FAILED}
    run = service_run(attempt(1, **ended), attempt(2, serving=True, endpoint="n2:9"))
    log = [
        said("ready", T0 + 20, seq=2), said("leaving", T0 + 130, seq=3), said("exit", T0 + 135, seq=4, code=85),
        said("ready", T0 + 120, "2.0", seq=2), said("unready", T0 + 210, "2.0", seq=3, since=T0 + 200),
        said("ready", T0 + 220, "2.0", seq=4),
    ]  # fmt: skip
    found = availability(run, log, T0 + 320)
    assert (found.span_s, found.up_s, found.handovers) == (300, 280, 1)
    assert [(i.at, i.length_s) for i in found.interruptions] == [(T0 + 200, 20)]
    assert found.up_share == pytest.approx(280 / 300)
    assert found.endpoint == "n2:9"
    assert found.waited_s == 20


def test_a_job_that_died_without_a_word_is_down_since_its_last_one_and_lasts_until_now():
    run = service_run(attempt(1, ended_seen_at=T0 + 200, state=JobState.NODE_FAIL))
    log = [said("ready", T0 + 20, seq=2), said("heartbeat", T0 + 50, seq=3)]
    found = availability(run, log, T0 + 250)
    assert [(i.at, i.length_s) for i in found.interruptions] == [(T0 + 50, 200)]
    over = availability(replace(run, state=RunState.CANCELLED), log, T0 + 250)
    assert over.interruptions == ()
    assert availability(run, [], T0 + 250).up_share is None


@given(st.lists(st.tuples(st.floats(0, 1e4), st.floats(0, 1e3)), min_size=1, max_size=8))
def test_up_and_interrupted_make_up_all_the_time(lives: list[tuple[float, float]]):
    log = [e for n, (start, length) in enumerate(lives, 1) for e in (
        said("ready", T0 + start, f"{n}.0", seq=2), said("leaving", T0 + start + length, f"{n}.0", seq=3))]  # fmt: skip
    run = service_run(*(attempt(n, ended_seen_at=T0 + 1e5) for n in range(1, len(lives) + 1)))
    found = availability(replace(run, state=RunState.CANCELLED), log, T0 + 2e5)
    assert found.up_s + found.interrupted_s == pytest.approx(found.span_s, abs=1e-3)


@pytest.mark.parametrize(
    ("fields", "words"),
    [({"ready_port": 70000}, "no port"), ({"ready_url": "localhost"}, "must begin"), ({"ready_url": "/x"}, "needs the port"), ({"for_s": 0.0}, "above zero")],
)
def test_bad_services_are_refused_in_a_sentence(fields: dict[str, Any], words: str):
    with pytest.raises(BadInput, match=words):
        Service(**fields)


def silent(after_s: float = 120.0, heard_s: float = 130.0, **changes: Any) -> Run:
    """A service that was ready, and has not answered since T0 + 100 though its job beats."""
    first = attempt(1, **{"ready_at": T0 + 20, "unready_since": T0 + 100, "heard_at": T0 + 100 + heard_s, **changes})
    return service_run(first, replace_after_s=after_s)


@pytest.mark.parametrize(
    ("run", "wanted"),
    [
        (silent(), True), (silent(heard_s=119.0), False), (silent(after_s=0.0), False), (silent(after_s=300.0), False),
        (silent(unready_since=None), False), (silent(exit_reason="left"), False), (silent(ending="user"), False),
    ],
)  # fmt: skip
def test_a_service_that_lives_without_answering_gets_a_successor_in_time(run: Run, wanted: bool):
    after, actions = decide(run, Tick(), T0 + 240)
    assert [a.number for a in actions if isinstance(a, Submit)] == ([2] if wanted else [])
    if wanted:
        assert "has not answered in job 1 for 2m" in after.message
        assert after.attempts[0].ending == ""
        assert len(decide(after, Tick(), T0 + 241)[0].attempts) == 2


def test_only_three_failed_probes_in_a_row_count_and_an_answer_takes_it_back():
    run = service_run(attempt(1, serving=True, ready_at=T0 + 20))
    run, _ = decide(run, JobEvent(said("unready", T0 + 110, seq=5, since=T0 + 100)), T0 + 110)
    assert (run.attempts[0].unready_since, run.attempts[0].serving) == (T0 + 100, False)
    answered, _ = decide(run, JobEvent(said("ready", T0 + 115, seq=6, host="n1", port=1)), T0 + 115)
    assert answered.attempts[0].unready_since is None
    late, actions = decide(answered, JobEvent(said("heartbeat", T0 + 400, seq=7)), T0 + 400)
    assert not [a for a in actions if isinstance(a, Submit)]
    assert late.attempts[0].serving
    late, actions = decide(run, JobEvent(said("heartbeat", T0 + 400, seq=7)), T0 + 400)
    assert [a.number for a in actions if isinstance(a, Submit)] == [2]


def test_a_hung_job_makes_room_when_its_successor_cannot_start_beside_it():
    run, _ = decide(silent(), Tick(), T0 + 240)

    def queued(**changes: Any) -> Run:
        second = replace(run.attempts[1], state=JobState.PENDING, job_id="102", last_try_at=None, submitted_at=T0 + 240, **changes)
        return replace(run, attempts=(run.attempts[0], second))

    patient, _ = decide(queued(reason="Priority"), Tick(), T0 + 250)
    assert patient.attempts[0].ending == ""
    for full in (decide(queued(reason="Resources"), Tick(), T0 + 250)[0], decide(queued(), Tick(), T0 + 271)[0]):
        assert full.attempts[0].ending == "hung"
        gone = replace(full.attempts[0], state=JobState.FAILED, exit_code=85, exit_reason="left", ended_seen_at=T0 + 290, ended_at=T0 + 290)
        after, actions = decide(replace(full, attempts=(gone, full.attempts[1])), Tick(), T0 + 300)
        assert (after.attempts[0].cause, after.verdict) == (Cause.STALLED, None)
        assert not [a for a in actions if isinstance(a, CancelJob)]
    runs, _ = decide(queued(spool_started=True, started_at=T0 + 245), Tick(), T0 + 250)
    starting = replace(runs, attempts=(runs.attempts[0], replace(runs.attempts[1], state=JobState.RUNNING)))
    assert decide(starting, Tick(), T0 + 400)[0].attempts[0].ending == ""


def test_why_tells_of_a_service_that_does_not_answer():
    words = explain_run(silent(after_s=300.0), T0 + 240)
    assert "it lives, but has not answered its probe for 2m" in words
    assert "A successor is queued once it has not answered for 5m" in words
    replaced, _ = decide(silent(), Tick(), T0 + 240)
    second = replace(replaced.attempts[1], state=JobState.PENDING, job_id="102", last_try_at=None)
    words = explain_run(replace(replaced, attempts=(replaced.attempts[0], second)), T0 + 245)
    assert "The service has not answered in job 1" in words


def test_a_time_to_be_replaced_is_read_and_refused_like_the_others():
    assert read_service({"replace_after": "5m"}) == Service(replace_after_s=300.0)
    with pytest.raises(BadInput, match="replace_after of -1 s is none"):
        Service(replace_after_s=-1.0)
    assert '"replace_after_s": 120.0' in job_spec(service_run(attempt(1)), attempt(1)).variables["ISCHED_SERVICE"]
