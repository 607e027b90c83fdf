"""The same on a real Slurm, in real time: slurmctld is stopped and started, workers are killed, PostgreSQL goes away.

The training is a chain of hashes, so its result is right only if every step was done exactly once, in order, from the right state.
"""

from __future__ import annotations

import json
import os
import pwd
import random
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import select
from tests.chaos.engine import impatient
from tests.chaos.parts import Postgres, remove
from tests.integration.carried import Carried

from ischeduler.core.errors import IschedError
from ischeduler.core.run import Run, RunState
from ischeduler.sandbox import Sandbox, demo_spec
from ischeduler.store.engine import open_engine
from ischeduler.store.migrate import migrate
from ischeduler.store.sql_store import SqlStore
from ischeduler.store.tables import EVENTS

WORKER = Path(__file__).with_name("slurm_worker.py")
POLICY = {"settle_s": 4.0, "in_flight_s": 12.0, "evidence_s": 2.0, "retry_s": 1.0, "nudge_s": 8.0, "soft_s": 20.0, "stuck_s": 5.0, "site_limit_s": 3.0}
PATIENCE_S = 240.0
LEASE_S = 12.0


class SlurmCentre:
    """A sandbox, a database, and two workers of alice's."""

    def __init__(self, sandbox: Sandbox | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="isched-chaos-", dir="/tmp"))
        self.folder.chmod(0o755)
        self._own = sandbox is None
        self.sandbox = sandbox or Sandbox(demo_spec(cluster_name="chaosbed"), f"t{os.getpid()}x")
        if self._own:
            self.sandbox.up()
        self.postgres = Postgres(self.folder)
        engine = open_engine(self.postgres.url())
        migrate(engine)
        engine.dispose()
        self.store = SqlStore(impatient(open_engine(self.postgres.url())))
        self.workers: list[subprocess.Popen[bytes] | None] = [None, None]
        self.carried: list[Carried] = []
        for number in range(2):
            self.start(number)

    def start(self, number: int) -> None:
        """A worker, where it does not run."""
        running = self.workers[number]
        if running is not None and running.poll() is None:
            return
        entry = pwd.getpwnam(self.sandbox.system_user("alice"))
        home = self.sandbox.home("alice")
        given = {"url": self.postgres.url(), "cluster": self.sandbox.spec.cluster_name, "name": f"w{number}", "lease_s": LEASE_S, "policy": POLICY}
        for name, text in (("slurm_worker.py", WORKER.read_text()), (f"worker{number}.json", json.dumps(given))):
            self.sandbox.run(["tee", str(home / name)], user="alice", stdin=text)
        with (self.folder / "workers.err").open("a") as log:
            self.workers[number] = subprocess.Popen(
                [str(self.sandbox.python), str(home / "slurm_worker.py"), str(home / f"worker{number}.json")], cwd=home,
                env=self.sandbox.user_env("alice"), user=entry.pw_uid, group=entry.pw_gid, extra_groups=[], stdin=subprocess.DEVNULL,
                stdout=log, stderr=log,
            )  # fmt: skip

    def kill(self, number: int) -> None:
        worker = self.workers[number]
        if worker is not None:
            worker.kill()
            worker.wait()

    def delegate(self, name: str, epochs: int) -> Carried:
        """A training of alice's that takes more than one segment when it is long."""
        made = Carried(self.sandbox, name, epochs=epochs, steps=10, step_s=0.25, partition="gpu")
        now = self.store.now()
        owner = self.sandbox.system_user("alice")
        self.store.create_run(Run(name, owner, made.plan(), RunState.PLANNED, str(made.run_directory), now, state_since=now))
        self.carried.append(made)
        return made

    def close(self) -> None:
        for number in range(2):
            self.kill(number)
        self.store.close()
        self.postgres.close()
        for one in self.carried:
            one.stop()
        if self._own:
            self.sandbox.down()
        remove(self.folder)


@dataclass(frozen=True, slots=True)
class _Fault:
    name: str
    hurt: Callable[[], None]
    heal: Callable[[], None]


def _faults(centre: SlurmCentre, dice: random.Random) -> list[_Fault]:
    worker, mode = dice.randrange(2), dice.choice(("fast", "immediate", "kill"))
    slurm = _Fault("restart_slurmctld", centre.sandbox.stop_slurmctld, centre.sandbox.start_slurmctld)
    kill = _Fault("kill_worker", lambda: centre.kill(worker), lambda: centre.start(worker))
    postgres = _Fault("stop_postgres", lambda: centre.postgres.stop(mode), centre.postgres.start)
    return [slurm, *dice.sample([kill, postgres], dice.randint(0, 1))]


def episode(centre: SlurmCentre, number: int, dice: random.Random) -> tuple[list[str], list[str]]:
    """One episode on the real Slurm: the faults' names, and the invariants that broke."""
    made = [centre.delegate(f"c{number}{letter}{time.time_ns() % 10**7}", dice.randint(2, 4)) for letter in "ab"]
    faults = _faults(centre, dice)
    time.sleep(dice.uniform(0.0, 8.0))
    for fault in faults:
        fault.hurt()
    time.sleep(dice.uniform(0.5, 5.0))
    for fault in reversed(faults):
        fault.heal()
    words = [w for one in made for w in _judge(centre, one)]
    return [f.name for f in faults], words


def _judge(centre: SlurmCentre, one: Carried) -> list[str]:
    run = _ended(centre, one.name)
    if run is None or run.state is not RunState.COMPLETED:
        return [f"{one.name}: {'lost' if run is None else f'ended as {run.state}: {run.message}'}"]
    words = [] if one.right() else ["its training did not come out right"]
    one.lines.append({"run": {"attempts": [None] * len(run.attempts)}, "problems": []})
    jobs = Counter(one.jobs())
    words += [f"job {name} was accepted {n} times" for name, n in jobs.items() if n > 1]
    words += [f"{len(jobs)} jobs for {len(run.attempts)} attempts"] if len(jobs) > len(run.attempts) else []
    with centre.store.engine.connect() as connection:
        rows: list[Any] = list(connection.execute(select(EVENTS.c.token, EVENTS.c.seq).where(EVENTS.c.run_id == one.name, EVENTS.c.source == "job")))
    stored = Counter((token, seq) for token, seq in rows)
    words += [f"event {key} was applied {n} times" for key, n in stored.items() if n > 1]
    said = {(e["token"], e["seq"]) for path in (one.run_directory / "events").glob("*.jsonl") for e in map(json.loads, path.read_text().splitlines())}
    words += [f"events {sorted(said - stored.keys())} were not applied"] if said - stored.keys() else []
    return [f"{one.name}: {w}" for w in words]


def _ended(centre: SlurmCentre, run_id: str) -> Run | None:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        try:
            run = centre.store.get_run(run_id)
            if run.state.ended:
                return run
        except IschedError:
            pass  # the database has only just come back
        time.sleep(0.5)
    return None
