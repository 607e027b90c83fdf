"""The digital twin on a real Slurm: what it reads of the queue and of accounting, and what it says against what happens."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from test_batch_slurm import SlurmRig

from ischeduler.core.jobs import JobRef, JobState
from ischeduler.helper.forecast import Question, of_partition
from ischeduler.sandbox import Sandbox
from ischeduler.testing.batch_contract import Program, one, statuses

pytestmark = pytest.mark.slurm
pytest.importorskip("numba", reason="numba is not installed")


@pytest.fixture
def rig(slurm: Sandbox):
    rig = SlurmRig(slurm)
    yield rig
    rig.close()


def test_a_full_partition_is_forecast_as_it_then_comes(rig: SlurmRig) -> None:
    batch = rig.connect()
    begin = time.time()
    full = [rig.spec(rig.new_key(), Program(run_s=40), partition="gpu", gpus_per_node=2, walltime_s=60.0) for _ in range(2)]
    for job in full:
        batch.submit(job)
    assert rig.wait_until(lambda: len(batch.snapshot().running("gpu")) == 2)
    snapshot = batch.snapshot()
    assert {(j.user, j.gpus) for j in snapshot.running("gpu")} == {(batch.user, 2)}
    told = of_partition(snapshot, (), "gpu", Question(1, 1, 60.0))
    assert (told.running, told.waiting, told.holes) == (2, 0, ())
    assert told.wait is not None
    assert 0 < told.wait.p50 <= told.wait.p90 <= 60 + 60
    asked = time.time()
    mine = rig.spec(rig.new_key(), Program(run_s=1), partition="gpu", gpus_per_node=1, walltime_s=60.0)
    job_id = batch.submit(mine)
    ref = JobRef(mine.key, job_id)
    assert rig.wait_until(lambda: one(batch, mine.key).state is JobState.COMPLETED, 150.0)
    (status,) = statuses(batch, ref)
    start = status.start_s
    assert start is not None
    assert told.wait.p10 - 5 <= start - asked <= told.wait.p90 + 35  # Slurm looks every half minute
    past = batch.finished(begin - 60)
    assert [(j.partition, j.nodes, j.gpus, j.limit_s) for j in past if j.name.endswith(mine.key[-6:])] == [("gpu", 1, 1, 60.0)]
    assert all(0 <= j.share <= 1 and j.start_s >= j.submit_s for j in past)


def test_an_idle_partition_starts_at_once_and_says_what_is_free(rig: SlurmRig) -> None:
    snapshot = rig.connect().snapshot()
    told = of_partition(replace(snapshot, jobs=()), (), "cpu", Question(1, None, 60.0))
    assert told.wait is not None
    assert told.wait.p90 <= 60
    assert [(h.amount, h.unit, h.seconds) for h in told.holes] == [(2.0, "node", None)]
