"""Whole lives of runs in a simulated world."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from harness import FixedReplanner, Foretold, Rig
from world import T0, Training, World, make_plan, make_run

from ischeduler.core.jobs import Cause, JobState
from ischeduler.core.run import Caps, Run, RunState
from ischeduler.core.sizes import GIB
from ischeduler.plane.policy import Policy


def causes(run: Run) -> list[str]:
    return [str(a.cause) for a in run.attempts]


def test_one_job():
    rig = Rig()
    rig.plane().delegate(make_run(make_plan(epochs=3, walltime_s=3600)))
    rig.world.trainings["r-1"] = Training(epochs=3)
    run = rig.drive()
    assert run.state is RunState.COMPLETED
    assert causes(run) == ["finished"]
    assert run.progress.epochs_done == 3
    assert run.recorded
    assert {k for _, k, _ in rig.store.records} == {"attempt", "run"}
    assert rig.letters.sent[0][0] == "r-1 completed"


def test_three_walltimes_a_node_failure_and_out_of_memory():
    rig = Rig()
    rig.world.trainings["r-1"] = t = Training(epochs=10, needs_memory=20 * GIB)
    rig.plane().delegate(make_run(make_plan(epochs=10, walltime_s=240, memory=16 * GIB)))
    run = rig.drive(lambda r: r.state is RunState.RUNNING and len(r.attempts) == 3 and r.attempts[-1].checkpoint_step > 300)
    rig.world.fail_node(rig.world.alive("r-1")[0])
    run = rig.drive()
    assert run.state is RunState.COMPLETED, run.message
    assert causes(run)[0] == "out_of_memory"
    assert run.attempts[1].resources.memory_bytes == 24 * GIB
    assert causes(run).count("walltime") >= 2
    assert causes(run).count("node_failure") == 1
    assert run.excluded_nodes == ("n0",)
    assert all(e <= 10 for e, _ in t.saved)
    assert run.progress.epochs_done == 10
    assert run.first_plan is not None
    assert run.first_plan.resources.memory_bytes == 16 * GIB


def test_accounting_off_and_rare_looks():
    """Jobs vanish from the queue's memory between two looks: their own last words count."""
    rig = Rig(World(accounting=False))
    rig.world.trainings["r-1"] = Training(epochs=6)
    rig.plane().delegate(make_run(make_plan(epochs=6)))
    run = rig.drive(every_s=900, hours=24)
    assert run.state is RunState.COMPLETED
    assert set(causes(run)) <= {"walltime", "finished"}


def test_lost_job_is_fenced_off_and_submitted_again():
    rig = Rig(World(accounting=False))
    rig.world.trainings["r-1"] = t = Training(epochs=6)
    rig.plane().delegate(make_run(make_plan(epochs=6, walltime_s=3600)))
    rig.drive(lambda r: r.state is RunState.RUNNING and r.progress.epochs_done == 2)
    job = rig.world.alive("r-1")[0]
    job.zombie, job.state, job.ended = True, JobState.FAILED, T0 - 10_000
    rig.drive(lambda r: len(r.attempts) == 2)
    assert t.fence >= (2, 0)
    run = rig.drive()
    assert causes(run) == ["lost", "finished"]
    assert t.done_by == [(2, 0)]


def test_split_brain_zombie_never_publishes_after_the_fence():
    rig = Rig()
    rig.world.trainings["r-1"] = t = Training(epochs=8)
    rig.plane().delegate(make_run(make_plan(epochs=8, walltime_s=3600)))
    rig.drive(lambda r: r.progress.epochs_done == 2)
    rig.world.fail_node(rig.world.alive("r-1")[0], zombie=True)
    rig.drive(lambda r: len(r.attempts) == 2)
    before = len([1 for _, who in t.saved if who == (1, 0)])
    run = rig.drive()
    assert run.state is RunState.COMPLETED
    assert len([1 for _, who in t.saved if who == (1, 0)]) == before
    assert t.done_by == [(2, 0)]


def test_requeue_by_the_batch_system_is_the_same_attempt_with_a_newer_token():
    rig = Rig()
    rig.world.trainings["r-1"] = Training(epochs=6)
    rig.plane().delegate(make_run(make_plan(epochs=6, walltime_s=3600)))
    rig.drive(lambda r: r.progress.epochs_done == 2)
    rig.world.requeue(rig.world.alive("r-1")[0])
    run = rig.drive(lambda r: r.state is RunState.QUEUED)
    assert run.attempts[-1].restarts == 1
    run = rig.drive()
    assert run.state is RunState.COMPLETED
    assert len(run.attempts) == 1
    assert run.progress.epochs_done == 6


def test_late_events_of_a_superseded_attempt_change_nothing():
    rig = Rig()
    rig.world.trainings["r-1"] = t = Training(epochs=8)
    rig.plane().delegate(make_run(make_plan(epochs=8, walltime_s=3600)))
    rig.drive(lambda r: r.progress.epochs_done == 2)
    old = rig.world.alive("r-1")[0]
    rig.world.fail_node(old)
    rig.drive(lambda r: len(r.attempts) == 2 and r.attempts[1].spool_started)
    before = rig.run()
    rig.world.say(old, "progress", epoch=7, epochs=8, step=700, steps=800)
    rig.world.say(old, "finished", epochs=8, steps=800)
    rig.tick()
    assert rig.run().progress.epochs_done == before.progress.epochs_done
    assert len([e for _, e in rig.store.log if e.token == "1.0" and e.kind == "finished"]) == 1, "late events are still kept"
    assert t.done_by == []


@pytest.mark.parametrize("fault", ["lost", "accepted", "late"])
def test_uncertain_submission_is_looked_up(fault: str):
    rig = Rig()
    rig.world.faults = [fault]
    rig.world.trainings["r-1"] = Training(epochs=2)
    rig.plane().delegate(make_run(make_plan(epochs=2, walltime_s=3600)))
    run = rig.drive()
    assert run.state is RunState.COMPLETED
    assert len(rig.world.all_jobs()) == 1
    assert run.attempts[0].submit_tries == (2 if fault == "lost" else 1)


def test_site_limit_waits_and_is_no_failure():
    rig = Rig()
    rig.world.faults = ["site_limit"] * 6
    rig.world.trainings["r-1"] = Training(epochs=2)
    rig.plane().delegate(make_run(make_plan(epochs=2, walltime_s=3600), caps=Caps(max_failures=1)))
    run = rig.drive()
    assert run.state is RunState.COMPLETED
    assert len(run.attempts) == 1
    assert rig.world.calls["submit"] == 7


def test_refused_for_good_goes_elsewhere_or_fails():
    other = make_plan(partition="cpu", node_type="cpu", epochs=2, walltime_s=3600)
    for plans, state in (((other,), RunState.COMPLETED), ((), RunState.FAILED)):
        rig = Rig(replanner=FixedReplanner(plans))
        rig.world.faults = ["invalid"]
        rig.world.trainings["r-1"] = Training(epochs=2)
        rig.plane().delegate(make_run(make_plan(epochs=2, walltime_s=3600)))
        run = rig.drive()
        assert run.state is state
        assert "refused" in (run.message if not plans else str(run.attempts[0].reason))
        assert run.attempts[-1].partition == ("cpu" if plans else "gpu")


def test_excluded_nodes_are_forgotten_when_none_is_left():
    rig = Rig(World(nodes=1))
    rig.world.trainings["r-1"] = Training(epochs=4)
    rig.plane().delegate(make_run(make_plan(epochs=4, walltime_s=3600)))
    rig.drive(lambda r: r.progress.epochs_done == 1)
    rig.world.fail_node(rig.world.alive("r-1")[0])
    rig.world.down.clear()
    run = rig.drive()
    assert run.state is RunState.COMPLETED
    assert run.excluded_nodes == ()


def test_cancel_waits_for_the_job_to_end():
    rig = Rig()
    rig.plane().delegate(make_run())
    rig.drive(lambda r: r.state is RunState.RUNNING)
    rig.plane().cancel("r-1")
    rig.batches["one"].down = True
    for _ in range(5):
        rig.tick()
        rig.world.advance(60)
    assert not rig.run().state.ended
    rig.batches["one"].down = False
    run = rig.drive()
    assert run.state is RunState.CANCELLED
    assert not rig.world.alive("r-1")


def test_cancel_before_anything_was_submitted():
    rig = Rig()
    plane = rig.plane()
    plane.delegate(make_run())
    plane.cancel("r-1")
    run = rig.drive()
    assert run.state is RunState.CANCELLED
    assert rig.world.all_jobs() == []


def test_cancel_while_a_submission_is_uncertain_finds_the_job():
    rig = Rig()
    rig.world.faults = ["accepted"]
    plane = rig.plane()
    plane.delegate(make_run())
    plane.tick()
    plane.cancel("r-1")
    run = rig.drive()
    assert run.state is RunState.CANCELLED
    assert len(rig.world.all_jobs()) == 1
    assert rig.world.all_jobs()[0].state is JobState.CANCELLED


def test_cancelled_outside():
    rig = Rig()
    rig.plane().delegate(make_run())
    rig.drive(lambda r: r.state is RunState.RUNNING)
    rig.batches["one"].cancel(rig.world.alive("r-1")[0].job_id)
    run = rig.drive()
    assert run.state is RunState.CANCELLED
    assert "outside" in run.message


@pytest.mark.parametrize("state", [RunState.QUEUED, RunState.RUNNING])
def test_move_checkpoints_and_goes_on_elsewhere(state: RunState):
    rig = Rig(clusters=("one", "two"))
    rig.world.trainings["r-1"] = t = Training(epochs=6)
    rig.plane().delegate(make_run(make_plan(epochs=6, walltime_s=3600)))
    rig.drive(lambda r: r.state is state and (state is RunState.QUEUED or r.progress.epochs_done == 2))
    rig.plane().move("r-1", make_plan(cluster="two", partition="cpu", node_type="cpu", epochs=6, walltime_s=3600))
    rig.tick()
    assert rig.run().state is RunState.HANDING_OVER
    run = rig.drive()
    assert run.state is RunState.COMPLETED
    assert causes(run) == ["moved", "finished"]
    assert (run.attempts[1].cluster, run.attempts[1].partition) == ("two", "cpu")
    assert run.attempts[1].start_step == (200 if state is RunState.RUNNING else 0)
    assert t.control == ({(1, 0): "move"} if state is RunState.RUNNING else {})


def test_stalled_is_stopped_tried_once_more_then_failed():
    rig = Rig()
    rig.world.trainings["r-1"] = t = Training(epochs=6, hangs_at=1)
    rig.plane().delegate(make_run(make_plan(epochs=6, walltime_s=36000), caps=Caps(stall_after_s=240)))
    rig.drive(lambda r: r.state is RunState.STALLED)
    assert t.control or rig.tick()
    run = rig.drive(hours=12)
    assert run.state is RunState.FAILED
    assert causes(run) == ["stalled", "stalled", "stalled"][: len(run.attempts)]
    assert len(run.attempts) <= 3
    assert "no progress" in run.message


def test_stalled_once_goes_on():
    rig = Rig()
    rig.world.trainings["r-1"] = t = Training(epochs=4, hangs_at=1)
    rig.plane().delegate(make_run(make_plan(epochs=4, walltime_s=36000), caps=Caps(stall_after_s=240)))
    rig.drive(lambda r: r.state is RunState.STALLED)
    t.hangs_at = None
    run = rig.drive()
    assert run.state is RunState.COMPLETED


def test_user_error_twice_without_progress_fails_with_the_log():
    rig = Rig()
    rig.world.trainings["r-1"] = Training(epochs=6, fails_at={2: 99})
    rig.plane().delegate(make_run(make_plan(epochs=6, walltime_s=3600)))
    run = rig.drive()
    assert run.state is RunState.FAILED
    assert causes(run) == ["user_error", "user_error"]
    assert "exit code 1" in run.message
    assert "logs/2.out" in run.message


def test_user_error_once_is_tried_again():
    rig = Rig()
    rig.world.trainings["r-1"] = Training(epochs=6, fails_at={2: 1})
    rig.plane().delegate(make_run(make_plan(epochs=6, walltime_s=3600)))
    assert rig.drive().state is RunState.COMPLETED


def test_gpu_out_of_memory_with_smaller_batch_allowed():
    rig = Rig()
    rig.world.trainings["r-1"] = Training(epochs=4, gpu_batch=16)
    rig.plane().delegate(make_run(make_plan(epochs=4, walltime_s=3600, batch=64), caps=Caps(allow_smaller_batch=True)))
    run = rig.drive()
    assert run.state is RunState.COMPLETED
    assert [(a.batch_size, a.grad_accum) for a in run.attempts] == [(64, 1), (32, 2), (16, 4)]
    assert causes(run)[:2] == ["gpu_out_of_memory"] * 2


def test_gpu_out_of_memory_asks_for_a_bigger_card_or_fails():
    big = make_plan(partition="big", node_type="a100", epochs=4, walltime_s=3600, batch=16)
    for plans, state in (((big,), RunState.COMPLETED), ((), RunState.FAILED)):
        rig = Rig(replanner=FixedReplanner(plans))
        rig.world.trainings["r-1"] = Training(epochs=4, gpu_batch=16)
        rig.plane().delegate(make_run(make_plan(epochs=4, walltime_s=3600)))
        run = rig.drive()
        assert run.state is state
        if not plans:
            assert "smaller batch" in run.message


def test_host_memory_grows_to_the_node_and_no_further():
    rig = Rig()
    rig.world.trainings["r-1"] = Training(epochs=4, needs_memory=100 * GIB)
    rig.plane().delegate(make_run(make_plan(epochs=4, walltime_s=3600, memory=32 * GIB, node_memory=64 * GIB)))
    run = rig.drive()
    assert run.state is RunState.FAILED
    assert [a.resources.memory_bytes for a in run.attempts] == [32 * GIB, 48 * GIB, 64 * GIB]
    assert "host's memory" in run.message


def test_walltime_without_checkpoint_twice_fails_with_advice():
    rig = Rig()
    rig.world.trainings["r-1"] = Training(epochs=6, epoch_s=1000, saves=False)
    rig.plane().delegate(make_run(make_plan(epochs=6, epoch_s=1000, walltime_s=600)))
    run = rig.drive()
    assert run.state is RunState.FAILED
    assert causes(run) == ["walltime", "walltime"]
    assert "longer limit" in run.message


def test_silent_script_lives_by_its_exit_codes():
    rig = Rig()
    rig.world.trainings["r-1"] = Training(epochs=6, silent=True)
    rig.plane().delegate(make_run(make_plan(epochs=6)))
    run = rig.drive()
    assert run.state is RunState.COMPLETED
    assert causes(run)[-1] == "finished"
    assert causes(run).count("walltime") >= 1


def test_full_disk_cannot_hide_the_end_of_a_segment():
    rig = Rig()
    rig.world.disk_full = True
    rig.world.trainings["r-1"] = Training(epochs=6)
    rig.plane().delegate(make_run(make_plan(epochs=6)))
    run = rig.drive()
    assert run.state is RunState.COMPLETED
    assert set(causes(run)) == {"walltime", "finished"}


@pytest.mark.parametrize("cap", ["cost", "deadline", "attempts"])
def test_caps(cap: str):
    caps = {"cost": Caps(max_cost=1.0), "deadline": Caps(deadline=T0 + 900), "attempts": Caps(max_attempts=2)}[cap]
    rig = Rig()
    rig.world.trainings["r-1"] = Training(epochs=60)
    rig.plane().delegate(make_run(make_plan(epochs=60, cost=6.0), caps=caps))
    run = rig.drive()
    assert run.state is RunState.FAILED
    assert not rig.world.alive("r-1")
    assert {"cost": "budget", "deadline": "deadline", "attempts": "cap of 2"}[cap] in run.message
    if cap == "cost":
        assert run.spent <= 1.0 + 1e-6
    if cap == "deadline":
        assert max(j.ended or 0 for j in rig.world.all_jobs()) <= T0 + 900 + 300


@pytest.mark.parametrize("skew", [-600.0, 0.0, 600.0])
def test_clock_skew_changes_no_decision(skew: float):
    rig = Rig(World(host_skew_s=skew))
    rig.world.trainings["r-1"] = Training(epochs=8, fails_at={3: 1}, needs_memory=20 * GIB)
    rig.plane().delegate(make_run(make_plan(epochs=8), caps=Caps(stall_after_s=300, max_cost=100.0)))
    run = rig.drive()
    seen = [(str(a.cause), a.start_step, a.resources.walltime_s, a.created_at - T0) for a in run.attempts]
    other = Rig(World())
    other.world.trainings["r-1"] = Training(epochs=8, fails_at={3: 1}, needs_memory=20 * GIB)
    other.plane().delegate(make_run(make_plan(epochs=8), caps=Caps(stall_after_s=300, max_cost=100.0)))
    plain = other.drive()
    assert seen == [(str(a.cause), a.start_step, a.resources.walltime_s, a.created_at - T0) for a in plain.attempts]


def test_controller_away_is_unknown_then_known_again():
    rig = Rig()
    rig.world.trainings["r-1"] = Training(epochs=6)
    rig.plane().delegate(make_run(make_plan(epochs=6, walltime_s=3600)))
    rig.drive(lambda r: r.state is RunState.RUNNING)
    rig.batches["one"].down = True
    run = rig.drive(lambda r: r.state is RunState.UNKNOWN)
    assert run.state_before_unknown in (RunState.RUNNING, RunState.CHECKPOINTING)
    rig.batches["one"].down = False
    rig.tick()
    assert rig.run().state in (RunState.RUNNING, RunState.CHECKPOINTING)
    assert rig.drive().state is RunState.COMPLETED
    assert len(rig.world.all_jobs()) == 1


def test_doubled_job_keeps_the_first_and_cancels_the_other():
    rig = Rig()
    rig.world.trainings["r-1"] = Training(epochs=2)
    rig.plane().delegate(make_run(make_plan(epochs=2, walltime_s=3600)))
    rig.tick()
    first = rig.world.all_jobs()[0]
    rig.world.advance(5)
    rig.batches["one"].submit(first.spec)
    rig.tick()
    assert [j.state for j in rig.world.all_jobs()] == [JobState.PENDING, JobState.CANCELLED]
    run = rig.drive()
    assert run.attempts[0].job_id == first.job_id
    assert run.state is RunState.COMPLETED


def test_reschedule_moves_only_when_clearly_better():
    slow = make_plan(epochs=20, epoch_s=300, walltime_s=36000, wait_s=60)
    for factor, moves in ((0.95, False), (0.3, True)):
        left = 20 * 300 * factor
        better = replace(make_plan(partition="fast", node_type="a100", epochs=20, epoch_s=left / 20, walltime_s=36000, wait_s=0))
        planner = FixedReplanner((better,))
        rig = Rig(replanner=planner)
        rig.world.trainings["r-1"] = Training(epochs=20, epoch_s=300)
        rig.plane().delegate(make_run(slow))
        run = rig.drive(lambda r, p=planner: bool(p.asked) and r.state in (RunState.RUNNING, RunState.HANDING_OVER))
        rig.tick()
        assert (run.move_to is not None or rig.run().state is RunState.HANDING_OVER) == moves
        assert planner.asked[0] == "reschedule"


def test_hand_over_runs_at_most_two_and_ends_the_older():
    class Early:
        def submit_at(self, run: Run, now: float) -> float | None:
            return 0.0

    rig = Rig(World(wait_s=100), provisioner=Early())
    rig.world.trainings["r-1"] = Training(epochs=8)
    rig.plane().delegate(make_run(make_plan(epochs=8)))
    end, most = rig.world.now() + 6 * 3600, 0
    while not rig.run().state.ended and rig.world.now() < end:
        rig.tick()
        most = max(most, len(rig.world.alive("r-1")))
        rig.world.advance(10)
    run = rig.run()
    assert run.state is RunState.COMPLETED
    assert most == 2
    assert not rig.world.alive("r-1")
    causes = [a.cause for a in run.attempts]
    before = causes[: causes.index(Cause.FINISHED)]
    assert len(before) > 2
    assert set(before) == {Cause.WALLTIME}  # saved and left when asked, none was cut off


@pytest.mark.parametrize(("walltime_s", "jobs"), [(36000, 1), (1800, 3)])
def test_nothing_is_queued_ahead_of_a_training_that_ends_within_its_job(walltime_s: float, jobs: int):
    class Late:
        """Foresight and provisioner in one: the second half of a segment is time for the next."""

        def provisioner(self, run: Run, now: float) -> tuple[Late, str]:
            return self, "" if run.attempts else "nothing runs"

        def submit_at(self, run: Run, now: float) -> float | None:
            newest = run.attempts[-1]
            return newest.started_at + newest.resources.walltime_s / 2 if newest.started_at else None

    rig = Rig(World(wait_s=100), foresight=Late())
    rig.world.trainings["r-1"] = Training(epochs=8, epoch_s=400)
    rig.plane().delegate(make_run(make_plan(epochs=8, epoch_s=400, walltime_s=walltime_s)))
    assert "r-1: nothing runs" in rig.tick().problems
    run = rig.drive()
    assert run.state is RunState.COMPLETED
    assert len(run.attempts) == jobs
    assert run.attempts[-1].cause is Cause.FINISHED


@pytest.mark.parametrize(("pending_max", "idle_s"), [(1, 3900.0), (3, 0.0)])
def test_several_successors_wait_where_waits_are_longer_than_segments(pending_max: int, idle_s: float):
    rig = Rig(World(wait_s=7500), foresight=Foretold(7600.0), policy=Policy(pending_max=pending_max))
    rig.world.trainings["r-1"] = Training(epochs=480)
    rig.plane().delegate(make_run(make_plan(epochs=480, walltime_s=3600)))
    most = 0
    while not rig.run().state.ended:
        rig.tick()
        most = max(most, sum(j.state is JobState.PENDING for j in rig.world.alive("r-1")))
        rig.world.advance(20)
    run, jobs = rig.run(), rig.world.all_jobs("r-1")
    assert run.state is RunState.COMPLETED
    assert most == pending_max
    assert {a.cause for a in run.attempts} <= {Cause.WALLTIME, Cause.FINISHED, Cause.CANCELLED, Cause.SUPERSEDED}
    assert sorted(e for e, _ in rig.world.training("r-1").saved)[-1] == 480
    ran = sorted((j.started, j.ended) for j in jobs if j.started is not None and j.ended is not None)
    gaps = [later[0] - before[1] for before, later in pairwise(ran)][2:]
    assert sum(gaps) / len(gaps) == pytest.approx(idle_s, abs=100)
    assert not rig.world.alive("r-1")


def test_of_several_successors_the_one_that_starts_takes_over():
    """The younger one first: its elder, which would find itself fenced off, is taken out of the queue; nothing is done twice."""
    rig = Rig(World(wait_s=7500), foresight=Foretold(7600.0), policy=Policy(pending_max=2))
    rig.world.trainings["r-1"] = Training(epochs=300)
    rig.plane().delegate(make_run(make_plan(epochs=300, walltime_s=3600)))
    states = [JobState.RUNNING, JobState.PENDING, JobState.PENDING]
    run = rig.drive(lambda r: [a.state for a in r.attempts if a.ended_seen_at is None] == states)
    first, elder, younger = (a.number - 1 for a in run.attempts[-3:])
    next(j for j in rig.world.all_jobs("r-1") if j.spec.key == run.attempts[younger].key).submitted -= 10_000
    run = rig.drive(lambda r: r.attempts[younger].state is JobState.RUNNING and r.attempts[elder].cause is not None)
    assert run.attempts[elder].started_at is None
    assert run.attempts[first].exit_code == 85
    run = rig.drive(hours=24)
    assert run.state is RunState.COMPLETED
    epochs = [e for e, _ in rig.world.training("r-1").saved]
    assert epochs == sorted(epochs)


@pytest.mark.parametrize("wish", ["cancel", "move"])
def test_all_that_wait_are_taken_along(wish: str):
    rig = Rig(World(wait_s=7500), clusters=("one", "two"), foresight=Foretold(7600.0), policy=Policy(pending_max=3))
    rig.world.trainings["r-1"] = Training(epochs=300)
    rig.plane().delegate(make_run(make_plan(epochs=300, walltime_s=3600)))
    rig.drive(lambda r: r.progress.epochs_done > 9 and [a.state for a in r.attempts[-2:]] == [JobState.PENDING] * 2)
    if wish == "cancel":
        rig.plane().cancel("r-1")
        assert rig.drive().state is RunState.CANCELLED
        assert not rig.world.alive("r-1")
        return
    rig.plane().move("r-1", make_plan(cluster="two", partition="cpu", node_type="cpu", epochs=300, walltime_s=3600))
    run = rig.drive(lambda r: any(a.cluster == "two" and a.state is JobState.RUNNING for a in r.attempts))
    assert all(j.state.ended for j in rig.world.jobs["one"])
    assert next(a for a in run.attempts if a.cluster == "two").start_step > 0


def test_a_successor_that_says_nothing_takes_over_in_the_end():
    """Its wrapper is silent (a full disk, say): the predecessor is not kept running beside it for ever."""
    class Early:
        def submit_at(self, run: Run, now: float) -> float | None:
            return 0.0 if len(run.attempts) == 1 else None

    rig = Rig(World(wait_s=20), provisioner=Early())
    rig.world.trainings["r-1"] = Training(epochs=8, hangs_at=0, deaf=True)
    rig.plane().delegate(make_run(make_plan(epochs=8, walltime_s=36000)))
    rig.drive(lambda r: len(r.attempts) == 2 and r.attempts[1].state is JobState.RUNNING)
    first, second = rig.world.all_jobs()
    assert first.state is JobState.RUNNING or second.state is JobState.RUNNING
    rig.drive(lambda r: first.state.ended)
    assert second.state is JobState.RUNNING


def test_job_that_comes_back_after_its_successor_is_cancelled():
    rig = Rig()
    rig.world.trainings["r-1"] = Training(epochs=8)
    rig.plane().delegate(make_run(make_plan(epochs=8, walltime_s=3600)))
    rig.drive(lambda r: r.progress.epochs_done == 2)
    old = rig.world.alive("r-1")[0]
    rig.world.fail_node(old)
    rig.drive(lambda r: len(r.attempts) == 2 and r.attempts[1].job_id is not None)
    rig.world.requeue(old)
    rig.tick()
    assert old.state is JobState.CANCELLED
    assert rig.drive().state is RunState.COMPLETED


def test_job_that_comes_back_before_its_successor_goes_on():
    rig = Rig()
    rig.world.trainings["r-1"] = Training(epochs=8)
    rig.plane().delegate(make_run(make_plan(epochs=8, walltime_s=3600)))
    rig.drive(lambda r: r.progress.epochs_done == 2)
    old = rig.world.alive("r-1")[0]
    rig.world.fail_node(old)
    rig.tick()
    assert rig.run().state is RunState.BETWEEN_SEGMENTS
    rig.world.requeue(old)
    rig.tick()
    assert rig.run().state is RunState.QUEUED
    run = rig.drive()
    assert run.state is RunState.COMPLETED
    assert len(run.attempts) == 1


def test_exit_0_with_epochs_missing_is_not_completed():
    rig = Rig()
    rig.world.trainings["r-1"] = t = Training(epochs=6, quits_at=2)
    rig.plane().delegate(make_run(make_plan(epochs=6, walltime_s=3600)))
    run = rig.drive(lambda r: r.attempts != () and r.attempts[0].cause is not None)
    assert run.attempts[0].cause is Cause.UNKNOWN
    assert "2 of 6 epochs" in run.attempts[0].reason
    t.quits_at = None
    assert rig.drive().state is RunState.COMPLETED


def test_a_training_that_ignores_the_move_is_cancelled_in_the_end():
    rig = Rig(clusters=("one", "two"))
    rig.world.trainings["r-1"] = Training(epochs=600, deaf=True)
    rig.plane().delegate(make_run(make_plan(epochs=600, walltime_s=36000)))
    rig.drive(lambda r: r.progress.epochs_done == 2)
    rig.plane().move("r-1", make_plan(cluster="two", epochs=600, walltime_s=36000))
    asked_at = rig.world.now()
    run = rig.drive(lambda r: len(r.attempts) == 2)
    assert run.attempts[0].state is JobState.CANCELLED
    assert run.attempts[0].cause is Cause.MOVED
    assert 240 <= rig.world.now() - asked_at <= 300


def test_wrong_estimate_gets_the_whole_limit_before_it_is_given_up():
    rig = Rig()
    rig.world.trainings["r-1"] = Training(epochs=3, epoch_s=1000)
    plan = replace(make_plan(epochs=3, epoch_s=10, walltime_s=300), max_walltime_s=7200.0)
    rig.plane().delegate(make_run(plan))
    run = rig.drive()
    assert run.state is RunState.COMPLETED
    assert [a.resources.walltime_s for a in run.attempts][:2] == [120.0, 7200.0]


def test_a_script_that_never_starts_its_wrapper_is_not_lost():
    """Exit code 127 from the shell: no event ever; the batch system alone tells of it."""
    rig = Rig()
    rig.plane().delegate(make_run())
    rig.drive(lambda r: r.state is RunState.QUEUED)
    job = rig.world.alive("r-1")[0]
    job.started, job.ended, job.state, job.exit_code = rig.world.now(), rig.world.now(), JobState.FAILED, 127
    run = rig.drive(lambda r: r.attempts[0].cause is not None)
    assert run.attempts[0].cause is Cause.USER_ERROR
    assert "127" in run.attempts[0].reason


def test_events_are_kept_once_and_tell_the_story():
    rig = Rig()
    rig.world.trainings["r-1"] = Training(epochs=2)
    rig.plane().delegate(make_run(make_plan(epochs=2, walltime_s=3600)))
    rig.drive()
    story = [(e.data["from"], e.data["to"]) for _, e in rig.store.log if e.kind == "state"]
    assert story[0] == ("planned", "submitting")
    assert story[-1] == ("between_segments", "completed")
    assert all(a[1] == b[0] for a, b in pairwise(story))
    job = [(e.token, e.seq) for _, e in rig.store.log if e.source == "job"]
    assert len(set(job)) == len(job) == len(rig.world.trainings["r-1"].spool)


def test_the_same_error_after_progress_is_another_error():
    rig = Rig()
    rig.world.trainings["r-1"] = Training(epochs=6, fails_at={1: 1, 3: 1, 5: 1})
    rig.plane().delegate(make_run(make_plan(epochs=6, walltime_s=3600)))
    run = rig.drive()
    assert run.state is RunState.COMPLETED
    assert causes(run) == ["user_error"] * 3 + ["finished"]
