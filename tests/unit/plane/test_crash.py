"""Killing the plane before or after any call loses nothing and doubles nothing."""

from __future__ import annotations

from typing import Any

import pytest
from harness import Rig
from world import Job, QuickStore, Training, World, make_plan, make_run

from ischeduler.core.jobs import Cause, JobState
from ischeduler.core.run import RunState
from ischeduler.core.sizes import GIB


class Killed(BaseException):
    """kill -9: nothing catches it, and the dead process does nothing more, not even in its ``finally``."""


class Fate:
    """Counts calls over all adapters; dies before or after call number ``at``."""

    def __init__(self, at: int, when: str) -> None:
        self.at, self.when, self.count, self.dead = at, when, 0, False

    def around(self, call: Any, *args: Any, **kwargs: Any) -> Any:
        if self.dead:
            raise Killed
        self.count += 1
        if self.count == self.at and self.when == "before":
            self.dead = True
            raise Killed
        try:
            answer = call(*args, **kwargs)
        except Exception:
            if self.count != self.at:
                raise
            answer = None
        if self.count == self.at and self.when == "after":
            self.dead = True
            raise Killed
        return answer


class Doomed:
    """An adapter whose every method goes through a fate."""

    def __init__(self, inner: Any, fate: Fate) -> None:
        self._inner, self._fate = inner, fate

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return (lambda *a, **k: self._fate.around(found, *a, **k)) if callable(found) else found


class DoomedRig(Rig):
    """A rig whose first process dies by its fate; then another process with another name takes over."""

    def __init__(self, fate: Fate, world: World) -> None:
        super().__init__(world)
        self.store = QuickStore()
        self.fate = fate
        self.deaths = 0

    def tick(self) -> Any:
        if self._plane is None:
            live = (self.store, self.files, self.batches)
            self.store, self.files = Doomed(self.store, self.fate), Doomed(self.files, self.fate)  # type: ignore[assignment]
            self.batches = {k: Doomed(b, self.fate) for k, b in self.batches.items()}  # type: ignore[assignment]
            self._plane = self.plane("first")
            self.store, self.files, self.batches = live
        try:
            return self._plane.tick()
        except Killed:
            self.deaths += 1
            self._plane = self.plane("second")
            return None


def live(fate: Fate, accounting: bool) -> DoomedRig:
    """One whole life: an uncertain submission, out of memory, two walltimes, a node failure."""
    rig = DoomedRig(fate, World(accounting=accounting, wait_s=10))
    rig.world.faults = ["accepted"]
    rig.world.trainings["r-1"] = Training(epochs=6, needs_memory=20 * GIB, epoch_s=50)
    rig.plane().delegate(make_run(make_plan(epochs=6, epoch_s=50, walltime_s=200)))
    failed = False
    for _ in range(2000):
        rig.tick()
        assert_single(rig)
        if not failed and len(rig.run().attempts) == 3 and rig.world.alive("r-1") and rig.world.alive("r-1")[0].epoch >= 3:
            rig.world.fail_node(rig.world.alive("r-1")[0])
            failed = True
        if rig.run().state.ended:
            break
        rig.world.advance(10)
        assert_single(rig)
    return rig


def assert_single(rig: Rig) -> None:
    running = rig.world.alive("r-1")
    assert len(running) <= 1, [(j.job_id, j.spec.key, j.state) for j in running]


def check(rig: DoomedRig) -> None:
    run = rig.run()
    assert run.state is RunState.COMPLETED, run.message
    assert run.progress.epochs_done == 6
    jobs: list[Job] = rig.world.all_jobs()
    assert len({j.spec.key for j in jobs}) == len(jobs), "a key was accepted twice"
    assert all(j.state is not JobState.CANCELLED for j in jobs)
    assert [str(a.cause) for a in run.attempts] == EXPECTED, run.message
    assert len(jobs) == len(run.attempts)
    assert run.recorded
    kinds = [k for _, k, _ in rig.store.records]
    assert kinds.count("run") == 1
    assert kinds.count("attempt") == len(run.attempts)
    ended = [e for _, e in rig.store.log if e.kind == "state" and e.data["to"] == "completed"]
    assert len(ended) == 1


EXPECTED = [str(Cause.OUT_OF_MEMORY), str(Cause.WALLTIME), str(Cause.NODE_FAILURE), str(Cause.FINISHED)]


def calls_of_a_life() -> int:
    fate = Fate(0, "never")
    check(live(fate, True))
    return fate.count


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("accounting", [True, False])
def test_killed_at_every_call(when: str, accounting: bool):
    total = calls_of_a_life()
    assert total > 200
    for at in range(1, total + 1):
        rig = live(Fate(at, when), accounting)
        assert rig.deaths == 1 or at > rig.fate.count
        check(rig)


def test_two_planes_share_a_lease_and_never_act_together():
    rig = Rig()
    rig.plane().delegate(make_run())
    other = rig.plane("other")
    lease = rig.store.acquire_lease(other.lease_name, "other", 60, rig.world.now())
    assert lease is not None
    assert not rig.tick().held
    assert rig.world.all_jobs() == []
    rig.world.advance(61)
    assert rig.tick().held
    assert len(rig.world.all_jobs()) == 1


def test_a_plane_that_slept_through_its_lease_stops_acting():
    rig = Rig()
    rig.plane().delegate(make_run(run_id="r-1"))
    rig.plane().delegate(make_run(run_id="r-2"))

    def sleepy(run: Any) -> Any:
        rig.world.clock.time += 120
        rig.store.acquire_lease("plane:alice", "thief", 60, rig.world.now())
        rig.files.prepared.append(run.id)

    rig.files.prepare = sleepy  # type: ignore[method-assign]
    report = rig.tick()
    assert report.problems
    assert rig.world.calls.get("submit", 0) == 0


def test_a_wish_that_meets_a_tick_is_tried_again():
    rig = Rig()
    plane = rig.plane()
    plane.delegate(make_run())
    saved, tries = rig.store.save_run, []

    def contested(run: Any, events: Any = ()) -> Any:
        if not tries:
            tries.append(1)
            saved(rig.store.get_run(run.id))
        return saved(run, events)

    rig.store.save_run = contested  # type: ignore[method-assign]
    assert plane.cancel("r-1").cancel_requested
    assert rig.drive().state is RunState.CANCELLED


def test_one_controller_call_a_tick_whatever_the_number_of_runs():
    counts = []
    for runs in (1, 25):
        rig = Rig()
        for i in range(runs):
            rig.plane().delegate(make_run(run_id=f"r-{i}"))
        rig.tick()
        rig.world.advance(60)
        before = rig.world.calls.get("observe", 0)
        for _ in range(10):
            rig.tick()
        counts.append(rig.world.calls["observe"] - before)
    assert counts == [10, 10]
