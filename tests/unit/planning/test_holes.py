"""Backfill holes: idle nodes that a waiting job will take later."""

from __future__ import annotations

from dataclasses import replace

from planning_scenes import HOUR, NOW, RESNET, at, by_tag, paper_needs, pitzer

from ischeduler.core.plan import Plan, PlanSet
from ischeduler.core.snapshot import NodeCounts, QueuedJob, QueueSnapshot
from ischeduler.core.workload import Workload
from ischeduler.planning.planner import plan

GPUS_ONLY = replace(RESNET, gpus=1)


def queue(*, idle_gpus: int = 2, start_in_s: float | None = 3 * HOUR, partition: str = "gpu") -> QueueSnapshot:
    """GPU nodes of which one is idle, held for a job that starts later."""
    start_s = None if start_in_s is None else NOW + start_in_s
    return QueueSnapshot(
        "pitzer", NOW - 5,
        nodes=(NodeCounts("gpu", "v100x2", idle=idle_gpus // 2, allocated=73, idle_gpus=idle_gpus, total_gpus=148),),
        jobs=(QueuedJob("9", partition, "PENDING", nodes=20, start_s=start_s),),
    )


def planned(snapshot: QueueSnapshot, workload: Workload = GPUS_ONLY) -> PlanSet:
    return plan(workload, [pitzer()], {"pitzer": snapshot}, paper_needs(), NOW)


def in_hole(found: PlanSet) -> list[Plan]:
    return [p for p in found.plans if any("backfill hole" in n for n in p.notes)]


def test_a_run_that_fits_the_hole_starts_now() -> None:
    found = planned(queue(start_in_s=3 * HOUR))
    (hole,) = in_hole(found)
    assert hole is by_tag(found, "soonest")
    assert hole.finish.p50 == 2 * HOUR + 60
    assert hole.segments[0].walltime_s <= 3 * HOUR - 60
    assert hole.finish.p90 > 20 * HOUR
    assert "1 idle node until a waiting job's planned start in 3h00" in hole.segments[0].wait.reason


def test_a_run_longer_than_the_hole_begins_there_where_that_saves_a_wait() -> None:
    debug = replace(queue(), nodes=(NodeCounts("gpudebug", "v100x2", idle=1, allocated=3, idle_gpus=2, total_gpus=8),))
    (hole,) = in_hole(planned(debug))
    assert [s.walltime_s for s in hole.segments] == [HOUR, HOUR, 2100]
    assert [s.wait.p50 for s in hole.segments] == [60, 2.5 * HOUR, 2.5 * HOUR]
    assert hole.wait.p50 == 60 + 5 * HOUR


def test_a_hole_that_saves_no_wait_is_no_option() -> None:
    assert not in_hole(planned(queue(start_in_s=HOUR)))


def test_without_checkpoints_only_a_hole_that_holds_the_whole_run_counts() -> None:
    once = replace(GPUS_ONLY, checkpoints=False)
    assert len(in_hole(planned(queue(start_in_s=3 * HOUR), once))) == 1
    assert not in_hole(planned(queue(start_in_s=2 * HOUR), once))


def test_no_hole_where_nothing_is_idle_or_nothing_is_planned() -> None:
    assert not in_hole(planned(queue(idle_gpus=0)))
    assert not in_hole(planned(queue(start_in_s=None)))
    assert not in_hole(planned(queue(start_in_s=30)))


def test_a_job_of_another_partition_on_the_same_nodes_bounds_the_hole() -> None:
    (hole,) = in_hole(planned(queue(start_in_s=2.5 * HOUR, partition="gpudebug")))
    assert hole.segments[0].walltime_s <= 2.5 * HOUR


def test_the_usual_plan_stays_beside_it() -> None:
    found = planned(queue())
    assert [p.wait.p50 for p in found.plans if p.where == "pitzer/gpu"] == [60, 26 * HOUR]
    assert at(found, "pitzer/gpu").number < by_tag(found, "ideal").number or by_tag(found, "ideal") is in_hole(found)[0]
