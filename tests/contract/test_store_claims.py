"""One suite for every store that workers share: who carries a run, when it is due, and that an old claim writes nothing."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from store_samples import event, plan, run

from ischeduler.core.errors import NotFound, StoreConflict
from ischeduler.core.run import Run, RunState
from ischeduler.ports import Carried, Claim, SharedStore, WorkerSign
from ischeduler.store.engine import open_engine
from ischeduler.store.migrate import migrate
from ischeduler.store.sql_store import SqlStore
from ischeduler.testing.memory_store import MemoryStore

TTL = 60.0


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], SharedStore]]:
    """Opens the same store again and again, as several workers would."""
    stores: list[SqlStore] = []
    memory = MemoryStore()
    url: str | Path = tmp_path / "isched.db"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres").new_database()
        engine = open_engine(url)
        migrate(engine)
        engine.dispose()

    def open_again() -> SharedStore:
        if request.param == "memory":
            return memory
        stores.append(SqlStore(url))
        return stores[-1]

    yield open_again
    for store in stores:
        store.close()


@pytest.fixture
def store(opened: Callable[[], SharedStore]) -> SharedStore:
    return opened()


def queued(run_id: str, *, cluster: str = "pitzer", state: RunState = RunState.QUEUED) -> Run:
    made = run(run_id, state=state)
    attempts = tuple(replace(a, cluster=cluster) for a in made.attempts)
    progress = replace(made.progress, loss=0.5)
    return replace(made, attempts=attempts, plan=replace(plan(), cluster=cluster), progress=progress)


def ids(claims: object) -> list[str]:
    return sorted(c.run.id for c in claims)  # type: ignore[attr-defined]


def take(store: SharedStore, holder: str = "a", now: float = 100.0, limit: int = 10, **more: object) -> dict[str, Claim]:
    return {c.run.id: c for c in store.claim_runs(holder, now=now, ttl_s=TTL, limit=limit, **more)}  # type: ignore[arg-type]


class TestClaiming:
    def test_a_new_run_is_due_at_once_and_taken_by_one(self, store: SharedStore):
        made = store.create_run(queued("r-1"))
        claim = take(store)["r-1"]
        assert (claim.run, claim.holder, claim.token, claim.expires_at) == (made, "a", 1, 160.0)
        assert take(store, "b") == {}
        assert take(store, "a") == {}

    def test_an_ended_run_is_never_due(self, store: SharedStore):
        for state in (RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED):
            store.create_run(queued(f"r-{state}", state=state))
        assert take(store) == {}
        assert list(store.due_clusters(1e9)) == []

    def test_a_claim_that_lapsed_goes_to_another_with_a_greater_token(self, store: SharedStore):
        store.create_run(queued("r-1"))
        take(store)
        assert take(store, "b", now=159.9) == {}
        assert take(store, "b", now=160.0)["r-1"].token == 2

    def test_the_longest_overdue_come_first_and_no_more_than_asked(self, store: SharedStore):
        for number in range(5):
            store.create_run(queued(f"r-{number}"))
        claims = take(store)
        store.release_claims([(claims[f"r-{n}"], 200.0 - n) for n in range(5)])
        assert ids(take(store, now=198.0).values()) == ["r-2", "r-3", "r-4"]
        store.release_claims([(c, 300.0) for c in take(store, "b", now=400.0, limit=1).values()])
        assert take(store, "b", now=199.0, limit=1).keys() == {"r-1"}

    def test_only_the_clusters_asked_for_and_what_is_new(self, store: SharedStore):
        store.create_run(queued("r-1"))
        store.create_run(queued("r-2", cluster="ascend"))
        store.create_run(queued("r-3", cluster="ascend", state=RunState.PLANNED))
        assert list(store.due_clusters(100.0)) == ["ascend", "pitzer"]
        assert ids(take(store, clusters=["pitzer"]).values()) == ["r-1", "r-3"]
        assert take(store, clusters=[]) == {}
        assert list(store.due_clusters(100.0)) == ["ascend"]

    def test_a_run_is_where_its_newest_attempt_is(self, store: SharedStore):
        made = store.create_run(queued("r-1"))
        moved = replace(made, attempts=(made.attempts[0], replace(made.attempts[1], cluster="ascend")))
        store.save_run(moved)
        assert list(store.due_clusters(100.0)) == ["ascend"]


class TestSaving:
    def test_a_claim_saves_and_goes_on(self, store: SharedStore):
        store.create_run(queued("r-1"))
        claim = take(store)["r-1"]
        claim = store.save_claimed(claim, replace(claim.run, message="one"), [event(seq=1)])
        claim = store.save_claimed(claim, replace(claim.run, message="two"), [event(seq=1), event(seq=2)])
        assert claim.run == store.get_run("r-1")
        assert (claim.run.version, claim.run.message) == (3, "two")
        assert [e.seq for _, e in store.events("r-1")] == [1, 2]

    def test_an_old_claim_writes_nothing(self, store: SharedStore):
        store.create_run(queued("r-1"))
        old = take(store)["r-1"]
        new = take(store, "b", now=200.0)["r-1"]
        with pytest.raises(StoreConflict, match="another worker's hands"):
            store.save_claimed(old, replace(old.run, message="late"), [event(seq=1)])
        assert store.get_run("r-1").message == ""
        assert store.events("r-1") == []
        assert store.save_claimed(new, replace(new.run, message="mine")).run.message == "mine"

    def test_a_wish_in_between_is_not_overwritten(self, store: SharedStore):
        made = store.create_run(queued("r-1"))
        claim = take(store)["r-1"]
        store.save_run(replace(made, cancel_requested=True))
        with pytest.raises(StoreConflict, match="version 2, not 1"):
            store.save_claimed(claim, replace(claim.run, message="blind"))
        assert store.get_run("r-1").cancel_requested

    def test_an_unknown_run_is_not_found(self, store: SharedStore):
        with pytest.raises(NotFound):
            store.save_claimed(Claim(queued("r-x"), "a", 1, 100.0), queued("r-x"))

    def test_an_event_of_another_run_is_refused_with_the_save(self, store: SharedStore):
        store.create_run(queued("r-1"))
        claim = take(store)["r-1"]
        with pytest.raises(ValueError, match=r"another run|not of r-1"):
            store.save_claimed(claim, claim.run, [event("r-2", seq=1)])


class TestSavingTogether:
    def test_they_are_stored_with_their_events_and_given_back(self, store: SharedStore):
        for name in ("r-1", "r-2"):
            store.create_run(queued(name))
        claims = take(store)
        told = [Carried(c, replace(c.run, message=f"of {n}"), [event(n, seq=1), event(n, seq=2)], 150.0) for n, c in claims.items()]
        assert store.save_and_release(told) == {"r-1", "r-2"}
        assert [(r.version, r.message) for r in map(store.get_run, ("r-1", "r-2"))] == [(2, "of r-1"), (2, "of r-2")]
        assert [e.seq for name in ("r-1", "r-2") for _, e in store.events(name)] == [1, 2, 1, 2]
        assert take(store, "b", now=149.0) == {}
        assert ids(take(store, "b", now=150.0).values()) == ["r-1", "r-2"]

    def test_a_wish_in_between_is_kept_and_the_others_are_stored(self, store: SharedStore):
        made = store.create_run(queued("r-1"))
        store.create_run(queued("r-2"))
        claims = take(store)
        store.save_run(replace(made, cancel_requested=True))
        told = [Carried(c, replace(c.run, message="blind"), [event(n, seq=1)], 150.0) for n, c in claims.items()]
        assert store.save_and_release(told) == {"r-2"}
        assert (store.get_run("r-1").cancel_requested, store.get_run("r-1").message) == (True, "")
        assert store.events("r-1") == []
        assert take(store, "b") == {}  # still in the first one's hands

    def test_what_another_took_is_left_alone(self, store: SharedStore):
        store.create_run(queued("r-1"))
        old = take(store)["r-1"]
        new = take(store, "b", now=200.0)["r-1"]
        assert store.save_and_release([Carried(old, replace(old.run, message="late"), [event(seq=1)], 0.0)]) == frozenset()
        assert store.get_run("r-1").message == ""
        assert store.save_claimed(new, replace(new.run, message="mine")).run.message == "mine"

    def test_a_run_that_was_woken_is_due_at_once(self, store: SharedStore):
        store.create_run(queued("r-1"))
        claim = take(store)["r-1"]
        store.wake(["r-1"])
        store.save_and_release([Carried(claim, claim.run, [], 900.0)])
        assert ids(take(store, "b", now=101.0).values()) == ["r-1"]

    def test_none_is_none(self, store: SharedStore):
        assert store.save_and_release([]) == frozenset()


class TestKeeping:
    def test_renewing_extends_what_is_held_and_drops_what_is_not(self, store: SharedStore):
        for name in ("r-1", "r-2"):
            store.create_run(queued(name))
        claims = take(store)
        store.release_claims([(claims["r-2"], 0.0)])
        take(store, "b", now=101.0)
        kept = store.renew_claims(claims.values(), now=150.0, ttl_s=TTL)
        assert {i: c.expires_at for i, c in kept.items()} == {"r-1": 210.0}
        assert take(store, "c", now=205.0).keys() == {"r-2"}
        assert store.renew_claims([], now=1.0, ttl_s=1.0) == {}

    def test_a_lapsed_claim_that_nobody_took_can_be_renewed(self, store: SharedStore):
        store.create_run(queued("r-1"))
        claims = take(store)
        assert store.renew_claims(claims.values(), now=500.0, ttl_s=TTL)["r-1"].token == 1
        assert take(store, "b", now=510.0) == {}

    def test_released_runs_are_due_when_said(self, store: SharedStore):
        store.create_run(queued("r-1"))
        claim = take(store)["r-1"]
        store.release_claims([(claim, 130.0)])
        assert take(store, "b", now=129.0) == {}
        assert take(store, "b", now=130.0)["r-1"].token == 2

    def test_a_late_release_frees_nothing_of_anothers(self, store: SharedStore):
        store.create_run(queued("r-1"))
        old = take(store)["r-1"]
        take(store, "b", now=200.0)
        store.release_claims([(old, 0.0)])
        assert take(store, "c", now=201.0) == {}
        store.release_claims([])


class TestWaking:
    @pytest.mark.parametrize("how", ["wake", "wish"])
    def test_what_comes_in_between_makes_it_due_at_once(self, store: SharedStore, how: str):
        made = store.create_run(queued("r-1"))
        claim = take(store)["r-1"]
        if how == "wake":
            store.wake(["r-1", "r-none"])
        else:
            store.save_run(replace(made, cancel_requested=True))
        assert take(store, "b") == {}, "it is still in hand"
        store.release_claims([(claim, 9999.0)])
        again = take(store, "b", now=101.0)["r-1"]
        store.release_claims([(again, 9999.0)])
        assert take(store, "b", now=102.0) == {}, "heard once"

    def test_a_resting_run_is_woken(self, store: SharedStore):
        store.create_run(queued("r-1"))
        store.release_claims([(take(store)["r-1"], 9999.0)])
        store.wake(["r-1"])
        assert take(store, now=101.0).keys() == {"r-1"}

    def test_a_workers_own_save_leaves_the_due_time(self, store: SharedStore):
        store.create_run(queued("r-1"))
        claim = take(store)["r-1"]
        claim = store.save_claimed(claim, replace(claim.run, message="x"))
        store.release_claims([(claim, 9999.0)])
        assert take(store, now=5000.0) == {}


class TestLooks:
    def test_one_look_an_interval_whoever_asks(self, store: SharedStore):
        assert store.reserve_look("pitzer", now=100.0, interval_s=5.0)
        assert not store.reserve_look("pitzer", now=104.9, interval_s=5.0)
        assert store.reserve_look("ascend", now=101.0, interval_s=5.0)
        assert store.reserve_look("pitzer", now=105.0, interval_s=5.0)

    def test_a_look_far_ahead_is_a_clock_that_was_wrong(self, store: SharedStore):
        assert store.reserve_look("pitzer", now=9999.0, interval_s=5.0)
        assert store.reserve_look("pitzer", now=100.0, interval_s=5.0)


def test_signs_of_life_are_kept_by_name(store: SharedStore):
    store.sign(WorkerSign("a", "host", 7, 1.0, 2.0, 3, {"pitzer": 4}))
    store.sign(WorkerSign("b", "host", 8, 1.0, 9.0))
    store.sign(WorkerSign("a", "host", 7, 1.0, 5.0, 4, {"pitzer": 5}))
    assert store.signs() == [WorkerSign("b", "host", 8, 1.0, 9.0), WorkerSign("a", "host", 7, 1.0, 5.0, 4, {"pitzer": 5})]


def test_many_workers_at_once_take_each_run_once(opened: Callable[[], SharedStore]):
    """Real threads on real connections: every run is claimed by exactly one, and each look is given once."""
    first = opened()
    for number in range(60):
        first.create_run(queued(f"r-{number:02}"))
    taken: list[str] = []
    looks: list[bool] = []
    start = threading.Barrier(4)

    def work(name: str) -> None:
        store = opened()
        start.wait()
        looks.append(store.reserve_look("pitzer", now=100.0, interval_s=5.0))
        empty = 0
        while empty < 3:
            claims = store.claim_runs(name, now=100.0, ttl_s=TTL, limit=4)
            empty = 0 if claims else empty + 1
            taken.extend(c.run.id for c in claims)

    threads = [threading.Thread(target=work, args=(f"w{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(taken) == {f"r-{n:02}": 1 for n in range(60)}
    assert sum(looks) == 1


class _Model:
    """What a store of claims should do, in the plainest words, for one run."""

    def __init__(self) -> None:
        self.holder, self.token, self.expires, self.due, self.version = "", 0, 0.0, 0.0, 1


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["claim", "save", "renew", "release", "wish", "wake", "wait"]), st.integers(0, 2), st.sampled_from(["r-1", "r-2"]),
        st.sampled_from([1.0, 20.0, 61.0]),
    ),
    max_size=30,
)  # fmt: skip


@given(STEPS)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_order_of_claims_by_three_workers_is_as_the_model_says(store: SharedStore, steps: list[tuple[str, int, str, float]]):
    """Property: at every instant a run has at most one holder whose writes are taken, whatever the others try with old claims."""
    store = _emptied(store)
    now, model = 1000.0, {name: _Model() for name in ("r-1", "r-2")}
    known: dict[tuple[int, str], Claim] = {}
    for name in model:
        store.create_run(queued(name))
    for step, worker, name, seconds in steps:
        m, holder = model[name], f"w{worker}"
        claim = known.get((worker, name))
        mine = claim is not None and (m.holder, m.token) == (holder, claim.token)
        if step == "wait":
            now += seconds
        elif step == "claim":
            expected = {i for i, x in model.items() if x.due <= now and x.expires <= now}
            got = take(store, holder, now=now)
            assert got.keys() == expected
            for i, new in got.items():
                assert new.token == model[i].token + 1
                model[i].holder, model[i].token, model[i].expires, model[i].due = holder, new.token, now + TTL, now
                known[(worker, i)] = new
        elif step == "wish":
            store.save_run(replace(store.get_run(name), message=f"wish {now}"))
            m.version, m.due = m.version + 1, 0.0
        elif step == "wake":
            store.wake([name])
            m.due = 0.0
        elif claim is not None and step == "save":
            accepted = claim.token == m.token and claim.run.version == m.version
            try:
                known[(worker, name)] = store.save_claimed(claim, replace(claim.run, message=f"{holder} {now}"))
                assert accepted
                m.version += 1
            except StoreConflict:
                assert not accepted
        elif claim is not None and step == "renew":
            assert bool(store.renew_claims([claim], now=now, ttl_s=TTL)) is mine
            m.expires = now + TTL if mine else m.expires
        elif claim is not None and step == "release":
            store.release_claims([(claim, now + seconds)])
            if mine:
                m.holder, m.expires, m.due = "", 0.0, now + seconds if m.due else 0.0
        assert store.get_run(name).version == m.version


def _emptied(store: SharedStore) -> SharedStore:
    if isinstance(store, SqlStore):
        with store.engine.begin() as connection:
            connection.execute(text("DELETE FROM runs"))
        return store
    return MemoryStore()
