"""Several workers on one store: killed at any call, slept through their leases, woken; one look for everybody's runs."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from harness import Rig
from test_crash import EXPECTED, Doomed, Fate, Killed, assert_single
from world import T0, QuickStore, Spools, Training, World, make_plan, make_run

from ischeduler.core.errors import ConfigError, StoreUnavailable
from ischeduler.core.run import Run, RunState
from ischeduler.core.sizes import GIB
from ischeduler.plane.cadence import Cadence
from ischeduler.plane.leases import StoreClock
from ischeduler.plane.workers import Pace, Round, Worker
from ischeduler.ports import Carried

PACE = Pace(look_s=5.0, cadence=Cadence())


class Directory:
    """Everybody's batch systems: who looked, and who acted as whom."""

    def __init__(self, batches: Mapping[str, Any]) -> None:
        self.batches = batches
        self.acted: list[str] = []
        self.barred: set[str] = set()

    def observer(self, cluster: str) -> Any:
        return self.batches.get(cluster)

    def of(self, owner: str) -> Mapping[str, Any]:
        if owner in self.barred:
            raise ConfigError(f"the token of {owner} has expired; log in again.")
        self.acted.append(owner)
        return self.batches


class Crew(Rig):
    """A rig whose runs are carried by workers."""

    def __init__(self, world: World | None = None, clusters: tuple[str, ...] = ("one",), **pace: Any) -> None:
        super().__init__(world, clusters)
        self.store = QuickStore(self.world.now)
        self.directory = Directory(self.batches)
        self.pace = replace(PACE, **pace)
        self.fates: Fate | None = None

    def worker(self, name: str, fate: Fate | None = None) -> Worker:
        def doomed(inner: Any) -> Any:
            return inner if fate is None else Doomed(inner, fate)

        store = doomed(self.store)
        directory = Directory({k: doomed(b) for k, b in self.batches.items()}) if fate else self.directory
        clock = StoreClock(store, self.world.now, self.world.clock.sleep)
        return Worker(store, directory, Spools(self.world), clock, self.letters, doomed(self.files), name=name, pace=self.pace)

    def delegate(self, run: Run) -> Run:
        return self.store.create_run(run)


def live(fate: Fate, accounting: bool) -> Crew:
    """The crash test's life, carried by a worker that dies by its fate and by a second one that is there all the time."""
    crew = Crew(World(accounting=accounting, wait_s=10))
    crew.world.faults = ["accepted"]
    crew.world.trainings["r-1"] = Training(epochs=6, needs_memory=20 * GIB, epoch_s=50)
    crew.delegate(make_run(make_plan(epochs=6, epoch_s=50, walltime_s=200)))
    workers, failed = {"first": crew.worker("first", fate), "second": crew.worker("second")}, False
    for _ in range(3000):
        for name in list(workers):
            try:
                workers[name].tick()
            except Killed:
                del workers[name]
            assert_single(crew)
        run = crew.run()
        if not failed and len(run.attempts) == 3 and crew.world.alive("r-1") and crew.world.alive("r-1")[0].epoch >= 3:
            crew.world.fail_node(crew.world.alive("r-1")[0])
            failed = True
        if run.state.ended:
            break
        crew.world.advance(10)
        assert_single(crew)
    return crew


def check(crew: Crew) -> None:
    run, jobs = crew.run(), crew.world.all_jobs()
    assert run.state is RunState.COMPLETED, run.message
    assert [str(a.cause) for a in run.attempts] == EXPECTED, run.message
    assert len({j.spec.key for j in jobs}) == len(jobs) == len(run.attempts), "a key was accepted twice, or lost"
    kinds = [k for _, k, _ in crew.store.records]
    assert (kinds.count("run"), kinds.count("attempt")) == (1, len(run.attempts))
    told = [(e.token, e.seq) for _, e in crew.store.log if e.source == "job"]
    assert len(told) == len(set(told)) == len(crew.world.training("r-1").spool), "each event once"


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("accounting", [True, False])
def test_a_worker_killed_at_every_call_loses_and_doubles_nothing(when: str, accounting: bool):
    whole = Fate(0, "never")
    check(live(whole, accounting))
    assert whole.count > 150
    first = 1 + ["before", "after"].index(when) + 2 * accounting
    for at in range(first, whole.count + 1, 4):  # four quarters; the single plane is killed at every call in test_crash
        check(live(Fate(at, when), accounting))


def test_two_workers_never_carry_one_run_at_once():
    crew = Crew()
    crew.delegate(make_run())
    seen: list[int] = []

    def prepare(run: Run) -> None:
        seen.append(crew.worker("other").tick().claimed)

    crew.files.prepare = prepare  # type: ignore[method-assign]
    assert crew.worker("first").tick().claimed == 1
    assert seen == [0]
    assert len(crew.world.all_jobs()) == 1


def test_a_worker_that_slept_through_its_lease_acts_and_writes_no_more():
    crew = Crew()
    crew.delegate(make_run())
    second = crew.worker("second")

    def sleepy(run: Run) -> None:
        crew.files.prepare = lambda run: None  # type: ignore[method-assign]
        crew.world.clock.time += 3 * PACE.lease_ttl_s
        for _ in range(2):  # first it looks the open submission up, then it sends it again
            second.tick()
            crew.world.clock.time += 30.0

    crew.files.prepare = sleepy  # type: ignore[method-assign]
    report = crew.worker("first").tick()
    assert any("lease was lost" in words for words in report.problems)
    jobs = crew.world.all_jobs()
    assert [j.spec.key for j in jobs] == ["r-1-1"]
    assert crew.run().attempts[0].job_id == jobs[0].job_id


def test_a_host_with_a_wrong_clock_lives_by_the_stores():
    """The worker's own clock is an hour fast; it neither takes a lease that is held nor loses patience with a submission."""
    crew = Crew()
    crew.delegate(make_run())
    held = crew.store.claim_runs("other", now=crew.world.now(), ttl_s=60.0, limit=10)
    clock = StoreClock(crew.store, lambda: crew.world.now() + 3600.0, crew.world.clock.sleep)
    fast = Worker(crew.store, crew.directory, Spools(crew.world), clock, crew.letters, crew.files, name="fast", pace=PACE)
    assert fast.tick().claimed == 0
    assert clock.now() == pytest.approx(crew.world.now())
    crew.store.release_claims([(c, 0.0) for c in held])
    assert fast.tick().claimed == 1
    assert crew.run().attempts[0].created_at == pytest.approx(T0)


def test_one_look_a_cluster_for_all_runs_of_all_owners_and_workers():
    counts: list[int] = []
    for owners, workers in ((1, 1), (10, 1), (10, 4)):
        crew = Crew()
        for owner in range(owners):
            for number in range(5):
                crew.delegate(replace(make_run(run_id=f"r-{owner}-{number}"), owner=f"u{owner}"))
        crew_of = [crew.worker(f"w{n}") for n in range(workers)]
        for _ in range(60):
            for worker in crew_of:
                worker.tick()
            crew.world.advance(2)
        assert {r.state for r in crew.store.list_runs()} <= {RunState.RUNNING, RunState.CHECKPOINTING, RunState.QUEUED}
        assert set(crew.directory.acted) == {f"u{n}" for n in range(owners)}
        counts.append(crew.world.calls["observe"])
    assert max(counts) <= 120 / PACE.look_s + 1
    assert min(counts) >= 5


@pytest.mark.parametrize("runs", [5, 100])
def test_a_controller_is_asked_as_often_with_few_runs_as_with_many(runs: int):
    crew = Crew()
    for number in range(runs):
        crew.delegate(make_run(make_plan(walltime_s=600, epoch_s=50, epochs=1000), run_id=f"r-{number}"))
    worker, until, at = crew.worker("w"), crew.world.now() + 600.0, list[float]()
    crew.world.clock.sleep = crew.world.advance  # type: ignore[method-assign]

    def note(done: Round) -> None:
        at.extend([crew.world.now()] * bool(done.looks))
        crew.store.wake([r.id for r in crew.store.list_runs()])  # their jobs never stop talking

    worker.run_forever(lambda: crew.world.now() >= until, note)
    gaps = [b - a for a, b in itertools.pairwise(at)]
    assert min(gaps) >= PACE.look_s
    assert sorted(gaps)[len(gaps) // 2] == pytest.approx(PACE.look_s, abs=0.1)


def test_runs_with_nothing_to_do_are_stored_together_and_a_wish_in_between_is_kept():
    crew, seen = Crew(), list[list[str]]()
    for number in range(8):
        crew.delegate(make_run(run_id=f"r-{number}"))
    worker, store = crew.worker("w"), crew.store.save_and_release
    worker.tick()  # each is submitted, which is stored one by one
    crew.world.advance(30)

    def wish_first(carried: Iterable[Carried]) -> frozenset[str]:
        asked = list(carried)
        seen.append([c.run.id for c in asked])
        wished = crew.store.get_run("r-3")
        if not wished.cancel_requested:
            crew.store.save_run(replace(wished, cancel_requested=True))
        return store(asked)

    crew.store.save_and_release = wish_first  # type: ignore[method-assign]
    worker.tick()
    assert seen == [[f"r-{number}" for number in range(8)]]
    assert [r.id for r in crew.store.list_runs() if r.state is RunState.RUNNING] == [f"r-{n}" for n in range(7, -1, -1) if n != 3]
    assert crew.store.get_run("r-3").cancel_requested
    crew.world.advance(PACE.look_s)
    assert worker.tick().claimed == 1  # the others are due later


def test_runs_are_left_alone_until_they_are_due_and_a_wish_wakes_them():
    crew = Crew()
    crew.delegate(make_run(make_plan(walltime_s=36000, epoch_s=6000)))
    worker = crew.worker("w")
    for _ in range(40):
        worker.tick()
        crew.world.advance(5)
    assert crew.run().state is RunState.RUNNING
    rounds = []
    for _ in range(20):
        rounds.append(worker.tick().claimed)
        crew.world.advance(2)
    assert sum(rounds) <= 2
    while worker.tick().claimed:
        crew.world.advance(1)
    crew.world.clock.time += PACE.look_s
    crew.plane("helper").cancel("r-1")
    assert worker.tick().claimed == 1
    assert crew.world.calls["cancel"] == 1


def test_an_owner_who_cannot_be_acted_for_holds_nobody_up():
    crew = Crew()
    crew.directory.barred.add("mallory")
    crew.delegate(replace(make_run(run_id="r-1"), owner="mallory"))
    crew.delegate(replace(make_run(run_id="r-2"), owner="bob"))
    crew.worker("w").tick()
    assert crew.run("r-2").attempts[0].job_id is not None
    assert crew.run("r-1").attempts[0].job_id is None
    assert "token of mallory has expired" in crew.run("r-1").message


def test_a_run_that_trips_the_worker_up_is_put_aside(caplog: pytest.LogCaptureFixture):
    crew = Crew()
    for name in ("r-1", "r-2"):
        crew.delegate(make_run(run_id=name))

    def prepare(run: Run) -> None:
        if run.id == "r-1":
            raise RuntimeError("a defect")

    crew.files.prepare = prepare  # type: ignore[method-assign]
    worker = crew.worker("w")
    assert any("a defect" in words for words in worker.tick().problems)
    assert crew.run("r-2").attempts[0].job_id is not None
    crew.world.advance(10)
    assert worker.tick().problems == ()
    assert "r-1 could not be carried" in caplog.text


def test_a_batch_is_bounded_and_the_rest_follows():
    crew = Crew(batch=3)
    for number in range(7):
        crew.delegate(make_run(run_id=f"r-{number}"))
    worker = crew.worker("w")
    assert [(r.claimed, r.more) for r in (worker.tick(), worker.tick(), worker.tick())] == [(3, True), (3, True), (1, False)]


def test_a_cluster_that_is_gone_and_one_that_is_silent():
    crew = Crew(clusters=("one", "two"))
    for number, cluster in enumerate(("one", "two")):
        crew.delegate(make_run(make_plan(cluster=cluster), run_id=f"r-{number}"))
    worker = crew.worker("w")
    worker.tick()
    crew.batches["two"].down = True
    for _ in range(8):
        crew.world.advance(10)
        worker.tick()
    assert crew.run("r-0").state is RunState.RUNNING
    assert crew.run("r-1").state is RunState.UNKNOWN


def test_while_the_store_is_away_the_worker_waits_longer_each_time():
    crew = Crew()
    worker, rounds = crew.worker("w"), list[Round]()
    waits: list[float] = []

    def away() -> float:
        raise StoreUnavailable("the database did not answer.")

    crew.store.now = away  # type: ignore[method-assign]
    crew.world.clock.sleep = waits.append  # type: ignore[method-assign]
    worker._clock._sleep = waits.append
    worker.run_forever(lambda: len(rounds) >= 4, rounds.append)
    assert [r.problems for r in rounds] == [("the database did not answer.",)] * 4
    assert sum(waits) == pytest.approx(4.0 + 8.0 + 16.0)


def test_a_sign_of_life_names_the_looks():
    crew = Crew()
    crew.delegate(make_run())
    worker = crew.worker("w")
    for _ in range(10):
        worker.tick()
        crew.world.advance(5)
    sign = crew.store.signs()[0]
    assert (sign.name, sign.started_at) == ("w", T0)
    assert sign.seen_at > T0
    assert sign.looks["one"] >= 3

