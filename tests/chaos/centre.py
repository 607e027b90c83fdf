"""The whole centre of an episode: database, controller, workers; and the harness's own sure hand on the store."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tests.chaos.engine import impatient
from tests.chaos.parts import Controller, Disk, Network, Postgres, Process, WorkerProcess, eventually, remove

from ischeduler.core.errors import IschedError, StoreConflict
from ischeduler.core.estimate import Estimate
from ischeduler.core.jobs import Resources
from ischeduler.core.plan import Needs, Plan, Segment
from ischeduler.core.run import Caps, Run, RunState
from ischeduler.core.workload import Workload
from ischeduler.plane.decide import absorb
from ischeduler.plane.inputs import CancelAsked
from ischeduler.service.ingest.kafka import KafkaSettings
from ischeduler.store.engine import open_engine
from ischeduler.store.migrate import migrate
from ischeduler.store.sql_store import SqlStore
from ischeduler.testing.broker import Broker, find_program, free_port

T = TypeVar("T")
EPOCH_S = 12.0


class Centre:
    """All parts, made once and hurt many times. ``mutation`` puts a defect into the workers on purpose."""

    def __init__(self, *, workers: int, speed: float, lease_s: float, seed: int, mutation: str = "", transport: str = "spool", nodes: int = 8) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="isched-chaos-", dir="/tmp"))
        self.folder.chmod(0o755)
        self.nodes, self.speed, self.transport = nodes, speed, transport
        self.broker: Broker | None = None
        self.ingest: Process | None = None
        self.under_way: list[str] = []
        try:
            self._start(workers, lease_s, seed, mutation)
        except BaseException:
            self.close()
            raise

    def _start(self, workers: int, lease_s: float, seed: int, mutation: str) -> None:
        self.postgres = Postgres(self.folder)
        engine = open_engine(self.postgres.url())
        migrate(engine)
        engine.dispose()
        self.store = SqlStore(impatient(open_engine(self.postgres.url())))
        self.spools = Disk(self.folder / "runs", 48)
        options = {"speed": self.speed, "nodes": self.nodes, "latency_s": [0.002, 0.03], "seed": seed, "epoch_s": EPOCH_S}
        if self.transport == "kafka":
            options["kafka"] = self._start_broker()
        self.controller = Controller(self.folder, options)
        self.networks = [Network(n) for n in range(workers)]
        self.workers = [self._worker(n, lease_s, mutation, self.transport) for n in range(workers)]
        if not eventually(lambda: len(self.surely(self.store.signs)) >= workers, 120.0):
            raise RuntimeError(f"the workers do not start: {self.words()}")

    def _start_broker(self) -> str:
        self.broker = Broker(find_program(), free_port(), self.folder / "broker.log")
        self.broker.make_topics(list(KafkaSettings("").topics()), partitions=2)
        given = {"url": self.postgres.url(), "kafka": self.broker.servers, "name": "ingest"}
        self.ingest = Process([sys.executable, "-m", "tests.chaos.ingest", json.dumps(given)], self.folder / "ingest.log")
        self.ingest.start()
        return self.broker.servers

    def restart_broker(self) -> None:
        """Back, empty; what was said since the episode began is sent again."""
        assert self.broker is not None
        self.broker.start()
        self.broker.make_topics(list(KafkaSettings("").topics()), partitions=2)
        self.controller.strings.ask("resend", runs=self.under_way)

    def _worker(self, number: int, lease_s: float, mutation: str, transport: str) -> WorkerProcess:
        network = self.networks[number]
        given = {
            "url": self.postgres.url(network.host), "controller": [network.host, self.controller.port], "origin": self.controller.origin,
            "speed": self.speed, "lease_s": lease_s, "mutation": mutation, "transport": transport,
        }  # fmt: skip
        return WorkerProcess(f"w{number}", network, given, self.folder)

    def now(self) -> float:
        """The fast time."""
        from ischeduler.testing.batch_server import ScaledClock

        return ScaledClock(self.controller.origin, self.speed).now()

    def delegate(self, run_id: str, owner: str, epochs: int, walltime_s: float) -> None:
        """Hand a run over; returns when the store has said yes."""
        run = make_run(run_id, owner, str(self.spools.folder / run_id), epochs, walltime_s, self.now())

        def create() -> None:
            try:
                self.store.create_run(run)
            except StoreConflict:
                return  # an earlier try got through, only its answer was lost

        self.surely(create)

    def cancel(self, run_id: str) -> None:
        """Its owner does not want it any more."""

        def wish() -> None:
            while True:
                run = self.store.get_run(run_id)
                wished, _ = absorb(run, CancelAsked(), self.now())
                if wished == run:
                    return
                try:
                    self.store.save_run(wished)
                    return
                except StoreConflict:
                    continue

        self.surely(wish)

    def surely(self, act: Callable[[], T], limit_s: float = 60.0) -> T:
        """Until the store answers."""
        until = time.monotonic() + limit_s
        while True:
            try:
                return act()
            except (IschedError, OSError):
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)

    def close(self) -> None:
        """Away with everything."""
        parts = [*getattr(self, "workers", ()), getattr(self, "controller", None), self.ingest, self.broker]
        for part in parts:
            if part is not None:
                part.kill()
        if hasattr(self, "store"):
            self.store.close()
        for place in (getattr(self, "postgres", None), getattr(self, "spools", None), *getattr(self, "networks", ())):
            if place is not None:
                place.close()
        if not os.environ.get("ISCHED_CHAOS_KEEP"):
            remove(self.folder)

    def words(self) -> dict[str, Any]:
        """The last lines of the parts' logs, for a failure's report."""
        return {p.name: p.read_text(errors="replace")[-3000:] for p in sorted(self.folder.glob("*.*")) if p.is_file()}


def make_run(run_id: str, owner: str, directory: str, epochs: int, walltime_s: float, now: float) -> Run:
    """A training of ``epochs`` short epochs under a short limit."""

    def seconds(value: float) -> Estimate:
        return Estimate.spread(value, 0.1, "s", "chaos@1")

    workload = Workload(name="toy", model="toy", samples=320, epochs=epochs, batch_size=32, command=("python", "train.py", "{epochs}"))
    run = seconds(epochs * EPOCH_S)
    plan = Plan(
        1, "sim", "gpu", "a100", workload, Resources(cpus_per_node=4, gpus_per_node=1, gres="a100", walltime_s=walltime_s),
        (Segment(0, walltime_s, walltime_s - 12, seconds(2.0)),), Needs(startup=seconds(2.0), checkpoint=seconds(1.0), wait=seconds(2.0)),
        run, seconds(2.0), run, Estimate.exact(0.0, "usd", "chaos@1"), signal_lead_s=10,
    )  # fmt: skip
    caps = Caps(max_attempts=60, max_failures=30)
    return Run(run_id, owner, plan, RunState.PLANNED, directory, now, caps=caps, state_since=now)
