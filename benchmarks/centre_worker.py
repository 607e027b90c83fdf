"""Processes of :mod:`benchmarks.centre`: a plane worker, the ingest, the service; each gets its configuration as JSON."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ischeduler.core.run import Run
from ischeduler.plane.workers import Round
from ischeduler.ports import BatchSystem
from ischeduler.testing.remote_controller import RemoteController


class Everybodys:
    """The directory of one simulated controller; each user acts over a connection of their own kind."""

    def __init__(self, address: tuple[str, int], name: str) -> None:
        self._looking = RemoteController(address, name, folders=False)
        self._acting = RemoteController(address, name, folders=False)

    def observer(self, cluster: str) -> BatchSystem | None:
        return self._looking if cluster == self._looking.name else None

    def of(self, owner: str) -> Mapping[str, BatchSystem]:
        return {self._acting.name: self._acting}


class Silent:
    """No notices."""

    def notify(self, run: Run, subject: str, text: str) -> None:
        return None


def worker(given: Mapping[str, Any]) -> None:
    """Carry runs until killed. Without replanners: what is measured is the carrying."""
    import time

    from ischeduler.batch.stored_events import StoredEvents
    from ischeduler.plane.leases import StoreClock
    from ischeduler.plane.workers import Pace, Worker
    from ischeduler.store.engine import open_engine
    from ischeduler.store.ingest_read import EventArchive
    from ischeduler.store.sql_store import SqlStore

    address = (str(given["controller"][0]), int(given["controller"][1]))
    store = SqlStore(given["url"])
    clock = StoreClock(store, time.monotonic, time.sleep)
    made = Worker(
        store, Everybodys(address, given["cluster"]), StoredEvents(EventArchive(open_engine(given["url"]))), clock, Silent(),
        RemoteController(address, given["cluster"], folders=False), name=f"{given['name']}:{os.getpid()}", host=given["name"],
        pid=os.getpid(), pace=Pace(batch=given["batch"]),
    )  # fmt: skip
    made.run_forever(lambda: False, tell)


def tell(done: Round) -> None:
    """Problems, into the log."""
    for words in done.problems:
        print(words, file=sys.stderr, flush=True)


def ingest(given: Mapping[str, Any]) -> None:
    """Read Kafka into the database until killed."""
    from ischeduler.service.ingest.kafka import KafkaIngest, KafkaSettings
    from ischeduler.store.engine import open_engine
    from ischeduler.store.ingest import EventInbox

    settings = KafkaSettings(given["kafka"], extra={"log_level": 0})
    KafkaIngest(EventInbox(open_engine(given["url"])), settings, holder="bench").run(lambda: False)


def service(given: Mapping[str, Any]) -> None:
    """A web process under uvicorn, with a token for each of the users, until killed. Several may share the port."""
    import socket

    import uvicorn

    from ischeduler.testing.service import make_service

    made = make_service(Path(given["folder"]), database=given["url"], more={"ISCHED_PLAN_MAX_AGE": "24h"})
    cluster = next(iter(made.centre.services.batches))
    partition = made.centre.services.sync(cluster).partitions[0].name
    headers = [made.add_user(f"user{n:03}")["Authorization"] for n in range(given["users"])]
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listening.bind(("127.0.0.1", given["port"]))
    config = uvicorn.Config(made.app, log_level="warning", access_log=False)
    server = uvicorn.Server(config)

    def tell() -> None:
        while not server.started:
            threading.Event().wait(0.05)
        print(json.dumps({"cluster": cluster, "partition": partition, "headers": headers}), flush=True)
        os.dup2(2, 1)  # the log goes on in the file; nobody reads the pipe any more

    threading.Thread(target=tell, daemon=True).start()
    server.run(sockets=[listening])


if __name__ == "__main__":
    {"worker": worker, "ingest": ingest, "service": service}[sys.argv[1]](json.loads(sys.argv[2]))
