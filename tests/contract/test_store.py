"""One suite for every Store: in memory, on SQLite, on PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from store_samples import event, record, run

from ischeduler.core.codec import to_plain
from ischeduler.core.errors import NotFound, StoreConflict
from ischeduler.core.run import RunState
from ischeduler.ports import Lease, Store
from ischeduler.store.engine import open_engine
from ischeduler.store.migrate import migrate
from ischeduler.store.sql_store import SqlStore
from ischeduler.testing.memory_store import MemoryStore


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Store]]:
    """Opens the same store again and again, as several processes would."""
    stores: list[SqlStore] = []
    memory = MemoryStore()
    url: str | Path = tmp_path / "isched.db"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres").new_database()
        engine = open_engine(url)
        migrate(engine)
        engine.dispose()

    def open_again() -> Store:
        if request.param == "memory":
            return memory
        stores.append(SqlStore(url, clock=lambda: 77.0))
        return stores[-1]

    yield open_again
    for store in stores:
        store.close()


@pytest.fixture
def store(opened: Callable[[], Store]) -> Store:
    return opened()


class TestRuns:
    def test_a_run_comes_back_as_it_went(self, store: Store):
        made = store.create_run(run())
        assert made.version == 1
        assert to_plain(store.get_run("r-1")) == to_plain(replace(run(), version=1))

    def test_an_id_is_taken_once(self, store: Store):
        store.create_run(run())
        with pytest.raises(StoreConflict, match="r-1 exists"):
            store.create_run(run(owner="bob"))
        assert store.get_run("r-1").owner == "alice"

    def test_an_unknown_run_is_not_found(self, store: Store):
        with pytest.raises(NotFound, match="r-x"):
            store.get_run("r-x")
        with pytest.raises(NotFound, match="r-x"):
            store.save_run(run("r-x"))

    def test_a_save_gives_the_next_version_and_needs_the_last(self, store: Store):
        first = store.create_run(run())
        second = store.save_run(replace(first, state=RunState.QUEUED))
        assert second.version == 2
        assert store.get_run("r-1").state is RunState.QUEUED
        with pytest.raises(StoreConflict, match="version 2, not 1"):
            store.save_run(replace(first, state=RunState.FAILED), [event(seq=1)])
        assert store.get_run("r-1").state is RunState.QUEUED
        assert store.events("r-1") == []

    def test_runs_are_listed_newest_first_by_owner_and_state(self, store: Store):
        store.create_run(run("r-1", created_at=1.0))
        store.create_run(run("r-2", created_at=3.0, state=RunState.RUNNING))
        store.create_run(run("r-3", created_at=2.0, owner="bob", state=RunState.RUNNING))
        assert [r.id for r in store.list_runs()] == ["r-2", "r-3", "r-1"]
        assert [r.id for r in store.list_runs(owner="alice")] == ["r-2", "r-1"]
        assert [r.id for r in store.list_runs(states={RunState.RUNNING})] == ["r-2", "r-3"]
        assert [r.id for r in store.list_runs(owner="bob", states=[RunState.PLANNED])] == []
        assert list(store.list_runs(states=[])) == []

    def test_what_is_returned_is_a_copy(self, store: Store):
        offsets = {"1.0": 1}
        stored = store.create_run(replace(run(), spool_offsets=offsets))
        offsets["1.0"] = 99
        assert store.get_run("r-1").spool_offsets == {"1.0": 1}
        assert stored.version == 1


class TestEvents:
    def test_events_come_back_in_order_and_after_a_row(self, store: Store):
        made = store.create_run(run())
        sent = [event(seq=1, loss=0.5), event(seq=2, note="naïve \x00"), event(seq=3, nested={"a": [1, None, True]})]
        store.save_run(made, sent)
        rows = store.events("r-1")
        assert [e for _, e in rows] == sent
        assert [r for r, _ in rows] == sorted({r for r, _ in rows})
        assert [e.seq for _, e in store.events("r-1", after=rows[0][0])] == [2, 3]
        assert store.events("r-2") == []

    def test_a_numbered_event_is_stored_once(self, store: Store):
        made = store.save_run(store.create_run(run()), [event(seq=1), event(seq=2), event(seq=1)])
        made = store.save_run(made, [event(seq=2, loss=9), event(seq=3)])
        store.save_run(made, [event(seq=1, token="2.0"), event(seq=1, source="batch")])
        assert [(e.source, e.token, e.seq) for _, e in store.events("r-1")] == [
            ("job", "1.0", 1),
            ("job", "1.0", 2),
            ("job", "1.0", 3),
            ("job", "2.0", 1),
            ("batch", "1.0", 1),
        ]
        assert store.events("r-1")[1][1].data == {}

    def test_an_event_without_a_number_is_always_new(self, store: Store):
        made = store.save_run(store.create_run(run()), [event(), event()])
        store.save_run(made, [event()])
        assert len(store.events("r-1")) == 3

    def test_same_numbers_of_another_run_are_other_events(self, store: Store):
        store.save_run(store.create_run(run("r-1")), [event("r-1", seq=1)])
        store.save_run(store.create_run(run("r-2")), [event("r-2", seq=1)])
        assert len(store.events("r-1")) == len(store.events("r-2")) == 1

    def test_an_event_of_another_run_is_refused_with_the_save(self, store: Store):
        made = store.create_run(run())
        with pytest.raises(ValueError, match=r"another run|not of r-1"):
            store.save_run(made, [event("r-2", seq=1)])
        assert store.get_run("r-1").version == 1


class TestLeases:
    def test_one_holder_at_a_time(self, store: Store):
        lease = store.acquire_lease("tick", "a", 10.0, now=100.0)
        assert lease == Lease("tick", "a", 1, 110.0)
        assert store.acquire_lease("tick", "b", 10.0, now=109.9) is None
        assert store.acquire_lease("other", "b", 10.0, now=100.0) is not None

    def test_renewing_keeps_the_token(self, store: Store):
        store.acquire_lease("tick", "a", 10.0, now=100.0)
        assert store.acquire_lease("tick", "a", 10.0, now=105.0) == Lease("tick", "a", 1, 115.0)

    def test_an_expired_lease_goes_to_the_next_with_a_greater_token(self, store: Store):
        store.acquire_lease("tick", "a", 10.0, now=100.0)
        assert store.acquire_lease("tick", "b", 10.0, now=110.0) == Lease("tick", "b", 2, 120.0)
        assert store.acquire_lease("tick", "a", 10.0, now=111.0) is None

    def test_a_lapse_grows_the_token_of_the_same_holder_too(self, store: Store):
        store.acquire_lease("tick", "a", 10.0, now=100.0)
        assert store.acquire_lease("tick", "a", 10.0, now=120.0) == Lease("tick", "a", 2, 130.0)

    def test_release_frees_and_the_token_goes_on_growing(self, store: Store):
        lease = store.acquire_lease("tick", "a", 10.0, now=100.0)
        assert lease is not None
        store.release_lease(lease)
        assert store.acquire_lease("tick", "b", 10.0, now=101.0) == Lease("tick", "b", 2, 111.0)

    def test_releasing_a_lost_lease_takes_nothing(self, store: Store):
        lost = store.acquire_lease("tick", "a", 10.0, now=100.0)
        assert lost is not None
        store.acquire_lease("tick", "b", 10.0, now=200.0)
        store.release_lease(lost)
        assert store.acquire_lease("tick", "c", 10.0, now=201.0) is None
        store.release_lease(Lease("never", "a", 1, 1.0))


class TestHistory:
    def test_newest_first_with_every_filter(self, store: Store):
        old, new = record(finished_at=1.0), record("r-2", finished_at=5.0, owner="bob", partition="cpu")
        other = record("r-3", finished_at=3.0, kind="run", cluster="ascend", family="timm:vit")
        for item in (old, new, other):
            store.record(item)
        assert store.history() == [new, other, old]
        assert store.history(family="timm:resnet18") == [new, old]
        assert store.history(cluster="pitzer", partition="gpu") == [old]
        assert store.history(kind="run") == [other]
        assert store.history(owner="bob") == [new]
        assert store.history(limit=1) == [new]

    def test_the_same_evidence_twice_counts_once(self, store: Store):
        store.record(record(wait_s=12.0))
        store.record(record(wait_s=99.0))
        store.record(record(kind="run"))
        assert [(r.kind, r.wait_s) for r in store.history(kind="attempt")] == [("attempt", 12.0)]
        assert len(store.history()) == 2


def test_two_openings_share_one_store(opened: Callable[[], Store]):
    first, second = opened(), opened()
    made = first.create_run(run())
    saved = second.save_run(made, [event(seq=1)])
    assert first.get_run("r-1").version == saved.version == 2
    assert len(first.events("r-1")) == 1


def test_many_threads_save_one_run_without_loss(opened: Callable[[], Store]):
    opened().create_run(run())
    wins: list[int] = []

    def work(number: int) -> None:
        store = opened()
        for seq in range(1, 11):
            while True:
                current = store.get_run("r-1")
                try:
                    saved = store.save_run(current, [event(seq=seq, token=f"{number}.0")])
                except StoreConflict:
                    continue
                wins.append(saved.version)
                break

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store = opened()
    assert sorted(wins) == list(range(2, 42))
    assert store.get_run("r-1").version == 41
    assert len(store.events("r-1")) == 40
