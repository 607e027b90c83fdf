"""The whole service over a scratch database, with runs in every state and a backend that answers from its shelf."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastapi import FastAPI

sys.path.insert(0, str(Path(__file__).parent.parent / "helper"))

from helper_builders import HOUR, attempt, plan, planset, run, seconds, workload

from ischeduler.core.cluster import Accelerator, Access, ChargePolicy, Cluster, NodeType, Partition
from ischeduler.core.errors import BadInput, BatchUnavailable, NotFound, StoreConflict
from ischeduler.core.estimate import Estimate
from ischeduler.core.event import Event
from ischeduler.core.history import HistoryRecord
from ischeduler.core.jobs import Cause, JobState
from ischeduler.core.plan import PlanSet
from ischeduler.core.run import Caps, Progress, Run, RunState
from ischeduler.core.sizes import GIB
from ischeduler.core.snapshot import NodeCounts, QueuedJob, QueueSnapshot
from ischeduler.core.workload import Workload
from ischeduler.helper.forecast import PartitionForecast
from ischeduler.helper.report import report_of
from ischeduler.helper.why import explain_run
from ischeduler.service.app import create_app
from ischeduler.service.settings import ServiceSettings
from ischeduler.store.sql_store import SqlStore

NOW = 1_800_100_000.0
EVIL = "<script>alert('run')</script><img src=x onerror=alert(1)>"
V100 = Accelerator("v100-32g", 32 * GIB, gres="v100")
A100 = Accelerator("a100-80g", 80 * GIB, gres="a100")
PITZER = Cluster(
    "pitzer", centre="OSC", charge=ChargePolicy("core-gpu-hours", "RU", 0.003, {"gpu_weight": 30.0}), as_of=NOW - 5 * 86400,
    node_types=(
        NodeType("gpu-node", 40, 384 * GIB, V100, 2, 32), NodeType("a100-node", 96, 1024 * GIB, A100, 4, 8), NodeType("cpu-node", 48, 192 * GIB, count=160),
    ),
    partitions=(
        Partition("gpu", ("gpu-node",), max_walltime_s=48 * HOUR, access=Access(True, "", NOW - 120)),
        Partition("gpudbg", ("gpu-node",), max_walltime_s=HOUR, debug=True, access=Access(True, "", NOW - 120)),
        Partition("a100", ("a100-node",), max_walltime_s=24 * HOUR),
        Partition("serial-48core", ("cpu-node",), max_walltime_s=168 * HOUR),
        Partition("hugemem", ("cpu-node",), access=Access(False, "Invalid account for this partition", NOW - 120)),
    ),
)  # fmt: skip
OLD = Cluster("stampede3", centre="TACC", charge=ChargePolicy("node-hours", "SU"), as_of=NOW - 400 * 86400, partitions=(Partition("h100", ()),))
SILENT = Cluster("cardinal", centre="OSC", as_of=NOW - 3600, partitions=(Partition("gpu", ()),))


def snapshot() -> QueueSnapshot:
    nodes = (
        NodeCounts("gpu", "gpu-node", idle=1, mixed=5, allocated=25, drained=1, idle_gpus=6, total_gpus=64),
        NodeCounts("gpudbg", "gpu-node", idle=1, mixed=1, allocated=2, idle_gpus=3, total_gpus=8),
        NodeCounts("a100", "a100-node", allocated=7, drained=1, total_gpus=32),
        NodeCounts("serial-48core", "cpu-node", idle=41, mixed=20, allocated=98, down=1),
    )
    jobs = [QueuedJob(str(i), p, s) for p, s, n in (("gpu", "RUNNING", 58), ("gpu", "PENDING", 112), ("a100", "PENDING", 31), ("gpudbg", "RUNNING", 4)) for i in range(n)]
    return QueueSnapshot("pitzer", NOW - 40, nodes, tuple(jobs))


def forecasts() -> list[PartitionForecast]:
    def one(partition: str, p50: float, p90: float, hour: float) -> PartitionForecast:
        return PartitionForecast("pitzer", partition, 1, 1, HOUR, wait=Estimate(0, p50, p90, "s", "twin@1"), chances={"600": hour / 2, "3600": hour})

    return [
        one("gpu", 5.2 * HOUR, 26 * HOUR, 0.12), one("gpudbg", 300, 2400, 0.93), one("serial-48core", 0, 40, 1.0),
        PartitionForecast("pitzer", "a100", 1, 1, HOUR, wait=Estimate(HOUR, 40 * HOUR, math.inf, "s", "twin@1"), chances={"3600": 0.0}),
        PartitionForecast("pitzer", "hugemem", 1, 0, HOUR, problem="0 nodes are up, 1 asked for"),
    ]  # fmt: skip


def events_of(one: Run, *, since: float, jobs: Sequence[tuple[int, float, float]]) -> list[Event]:
    """Progress, heartbeats and checkpoints of jobs (number, start, end), as a training sends them."""
    told = [Event(one.id, "delegated", since, data={"where": one.plan.where})]
    step = 0
    for number, start, end in jobs:
        told.append(Event(one.id, "started", start, "job", f"{number}.0", 1, {"job_id": str(100 + number), "host": "p0241"}))
        seq, at = 2, start + 30
        while at < end:
            step += 25
            loss = 2.4 * math.exp(-step / 900) + 0.31 + 0.05 * math.sin(step / 40)
            told.append(Event(one.id, "progress", at, "job", f"{number}.0", seq, {"epoch": step // 250, "epochs": 50, "step": step, "loss": round(loss, 4)}))
            beat = {"rss_bytes": int((3.8 + 0.2 * math.sin(at / 700)) * GIB), "gpu": [{"index": 0, "memory_bytes": int((22.4 + 0.6 * math.cos(at / 500)) * GIB), "utilisation": 0.86 + 0.08 * math.sin(at / 300)}]}
            told.append(Event(one.id, "heartbeat", at + 1, "job", f"{number}.0", seq + 1, beat))
            seq, at = seq + 2, at + 45
            if step % 250 == 0:
                told.append(Event(one.id, "checkpoint", at, "job", f"{number}.0", seq, {"name": f"e{step // 250:05d}", "epoch": step // 250, "step": step, "bytes": 104_857_600, "save_s": 1.2}))
                seq += 1
    return told


def cascade() -> tuple[Run, list[Event]]:
    """A run in its second job, the first ended by its limit."""
    made = NOW - 2.6 * HOUR
    first = attempt(1, submitted=made + 5, wait_s=1260, ran_s=3600, partition="gpudbg", nodes=("p0241",))
    second = attempt(2, submitted=made + 4900, wait_s=900, ran_s=None, cause=None, partition="gpudbg", state=JobState.RUNNING, nodes=("p0317",))
    second = replace(second, resources=replace(second.resources, walltime_s=HOUR))
    ours = plan(partition="gpudbg", run_h=2.2, wait_h=0.7, segments=3, cost=0.36, tags=("soonest",), finish=Estimate(2.4 * HOUR, 3.1 * HOUR, 4.1 * HOUR, "s", "plan"))
    ours = replace(ours, cost=Estimate(0.3, 0.36, 0.45, "usd", "charge@1"), workload=workload(name="resnet50-flowers"))
    one = run(
        id="r-7f3a01", owner="alice", plan=ours, state=RunState.RUNNING, created_at=made, attempts=(first, second), spent=0.21, directory="/users/alice/runs/r-7f3a01",
        progress=Progress(epochs_done=27, epochs=50, step=6750, steps=12500, at=NOW - 9, loss=0.412, step_time_s=0.212, epoch_times_s=(151.0, 149.0, 152.0),
                          checkpoint="e00027", checkpoint_epoch=27, checkpoint_at=NOW - 130, peak_gpu_bytes=int(23.1 * GIB), peak_rss_bytes=int(4.1 * GIB)),
    )  # fmt: skip
    spans = [(1, made + 1265, made + 4865), (2, made + 5800, NOW)]
    return one, events_of(one, since=made, jobs=spans)


def waiting() -> Run:
    made = NOW - 720
    first = attempt(1, submitted=made + 3, ran_s=None, cause=None, state=JobState.PENDING, started_at=None, reason="Priority", expected_start_s=NOW + 4 * HOUR)
    return run(id="r-2b9c44", owner="alice", plan=plan(workload=workload(name="bert-base-finetune", model="transformers:bert-base-uncased", epochs=3)),
               state=RunState.QUEUED, created_at=made, attempts=(first,), spent=0.0, progress=Progress(), state_since=made)  # fmt: skip


def ended(run_id: str, state: RunState, hours_ago: float, name: str, cause: Cause, message: str = "", **changes: Any) -> Run:
    made = NOW - hours_ago * HOUR
    ran = attempt(1, submitted=made + 4, wait_s=1320, ran_s=7860, cause=cause, exit_code=0 if cause is Cause.FINISHED else 1)
    given: dict[str, Any] = {"progress": Progress(epochs_done=50 if state is RunState.COMPLETED else 12, epochs=50, peak_gpu_bytes=int(23.1 * GIB), peak_rss_bytes=4 * GIB, loss=0.29)}
    return run(id=run_id, owner="alice", plan=plan(workload=workload(name=name), wait_h=0.4), state=state, created_at=made, attempts=(ran,), ended_at=made + 9200,
               message=message, spent=0.33, **(given | changes))  # fmt: skip


def all_runs() -> list[tuple[Run, list[Event]]]:
    stalled = attempt(1, submitted=NOW - 9000, wait_s=300, ran_s=None, cause=None, state=JobState.RUNNING)
    return [
        cascade(), (waiting(), []),
        (run(id="r-91d0ee", owner="alice", plan=plan(partition="a100", workload=workload(name="vit-large-384")), state=RunState.STALLED, created_at=NOW - 9100, attempts=(stalled,),
             message="no step for 31m; the job is being stopped", progress=Progress(epochs_done=2, epochs=50, at=NOW - 1900), spent=0.6, caps=Caps(max_cost=0.5)), []),
        (ended("r-5e1177", RunState.COMPLETED, 30, "resnet50-baseline", Cause.FINISHED, "the training is done"), []),
        (ended("r-0bad00", RunState.FAILED, 52, "unet-aerial", Cause.USER_ERROR, "five attempts in a row failed: FileNotFoundError: 'tiles/'"), []),
        (ended("r-0e71ab", RunState.CANCELLED, 75, EVIL, Cause.CANCELLED, f"cancelled by its owner {EVIL}"), [Event("r-0e71ab", EVIL, NOW - 70 * HOUR, "job", data={"text": EVIL})]),
        (run(id="r-b0b123", owner="bob", plan=plan(workload=workload(name="bobs-secret")), state=RunState.RUNNING, created_at=NOW - 100, attempts=()), []),
    ]  # fmt: skip


class Hand:
    """A clock that stands, with the rest of the port."""

    def now(self) -> float:
        return NOW

    def sleep(self, seconds: float) -> None:
        raise AssertionError("a page waits for nothing")


class Shelf:
    """The backend: planner's answers from the builders, everything else from the store."""

    def __init__(self, folder: Path) -> None:
        self.store = SqlStore(folder / "centre.db", clock=lambda: NOW)
        self.engine, self.clock = self.store.engine, Hand()
        self.asked: list[tuple[Any, ...]] = []
        self.plans: dict[tuple[str, str], PlanSet] = {}
        self.keys: dict[str, Run] = {}
        self.log = "Epoch 26/50  loss 0.4310\nEpoch 27/50  loss 0.4120\n" + f"odd line: {EVIL}\n"

    def schema(self, document: str) -> Mapping[str, Any]:
        return {}

    def problems(self) -> Sequence[str]:
        return ()

    def workload(self, user: str, fields: Mapping[str, Any]) -> Workload:
        raise NotImplementedError

    def plan(self, user: str, fields: Mapping[str, Any], **asked: Any) -> tuple[str, PlanSet]:
        self.asked.append(("plan", user, dict(fields), asked))
        if not str(fields.get("epochs", "")).isdigit():
            raise BadInput(f"epochs in the request cannot be {fields.get('epochs')!r}; expected a whole number.")
        cpu = plan(1, "serial-48core", run_h=9, wait_h=0, cost=0.756, gpus=0, finish=Estimate(8.6 * HOUR, 9 * HOUR, 10.2 * HOUR, "s", "p"))
        debug = plan(2, "gpudbg", run_h=2, wait_h=1, segments=3, cost=0.36, tags=("soonest", "goal"), finish=Estimate(2 * HOUR, 3 * HOUR, 4.5 * HOUR, "s", "p"))
        gpu = plan(3, "gpu", cost=0.348, wait_h=5, tags=("cheapest", "ideal"), finish=Estimate(3 * HOUR, 7 * HOUR, 28 * HOUR, "s", "p"))
        worse = plan(4, "a100", cost=1.2, wait_h=40, hidden=True)
        made = planset(made_at=NOW - 3, plans=(debug, cpu, gpu, worse), workload=workload(batch_size=(32, 64)),
                       warnings=(f"pitzer: {EVIL}", "facts are 5 days old"), estimators={"memory": "trace@1", "run": "roofline@2", "wait": "quantile@3"})  # fmt: skip
        self.plans[user, "p-0001"] = made
        return "p-0001", made

    def planset(self, user: str, plan_id: str) -> PlanSet:
        if (user, plan_id) not in self.plans:
            raise NotFound("you have no such plans.")
        return self.plans[user, plan_id]

    def submit(self, user: str, plan_id: str, choice: str, caps: Mapping[str, Any], project: str = "", key: str = "") -> Run:
        self.asked.append(("submit", user, plan_id, choice, dict(caps)))
        made = next(p for p in self.planset(user, plan_id).plans if str(p.number) == choice)
        if key in self.keys:
            return self.keys[key]
        self.keys[key] = self.store.create_run(run(id=f"r-fe54{len(self.keys):02d}", project=project, owner=user, plan=made, state=RunState.PLANNED, created_at=NOW, attempts=(), spent=0.0, progress=Progress()))
        return self.keys[key]

    def cancel(self, user: str, run_id: str) -> Run:
        self.asked.append(("cancel", user, run_id))
        if self.store.get_run(run_id).state.ended:
            raise StoreConflict(f"run {run_id} has ended already; there is nothing to cancel.")
        return self.store.save_run(replace(self.store.get_run(run_id), cancel_requested=True))

    def move(self, user: str, run_id: str, where: str) -> Run:
        self.asked.append(("move", user, run_id, where))
        if where.startswith("nowhere"):
            raise NotFound(f"there is no place '{where}'.")
        return self.store.get_run(run_id)

    def explain(self, user: str, run: Run) -> str:
        return explain_run(run, NOW)

    def report(self, user: str, run: Run) -> Any:
        return report_of(run, [], NOW)

    def log_tail(self, user: str, run: Run, attempt: int | None = None, lines: int = 200) -> str:
        return self.log

    def clusters(self, user: str) -> Sequence[Cluster]:
        return [OLD, PITZER, SILENT]

    def reachable(self, user: str) -> Sequence[str]:
        return ["pitzer", "cardinal"]

    def queue(self, user: str, cluster: str) -> QueueSnapshot:
        if cluster != "pitzer":
            raise BatchUnavailable("the controller of cardinal does not answer (timeout after 10 s).")
        return snapshot()

    def forecasts(self, user: str, cluster: str, partitions: Sequence[str] = (), **asked: Any) -> Sequence[Any]:
        return forecasts()


class World:
    """The application, and tokens of alice (a user), bob (a user) and carol (a centre admin)."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.shelf = Shelf(folder)
        generous: dict[str, Any] = {"stranger_rate": 1e6, "stranger_burst": 1e6, "rate": 1e6, "burst": 1e6}
        self.app: FastAPI = create_app(self.shelf, ServiceSettings(key=b"k" * 32, **(generous | settings)))  # type: ignore[arg-type]
        gate = self.app.state.gate
        self.tokens: dict[str, str] = {}
        for name, roles in (("alice", ("user",)), ("bob", ("user",)), ("carol", ("user", "centre_admin"))):
            gate.identities.add_user(name, roles=roles)
            self.tokens[name], _ = gate.tokens.make(name, scopes=("read", "write", "admin"), ttl_s=86400)
        for one, events in all_runs():
            stored = self.shelf.store.create_run(one)
            if events:
                self.shelf.store.save_run(stored, events)
        self._history()

    def _history(self) -> None:
        """Enough finished runs that a coverage is judged."""
        for i in range(14):
            wait = 900.0 + 130 * i
            self.shelf.store.record(HistoryRecord(f"k-{i}", "attempt", "alice", "timm:resnet50", "pitzer", "gpu", "gpu-node", NOW - (40 - i) * 86400, wait_s=wait, run_s=7000.0 + 90 * i, walltime_s=9000, gpus=1))
            ours = ended(f"r-aa00{i:02d}", RunState.COMPLETED, 100 + 24 * i, f"sweep-{i:02d}", Cause.FINISHED, "the training is done")
            self.shelf.store.create_run(replace(ours, plan=replace(ours.plan, needs=replace(ours.plan.needs, step_time=seconds(0.2)))))
