"""The pool's rounds: who is seated, who is asked to leave, which pilots are asked for and given back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ischeduler.core.errors import BadInput
from ischeduler.core.estimate import Estimate
from ischeduler.core.pilots import MemberJob, PilotSign
from ischeduler.core.pool import Member, Pilot, Pool, PoolPlace, PoolState, RateFigure
from ischeduler.plane.pools.decide import check_policy, decide, next_tick_s
from ischeduler.plane.pools.seen import AskPilot, ClosePilot, MemberSeen, PilotRun, ReleasePilot, Seen, Steps
from ischeduler.policies.stragglers import Straggler

ROUND_S = 100.0


def a_pool(*members: Member, policy: str = "max_min_fairness_perf", **changes: Any) -> Pool:
    places = (PoolPlace("v100", "c", "gpu", count=1), PoolPlace("k80", "c", "old", count=1))
    return Pool("lab", "me", policy, places, "/d", 0.0, round_s=ROUND_S, restart_s=5.0, idle_s=50.0, members=members, **changes)


def a_member(name: str, fast: float = 4.0, slow: float = 1.0, **changes: Any) -> Member:
    given = {"v100": fast, "k80": slow}
    return Member(name, figures=tuple(RateFigure(t, Estimate.exact(x, "steps/s", "given")) for t, x in given.items()), **changes)


class World:
    """Pilots that are up, segments that wait or run, as told by the last orders: the least that a pool can be played against."""

    def __init__(self, pool: Pool, *, pilots: tuple[str, ...] = ("v100", "k80")) -> None:
        self.pool, self.now = pool, 1000.0
        self.jobs: dict[str, MemberJob] = {}
        self.pilots: dict[str, PilotRun] = {}
        self.signs: list[PilotSign] = []
        self.ended: set[str] = set()
        self.actions: tuple[Any, ...] = ()
        for kind in pilots:
            self.up(kind)
        for member in pool.members:
            self.queue(member.run_id)

    def up(self, kind: str, number: int = 1) -> None:
        run_id = f"p-lab-{kind}-{number}"
        self.pool = replace(self.pool, pilots=(*self.pool.pilots, Pilot(run_id, kind, self.now)))
        self.pilots[run_id] = PilotRun(run_id, True, False)
        self.signs.append(PilotSign(f"{run_id}-1.0", kind, f"n-{kind}", 1, self.now, self.now))

    def queue(self, run_id: str, **changes: Any) -> None:
        job = MemberJob(str(len(self.jobs) + 1), f"{run_id}-{len(self.jobs) + 1}", 1, submitted_at=self.now)
        self.jobs[job.job_id] = replace(job, **changes)

    def seen(self) -> Seen:
        members = {
            m.run_id: MemberSeen(m.run_id, 1, m.run_id not in self.ended, 1000.0, 1000.0, m.joined_at) for m in self.pool.members
        }  # fmt: skip
        signs = tuple(replace(s, beat_at=self.now) for s in self.signs)
        return Seen(signs, tuple(self.jobs.values()), members, dict(self.pilots))

    def tick(self, seconds: float = 0.0) -> tuple[Any, ...]:
        """Let time pass, decide, and let the pilots do as ordered: who must leave is gone, and queued again, at once."""
        self.now += seconds
        decision = decide(self.pool, self.seen(), self.now)
        self.pool, self.actions = decision.pool, decision.actions
        orders = {a.pilot: a.steps for a in self.actions if isinstance(a, Steps)}
        by_pilot = {s.name: s for s in self.signs}
        for job in list(self.jobs.values()):
            if job.running and job.job_id not in orders.get(job.pilot, {}):
                self.jobs[job.job_id] = replace(job, ended_at=self.now, asked=True)
                self.queue(job.run_id)
        for pilot, steps in orders.items():
            for job_id in steps:
                if self.jobs[job_id].pending:
                    sign = by_pilot[pilot]
                    self.jobs[job_id] = replace(self.jobs[job_id], started_at=self.now, pilot=pilot, node=sign.node, type=sign.type)
        return self.actions

    def on(self) -> dict[str, str]:
        return {j.run_id: j.type for j in self.jobs.values() if j.running}


def test_new_members_take_what_is_idle_at_once_and_the_fastest_goes_where_it_gains_most():
    world = World(a_pool(a_member("r-a", 4.0, 1.0), a_member("r-b", 1.2, 1.0)))
    world.tick()
    assert world.on() == {"r-a": "v100", "r-b": "k80"}


def test_nobody_moves_before_the_round_ends():
    world = World(a_pool(a_member("r-a"), a_member("r-b")))
    world.tick()
    before = world.on()
    world.pool = replace(world.pool, members=(*world.pool.members, a_member("r-c", joined_at=5.0)))
    world.queue("r-c")
    for _ in range(9):
        world.tick(10.0)
        assert world.on() == before
    world.tick(20.0)
    assert set(world.on()) != set(before) or world.on() != before


@pytest.mark.parametrize("policy", ["max_min_fairness_perf", "max_min_fairness", "isolated", "finish_time_fairness_perf"])
def test_received_shares_come_to_what_the_policy_promised(policy: str):
    world = World(a_pool(*[a_member(f"r-{i}", 2.0 + i, 1.0) for i in range(5)], policy=policy))
    for _ in range(60 * 4):
        world.tick(ROUND_S / 4)
    elapsed = 60 * ROUND_S
    for member in world.pool.members:
        for kind in world.pool.types:
            assert member.received_s[kind] / elapsed == pytest.approx(member.promised_s[kind] / elapsed, abs=0.05)


def test_accounts_are_of_real_starts_and_ends_and_not_of_ticks():
    world = World(a_pool(a_member("r-a")), pilots=("v100",))
    world.tick()
    (job,) = world.jobs.values()
    world.jobs[job.job_id] = replace(job, started_at=world.now + 3.0, ended_at=world.now + 7.5, type="v100", pilot="p-lab-v100-1-1.0")
    decision = decide(world.pool, world.seen(), world.now + 30.0)
    (member,) = decision.pool.members
    assert member.received_s["v100"] == pytest.approx(4.5)
    assert member.promised_s["v100"] == pytest.approx(30.0)


def test_a_long_time_without_a_look_leaves_nobody_owing_what_it_was_promised():
    world = World(a_pool(a_member("r-a")), pilots=("v100",))
    world.tick()
    world.tick()
    world.tick(10 * ROUND_S)
    assert world.pool.members[0].owed_s["v100"] == pytest.approx(0.0, abs=1e-3)


def test_a_member_that_cannot_be_preempted_keeps_its_place():
    firm = a_member("r-firm", preemptible=False)
    world = World(a_pool(firm, *[a_member(f"r-{i}") for i in range(3)]))
    world.tick()
    seat = world.on()["r-firm"]
    for _ in range(20):
        world.tick(ROUND_S)
        assert world.on()["r-firm"] == seat


def test_a_member_is_not_told_to_leave_before_it_has_started():
    world = World(a_pool(a_member("r-a"), a_member("r-b"), a_member("r-c")))
    world.tick()
    young = next(j for j in world.jobs.values() if j.running)
    world.jobs[young.job_id] = replace(young, started_at=world.now + 98.0)
    world.tick(ROUND_S + 0.5)
    assert world.on()[young.run_id] == young.type


def test_observed_speeds_replace_what_was_claimed():
    world = World(a_pool(a_member("r-a", 1.0, 4.0)), pilots=("v100",))
    world.tick()
    seen = world.seen()
    sight = replace(seen.members["r-a"], step_time_s=0.1, measured_at=world.now + 20.0)
    decision = decide(world.pool, replace(seen, members={"r-a": sight}), world.now + 30.0)
    assert decision.pool.members[0].observed["v100"].p50 == pytest.approx(10.0)
    stale = replace(sight, measured_at=world.now - 1.0)
    assert not decide(world.pool, replace(seen, members={"r-a": stale}), world.now + 30.0).pool.members[0].observed


def test_pilots_are_asked_for_only_when_members_wait_and_by_an_id_that_is_asked_again_after_a_crash():
    empty = World(a_pool(), pilots=())
    assert not empty.tick()
    world = World(a_pool(a_member("r-a"), a_member("r-b")), pilots=())
    asked = {a for a in world.tick() if isinstance(a, AskPilot)}
    assert asked == {AskPilot("p-lab-v100-0-1", "v100"), AskPilot("p-lab-k80-0-2", "k80")}
    assert {a for a in world.tick(1.0) if isinstance(a, AskPilot)} == asked
    world.pilots = {p.run_id: PilotRun(p.run_id, True, True) for p in world.pool.pilots}
    assert not [a for a in world.tick(1.0) if isinstance(a, AskPilot)]


def test_accelerators_nobody_uses_go_back_after_the_limit_and_come_again_with_a_member():
    world = World(a_pool(a_member("r-a")))
    world.tick()
    assert world.on() == {"r-a": "v100"}
    assert not [a for a in world.tick(40.0) if isinstance(a, ReleasePilot)]
    (released,) = [a for a in world.tick(20.0) if isinstance(a, ReleasePilot)]
    assert released.run_id == "p-lab-k80-1"
    world.pilots["p-lab-k80-1"] = PilotRun("p-lab-k80-1", False, False)
    assert ClosePilot("p-lab-k80-1-1.0") in world.tick(1.0)
    world.signs = [s for s in world.signs if s.type != "k80"]
    world.tick(1.0)
    assert [p.type for p in world.pool.pilots] == ["v100"]
    assert not [a for a in world.tick(10.0) if isinstance(a, AskPilot)]
    world.pool = replace(world.pool, members=(*world.pool.members, a_member("r-b", joined_at=9.0)))
    world.queue("r-b")
    assert [a.type for a in world.tick(1.0) if isinstance(a, AskPilot)] == ["k80"]


def test_members_of_a_pilot_whose_node_failed_sit_elsewhere_and_its_report_is_closed():
    world = World(a_pool(a_member("r-a"), a_member("r-b")))
    world.tick()
    victim = next(r for r, t in world.on().items() if t == "v100")
    job = next(j for j in world.jobs.values() if j.run_id == victim and j.running)
    world.pilots["p-lab-v100-1"] = PilotRun("p-lab-v100-1", True, True, over=("p-lab-v100-1-1.0",))
    actions = world.tick(10.0)
    assert ClosePilot("p-lab-v100-1-1.0") in actions
    world.signs = world.signs[1:]
    world.jobs[job.job_id] = replace(job, ended_at=world.now)
    world.jobs = {j: one for j, one in world.jobs.items() if one.run_id != victim or one.ended_at}
    world.queue(victim)
    world.tick(ROUND_S)
    world.tick(ROUND_S)
    assert set(world.on()) <= {"r-a", "r-b"}
    assert set(world.on().values()) == {"k80"}


def test_a_segment_avoids_the_nodes_it_is_told_to_avoid():
    world = World(a_pool(a_member("r-a")), pilots=("v100", "k80"))
    world.jobs = {}
    world.queue("r-a", exclude_nodes=("n-v100",))
    world.tick()
    assert world.on() == {"r-a": "k80"}


def test_a_member_confined_to_a_type_sits_there_or_nowhere():
    world = World(a_pool(a_member("r-a"), a_member("r-b")))
    world.jobs = {}
    for name in ("r-a", "r-b"):
        world.queue(name, confined="k80")
    world.tick()
    assert list(world.on().values()) == ["k80"]


def test_draining_asks_everybody_to_leave_and_then_gives_the_pilots_back():
    world = World(a_pool(a_member("r-a"), a_member("r-b")))
    world.tick()
    world.pool = replace(world.pool, state=PoolState.DRAINING)
    world.tick(1.0)
    assert world.on() == {}
    world.jobs = {j: one for j, one in world.jobs.items() if not one.running}
    assert {a.run_id for a in world.tick(1.0) if isinstance(a, ReleasePilot)} == {"p-lab-v100-1", "p-lab-k80-1"}
    world.pilots, world.signs = {p: PilotRun(p, False, False) for p in world.pilots}, []
    world.tick(1.0)
    assert world.pool.state is PoolState.DRAINED


def test_members_whose_runs_are_over_have_left():
    world = World(a_pool(a_member("r-a"), a_member("r-b")))
    world.tick()
    world.ended.add("r-a")
    world.tick(1.0)
    assert [m.run_id for m in world.pool.members] == ["r-b"]


def test_a_policy_without_an_answer_moves_nobody_and_says_why(monkeypatch: pytest.MonkeyPatch):
    world = World(a_pool(a_member("r-a"), a_member("r-b")))
    world.tick()
    before = world.on()

    def refuses(*_: object, **__: object) -> None:
        raise BadInput("The deadline of r-a cannot be kept.")

    monkeypatch.setattr("ischeduler.plane.pools.seats.allocate", refuses)
    world.tick(ROUND_S)
    assert world.on() == before
    assert world.pool.trouble == f"policy {world.pool.policy}: The deadline of r-a cannot be kept."


def test_a_pilot_that_failed_rests_and_the_reason_is_told():
    world = World(a_pool(a_member("r-a")), pilots=())
    world.tick()
    world.pilots = {p.run_id: PilotRun(p.run_id, False, False, message="refused 3 times") for p in world.pool.pilots}
    assert not [a for a in world.tick(1.0) if isinstance(a, AskPilot)]
    assert "refused 3 times" in world.pool.trouble
    world.pilots = {}
    assert [a for a in world.tick(301.0) if isinstance(a, AskPilot)]


def test_orders_do_not_change_when_nothing_does():
    world = World(a_pool(a_member("r-a"), a_member("r-b")))
    world.tick()
    first = world.tick(1.0)
    assert [(a.pilot, set(a.steps)) for a in first if isinstance(a, Steps)] == [
        (a.pilot, set(a.steps)) for a in world.tick(1.0) if isinstance(a, Steps)
    ]  # fmt: skip


def test_the_next_look_is_soon_while_somebody_is_on_the_way():
    world = World(a_pool(a_member("r-a")), pilots=("v100",))
    decision = decide(world.pool, world.seen(), world.now)
    assert next_tick_s(decision.pool, world.seen(), world.now, 0.5) == 0.5
    world.tick()
    assert next_tick_s(world.pool, world.seen(), world.now, 0.5) == pytest.approx(ROUND_S / 20)


def test_policies_that_share_accelerators_are_not_for_live_pools():
    with pytest.raises(BadInput, match="two members on the same accelerators"):
        check_policy("max_min_fairness_packed")
    with pytest.raises(BadInput, match="did you mean"):
        check_policy("max_min_fairnes")


def crawls(run_id: str, node: str) -> dict[str, tuple[Straggler, ...]]:
    return {run_id: (Straggler(run_id, "v100", node, 2.0, 9, 0.002),)}


class TwoNodes(World):
    """Two pilots of one type, on the nodes n1 and n2, with members that crawl on the first."""

    def __init__(self, *members: Member, slow: dict[str, tuple[Straggler, ...]]) -> None:
        places = (PoolPlace("v100", "c", "gpu", count=2), PoolPlace("k80", "c", "old", count=1))
        self.slow: dict[str, tuple[Straggler, ...]] = {}
        super().__init__(replace(a_pool(*members), places=places), pilots=())
        for number in (1, 2):
            self.up("v100", number)
        self.signs = [replace(s, node=f"n{i}") for i, s in enumerate(self.signs, 1)]
        self.slow = slow

    def seen(self) -> Seen:
        return replace(super().seen(), slow=self.slow)

    def nodes(self) -> dict[str, str]:
        return {j.run_id: j.node for j in self.jobs.values() if j.running}


def test_nobody_is_placed_on_a_node_it_crawls_on_while_another_is_free():
    world = TwoNodes(a_member("r-a", slow=0.0), slow=crawls("r-a", "n1"))
    world.tick()
    assert world.nodes() == {"r-a": "n2"}
    assert "n1 is 2.00 times slower for r-a" in world.pool.members[0].note


def test_a_member_leaves_a_slow_node_when_a_round_begins_and_not_before():
    world = TwoNodes(a_member("r-a", slow=0.0), slow={})
    world.tick()
    assert world.nodes() == {"r-a": "n1"}
    world.slow = crawls("r-a", "n1")
    world.tick(10.0)
    assert world.nodes() == {"r-a": "n1"}
    world.tick(ROUND_S)
    world.tick(1.0)
    assert world.nodes() == {"r-a": "n2"}
    world.slow = {}
    world.tick(ROUND_S)
    assert (world.nodes(), world.pool.members[0].note) == ({"r-a": "n2"}, "")


@pytest.mark.parametrize("changes", [{}, {"preemptible": False}])
def test_a_slow_node_is_better_than_none_and_who_cannot_be_interrupted_stays(changes: dict[str, Any]):
    others = () if changes else (a_member("r-b", slow=0.0),)
    world = TwoNodes(a_member("r-a", slow=0.0, **changes), *others, slow={})
    world.tick()
    before = world.nodes()
    world.slow = crawls("r-a", before["r-a"])
    for _ in range(3):
        world.tick(ROUND_S)
    assert world.nodes() == before
    assert len(before) == 1 + len(others)
