"""A centre under load: users ask the real API while workers carry thousands of runs on a simulated batch system.

``python -m benchmarks.centre [--users N --runs N --json]``: PostgreSQL, a Kafka-protocol broker and its ingest, the service under
uvicorn and the plane workers, each a process of its own. Runs are delegated through the API until so many are active; then all users
look, cancel and delegate for a while. Bars: the 99th percentile of the API's latency, and that a controller is asked no more often for
ten times the runs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.centre_clients import Measured, Users, quantile_ms
from benchmarks.report import Bar, finish
from ischeduler.plane.workers import Pace

P99_MS, GROWTH = 200.0, 1.10
MANY, LOOKS_MIN = 500, 60 / Pace().look_s * 1.05
"""With fewer runs there is not always one due at the next look, and the controller is asked less often than it may be."""
NICE = 5
"""As ``deploy/systemd`` starts workers and ingest: people who wait come before runs that can."""
WEBS = 2
"""As docs/how-to/size-the-centre.md says to start with."""
SHARES = (0.1, 0.4, 1.0)
FILL_LIMIT_S = 1800.0


class Parts:
    """All processes of the centre."""

    def __init__(self, folder: Path, url: str, users: int, workers: int, webs: int, *, kafka: str) -> None:
        self.folder, self.url = folder, url
        self._running: list[subprocess.Popen[str]] = []
        self.port = _free_port()
        given: dict[str, Any] = {"folder": str(folder / "service"), "url": url, "users": users, "port": self.port}
        told = self._start("service", "-m", "benchmarks.centre_worker", "service", given)
        self.headers: list[str] = told["headers"]
        self.cluster = str(told["cluster"])
        for n in range(1, webs):
            self._start(f"service{n}", "-m", "benchmarks.centre_worker", "service", {**given, "users": 0})
        options: dict[str, Any] = {"name": self.cluster, "partition": told["partition"], "nodes": 1250, "gpus": 0, "spools": False}
        options |= {"kafka": kafka, "latency_s": [0.005, 0.05], "epoch_s": 600.0, "heartbeat_s": 60.0, "startup_s": 10.0, "steps": 100}
        told = self._start("controller", "-m", "ischeduler.testing.batch_server", options)
        self.controller = (str(told["address"][0]), int(told["address"][1]))
        if kafka:
            self._start("ingest", "-m", "benchmarks.centre_worker", "ingest", {"url": url, "kafka": kafka}, answer=False, nice=NICE)
        for n in range(workers):
            given = {"url": url, "controller": self.controller, "cluster": self.cluster, "name": f"w{n}", "batch": 500}
            self._start(f"worker{n}", "-m", "benchmarks.centre_worker", "worker", given, answer=False, nice=NICE)

    def _start(self, name: str, *words: Any, answer: bool = True, nice: int = 0) -> Any:
        argv = [*(("nice", "-n", str(nice)) if nice else ()), sys.executable, *(json.dumps(w) if isinstance(w, dict) else str(w) for w in words)]
        log = (self.folder / f"{name}.log").open("w")
        process = subprocess.Popen(argv, stdout=subprocess.PIPE if answer else log, stderr=log, text=True)
        self._running.append(process)
        if not answer:
            return None
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"{name} did not start: {(self.folder / f'{name}.log').read_text()[-2000:]}")
        return json.loads(line)

    def close(self) -> None:
        for process in reversed(self._running):
            process.kill()
            process.wait()


class Gauges:
    """What the database and the controller say."""

    def __init__(self, parts: Parts) -> None:
        from ischeduler.store.engine import open_engine
        from ischeduler.testing.remote_controller import RemoteController

        self._engine = open_engine(parts.url)
        self._controller = RemoteController(parts.controller, parts.cluster)

    def calls(self) -> dict[str, int]:
        return dict(self._controller.ask("calls"))

    def one(self, query: str) -> Any:
        from sqlalchemy import text

        with self._engine.connect() as connection:
            return connection.execute(text(query)).scalar()

    def active(self) -> int:
        """Runs whose job is with the batch system."""
        return int(self.one("SELECT count(*) FROM runs WHERE state IN ('queued', 'running', 'checkpointing')"))

    def late_s(self) -> float:
        """The longest that a run waits beyond its due time for a worker."""
        late = self.one(
            "SELECT max(extract(epoch FROM clock_timestamp()) - due_at) FROM runs "
            "WHERE state NOT IN ('completed', 'failed', 'cancelled') AND lease_holder = '' AND due_at > 0"
        )
        return max(0.0, float(late or 0.0))

    def versions(self) -> int:
        return int(self.one("SELECT coalesce(sum(version), 0) FROM runs"))

    def events(self) -> int:
        return int(self.one("SELECT coalesce(sum(position), 0) FROM event_lanes"))


def measure(parts: Parts, runs: int, seconds: float, think_s: float, seed: int, *, quiet: bool) -> dict[str, Any]:
    """Each size in turn; the figures."""
    users, gauges = Users(f"http://127.0.0.1:{parts.port}", parts.headers, seed), Gauges(parts)
    metrics: dict[str, Any] = {"users": len(parts.headers), "runs": runs}
    calls: list[float] = []
    looked = delegated = Measured()
    for size in [max(1, round(share * runs)) for share in SHARES]:
        begun = time.monotonic()
        delegated = asyncio.run(users.delegate(size - sum(map(len, users.runs))))
        _fill(gauges, size)
        filled_s = time.monotonic() - begun
        before, saved, events, begun = gauges.calls(), gauges.versions(), gauges.events(), time.monotonic()
        looked = asyncio.run(users.look(seconds, think_s))
        minutes = (time.monotonic() - begun) / 60
        asked = {k: (v - before.get(k, 0)) / minutes for k, v in gauges.calls().items()}
        calls.append(asked.get("observe", 0.0))
        row = {
            "active": gauges.active(), "observe_min": calls[-1], "submit_min": asked.get("submit", 0.0), "saves_s": (gauges.versions() - saved) / minutes / 60,
            "events_s": (gauges.events() - events) / minutes / 60, "late_s": gauges.late_s(), "requests_s": len(looked.all("plan")) / minutes / 60,
            "p50_ms": quantile_ms(looked.all("plan"), 0.5), "p99_ms": quantile_ms(looked.all("plan"), 0.99), "fill_s": filled_s,
        }  # fmt: skip
        if not quiet:
            print("  ".join(f"{k} {v:.4g}" for k, v in row.items()), flush=True)
        metrics |= {f"{name}_{size}": round(value, 2) for name, value in row.items()}
        metrics |= _by_kind(looked, delegated)
    metrics["api_p99_ms"], metrics["api_errors"] = round(quantile_ms(looked.all("plan"), 0.99), 1), len(looked.errors) + len(delegated.errors)
    metrics["controller_looks_min"], metrics["controller_growth"] = round(max(calls), 2), round(max(calls) / max(1e-9, calls[0]), 3)
    return metrics


def _by_kind(looked: Measured, delegated: Measured) -> dict[str, float]:
    found = {f"{kind}_p99_ms": round(quantile_ms(sorted(s), 0.99), 1) for kind, s in looked.latencies_s.items()}
    names = {"delegate_p99_ms": "submit", "plan_p99_ms": "plan"}
    at_first = {name: sorted(delegated.latencies_s[kind]) for name, kind in names.items() if kind in delegated.latencies_s}
    return found | {name: round(quantile_ms(values, 0.99), 1) for name, values in at_first.items()}


def _fill(gauges: Gauges, size: int) -> None:
    """Wait until the runs are with the batch system."""
    until = time.monotonic() + FILL_LIMIT_S
    while gauges.active() < 0.99 * size:
        if time.monotonic() > until:
            raise RuntimeError(f"only {gauges.active()} of {size} runs are active after {FILL_LIMIT_S:.0f} s")
        time.sleep(1.0)


@contextlib.contextmanager
def centre(users: int, workers: int, webs: int = WEBS) -> Iterator[Parts]:
    """Everything up, and away again."""
    from ischeduler.service.ingest.kafka import KafkaSettings
    from ischeduler.testing.broker import throwaway_broker
    from ischeduler.testing.postgres import throwaway_postgres

    folder = Path(tempfile.mkdtemp(prefix="isched-centre-"))
    with throwaway_postgres(durable=True, options="-c max_connections=100 -c shared_buffers=256MB") as postgres, throwaway_broker() as broker:
        broker.make_topics(list(KafkaSettings("").topics()), partitions=2)
        parts: Parts | None = None
        (folder / "service").mkdir()
        try:
            parts = Parts(folder, postgres.new_database(), users, workers, webs, kafka=broker.servers)
            yield parts
        finally:
            if parts is not None:
                parts.close()
            shutil.rmtree(folder, ignore_errors=True)


def _free_port() -> int:
    from ischeduler.testing.broker import free_port

    return free_port()


def main(argv: list[str] | None = None) -> int:
    """0 when both bars are met, 1 when not, 2 on bad input or a missing part."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.centre", description=__doc__)
    parser.add_argument("--users", type=int, default=200)
    parser.add_argument("--runs", type=int, default=5000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--webs", type=int, default=WEBS, help="web processes of the service (serve.workers)")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long each size is measured")
    parser.add_argument("--think", type=float, default=10.0, help="mean seconds between two requests of a user")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    given = parser.parse_args(argv)
    if given.users < 1 or given.runs < 10 or given.workers < 1 or given.webs < 1 or given.seconds < 5 or given.think <= 0:
        parser.error("expected --users, --workers and --webs of 1 or more, --runs of 10 or more, --seconds of 5 or more and a positive --think")
    from ischeduler.testing.broker import BrokerMissing
    from ischeduler.testing.postgres import PostgresMissing

    try:
        with centre(given.users, given.workers, given.webs) as parts:
            metrics = measure(parts, given.runs, given.seconds, given.think, given.seed, quiet=given.json)
    except (BrokerMissing, PostgresMissing) as missing:
        print(missing, file=sys.stderr)
        return 2
    bars = [Bar("api_p99_ms", P99_MS), Bar("api_errors", 0), Bar("controller_looks_min", LOOKS_MIN)]
    if given.runs * SHARES[0] >= MANY:
        bars.append(Bar("controller_growth", GROWTH))
    return finish("centre", metrics, bars, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
