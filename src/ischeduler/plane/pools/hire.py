"""A pilot as a run: an ordinary delegated plan whose segments follow one another, each queued before its predecessor ends. Pure."""

from __future__ import annotations

from ischeduler.core.estimate import Estimate
from ischeduler.core.jobs import Resources
from ischeduler.core.plan import Needs, Plan, Segment
from ischeduler.core.pool import Pool, PoolPlace
from ischeduler.core.run import Caps, Run, RunState
from ischeduler.core.sizes import MIB
from ischeduler.core.workload import Workload
from ischeduler.plane.renewal import PILOT_PROGRAM

ATTEMPTS_MAX = 10_000
LEAD_LEAST_S = 60.0


def pilot_plan(pool: Pool, place: PoolPlace, python: str, directory: str) -> Plan:
    """The plan of a pilot: one node, the whole walltime again and again, a lead long enough for every member to save."""
    nothing = Estimate.exact(0.0, "s", "pool")
    words = ["--pool", pool.directory, "--type", place.type, "--gpus", str(place.gpus_per_node), "--gres", _gres(place)]
    if place.memory_bytes:
        words += ["--memory-mb", str(place.memory_bytes // MIB)]
    workload = Workload(name=f"pilot-{pool.name}", command=(python, "-m", PILOT_PROGRAM, *words), directory=directory, options={"python": python})
    lead_s = int(max(LEAD_LEAST_S, 3 * pool.restart_s))
    return Plan(
        number=1, cluster=place.cluster, partition=place.partition, node_type=place.node_type, workload=workload,
        resources=Resources(
            cpus_per_node=place.cpus_per_node, memory_bytes=place.memory_bytes, gpus_per_node=place.gpus_per_node if place.gres != "" else 0,
            gres=place.gres, features=place.features, walltime_s=place.walltime_s,
        ),
        segments=(Segment(0, place.walltime_s, max(0.0, place.walltime_s - lead_s), nothing),), needs=Needs(), run=nothing, wait=nothing,
        finish=nothing, cost=Estimate.exact(0.0, "usd", "pool"), account=place.account, qos=place.qos, signal_lead_s=lead_s,
    )  # fmt: skip


def _gres(place: PoolPlace) -> str:
    """What a step asks for, without its count; '' where the accelerators are none of the batch system's."""
    if place.gres == "":
        return ""
    kind = place.gres or ""
    return "gpu" if kind in ("", "gpu") else kind if ":" in kind else f"gpu:{kind}"


def pilot_run_of(pool: Pool, type_: str, run_id: str, python: str, runs_dir: str, now: float) -> Run:
    """The run to delegate. It says nothing of progress and is never moved or given up for that."""
    caps = Caps(max_attempts=ATTEMPTS_MAX, allow_move=False, stall_after_s=float("inf"))
    plan = pilot_plan(pool, pool.place(type_), python, pool.directory)
    return Run(run_id, pool.owner, plan, RunState.PLANNED, f"{runs_dir}/{run_id}", now, caps=caps, state_since=now)
