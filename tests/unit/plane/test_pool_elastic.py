"""Elastic members of a live pool: an elastic policy chooses how many accelerators each gets, round by round, within a pilot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from world import make_plan, make_run

from ischeduler.core.elastic import Elastic
from ischeduler.core.errors import BadInput
from ischeduler.core.estimate import Estimate
from ischeduler.core.pilots import MemberJob, PilotSign
from ischeduler.core.pool import Member, Pilot, Pool, PoolPlace, RateFigure
from ischeduler.core.sizes import GIB
from ischeduler.plane.pools.decide import decide, next_tick_s
from ischeduler.plane.pools.seen import MemberSeen, PilotRun, Resize, Seen, Steps, member_seen
from ischeduler.plane.pools.sizes import plan_of_size, sizes_of, steps_at

ROUND_S, NODE = 100.0, 4
SIZES = {1: 1.0, 2: 1.0, 4: 1.0}


def given_rate(name: str, rate: float = 2.0, **changes: Any) -> Member:
    return Member(name, figures=(RateFigure("v100", Estimate.exact(rate, "steps/s", "given")),), **changes)


class World:
    """Pilots of four accelerators; members' jobs that do at once what they are told."""

    def __init__(self, *members: Member, pilots: int = 1, policy: str = "sia", sizes: dict[int, float] | None = None) -> None:
        self.now, self.sizes = 1000.0, SIZES if sizes is None else sizes
        held = [f"p-lab-v100-{i}" for i in range(pilots)]
        place = PoolPlace("v100", "c", "gpu", gpus_per_node=NODE, cpus_per_node=8, count=pilots)
        self.pool = Pool("lab", "me", policy, (place,), "/d", 0.0, round_s=ROUND_S, restart_s=1.0, pilots=tuple(Pilot(p, "v100", 0.0) for p in held))
        self.pilots = {p: PilotRun(p, True, False) for p in held}
        self.jobs: dict[str, MemberJob] = {}
        self.plan: dict[str, int] = {}
        self.joined: dict[str, float] = {}
        for member in members:
            self.join(member)

    def join(self, member: Member, gpus: int = 1) -> None:
        self.pool = replace(self.pool, members=(*self.pool.members, replace(member, joined_at=self.now)))
        self.plan[member.run_id], self.joined[member.run_id] = gpus, self.now
        self.queue(member.run_id)

    def queue(self, run_id: str) -> None:
        number = len(self.jobs) + 1
        self.jobs[str(number)] = MemberJob(str(number), f"{run_id}-{number}", self.plan[run_id], submitted_at=self.now)

    def seen(self) -> Seen:
        signs = tuple(PilotSign(f"{p}-1.0", "v100", f"n-{p}", NODE, self.now, 0.0) for p in self.pilots)
        starts = {i: sum(j.run_id == i for j in self.jobs.values()) for i in self.plan}
        members = {
            i: MemberSeen(i, n, True, 1e6, 1e6, self.joined[i], sizes=self.sizes, declared=1, restarts=starts[i] - 1) for i, n in self.plan.items()
        }  # fmt: skip
        return Seen(signs, tuple(self.jobs.values()), members, self.pilots)

    def tick(self, seconds: float = 0.0) -> tuple[Any, ...]:
        self.now += seconds
        decision = decide(self.pool, self.seen(), self.now)
        self.pool = decision.pool
        ordered = {job_id: a.pilot for a in decision.actions if isinstance(a, Steps) for job_id in a.steps}
        wished = {a.run_id: a.gpus for a in decision.actions if isinstance(a, Resize)}
        for job in list(self.jobs.values()):
            leaves = job.running and job.job_id not in ordered
            if leaves or (job.pending and job.run_id in wished):  # the plane queues it anew, with what was wished
                self.jobs[job.job_id] = replace(job, started_at=job.started_at or self.now, ended_at=self.now, asked=True)
                self.plan[job.run_id] = wished.get(job.run_id, self.plan[job.run_id])
                self.queue(job.run_id)
            elif job.pending and job.job_id in ordered:
                pilot = ordered[job.job_id]
                self.jobs[job.job_id] = replace(job, started_at=self.now, pilot=pilot, node=f"n-{pilot[:-4]}", type="v100")
        return decision.actions

    def settle(self) -> dict[str, int]:
        """A few looks without a new round: accelerators of who runs."""
        for _ in range(4):
            self.tick(1.0)
            held = [sum(j.gpus for j in self.jobs.values() if j.running and j.pilot.startswith(p)) for p in self.pilots]
            assert max(held) <= NODE
        return {j.run_id: j.gpus for j in self.jobs.values() if j.running}


def test_one_member_alone_gets_the_node_and_two_share_it_from_the_next_round_on():
    world = World(given_rate("r-a"))
    assert world.settle() == {"r-a": 4}
    world.now += 200.0
    world.settle()
    world.join(given_rate("r-b"))
    assert world.settle() == {"r-a": 4}  # not before the round ends
    world.tick(ROUND_S)
    assert world.settle() == {"r-a": 2, "r-b": 2}
    world.plan.pop("r-b")
    world.jobs = {k: j for k, j in world.jobs.items() if j.run_id != "r-b"}
    world.pool = replace(world.pool, members=tuple(m for m in world.pool.members if m.run_id == "r-a"))
    world.tick(ROUND_S)
    assert world.settle() == {"r-a": 4}


def test_nobody_waits_for_anothers_growth():
    world = World(*(given_rate(f"r-{i}") for i in range(4)))
    world.tick(ROUND_S)
    assert world.settle() == {f"r-{i}": 1 for i in range(4)}
    two = World(given_rate("r-a"), given_rate("r-b"), sizes={1: 1.0, 4: 1.0})
    assert two.settle() == {"r-a": 1, "r-b": 1}


def test_a_restart_that_costs_more_than_the_time_it_has_had_is_not_made():
    world = World(given_rate("r-a", 2.0))
    world.settle()
    world.join(given_rate("r-b"))
    world.pool = replace(world.pool, restart_s=90.0)
    world.now += 2 * ROUND_S
    (job,) = [j for j in world.jobs.values() if j.running]
    world.jobs |= {f"9{i}": replace(job, job_id=f"9{i}", key=f"r-a-9{i}", started_at=1.0, ended_at=2.0) for i in range(6)}  # it has started seven times
    world.tick(ROUND_S)
    assert world.settle() == {"r-a": 4}


def test_who_keeps_its_place_keeps_its_number_and_who_is_not_elastic_too():
    world = World(given_rate("r-a", preemptible=False))
    assert world.settle() == {"r-a": 4}
    world.join(given_rate("r-b"))
    world.tick(ROUND_S)
    assert world.settle() == {"r-a": 4}
    plain = World(sizes={})
    plain.join(given_rate("r-a"), gpus=3)
    plain.join(given_rate("r-b"))
    assert plain.settle() == {"r-a": 3, "r-b": 1}


def test_a_policy_that_is_not_elastic_leaves_everybody_what_they_asked_for():
    world = World(given_rate("r-a"), policy="max_min_fairness_perf")
    assert world.settle() == {"r-a": 1}


def test_the_look_after_a_change_of_size_comes_soon():
    world = World(given_rate("r-a"))
    world.settle()
    quiet = next_tick_s(world.pool, world.seen(), world.now, 1.0)
    seat = world.pool.members[0].seat
    assert seat is not None
    changed = replace(world.pool, members=(replace(world.pool.members[0], seat=replace(seat, gpus=2)),))
    assert next_tick_s(changed, world.seen(), world.now, 1.0) == 1.0 < quiet


def test_speeds_on_other_numbers_are_in_proportion_until_they_are_seen():
    member = given_rate("r-a")
    assert steps_at(member, {"v100": 2.0}, 1, 4) == {"v100": 8.0}
    half = replace(member, scaled={"v100|4": Estimate.exact(4.0, "steps/s", "observed")})
    assert steps_at(half, {"v100": 2.0, "k80": 1.0}, 1, 4) == {"v100": 4.0, "k80": pytest.approx(2.0)}
    assert steps_at(half, {"v100": 2.0}, 1, 2)["v100"] == pytest.approx(2.0 * 2**0.5)  # it grew with the root


def test_a_member_that_does_not_grow_gives_way():
    flat = replace(given_rate("r-a"), observed={"v100": Estimate.exact(2.0, "steps/s", "o")}, scaled={
        "v100|4": Estimate.exact(2.0, "steps/s", "o"), "v100|2": Estimate.exact(2.0, "steps/s", "o")})  # fmt: skip
    world = World(flat, given_rate("r-b"))
    world.tick(ROUND_S)
    on = world.settle()
    assert on["r-b"] == 2
    assert world.settle()["r-a"] <= 2


def test_the_speed_is_learned_at_its_number_of_accelerators():
    world = World(given_rate("r-a"))
    world.settle()
    seen = world.seen()
    sight = replace(seen.members["r-a"], step_time_s=0.2, measured_at=world.now + 20.0)
    (member,) = decide(world.pool, replace(seen, members={"r-a": sight}), world.now + 30.0).pool.members
    assert member.observed == {}
    assert member.scaled["v100|4"].p50 == pytest.approx(5.0)


def test_what_a_step_is_worth_follows_the_owners_rule():
    plain = make_plan().workload
    assert sizes_of(plain) == {}
    kept = replace(plain, gpus=2, batch_size=32, elastic=Elastic((1, 4)))
    assert sizes_of(kept) == {1: 1.0, 2: 1.0, 4: 1.0}
    assert sizes_of(replace(kept, elastic=Elastic((4,), "scale", "linear"))) == {2: 1.0, 4: 2.0}
    assert sizes_of(replace(kept, batch_size=1, elastic=Elastic((3,)))) == {}  # two samples a step cannot be shared by three


def test_a_plan_of_another_size_has_cores_and_memory_to_match():
    plan = make_plan()
    workload = replace(plan.workload, gpus=1, cpus=2, memory_bytes=GIB, batch_size=32, elastic=Elastic((2, 4)))
    plan = replace(plan, workload=workload, resources=replace(plan.resources, gpus_per_node=1, cpus_per_node=2, memory_bytes=GIB))
    pool = World().pool
    grown = plan_of_size(plan, 4, pool)
    assert (grown.resources.gpus_per_node, grown.resources.cpus_per_node, grown.resources.memory_bytes) == (4, 8, 4 * GIB)
    back = plan_of_size(grown, 2, pool)
    assert (back.resources.gpus_per_node, back.resources.cpus_per_node, back.resources.memory_bytes) == (2, 4, 2 * GIB)
    assert plan_of_size(back, 1, pool).resources == plan.resources
    assert member_seen(make_run(grown)).declared == 1
    with pytest.raises(BadInput, match="has 8 accelerators on one node"):
        plan_of_size(plan, 8, pool)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.floats(0.2, 20.0), st.booleans()), min_size=1, max_size=6), st.integers(1, 3))
def test_nobody_gets_what_its_owner_does_not_allow_and_no_pilot_more_than_it_has(shape: list[tuple[float, bool]], pilots: int):
    world = World(*(given_rate(f"r-{i}", rate, preemptible=may) for i, (rate, may) in enumerate(shape)), pilots=pilots)
    for _ in range(4):
        on = world.settle()
        assert set(on.values()) <= set(SIZES)
        assert world.pool.trouble == ""
        assert len(on) >= min(len(shape), pilots)
        world.tick(ROUND_S)
