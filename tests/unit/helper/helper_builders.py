"""Plans and runs for the Helper's tests."""

from __future__ import annotations

from ischeduler.core.blocker import Blocker
from ischeduler.core.estimate import Estimate
from ischeduler.core.jobs import Cause, JobState, Resources
from ischeduler.core.plan import Needs, Plan, PlanSet, Refusal, Segment
from ischeduler.core.run import Attempt, Progress, Run, RunState
from ischeduler.core.sizes import GIB
from ischeduler.core.workload import Workload

HOUR = 3600.0
T0 = 1_800_000_000.0


def workload(**changes: object) -> Workload:
    given = {
        "model": "timm:resnet50",
        "samples": 20_000,
        "epochs": 50,
        "batch_size": 32,
        "name": "resnet50",
        "command": ("python", "train.py"),
        "directory": "/home/me",
    }
    return Workload(**{**given, **changes})  # type: ignore[arg-type]


def seconds(p50: float, p90: float | None = None) -> Estimate:
    return Estimate(p50, p50, p90 or p50, "s", "test@1")


def plan(
    number: int = 1,
    partition: str = "gpu",
    *,
    run_h: float = 2,
    wait_h: float = 26,
    cost: float = 0.348,
    segments: int = 1,
    tags: tuple[str, ...] = (),
    gpus: int = 1,
    **changes: object,
) -> Plan:
    each = run_h * HOUR / segments
    gpu_memory = Estimate(22 * GIB, 24 * GIB, 26 * GIB, "bytes", "trace@1", basis="trace")
    host_memory = Estimate(3 * GIB, 4 * GIB, 5 * GIB, "bytes", "trace@1", basis="trace")
    given = {
        "number": number,
        "cluster": "pitzer",
        "partition": partition,
        "node_type": f"{partition}-node",
        "workload": workload(),
        "resources": Resources(cpus_per_node=28, gpus_per_node=gpus, memory_bytes=8 * GIB, walltime_s=each),
        "segments": tuple(Segment(i, each, each - 60, seconds(wait_h * HOUR / segments)) for i in range(segments)),
        "needs": Needs(run=seconds(run_h * HOUR), gpu_memory=gpu_memory if gpus else None, host_memory=host_memory),
        "run": seconds(run_h * HOUR, run_h * HOUR * 1.25),
        "wait": seconds(wait_h * HOUR),
        "finish": seconds((run_h + wait_h) * HOUR),
        "cost": Estimate.exact(cost, "usd", "charge@1"),
        "tags": tags,
    }
    return Plan(**{**given, **changes})  # type: ignore[arg-type]


def planset(**changes: object) -> PlanSet:
    refusal = Refusal("pitzer", "hugemem", "hm", 32, (Blocker("account", "account not permitted", "", ""),))
    misfit = Refusal(
        "pitzer",
        "gpu",
        "v100",
        64,
        (Blocker("gpu_memory", "card has 32 GB, 9 GB more needed", "41 GB", "batch 48 fits, or --grad-accum 2"),),
    )
    given = {
        "workload": workload(),
        "goal": "soonest",
        "made_at": T0,
        "plans": (
            plan(1, "cpu", run_h=9, wait_h=0, cost=0.756, tags=("soonest", "goal"), gpus=0),
            plan(2, "gpu", tags=("cheapest", "ideal")),
        ),
        "refusals": (misfit, refusal),
        "estimators": {"memory": "trace@1"},
    }
    return PlanSet(**{**given, **changes})  # type: ignore[arg-type]


def attempt(
    number: int,
    *,
    submitted: float = T0,
    wait_s: float = 600,
    ran_s: float | None = 3600,
    cause: Cause | None = Cause.WALLTIME,
    **changes: object,
) -> Attempt:
    given = {
        "number": number,
        "key": f"r-1-{number}",
        "cluster": "pitzer",
        "partition": "gpu",
        "resources": Resources(),
        "batch_size": 32,
        "state": JobState.COMPLETED,
        "job_id": str(100 + number),
        "submitted_at": submitted,
        "started_at": submitted + wait_s,
        "ended_at": None if ran_s is None else submitted + wait_s + ran_s,
        "cause": cause,
        "spool_started": True,
    }
    return Attempt(**{**given, **changes})  # type: ignore[arg-type]


def run(**changes: object) -> Run:
    given = {
        "id": "r-1",
        "owner": "me",
        "plan": plan(),
        "state": RunState.COMPLETED,
        "directory": "/tmp/r-1",
        "created_at": T0,
        "attempts": (attempt(1), attempt(2, submitted=T0 + 5000)),
        "spent": 0.3,
        "progress": Progress(epochs_done=50, epochs=50, peak_gpu_bytes=23 * GIB, peak_rss_bytes=4 * GIB),
    }
    return Run(**{**given, **changes})  # type: ignore[arg-type]
