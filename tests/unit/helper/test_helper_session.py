"""Plan, submit, follow, stop and move through the Helper, on fakes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from helper_world import LAB, World

from ischeduler.core.errors import BadInput, BatchUnavailable, NoFeasiblePlan, NotFound, RunFailed
from ischeduler.core.jobs import JobState
from ischeduler.core.run import RunState
from ischeduler.helper.handle import RunHandle


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_plans_have_soonest_cheapest_and_refusals(world: World) -> None:
    plans = world.plans()
    assert plans["soonest"].where == "lab/gpudbg"
    assert plans["ideal"].where == "lab/gpu"
    assert len(plans["lab/gpudbg"].segments) == 3
    assert [r.where for r in plans.refusals] == ["lab/shut"]
    assert plans["lab/cpu"].cost.p50 == pytest.approx(9 * 28 * 0.003, rel=0.01)


def test_a_plan_is_remembered_for_the_folder(world: World) -> None:
    shown = world.plans()
    world.clock.time += 60
    again, age_s = world.session.last_plans()
    assert age_s == 60
    assert again.planset == shown.planset


def test_submit_creates_a_run_and_its_first_job(world: World) -> None:
    run = world.plans()["lab/cpu"].submit()
    assert isinstance(run, RunHandle)
    state = run.status()
    assert state.state is RunState.RUNNING
    assert world.batch.specs[0].partition == "cpu"
    assert state.owner == "me"
    assert Path(state.directory, "run.json").exists()
    assert [e.kind for e in run.events()]


def test_only_limits_that_exist(world: World) -> None:
    with pytest.raises(BadInput, match="'max_atempts' is not a limit of a run; the nearest is 'max_attempts'"):
        world.plans()["lab/cpu"].submit(max_atempts=3)
    assert world.plans()["lab/cpu"].submit(max_attempts=3).status().caps.max_attempts == 3


def test_a_workload_without_a_command_can_be_planned_not_submitted(world: World) -> None:
    request = world.session.request(world.session.workload("timm:resnet50", {"samples": 20_000, "epochs": 50}))
    plans = world.session.plan(request)
    with pytest.raises(BadInput, match="no command to run"):
        plans["soonest"].submit()


def test_a_catalog_cluster_can_be_planned_not_submitted(world: World) -> None:
    world.session.services.cidb.known["far"] = dataclasses.replace(LAB, name="far")  # type: ignore[attr-defined]
    plans = world.plans(clusters=["far"])
    with pytest.raises(BadInput, match="far cannot be reached from here"):
        plans["soonest"].submit()


def test_everybody_sees_only_their_own_runs(world: World, tmp_path: Path) -> None:
    run = world.plans()["lab/cpu"].submit()
    (tmp_path / "other").mkdir()
    other = World(tmp_path / "other", owner="you", store=world.store)
    assert other.session.runs() == []
    with pytest.raises(NotFound, match="you have no run"):
        other.session.run(run.id)


def test_the_beginning_of_an_id_is_enough(world: World) -> None:
    run = world.plans()["lab/cpu"].submit()
    assert world.session.run(run.id[:4]).id == run.id
    assert world.session.run(run.id[2:5]).id == run.id
    with pytest.raises(NotFound, match="the nearest is"):
        world.session.run(run.id[:-1] + "x" + "y")


def test_cancel_ends_the_job_and_then_the_run(world: World) -> None:
    run = world.plans()["lab/cpu"].submit()
    run.cancel()
    assert ("1", None) in world.batch.cancelled
    world.clock.time += 30
    assert run.wait(timeout=600).state is RunState.CANCELLED
    with pytest.raises(RunFailed, match="cancelled"):
        run.result()
    with pytest.raises(BadInput, match="nothing to cancel"):
        run.cancel()


def test_wait_gives_up_in_time_and_says_the_run_goes_on(world: World) -> None:
    run = world.plans()["lab/cpu"].submit()
    with pytest.raises(TimeoutError, match="goes on"):
        run.wait(timeout=10)


def test_move_asks_the_job_to_save_first(world: World) -> None:
    run = world.plans()["lab/cpu"].submit()
    run.move("lab/gpudbg")
    assert ("1", "USR2") in world.batch.cancelled
    world.batch.states["1"] = JobState.COMPLETED
    for _ in range(30):
        world.clock.time += 10
        if len(world.batch.specs) > 1:
            break
        run.status()
    assert world.batch.specs[1].partition == "gpudbg"


def test_move_to_nowhere_is_refused_with_the_reason(world: World) -> None:
    run = world.plans()["lab/cpu"].submit()
    with pytest.raises(NoFeasiblePlan, match="lab/shut is refused: partition is DOWN"):
        run.move("lab/shut")
    with pytest.raises(BadInput, match="is at lab/cpu already"):
        run.move("lab/cpu")


def test_a_status_is_shown_while_the_controller_is_away(world: World) -> None:
    run = world.plans()["lab/cpu"].submit()
    before = run.status().state
    world.batch.down = True
    assert run.status().state is before


def test_planning_needs_no_queue_but_says_so(world: World) -> None:
    world.batch.down = True
    plans = world.plans()
    assert any("could not be read" in w for w in plans.planset.warnings)
    assert len(plans)


def test_no_live_cluster_says_what_to_do(world: World) -> None:
    world.session.services.__dict__["batches"] = {}
    with pytest.raises(BatchUnavailable, match="--clusters"):
        world.plans()


def test_unknown_partition_names_the_nearest(world: World) -> None:
    with pytest.raises(NotFound, match="has a partition 'gpudgb'; the nearest is 'gpudbg'"):
        world.plans(partitions=["gpudgb"])


def test_replan_answers_for_what_is_left(world: World) -> None:
    run = world.plans()["lab/gpudbg"].submit().status()
    half = dataclasses.replace(run, progress=dataclasses.replace(run.progress, checkpoint_epoch=25, epochs_done=25, epochs=50))
    planning = world.session.planning
    whole = {p.where: p.run.p50 for p in planning.replan(run, "reschedule", world.clock.now())}
    left = {p.where: p.run.p50 for p in planning.replan(half, "reschedule", world.clock.now())}
    assert left["lab/cpu"] == pytest.approx(whole["lab/cpu"] / 2, rel=0.01)
    assert all(p.workload.epochs == 50 for p in planning.replan(half, "reschedule", world.clock.now()))


def test_replan_after_memory_offers_only_bigger_nodes(world: World) -> None:
    run = world.plans()["lab/gpudbg"].submit().status()
    planning = world.session.planning
    assert all(p.resources.gpus_per_node == 0 for p in planning.replan(run, "gpu_memory", world.clock.now()))
    assert list(planning.replan(run, "host_memory", world.clock.now())) == []


def test_script_is_plain_and_complete(world: World) -> None:
    text = world.plans()["lab/gpudbg"].script()
    assert text.startswith("#!/bin/bash\n#SBATCH ")
    assert "--time=01:00:00" in text
    assert "ISCHED_RUN_DIR=" in text
    assert "ISCHED_ATTEMPT" not in text  # the wrapper takes the next one each time it is submitted
    assert "train.py" in text
    bare = world.session.script(world.plans()["lab/gpudbg"].plan, wrapped=False)
    assert "ischeduler" not in bare.replace(str(world.folder), "")
