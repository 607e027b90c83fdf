"""A Session on a clock that is set by hand, an in-memory store, and a batch system that starts every job at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ischeduler.core.cluster import Accelerator, ChargePolicy, Cluster, NodeType, Partition
from ischeduler.core.errors import BatchUnavailable, NotFound
from ischeduler.core.event import Event
from ischeduler.core.jobs import JobRef, JobSpec, JobState, JobStatus, Observation, Probe
from ischeduler.core.run import Run
from ischeduler.core.sizes import GIB
from ischeduler.core.snapshot import NodeCounts, QueueSnapshot
from ischeduler.estimators.facade import Estimators
from ischeduler.helper.config import load_config
from ischeduler.helper.session import Session
from ischeduler.testing.memory_store import MemoryStore
from ischeduler.wiring import Services

T0 = 1_800_000_000.0
CARD = Accelerator("v100-32g", 32 * GIB, gres="v100")
LAB = Cluster(
    "lab",
    centre="Lab",
    version="23.11",
    default_account="acc",
    accounts=("acc",),
    as_of=T0,
    charge=ChargePolicy("core-gpu-hours", "RU", 0.003, {"gpu_weight": 30.0}),
    node_types=(NodeType("cpu-node", 28, 112 * GIB, count=4), NodeType("gpu-node", 28, 112 * GIB, CARD, 1, 2)),
    partitions=(
        Partition("cpu", ("cpu-node",), max_walltime_s=7 * 86400),
        Partition("gpu", ("gpu-node",), max_walltime_s=86400),
        Partition("gpudbg", ("gpu-node",), max_walltime_s=3600, debug=True),
        Partition("shut", ("cpu-node",), state="DOWN"),
    ),
)
GIVEN = """
[[given]]
partition = "cpu"
run = "9h"
wait = "1m"
host_memory = "21G"
startup = 30
checkpoint = 5

[[given]]
partition = "gpu"
run = "2h"
wait = "26h"
gpu_memory = "24G"
host_memory = "8G"
startup = 30
checkpoint = 5

[[given]]
partition = "gpudbg"
run = "2h"
wait = "10m"
gpu_memory = "24G"
host_memory = "8G"
startup = 30
checkpoint = 5
"""


class HandClock:
    """Time that moves when told, or when somebody sleeps."""

    def __init__(self) -> None:
        self.time = T0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


class EagerBatch:
    """Starts jobs at once; ends them when told."""

    def __init__(self, clock: HandClock) -> None:
        self.clock, self.name, self.down = clock, "lab", False
        self.specs: list[JobSpec] = []
        self.states: dict[str, JobState] = {}
        self.cancelled: list[tuple[str, str | None]] = []

    def submit(self, job: JobSpec) -> str:
        self._up()
        self.specs.append(job)
        self.states[str(len(self.specs))] = JobState.RUNNING
        return str(len(self.specs))

    def observe(self, jobs: Collection[JobRef]) -> Observation:
        self._up()
        wanted = {j.key for j in jobs}
        found: dict[str, tuple[JobStatus, ...]] = {}
        for number, spec in enumerate(self.specs, 1):
            if spec.key in wanted:
                state = self.states[str(number)]
                end = self.clock.now() if state.ended else None
                found[spec.key] = (
                    JobStatus(str(number), spec.key, state, partition=spec.partition, submit_s=T0, start_s=T0 + 5, end_s=end),
                )
        return Observation(self.clock.now(), found)

    def cancel(self, job_id: str, *, signal: str | None = None) -> None:
        self.cancelled.append((job_id, signal))
        if signal is None:
            self.states[job_id] = JobState.CANCELLED

    def snapshot(self) -> QueueSnapshot:
        self._up()
        counts = (
            NodeCounts("cpu", "cpu-node", idle=4),
            NodeCounts("gpu", "gpu-node", allocated=2, total_gpus=2),
            NodeCounts("gpudbg", "gpu-node", allocated=2, total_gpus=2),
        )
        return QueueSnapshot("lab", self.clock.now(), counts)

    def probe(self, job: JobSpec) -> Probe:
        return Probe(True, "", self.clock.now())

    def _up(self) -> None:
        if self.down:
            raise BatchUnavailable("the controller does not answer")


class NoEvents:
    def read(self, run: Run) -> tuple[Sequence[Event], Mapping[str, int]]:
        return (), run.spool_offsets


class Shelf:
    """The CI database's reading side."""

    def __init__(self, *clusters: Cluster) -> None:
        self.known = {c.name: c for c in clusters}

    def clusters(self) -> list[Cluster]:
        return list(self.known.values())

    def get(self, name: str) -> Cluster:
        if name not in self.known:
            raise NotFound(f"there is no cluster '{name}'.")
        return self.known[name]


class World:
    """Everything a test may want to touch."""

    def __init__(self, folder: Path, *, owner: str = "me", store: MemoryStore | None = None) -> None:
        (folder / "given.toml").write_text(GIVEN)
        variables = {
            "ISCHED_PATHS_STATE": str(folder / "state"),
            "ISCHED_PATHS_DATA": str(folder / "data"),
            "ISCHED_PLANE_AUTOSTART": "no",
            "ISCHED_ENVIRONMENT_VENV": "/venv",
            "XDG_CONFIG_HOME": str(folder / "none"),
        }
        self.folder = folder
        self.clock = HandClock()
        self.batch = EagerBatch(self.clock)
        self.store = store or MemoryStore()
        self.session = Session(load_config(directory=folder, environment=variables))
        services = Services(self.session.config, clock=self.clock)
        given = Estimators(history=self.store.history, given=folder / "given.toml")
        parts: dict[str, Any] = {
            "store": self.store,
            "batches": {"lab": self.batch},
            "events": NoEvents(),
            "cidb": Shelf(LAB),
            "owner": owner,
        }
        services.__dict__.update(parts)
        services._estimators[""] = given  # pyright: ignore[reportPrivateUsage]
        services.replanner = self.session.planning_with(services)
        self.session.__dict__["services"] = services
        (folder / "train.py").write_text("print('hello')\n")

    def plans(self, **given: Any) -> Any:
        request = self.session.request(
            self.session.workload("train.py", {"samples": 20_000, "epochs": 50, "batch_size": 32}), **given
        )
        return self.session.plan(request)
