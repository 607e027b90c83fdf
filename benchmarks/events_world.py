"""What the measurements of the events share: a durable PostgreSQL with runs in it, the messages, and a reader as its own process."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, insert, text

from ischeduler.core.codec import to_plain
from ischeduler.core.estimate import Estimate
from ischeduler.core.jobs import JobState, Resources
from ischeduler.core.plan import Needs, Plan, Segment
from ischeduler.core.run import Attempt, Run, RunState
from ischeduler.core.workload import Workload
from ischeduler.service.auth.secrets import Derived, make_key
from ischeduler.store.centre_tables import TOKENS
from ischeduler.store.engine import open_engine
from ischeduler.store.migrate import migrate
from ischeduler.store.tables import RUNS
from ischeduler.testing.postgres import ThrowawayPostgres, throwaway_postgres

CORES = 2
# A busy centre: half of all messages are utilisation, a third of them are read by the plane.
CENTRE_MIX = (
    "utilisation", "progress", "utilisation", "performance", "utilisation", "progress", "utilisation", "heartbeat", "utilisation",
    "performance",
)  # fmt: skip
PLANE_MIX = ("progress", "heartbeat", "checkpoint", "progress")
STREAMS = {
    "utilisation": "utilisation", "heartbeat": "utilisation", "performance": "performance", "progress": "progress", "checkpoint": "state",
}  # fmt: skip
_GPU = '"gpu":[{"index":0,"memory_bytes":31138512896,"utilisation":97}]'
_DATA = {
    "utilisation": '{"cpu":{"us":%d.5,"sy":3.1,"id":12.2,"wa":0.3},"memory":{"total":404620980224,"used":81604378624},' + _GPU + "}",
    "progress": '{"epoch":3,"epochs":90,"step":%d,"steps":4504500,"loss":2.31847,"step_time_s":0.1834}',
    "performance": '{"accuracy":0.71,"fmeasure":0.69,"precision":0.72,"recall":0.66,"step":%d}',
    "heartbeat": '{"rss_bytes":8160437862,"rss_peak_bytes":8260437862,"cpu_percent":%d.0,' + _GPU + "}",
    "checkpoint": '{"name":"e00003-s000012345-t1.0","epoch":3,"step":%d,"bytes":102400000,"save_s":1.25}',
}


def message(run: str, seq: int, kind: str, at: float) -> str:
    """One event as it is sent."""
    return f'{{"v":1,"run":"{run}","token":"1.0","seq":{seq},"t":{at:.3f},"kind":"{kind}","data":{_DATA[kind] % seq}}}'


def kind_of(number: int, runs: int, mix: Sequence[str]) -> str:
    """Which kind the event with this number has; every run gets all kinds."""
    return mix[(number // runs + number) % len(mix)]


def use_two_cores() -> None:
    """Everything that is measured shares these: producer, broker, database, readers."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])


@dataclass
class World:
    """A database with runs and job tokens."""

    postgres: ThrowawayPostgres
    engine: Engine
    url: str
    folder: Path
    tokens: list[str]

    def environment(self, **settings: str) -> dict[str, str]:
        """For a process of ours that shall use it."""
        return {
            **os.environ, "ISCHED_DATABASE_URL": self.url, "ISCHED_PATHS_STATE": str(self.folder / "state"), "ISCHED_BATCH_KIND": "local",
            "ISCHED_PATHS_DATA": str(self.folder / "data"), "ISCHED_SYSTEM_CONFIG": "/dev/null", "XDG_CONFIG_HOME": str(self.folder / "config"),
            "ISCHED_LOCAL_GPUS": "none", **settings,
        }  # fmt: skip

    def count(self) -> tuple[int, int]:
        """Events stored for the plane, and telemetry."""
        with self.engine.connect() as connection:
            return tuple(connection.execute(text("SELECT (SELECT count(*) FROM job_events), (SELECT count(*) FROM telemetry)")).one())  # pyright: ignore[reportReturnType]

    def stored(self) -> int:
        """A fast lower bound of what is stored: how far the channels were read."""
        with self.engine.connect() as connection:
            return int(connection.execute(text("SELECT coalesce(sum(position), 0) FROM event_channels WHERE name LIKE 'kafka:%'")).scalar_one())

    def cpu_s(self) -> float:
        """Processor seconds of the database server so far; 0 while it is stopped."""
        with suppress(OSError, ValueError):
            return cpu_of_tree_s(int((self.postgres.folder / "data" / "postmaster.pid").read_text().splitlines()[0]))
        return 0.0

    def clear(self) -> None:
        """Away with all events."""
        with self.engine.begin() as connection:
            connection.execute(text("TRUNCATE job_events, telemetry, event_channels, event_lanes, dead_letters CASCADE"))

    def wrong(self, sent: int, runs: int) -> int:
        """Events that are missing, by their numbers: each run has 1, 2, 3 ... without a gap."""
        query = text(
            "SELECT l.run_id, count(*) AS n, max(e.seq) AS last FROM event_lanes l JOIN"
            " (SELECT lane, seq FROM job_events UNION ALL SELECT lane, seq FROM telemetry) e ON e.lane = l.lane GROUP BY l.run_id"
        )
        with self.engine.connect() as connection:
            found = {row.run_id: (row.n, row.last) for row in connection.execute(query)}
        wrong = 0
        for number in range(runs):
            expected = sent // runs + (number < sent % runs)
            count, last = found.get(run_name(number), (0, 0))
            wrong += abs(expected - count) + (count > 0 and last != expected)
        return wrong


def run_name(number: int) -> str:
    """A run's id."""
    return f"bench-{number:05d}"


def some_run() -> Run:
    """A run with its first job running."""
    some = Estimate.spread(600.0, 0.3, "s", "benchmark@1")
    resources = Resources(nodes=1, gpus_per_node=1, walltime_s=7200.0)
    workload = Workload(model="timm:resnet50", samples=1_281_167, epochs=90, batch_size=256, command=("python", "train.py"))
    plan = Plan(
        number=1, cluster="bench", partition="gpu", node_type="a100", workload=workload, resources=resources,
        segments=(Segment(0, 7200.0, 7000.0, some),), needs=Needs(step_time=some), run=some, wait=some, finish=some, cost=some,
    )  # fmt: skip
    attempt = Attempt(1, "bench-1", "bench", "gpu", resources, 256, state=JobState.RUNNING, job_id="1")
    return Run(run_name(0), "bench", plan, RunState.RUNNING, "/nowhere", 0.0, attempts=(attempt,))


@contextmanager
def world(runs: int) -> Iterator[World]:
    """A durable PostgreSQL (every commit waits for the disk) with that many runs, each with a token of its jobs."""
    tuned = "-c shared_buffers=512MB -c max_wal_size=4GB -c checkpoint_timeout=15min"
    with tempfile.TemporaryDirectory(prefix="isched-events-") as place, throwaway_postgres(durable=True, options=tuned) as server:
        folder = Path(place)
        derived = Derived(make_key(folder / "state" / "server.key"))
        engine = open_engine(server.url)
        migrate(engine)
        tokens = [f"isj_{secrets.token_hex(8)}_{secrets.token_urlsafe(32)}" for _ in range(runs)]
        now = time.time()
        with engine.begin() as connection:
            rows = [
                {
                    "id": run_name(n), "owner": "bench", "state": "running", "version": 1, "created_at": now, "updated_at": now,
                    "doc": to_plain(replace(some_run(), id=run_name(n))),
                }
                for n in range(runs)
            ]  # fmt: skip
            connection.execute(insert(RUNS), rows)
            credentials = [
                {
                    "id": t.split("_")[1], "kind": "job", "user": "bench", "run_id": run_name(n), "digest": derived.digest("token", t),
                    "scopes": ["events"], "label": "", "created_at": now, "expires_at": now + 86400, "used_at": now,
                }
                for n, t in enumerate(tokens)
            ]  # fmt: skip
            connection.execute(insert(TOKENS), credentials)
        try:
            yield World(server, engine, server.url, folder, tokens)
        finally:
            engine.dispose()


def cpu_of_tree_s(pid: int) -> float:
    """Processor seconds of a process, its children, and those of them that have ended."""
    import psutil

    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        times = process.cpu_times()
        own = times.user + times.system + times.children_user + times.children_system
        return own + sum(cpu_of_tree_s(child.pid) for child in process.children())
    return 0.0


class Watched:
    """A process of ours, its memory and its processor time."""

    def __init__(self, argv: Sequence[str], environment: dict[str, str], log: Path) -> None:
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *argv], env=environment, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=log.parent
            )
        self.peak_mb = 0.0

    @property
    def alive(self) -> bool:
        """Still at work."""
        return self._process.poll() is None

    def look(self) -> float:
        """Its memory now, in MB; the peak is kept."""
        with suppress(OSError, StopIteration, ValueError):
            lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
            figures = {name: float(next(x for x in lines if x.startswith(name)).split()[1]) / 1024 for name in ("VmHWM", "VmRSS")}
            self.peak_mb = max(self.peak_mb, figures["VmHWM"])
            return figures["VmRSS"]
        return 0.0

    def cpu_s(self) -> float:
        """Processor seconds so far."""
        with suppress(OSError):
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return 0.0

    def end(self) -> Any:
        """Ask it to end; what it printed, as JSON. RuntimeError with its last words when it failed."""
        self.look()
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            out, _ = self._process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(f"it did not end: {self._log.read_text(errors='replace')[-800:]}") from None
        if self._process.returncode != 0:
            raise RuntimeError(f"it failed: {self._log.read_text(errors='replace')[-800:]}")
        return json.loads(out.strip().splitlines()[-1]) if out.strip() else None

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()
