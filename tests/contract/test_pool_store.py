"""One suite for every store of pools: in memory, on SQLite, on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ischeduler.core.errors import NotFound, StoreConflict
from ischeduler.core.estimate import Estimate
from ischeduler.core.pool import Member, Pilot, Pool, PoolPlace, PoolState, RateFigure, Seat
from ischeduler.ports import PoolStore
from ischeduler.store.engine import open_engine
from ischeduler.store.migrate import migrate
from ischeduler.store.pools import SqlPools
from ischeduler.testing.memory_pools import MemoryPools


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def pools(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PoolStore]:
    if request.param == "memory":
        yield MemoryPools()
        return
    place = tmp_path / "isched.db" if request.param == "sqlite" else request.getfixturevalue("postgres").new_database()
    engine = open_engine(place)
    migrate(engine)
    yield SqlPools(engine, clock=lambda: 77.0)
    engine.dispose()


def pool(name: str = "lab", owner: str = "alice", created_at: float = 1.0) -> Pool:
    """A pool with every kind of field filled."""
    figure = RateFigure("v100", Estimate.exact(2.0, "steps/s", "given"))
    member = Member(
        "r-1", 2.0, preemptible=False, world_sizes=(1, 2), figures=(figure,), observed={"v100": Estimate.exact(1.5, "steps/s", "observed")},
        share={"v100": 0.5}, owed_s={"v100": -3.0}, seat=Seat("v100", "p-1-1.0", "n1", 5.0), ahead=("r-2",),
    )  # fmt: skip
    return Pool(
        name, owner, "max_min_fairness_perf", (PoolPlace("v100", "pitzer", "gpu", features=("big",)),), "/scratch/ü x", created_at,
        state=PoolState.DRAINING, members=(member, Member("r-2")), pilots=(Pilot("p-1", "v100", 3.0, idle_since=4.0),), not_before={"v100": 9.0},
        next_round_at=7.0,
    )  # fmt: skip


def test_a_pool_comes_back_as_it_went(pools: PoolStore):
    made = pools.create(pool())
    assert made.version == 1
    assert pools.get("alice", "lab") == replace(pool(), version=1)


def test_a_name_is_taken_once_an_owner(pools: PoolStore):
    pools.create(pool())
    with pytest.raises(StoreConflict, match="a pool 'lab' already"):
        pools.create(pool())
    pools.create(pool(owner="bob"))
    assert [p.owner for p in pools.list("bob")] == ["bob"]


def test_others_pools_are_not_found(pools: PoolStore):
    pools.create(pool(owner="bob"))
    with pytest.raises(NotFound, match="you have no pool 'lab'"):
        pools.get("alice", "lab")


def test_pools_are_listed_oldest_first(pools: PoolStore):
    pools.create(pool("late", created_at=2.0))
    pools.create(pool("early", created_at=1.0))
    assert [p.name for p in pools.list("alice")] == ["early", "late"]


def test_only_the_newest_version_can_be_saved(pools: PoolStore):
    made = pools.create(pool())
    saved = pools.save(replace(made, round=4))
    assert (saved.version, pools.get("alice", "lab").round) == (2, 4)
    with pytest.raises(StoreConflict, match="changed by someone else"):
        pools.save(replace(made, round=5))
    with pytest.raises(NotFound):
        pools.save(pool("other"))


def test_a_pool_can_be_forgotten_twice(pools: PoolStore):
    pools.create(pool())
    pools.delete("alice", "lab")
    pools.delete("alice", "lab")
    assert pools.list("alice") == []
