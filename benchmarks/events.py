"""``python -m benchmarks.events [--transport kafka|http] [--outage SECONDS] [...]``: events into PostgreSQL, sustained.

Everything shares two cores: the sender, the Kafka-protocol broker, PostgreSQL (every commit waits for the disk) and one
``isched ingest`` (or the service under uvicorn), as they are shipped. Each event of a run is numbered without a gap, one in
a hundred is sent twice, and at the end every number is looked for: missing and doubled events are bars. With ``--outage`` the
database is stopped, then the broker frozen, for that long each, and events are sent all the while.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from benchmarks.events_producer import TWICE_EVERY, settings
from benchmarks.events_world import CORES, Watched, World, cpu_of_tree_s, use_two_cores, world
from benchmarks.report import AtLeast, Bar, finish
from ischeduler.testing.broker import Broker, BrokerMissing, throwaway_broker
from ischeduler.testing.postgres import PostgresMissing

KAFKA_BAR, HTTP_BAR, MEMORY_BAR_MB = 20_000.0, 2_000.0, 300.0
PARTITIONS = 4
DRAIN_S = 600.0


def main(argv: list[str] | None = None) -> int:
    """The exit code: 0 all bars met, 1 one missed, 2 it could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.events", description=(__doc__ or "").split("\n\n", 1)[1])
    parser.add_argument("--transport", choices=("kafka", "http"), default="kafka")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long events are sent")
    parser.add_argument("--rate", type=float, help="events a second that are sent (kafka: 26000, http: 2600)")
    parser.add_argument("--runs", type=int, help="runs that speak (kafka: 5000, http: 200)")
    parser.add_argument("--readers", type=int, default=2, help="isched ingest processes, sharing the partitions")
    parser.add_argument("--mix", choices=("centre", "plane"), default="centre", help="half telemetry, or all for the plane")
    parser.add_argument("--outage", type=float, default=0.0, metavar="SECONDS", help="stop the database, then the broker, so long")
    parser.add_argument("--no-tokens", action="store_true", help="kafka: trust all who write to the topics")
    parser.add_argument("--no-peers", action="store_true", help="leave the other ways to write out")
    parser.add_argument("--json", action="store_true", dest="as_json")
    asked = parser.parse_args(argv)
    http = asked.transport == "http"
    asked.rate = asked.rate or (2600.0 if http else 26_000.0)
    asked.runs = asked.runs or (200 if http else 5000)
    if asked.seconds <= 0 or asked.rate <= 0 or asked.runs <= 0 or asked.readers <= 0 or asked.outage < 0:
        parser.error("seconds, rate, runs and readers must be above 0, outage not below")
    if not http:
        asked.seconds += 2 * asked.outage
    use_two_cores()
    try:
        with world(asked.runs) as here:
            if http:
                from benchmarks.events_http import measure

                metrics, bars = measure(here, asked)
            else:
                metrics, bars = _kafka(here, asked)
    except (PostgresMissing, BrokerMissing) as missing:
        print(f"cannot measure: {missing}", file=sys.stderr)
        return 2
    return finish(f"events-{asked.transport}", metrics, bars, as_json=asked.as_json)


def _kafka(here: World, asked: argparse.Namespace) -> tuple[dict[str, Any], list[Bar]]:
    with throwaway_broker() as broker:
        broker.make_topics(list(settings(broker.servers).topics()), PARTITIONS)
        figures = _stream(here, broker, asked)
    if not asked.no_peers:
        from benchmarks.events_peers import peers

        figures |= peers(here)
    bars: list[Bar] = [Bar("missing_or_doubled", 0), Bar("reader_peak_rss_mb", MEMORY_BAR_MB), Bar("refused", 0)]
    if asked.outage == 0:
        bars.insert(0, AtLeast("stored_per_s", KAFKA_BAR))
    return figures, bars


def _stream(here: World, broker: Broker, asked: argparse.Namespace) -> dict[str, Any]:
    properties = here.folder / "kafka.properties"
    properties.write_text("log_level=0\nsession.timeout.ms=10000\nreconnect.backoff.max.ms=1000\n")
    properties.chmod(0o600)
    environment = here.environment(
        ISCHED_KAFKA_SERVERS=broker.servers, ISCHED_KAFKA_CONFIG_FILE=str(properties), ISCHED_KAFKA_JOB_TOKENS=str(not asked.no_tokens).lower()
    )
    log = here.folder / "readers.log"
    readers = [Watched(["ischeduler.cli.main", "ingest", "--transport", "kafka", "--json"], environment, log) for _ in range(asked.readers)]
    try:
        until(lambda: _claimed(here) >= PARTITIONS * 4, 60.0, "the readers have their partitions")
        total = int(asked.seconds * asked.rate)
        sent: dict[str, Any] = {}
        database_before_s = here.cpu_s()
        began = time.monotonic()
        sender = threading.Thread(target=lambda: sent.update(_send(broker, asked, total, [] if asked.no_tokens else here.tokens)))
        sender.start()
        outages = _Outages(here, broker, asked.outage, began, asked.seconds)
        lags: list[tuple[float, int]] = []
        expected = total + -(-total // TWICE_EVERY)
        while (done := _stored(here)) is None or done < expected:
            now = time.monotonic() - began
            lags.append((now, done or 0))
            for reader in readers:
                reader.look()
                if not reader.alive:
                    raise RuntimeError(f"a reader ended: {log.read_text(errors='replace')[-800:]}")
            outages.look(now)
            if now > asked.seconds + DRAIN_S:
                raise RuntimeError(f"only {done} of {expected} messages were stored in {now:.0f} s")
            time.sleep(0.25)
        took_s = time.monotonic() - began
        sender.join()
        cpu_s = {"reader": sum(r.cpu_s() for r in readers), "database": here.cpu_s() - database_before_s, "broker": cpu_of_tree_s(broker.pid)}
        done = [r.end()["ingested"] for r in readers]
    finally:
        for reader in readers:
            if reader.alive:
                reader.kill()
    cpu_s["sender"] = sent["cpu_s"]
    cost_us = {f"{name}_cpu_us_per_event": value / total * 1e6 for name, value in cpu_s.items()}
    return {
        "stored_per_s": total / took_s,
        "sent_per_s": total / sent["took_s"],
        "events": total,
        "took_s": took_s,
        "missing_or_doubled": here.wrong(total, asked.runs) + abs(sum(here.count()) - total),
        "repeated_without_effect": sum(d["repeated"] for d in done),
        "refused": sum(d["refused"] for d in done),
        "backlog_most": max((_due(now, asked, total) - got for now, got in lags), default=0),
        "outage_s": asked.outage,
        "waited_for_database_s": sum(d["held_s"] for d in done),
        "reader_peak_rss_mb": max(r.peak_mb for r in readers),
        **cost_us,
        "two_free_cores_would_store_per_s": CORES * 1e6 / sum(cost_us.values()),
        "load_of_the_machine": os.getloadavg()[0],
        "runs": asked.runs,
        "readers": asked.readers,
        "tokens_checked": not asked.no_tokens,
    }


def _due(now: float, asked: argparse.Namespace, total: int) -> int:
    return min(total, int(now * asked.rate))


def _stored(here: World) -> int | None:
    """How far it is; None while the database is away."""
    from ischeduler.core.errors import StoreUnavailable

    try:
        return here.stored()
    except StoreUnavailable:
        return None


def _claimed(here: World) -> int:
    from sqlalchemy import text

    with here.engine.connect() as connection:
        return connection.execute(text("SELECT count(*) FROM event_channels")).scalar_one()


def _send(broker: Broker, asked: argparse.Namespace, total: int, tokens: list[str]) -> dict[str, Any]:
    argv = [
        sys.executable, "-m", "benchmarks.events_producer", "--servers", broker.servers, "--events", str(total), "--rate", str(asked.rate),
        "--runs", str(asked.runs), "--mix", asked.mix, "--prefix", settings(broker.servers).prefix,
    ]  # fmt: skip
    done = subprocess.run(argv, input="\n".join(tokens), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the sender failed: {done.stderr[-500:]}")
    return json.loads(done.stdout)


class _Outages:
    """The database away after a third of the calm time, the broker frozen after two, each for so long and while events are sent."""

    def __init__(self, here: World, broker: Broker, outage_s: float, began: float, seconds: float) -> None:
        calm_s = (seconds - 2 * outage_s) / 3
        events = [(calm_s, here.postgres.stop), (calm_s + outage_s, here.postgres.start)]
        events += [(2 * calm_s + outage_s, broker.freeze), (2 * calm_s + 2 * outage_s, broker.thaw)]
        self._plan = events if outage_s > 0 else []

    def look(self, now: float) -> None:
        """Do what is due."""
        while self._plan and now >= self._plan[0][0]:
            self._plan.pop(0)[1]()


def until(found: Callable[[], bool], within_s: float, what: str) -> None:
    """Wait until it is so. RuntimeError when it takes too long."""
    until = time.monotonic() + within_s
    while not found():
        if time.monotonic() > until:
            raise RuntimeError(f"not within {within_s:g} s: {what}")
        time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main())
