"""Runs and events that fill every kind of field, for the Store's suite."""

from __future__ import annotations

import math

from ischeduler.core.estimate import Estimate
from ischeduler.core.event import Event
from ischeduler.core.history import HistoryRecord
from ischeduler.core.jobs import Cause, JobState, Resources
from ischeduler.core.plan import Needs, Plan, Segment
from ischeduler.core.run import Attempt, Progress, Run, RunState
from ischeduler.core.workload import EnvironmentSpec, Workload


def plan() -> Plan:
    """A plan of two segments; its cost interval is open."""

    def seconds(value: float) -> Estimate:
        return Estimate.spread(value, 0.3, "s", "sample@1", reason="for a test")

    workload = Workload(
        model="timm:resnet18",
        samples=1000,
        epochs=3,
        batch_size=32,
        command=("python", "train.py", "--note", 'quotes " and \\ and ü'),
        environment=EnvironmentSpec(modules=("cuda/12",), variables={"A": "1"}),
    )
    return Plan(
        number=1,
        cluster="pitzer",
        partition="gpu",
        node_type="v100",
        workload=workload,
        resources=Resources(nodes=1, gpus_per_node=1, walltime_s=3600.0),
        segments=(Segment(0, 3600.0, 3000.0, seconds(60)), Segment(1, 3600.0, 3000.0, seconds(120))),
        needs=Needs(step_time=seconds(0.2)),
        run=seconds(6000),
        wait=seconds(180),
        finish=seconds(6180),
        cost=Estimate(0.1, 0.2, math.inf, "usd", "sample@1"),
        tags=("soonest",),
    )


def run(run_id: str = "r-1", *, owner: str = "alice", created_at: float = 1000.0, state: RunState = RunState.PLANNED) -> Run:
    """A run with two attempts, a loss that is not a number, and offsets."""
    attempts = (
        Attempt(1, f"{run_id}-1", "pitzer", "gpu", Resources(), 32, state=JobState.TIMEOUT, job_id="7", cause=Cause.WALLTIME),
        Attempt(2, f"{run_id}-2", "pitzer", "gpu", Resources(), 32, state=JobState.RUNNING, nodes=("p0001",)),
    )
    progress = Progress(epochs_done=1, epochs=3, loss=math.nan, epoch_times_s=(1.5, 1.25))
    return Run(
        id=run_id,
        owner=owner,
        plan=plan(),
        state=state,
        directory="/scratch/ü x",
        created_at=created_at,
        attempts=attempts,
        progress=progress,
        spool_offsets={"1.0": 120},
        excluded_nodes=("p0009",),
    )


def event(
    run_id: str = "r-1", *, seq: int = 0, token: str = "1.0", kind: str = "epoch", source: str = "job", **data: object
) -> Event:
    """An event of a run."""
    return Event(run_id, kind, 1234.5, source=source, token=token, seq=seq, data=data)


def record(run_id: str = "r-1", *, finished_at: float = 10.0, kind: str = "attempt", **changes: object) -> HistoryRecord:
    """Evidence of one attempt."""
    fields: dict[str, object] = {
        "owner": "alice",
        "family": "timm:resnet18",
        "cluster": "pitzer",
        "partition": "gpu",
        "node_type": "v100",
        "wait_s": 12.0,
        **changes,
    }
    return HistoryRecord(run_id=run_id, kind=kind, finished_at=finished_at, **fields)  # type: ignore[arg-type]
