"""Planes that are driven by the jobs themselves: the successor is queued behind its predecessor's end."""

from __future__ import annotations

from itertools import pairwise

from harness import Rig
from world import Training, World, make_plan, make_run

from ischeduler.core.jobs import JobState
from ischeduler.core.run import RunState
from ischeduler.plane.policy import Policy


def rig(relay: bool = True, **options: object) -> Rig:
    made = Rig(World(wait_s=20.0, linger_s=20.0), policy=Policy(relay=relay), **options)
    made.world.trainings["r-1"] = Training(epochs=6)
    made.plane().delegate(make_run(make_plan(epochs=6)))
    return made


def until_leaving(made: Rig) -> None:
    """Tick until the first training has saved and left while its job is still shown as running."""
    made.tick()
    while not any(j.leaves for j in made.world.all_jobs()):
        made.world.advance(5)
        made.tick() if not made.world.training("r-1").spool else None


def test_the_successor_waits_for_the_predecessors_end() -> None:
    made = rig()
    until_leaving(made)
    made.tick()
    first, second = made.world.all_jobs()
    assert (first.state, second.state, second.spec.after) == (JobState.RUNNING, JobState.PENDING, first.job_id)
    made.tick()
    assert len(made.world.all_jobs()) == 2
    run = made.drive()
    assert run.state is RunState.COMPLETED
    jobs = made.world.all_jobs()
    assert all(a.ended is not None and b.started is not None and a.ended <= b.started for a, b in pairwise(jobs))


def test_without_relay_nothing_is_queued_before_the_end() -> None:
    made = rig(relay=False)
    until_leaving(made)
    made.tick()
    assert len(made.world.all_jobs()) == 1


def test_looks_by_jobs_alone_carry_a_run_to_its_last_segment() -> None:
    """Nobody but a leaving job ever looks; the last word is for whoever asks next."""
    made = rig()
    made.tick()
    looked: set[str] = set()
    for _ in range(2000):
        made.world.advance(5)
        leaving = [j.job_id for j in made.world.all_jobs() if j.leaves and j.job_id not in looked]
        if leaving:
            looked.update(leaving)
            made.tick()
    assert made.world.training("r-1").done_by
    made.world.advance(60)
    made.tick()
    assert made.run().state is RunState.COMPLETED


def test_a_cancelled_run_takes_its_queued_successor_along() -> None:
    made = rig()
    until_leaving(made)
    made.tick()
    made.plane().cancel("r-1")
    assert made.drive().state is RunState.CANCELLED
    assert not made.world.alive("r-1")
