"""A web server kept up over several jobs on the real Slurm; a client that knows its endpoint file alone tells whether it was."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from carried import Carried
from service_parts import SERVER, Client

from ischeduler.core.codec import from_plain
from ischeduler.core.event import Event
from ischeduler.core.run import Run
from ischeduler.core.service import Service
from ischeduler.plane.availability import Availability, availability
from ischeduler.sandbox import Sandbox
from ischeduler.store.sql_store import SqlStore

TOLERANCE_S = 1.0
"""Between what the client saw and what the report says: it asks five times a second, and an outage begins before the next question."""


class Served(Carried):
    """A run of alice's that serves instead of training; it fails once by itself, early in its first job."""

    def plan(self, **changes: Any) -> Any:
        made = super().plan()
        python = str(self.sandbox.python)
        service = Service(ready_port=0, ready_url="/", linger_s=2.0, drain_s=3.0)
        command = (python, "train.py", "{port}", "0.3", str(self.work / "failed"))
        return replace(made, workload=replace(made.workload, command=command, service=service), **changes)

    def measured(self) -> Availability:
        """What ``isched report`` says of it."""
        store = SqlStore(f"sqlite:///{self.work}/store.db")
        run: Run = store.get_run(self.name)
        events: list[Event] = [event for _, event in store.events(self.name)]
        return availability(run, events, time.time())


@pytest.fixture
def served(slurm: Sandbox) -> Iterator[Served]:
    run = Served(slurm, "served", script=SERVER, partition="cpu", node_type="cpu-4c-8g", memory_bytes=None)
    yield run
    run.stop()


def test_a_server_is_up_over_three_jobs_and_its_one_failure_is_what_the_client_saw(served: Served, slurm: Sandbox) -> None:
    served.start(limit_s=200.0)
    client = Client(served.run_directory)
    served.until(lambda r: len(r["attempts"]) >= 3 and r["attempts"][2]["serving"], 150.0)
    served.until(lambda r: all(a["ended_seen_at"] for a in r["attempts"][:2]), 60.0)
    client.stop()
    found, run = served.measured(), from_plain(Run, served.run)
    assert [w.split(".")[0] for w in client.who[-3:]] == ["1", "2", "3"]
    assert found.handovers == 2
    assert found.restarts == 1
    assert [i.why for i in found.interruptions] == ["it failed and was started again (exit code 7)"]
    assert len(client.outages_s) == 1
    assert client.outages_s[0] == pytest.approx(found.interrupted_s, abs=TOLERANCE_S)
    assert found.endpoint == run.attempts[2].endpoint
    assert found.up_share is not None
    assert found.up_share > 0.9
    assert {a.cause for a in run.attempts[:2]} <= {"superseded", "walltime"}
