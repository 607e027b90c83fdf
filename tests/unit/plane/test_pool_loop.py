"""The pool's tick: what is taken away, when, and what it is asked about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from world import T0, Clock, make_plan, make_run

from ischeduler.core.event import Event
from ischeduler.core.jobs import Cause, JobState, Resources
from ischeduler.core.pilots import MemberJob, PilotOrders, PilotSign
from ischeduler.core.pool import Pool, PoolPlace
from ischeduler.core.run import Attempt, Run, RunState
from ischeduler.plane.pools.loop import KEPT_S, SWEEP_S, Pools
from ischeduler.plane.pools.slow_nodes import SlowSeen
from ischeduler.testing.memory_pools import MemoryPools
from ischeduler.testing.memory_store import MemoryStore


class Floor:
    """Nothing runs here; segments that are over are asked about by their keys."""

    def __init__(self, keys: Sequence[str]) -> None:
        self.keys, self.taken, self.before = list(keys), list[str](), list[float]()
        self.asked_since: list[float] = []

    def jobs(self, since: float) -> Sequence[MemberJob]:
        self.asked_since.append(since)
        return ()

    def signs(self) -> Sequence[PilotSign]:
        return ()

    def order(self, orders: PilotOrders) -> None:
        raise AssertionError("there is no pilot")

    def close(self, pilot: str) -> None:
        raise AssertionError("there is no pilot")

    def sweep(self, before: float, done_with: Callable[[str], bool]) -> int:
        self.before.append(before)
        gone = [k for k in self.keys if done_with(k)]
        self.taken += gone
        self.keys = [k for k in self.keys if k not in gone]
        return len(gone)


class NoWishes:
    def delegate(self, run: Run) -> Run:
        raise AssertionError("nothing is asked for")

    def cancel(self, run_id: str) -> Run:
        raise AssertionError("nothing is given back")


def a_pool(floor: Floor, *runs: Run) -> tuple[Pools, Clock]:
    clock, store, pools = Clock(), MemoryStore(), MemoryPools()
    for run in runs:
        store.create_run(run)
    pools.create(Pool("lab", "alice", "fifo", (PoolPlace("v100", "c", "gpu"),), "/d", T0))
    keeper = Pools(pools, store, NoWishes(), lambda name: floor, clock, owner="alice", holder="me", python="python", runs_dir="/runs")
    return keeper, clock


def ended(number: int, cause: Cause | None) -> Attempt:
    return Attempt(number, f"r-1-{number}", "pool-lab", "any", Resources(), 32, state=JobState.FAILED, ended_seen_at=T0, cause=cause)


def test_a_segment_stays_until_its_run_has_understood_its_end():
    lives = replace(
        make_run(make_plan()), state=RunState.RUNNING,
        attempts=(ended(1, Cause.MOVED), ended(2, None), replace(ended(3, None), ended_seen_at=None)),
    )  # fmt: skip
    over = replace(make_run(make_plan(), run_id="r-2"), state=RunState.COMPLETED)
    floor = Floor(["r-1-1", "r-1-2", "r-1-3", "r-1-4", "r-2-1", "r-3-1"])
    keeper, _ = a_pool(floor, lives, over)
    keeper.tick()
    assert floor.taken == ["r-1-1", "r-2-1", "r-3-1"]
    assert floor.before == [T0 - KEPT_S]


def test_it_is_swept_now_and_then_and_not_at_every_look():
    floor = Floor([])
    keeper, clock = a_pool(floor)
    for _ in range(11):
        keeper.tick()
        clock.sleep(SWEEP_S / 5)
    assert len(floor.before) == 3


def test_what_ended_while_nobody_kept_the_pool_is_still_accounted():
    floor = Floor([])
    keeper, clock = a_pool(floor)
    keeper.tick()
    clock.sleep(7200.0)
    keeper.tick()
    assert floor.asked_since[-1] == T0


def timed(store: MemoryStore, run: Run, number: int, step_time_s: float, looks: int = 8) -> None:
    told = [Event(run.id, "progress", T0 + i, token=f"{number}.0", seq=i, data={"step_time_s": step_time_s}) for i in range(1, looks + 1)]
    store.save_run(store.get_run(run.id), told)


def test_step_times_are_compared_between_pilots_of_one_type_and_each_is_read_once():
    store = MemoryStore()
    where = {1: ("n1", 0.5), 2: ("n2", 0.2), 3: ("fast", 0.05), 4: ("gone", 0.01)}
    run = replace(
        make_run(make_plan()), state=RunState.RUNNING, attempts=tuple(replace(ended(n, Cause.MOVED), nodes=(node,)) for n, (node, _) in where.items())
    )  # fmt: skip
    store.create_run(run)
    signs = [PilotSign(f"p-{n}", kind, n, 1, T0, T0) for n, kind in (("n1", "v100"), ("n2", "v100"), ("fast", "a100"))]
    slow = SlowSeen(store)
    for number, (_, step_time_s) in where.items():
        timed(store, run, number, step_time_s)
    assert [s.node for s in slow.look("lab", {"r-1": run}, signs, anew=True)["r-1"]] == ["n1"]
    timed(store, run, 1, 0.2, looks=40)
    assert [s.node for s in slow.look("lab", {"r-1": run}, signs, anew=False)["r-1"]] == ["n1"]
    assert slow.look("lab", {"r-1": run}, signs, anew=True) == {}
    assert slow.look("lab", {}, signs, anew=True) == {}
