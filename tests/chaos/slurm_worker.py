"""A plane worker of an ordinary user on a real Slurm, in real time: ``python slurm_worker.py CONFIG.json``. It runs until killed."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from ischeduler.batch.run_files import SharedRunFiles
from ischeduler.batch.slurm_cli import SlurmCli
from ischeduler.batch.spool_events import SpoolEvents
from ischeduler.core.errors import IschedError
from ischeduler.core.run import Run
from ischeduler.plane.cadence import Cadence
from ischeduler.plane.leases import StoreClock
from ischeduler.plane.policy import Policy
from ischeduler.plane.workers import Pace, Round, Worker
from ischeduler.ports import BatchSystem
from ischeduler.store.sql_store import SqlStore


class OneSlurm:
    """This user's own Slurm commands."""

    def __init__(self, cluster: str) -> None:
        self._slurm = SlurmCli(cluster)

    def observer(self, cluster: str) -> BatchSystem | None:
        return self._slurm if cluster == self._slurm.name else None

    def of(self, owner: str) -> Mapping[str, BatchSystem]:
        return {self._slurm.name: self._slurm}


class Silent:
    """No notices."""

    def notify(self, run: Run, subject: str, text: str) -> None:
        return None


def opened(url: str) -> SqlStore:
    """The store, once it answers."""
    while True:
        try:
            return SqlStore(url)
        except IschedError:
            time.sleep(0.2)


def tell(done: Round) -> None:
    """Problems, for a test's report."""
    for words in done.problems:
        print(words, file=sys.stderr, flush=True)


def main() -> None:
    given = json.loads(Path(sys.argv[1]).read_text())
    store = opened(given["url"])
    pace = Pace(look_s=1.0, lease_ttl_s=given["lease_s"], cadence=Cadence(fast_s=0.5, slow_s=2.0, idle_s=5.0))
    worker = Worker(
        store, OneSlurm(given["cluster"]), SpoolEvents(), StoreClock(store, time.monotonic, time.sleep), Silent(), SharedRunFiles(),
        name=f"{given['name']}:{os.getpid()}", policy=Policy(**given["policy"]), pace=pace,
    )  # fmt: skip
    worker.run_forever(lambda: False, tell)


if __name__ == "__main__":
    main()
