"""The unchanged planner, estimators and provisioners on the simulated cluster: what they say of its queue, and what then happens in it."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
from test_simulated_plane import EPOCH_S, EPOCHS, LIMIT_S, NODES, Scene

from ischeduler.core.cluster import Accelerator, Cluster, NodeType, Partition
from ischeduler.core.run import Run, RunState
from ischeduler.core.sizes import GIB, MIB
from ischeduler.core.workload import Workload
from ischeduler.estimators.facade import Estimators
from ischeduler.helper.foresight import LiveForesight
from ischeduler.plane.loop import Plane
from ischeduler.planning.candidates import candidates
from ischeduler.planning.planner import plan
from ischeduler.simulator.engine.jobs import JobRequest

pytest.importorskip("numba", reason="numba is not installed")
OTHERS_S, EVERY_S, BEFORE_S = 1700.0, 400.0, 7200.0
"""Others' jobs take a whole node each and need a little more than the four there are, so somebody always waits."""


class Busy(Scene):
    """A cluster that others keep full, for two hours before the training comes; ``rule`` says when its successors are queued."""

    rule = "reactive"

    def new_plane(self, **more: Any) -> Plane:
        begin = self.clock.now()
        self.batch.background(
            JobRequest(f"b{i}", begin + EVERY_S * i, 1.4 * OTHERS_S, OTHERS_S, 1, 32, gpus=4, partition="gpu", user=f"u{i % 3}", name="sim")
            for i in range(-4, 80)
        )
        self.clock.advance(BEFORE_S)
        services = SimpleNamespace(batches={"sim": self.batch}, finished_jobs=lambda name, age_s: self.batch.finished(0.0))
        settings = {
            "plane.provisioner": self.rule, "plane.pending_successors": 1, "plane.interruption_price": 1.0, "plane.overlap_price": 1.0,
            "plane.provisioner_model": "",
        }  # fmt: skip
        return super().new_plane(foresight=LiveForesight(cast(Any, services), cast(Any, settings)), **more)


class Reactive(Busy):
    rule = "reactive"


class Ahead(Busy):
    rule = "hand-over"


def interruption_s(run: Run) -> float:
    """Seconds between two jobs without either."""
    times = [(a.started_at, a.ended_at) for a in run.attempts if a.started_at is not None and a.ended_at is not None]
    return sum(max(0.0, late[0] - early[1]) for early, late in pairwise(times))


def test_the_planner_plans_on_it_and_the_plan_comes_true() -> None:
    scene = Busy()
    snapshot = scene.batch.snapshot()
    (kind,) = {c.node_type for c in snapshot.nodes}
    card = Accelerator("a100-80g", 80 * GIB, gres="a100")
    node = NodeType(kind, cores=32, memory_bytes=256_000 * MIB, accelerator=card, accelerators_per_node=4, count=len(NODES))
    cluster = Cluster("sim", node_types=(node,), partitions=(Partition("gpu", (kind,), max_walltime_s=LIMIT_S),))
    workload = Workload(name="planned", samples=3200, epochs=EPOCHS, batch_size=32, command=("python", "train.py"), gpus=4, cpus=8, memory_bytes=GIB)
    given = {"run": EPOCHS * EPOCH_S, "startup": 30.0, "checkpoint": 10.0, "gpu_memory": "20G", "host_memory": "1G"}
    estimators, now = Estimators(given=[given]), scene.clock.now()
    places = candidates(workload, [cluster])
    needs = {c.key: estimators.needs(c.workload, c.cluster, c.partition, c.node_type, c.resources, snapshot, now) for c in places}
    made = plan(workload, [cluster], {"sim": snapshot}, needs, now)
    assert made.plans, made.refusals
    best = made.plans[0]
    wait = best.segments[0].wait
    assert (wait.source, wait.basis) == ("queue@1", "live")
    assert len(snapshot.pending("gpu")) > 0
    scene.plane.delegate(Run("planned", "me", best, RunState.PLANNED, "/runs/planned", now, state_since=now))
    scene.drive(lambda _: scene.store.get_run("planned").state.ended, hours=48.0)
    done = scene.store.get_run("planned")
    assert done.state is RunState.COMPLETED, done.message
    assert len(done.attempts) == len(best.segments) > 1
    first = done.attempts[0]
    assert first.started_at is not None
    assert first.submitted_at is not None
    assert wait.p10 <= first.started_at - first.submitted_at <= wait.p90


def test_a_provisioner_forecasts_from_it_and_queues_successors_ahead() -> None:
    reactive, ahead = Reactive().drive(hours=48.0), Ahead().drive(hours=48.0)
    for run in (reactive, ahead):
        assert run.state is RunState.COMPLETED, run.message
        assert len(run.attempts) >= 3
    early = [a for a, b in zip(ahead.attempts[1:], ahead.attempts, strict=False) if (a.submitted_at or 0) < (b.ended_at or 0)]
    assert early, "no successor was queued before its predecessor's end"
    assert interruption_s(reactive) > 600
    assert interruption_s(ahead) < 0.5 * interruption_s(reactive)


def test_what_has_ended_is_told_as_accounting_tells_it() -> None:
    scene = Busy()
    told = scene.batch.finished(0.0)
    assert len(told) > 5
    assert all((j.partition, j.nodes, j.gpus, j.limit_s, j.end_s - j.start_s) == ("gpu", 1, 4, 1.4 * OTHERS_S, OTHERS_S) for j in told)
    assert {j.user for j in told} == {"u0", "u1", "u2"}
    latest = max(j.end_s for j in told)
    assert scene.batch.finished(latest) == ()
    assert scene.batch.finished(latest - 1) == tuple(j for j in told if j.end_s == latest)
