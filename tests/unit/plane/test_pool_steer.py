"""Pools without pilots: what is changed in the queue, what never is, and that it is asked for once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from world import T0, make_plan, make_run

from ischeduler.core.estimate import Estimate
from ischeduler.core.event import Event
from ischeduler.core.jobs import Cause, JobChange, JobState
from ischeduler.core.pool import Member, Pool, PoolPlace, RateFigure
from ischeduler.core.run import Attempt, Run, RunState
from ischeduler.plane.decide import decide
from ischeduler.plane.inputs import Amended, AvoidAsked, Tick
from ischeduler.plane.pools.slow_nodes import slow_nodes
from ischeduler.plane.pools.steer import NICE_STEP, Steering, not_given, steer, type_of

FAST = PoolPlace("fast", "one", "quick", "quick", gres="gpu", features=("v100",), walltime_s=3600.0)
SLOW = PoolPlace("slow", "one", "old", "old", gres="gpu", features=("k80",), walltime_s=1800.0)


def member(name: str, fast: float = 4.0, slow: float = 1.0, **changes: Any) -> Member:
    figures = tuple(RateFigure(t, Estimate.exact(x, "steps/s", "given")) for t, x in (("fast", fast), ("slow", slow)))
    return Member(name, figures=figures, joined_at=T0, **changes)


def pool(*members: Member, places: tuple[PoolPlace, ...] = (FAST, SLOW), **changes: Any) -> Pool:
    given: dict[str, Any] = {"policy": "max_sum_throughput_perf", "round_s": 2700.0, "restart_s": 60.0, **changes}
    return Pool("lab", "me", places=places, directory="/d", created_at=T0, mode="steer", members=members, **given)


def run(name: str, place: PoolPlace, *, running: bool, **changes: Any) -> Run:
    plan = make_plan()
    asked = replace(plan.resources, gres=place.gres, gpus_per_node=0 if place.gres == "" else 1, features=place.features, walltime_s=1800.0)
    plan = replace(plan, cluster=place.cluster, partition=place.partition, node_type=place.node_type, resources=asked)
    state = JobState.RUNNING if running else JobState.PENDING
    attempt = Attempt(
        1, f"{name}-1", place.cluster, place.partition, asked, 32, state=state, job_id=f"7{name[-1]}", node_type=place.node_type,
        created_at=T0, submitted_at=T0, started_at=T0 + 10 if running else None, last_seen_at=T0 + 10,
    )  # fmt: skip
    shown = RunState.RUNNING if running else RunState.QUEUED
    return replace(make_run(plan, run_id=name), state=shown, attempts=(replace(attempt, **changes),), state_since=T0 + 10)


def runs(*some: Run) -> dict[str, Run]:
    return {r.id: r for r in some}


def kinds(found: Steering) -> dict[str, tuple[str, str, str]]:
    return {c.run_id: (c.kind, c.here, c.to) for c in found.changes}


def test_who_gains_most_is_moved_and_who_waits_is_steered_in_place_and_ranked():
    seen = runs(run("r-1", SLOW, running=True), run("r-2", FAST, running=False), run("r-3", FAST, running=False))
    found = steer(pool(member("r-1", 9.0), member("r-2", 1.0), member("r-3", 1.0)), seen, T0 + 600)
    told = kinds(found)
    assert told["r-1"] == ("move", "slow", "fast")
    assert sorted([told["r-2"], told["r-3"]]) == [("amend", "fast", "fast"), ("amend", "fast", "slow")]
    given = {c.to: c.change for c in found.changes if c.kind == "amend"}
    assert (given["slow"].partition, given["slow"].features, given["slow"].gres, given["slow"].walltime_s) == ("old", ("k80",), None, None)
    assert given["fast"].nice == NICE_STEP


def test_nobody_who_runs_is_touched_between_rounds_or_when_it_must_keep_its_place():
    seen = runs(run("r-1", SLOW, running=True))
    assert kinds(steer(pool(member("r-1", 9.0)), seen, T0 + 600)) == {"r-1": ("move", "slow", "fast")}
    assert steer(pool(member("r-1", 9.0)), seen, T0 + 600, whole=False).changes == ()
    assert steer(pool(member("r-1", 9.0, preemptible=False)), seen, T0 + 600).changes == ()


def test_who_is_due_nothing_makes_room_only_for_somebody_who_waits():
    alone = runs(run("r-1", FAST, running=True))
    crowd = {**alone, **runs(run("r-2", FAST, running=False))}
    one = (replace(FAST, count=1),)
    due = {"owed_s": {"fast": -4000.0}}, {"owed_s": {"fast": 5000.0}}
    members = [replace(m, figures=m.figures[:1]) for m in (member("r-1", **due[0]), member("r-2", **due[1]))]
    fair = {"policy": "max_min_fairness_perf", "places": one}
    assert steer(pool(members[0], **fair), alone, T0 + 600).changes == ()
    found = steer(pool(*members, **fair), crowd, T0 + 600)
    assert kinds(found)["r-1"] == ("yield", "fast", "fast")
    assert found.changes[0].plan != crowd["r-1"].plan  # a move to where it is would be refused


def test_with_a_site_factor_whose_turn_it_is_goes_first_and_gives_it_back():
    seen = runs(run("r-1", FAST, running=False), run("r-2", FAST, running=False))
    one = (replace(FAST, count=1),)
    rich, poor = {"owed_s": {"fast": 5000.0}}, {"owed_s": {"fast": -4000.0}}
    members = [replace(m, figures=m.figures[:1]) for m in (member("r-1", **rich), member("r-2", **poor))]
    lab = pool(*members, policy="max_min_fairness_perf", places=one, site_factor=700)
    found = steer(lab, seen, T0 + 600)
    given = {c.run_id: c.change for c in found.changes}
    assert (given["r-1"].site_factor, given["r-1"].nice) == (700, None)  # type: ignore[union-attr]
    assert (given["r-2"].site_factor, given["r-2"].nice) == (None, NICE_STEP)  # type: ignore[union-attr]
    assert steer(found.pool, seen, T0 + 601, found.memory).changes == ()  # what was given is not given again
    turned = replace(found.pool, members=tuple(replace(m, owed_s={"fast": 5000.0 if m.run_id == "r-2" else -4000.0}) for m in found.pool.members))
    after = {c.run_id: c.change for c in steer(turned, seen, T0 + 602, whole=True).changes}
    assert (after["r-1"].site_factor, after["r-1"].nice) == (0, NICE_STEP)  # type: ignore[union-attr]
    assert (after["r-2"].site_factor, after["r-2"].nice) == (700, 0)  # type: ignore[union-attr]
    again = {c.run_id: c.change for c in steer(not_given(turned, lab, ["r-1"]), seen, T0 + 602, whole=True).changes}
    assert again["r-1"] == JobChange(nice=NICE_STEP)  # what it was not given need not be taken back
    assert again["r-2"] == after["r-2"]


def progress(run_id: str, token: str, step_time_s: float, count: int = 10) -> list[Event]:
    return [Event(run_id, "progress", T0 + i, source="job", token=token, seq=i, data={"step_time_s": step_time_s}) for i in range(count)]


def test_who_crawls_on_a_node_leaves_it_and_keeps_off_it():
    one = run("r-1", FAST, running=True, nodes=("n2",))
    earlier = replace(one.attempts[0], number=1, nodes=("n1",), state=JobState.FAILED, ended_seen_at=T0 + 5, cause=Cause.WALLTIME)
    one = replace(one, attempts=(earlier, replace(one.attempts[0], number=2)))
    log = {"r-1": [*progress("r-1", "1.0", 1.0), *progress("r-1", "2.0", 1.9)]}
    slow = slow_nodes({"r-1": one}, log)
    (change,) = steer(pool(member("r-1")), {"r-1": one}, T0 + 600, slow=slow).changes
    assert (change.kind, change.avoid) == ("yield", ("n2",))
    assert "1.90 times slower" in change.why
    assert steer(pool(member("r-1", preemptible=False)), {"r-1": one}, T0 + 600, slow=slow).changes == ()
    told, _ = decide(one, AvoidAsked(change.avoid), T0 + 601)
    assert told.excluded_nodes == ("n2",)
    assert steer(pool(member("r-1")), {"r-1": told}, T0 + 660, slow=slow).changes == ()  # once
    even = slow_nodes({"r-1": one}, {"r-1": [*progress("r-1", "1.0", 1.0), *progress("r-1", "2.0", 1.1)]})
    assert even == {}


def test_another_cluster_means_queueing_anew():
    there = replace(FAST, cluster="two")
    found = steer(pool(member("r-1", 9.0), places=(there, SLOW)), runs(run("r-1", SLOW, running=False)), T0 + 600)
    assert kinds(found) == {"r-1": ("move", "slow", "fast")}


@pytest.mark.parametrize(
    ("had", "want", "kind"),
    [("gpu", "gpu", "amend"), ("v100", "v100", "amend"), ("", "k80", "amend"), ("v100", "k80", "move"), ("v100", "gpu", "move"), ("gpu", "", "move")],
)
def test_a_job_that_waits_for_accelerators_of_one_kind_is_queued_anew_for_another(had: str, want: str, kind: str):
    fast, slow = replace(FAST, gres=had), replace(SLOW, gres=want)
    seen = runs(run("r-1", fast, running=False))
    seen["r-1"] = replace(seen["r-1"], plan=replace(seen["r-1"].plan, resources=replace(seen["r-1"].plan.resources, gpus_per_node=1)))
    (change,) = steer(pool(member("r-1", 1.0, 9.0), places=(fast, slow)), seen, T0 + 600).changes
    assert (change.kind, change.here, change.to) == (kind, "fast", "slow")
    if change.change is not None:
        assert change.change.gres == (("k80", 1) if had != want else None)


def test_a_job_on_its_way_or_not_seen_lately_is_left_alone():
    for changes in ({"ending": "moved"}, {"job_id": None}):
        seen = runs(run("r-1", SLOW, running=True, **changes))
        assert steer(pool(member("r-1", 9.0)), seen, T0 + 600).changes == ()
    blind = replace(run("r-1", SLOW, running=True), query_failures=2)
    assert steer(pool(member("r-1", 9.0)), runs(blind), T0 + 600).changes == ()


def test_an_amended_job_is_the_run_s_plan_and_attempt_from_then_on():
    before = run("r-1", SLOW, running=False)
    (change,) = steer(pool(member("r-1", 9.0)), runs(before), T0 + 600).changes
    assert change.plan is not None
    after, actions = decide(before, Amended(change.job_id, change.plan), T0 + 601)
    assert (after.attempts[0].partition, after.attempts[0].resources.features, after.plan.partition) == ("quick", ("v100",), "quick")
    assert len(after.attempts) == 1
    assert not [a for a in actions if type(a).__name__ in ("Submit", "CancelJob")]
    started = replace(before, attempts=(replace(before.attempts[0], state=JobState.RUNNING),))
    assert decide(started, Amended(change.job_id, change.plan), T0 + 601)[0].plan == started.plan
    assert decide(after, Tick(), T0 + 602)[0].attempts == after.attempts


def test_a_policy_without_an_answer_changes_nothing_and_says_so():
    found = steer(pool(member("r-1", 0.0, 0.0), policy="no_such_policy"), runs(run("r-1", SLOW, running=True)), T0 + 600)
    assert found.changes == ()
    told = steer(pool(member("r-1"), policy="no_such_policy"), runs(run("r-1", SLOW, running=True)), T0 + 600)
    assert "no_such_policy" in told.pool.trouble


def test_a_place_is_known_by_its_node_type_where_partitions_are_shared():
    shared = replace(SLOW, partition="quick")
    lab = pool(places=(FAST, shared))
    assert type_of(lab, run("r-1", shared, running=True).attempts[0]) == "slow"
    assert type_of(lab, replace(run("r-1", FAST, running=True).attempts[0], node_type="other")) == ""
    assert type_of(lab, replace(run("r-1", FAST, running=True).attempts[0], partition="elsewhere")) == ""


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.booleans(), st.floats(0.1, 9), st.booleans()), min_size=1, max_size=6),
    st.sampled_from(["max_min_fairness_perf", "fifo_perf", "max_sum_throughput_perf"]),
)
def test_every_change_is_for_a_member_names_its_job_and_respects_who_keeps_a_place(
    shape: list[tuple[bool, bool, float, bool]], policy: str
):
    members = [member(f"r-{i}", rate, preemptible=may) for i, (_, _, rate, may) in enumerate(shape)]
    seen = runs(*(run(f"r-{i}", FAST if quick else SLOW, running=up) for i, (quick, up, _, _) in enumerate(shape)))
    lab = pool(*members, policy=policy)
    found = steer(lab, seen, T0 + 600)
    for change in found.changes:
        job = seen[change.run_id].attempts[0]
        assert change.job_id == job.job_id
        assert (change.kind == "amend") == (change.change is not None)
        if job.state is JobState.RUNNING:
            assert next(m for m in members if m.run_id == change.run_id).preemptible
            assert change.kind in ("move", "yield")
        if change.change is not None and change.change.nice is not None:
            assert change.change.nice >= 0
    # Asked again with everything done, nothing more is asked of who waits.
    done = {c.run_id: c.plan for c in found.changes if c.kind == "amend" and c.plan is not None}
    after = {i: decide(r, Amended(r.attempts[0].job_id or "", done[i]), T0 + 601)[0] if i in done else r for i, r in seen.items()}
    again = steer(found.pool, after, T0 + 660, found.memory)
    assert [c for c in again.changes if c.run_id in done] == []
