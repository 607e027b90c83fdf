"""A run that goes on with another number of accelerators: saved, resized, told to the job."""

from __future__ import annotations

from dataclasses import replace

import pytest
from harness import Rig
from world import make_plan, make_run

from ischeduler.core.elastic import Elastic
from ischeduler.core.errors import BadInput
from ischeduler.core.run import RunState
from ischeduler.plane.reschedule import resized_plan


def test_a_move_to_fewer_accelerators_keeps_the_batch_and_tells_the_job() -> None:
    plan = make_plan()
    workload = replace(plan.workload, gpus=2, batch_size=32, elastic=Elastic((1, 4)))
    plan = replace(plan, workload=workload, resources=replace(plan.resources, gpus_per_node=2))
    rig = Rig()
    rig.plane().delegate(make_run(plan))
    rig.drive(lambda r: r.state is RunState.RUNNING and r.progress.checkpoint_step > 0)
    rig.plane().move("r-1", resized_plan(rig.run().plan, 1))
    run = rig.drive()
    assert run.state is RunState.COMPLETED
    assert [(a.resources.gpus_per_node, a.batch_size, a.grad_accum) for a in run.attempts[:2]] == [(2, 32, 1), (1, 32, 2)]
    told = [job.spec.variables for job in rig.world.all_jobs("r-1")][:2]
    assert [(v["ISCHED_WORLD_SIZE"], v["ISCHED_BATCH_SIZE"], v["ISCHED_GRAD_ACCUM"], v["ISCHED_GLOBAL_BATCH"]) for v in told] == [
        ("2", "32", "1", "64"), ("1", "32", "2", "64"),
    ]  # fmt: skip
    assert run.attempts[1].start_step > 0
    with pytest.raises(BadInput, match="may run on"):
        resized_plan(run.plan, 3)
