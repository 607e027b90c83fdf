"""A server that freezes while it lives, on the local batch system: a successor takes its place, beside it or, where only one fits, after it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from plane_driver import Silent, SystemClock
from service_parts import ANSWER, Client

from ischeduler.batch.local import LocalBatch
from ischeduler.batch.run_files import SharedRunFiles
from ischeduler.batch.spool_events import SpoolEvents
from ischeduler.core.estimate import Estimate
from ischeduler.core.jobs import Cause, JobState, Resources
from ischeduler.core.plan import Needs, Plan, Segment
from ischeduler.core.run import Run, RunState
from ischeduler.core.service import Service
from ischeduler.core.workload import Workload
from ischeduler.helper.why import explain_run
from ischeduler.plane.availability import availability
from ischeduler.plane.loop import Plane
from ischeduler.store.sql_store import SqlStore

SERVER = ANSWER + """
server = http.server.ThreadingHTTPServer(("", int(sys.argv[1])), Answer)
if not os.path.exists(sys.argv[2]):
    with open(sys.argv[2], "w") as file:
        file.write(str(os.getpid()))
    threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGSTOP)).start()
server.serve_forever()
"""
CORES = {"roomy": 2, "narrow": 1}
"""How many cores each of two batch systems has; the service takes one."""


class Scene:
    """One service on each of the batch systems, under one plane."""

    def __init__(self, folder: Path) -> None:
        clock = SystemClock()
        self.folder = folder
        (folder / "server.py").write_text(SERVER)
        self.batches = {name: LocalBatch(folder / name, clock, cores=cores, name=name, gpus="none") for name, cores in CORES.items()}
        self.store = SqlStore(f"sqlite:///{folder}/store.db")
        self.plane = Plane(self.store, self.batches, SpoolEvents(), clock, Silent(), SharedRunFiles(), owner="me", holder="test")
        for name in CORES:
            self.plane.delegate(self.service(name))

    def service(self, name: str) -> Run:
        nothing = Estimate.exact(0.0, "s", "test")
        service = Service(ready_port=0, ready_url="/", linger_s=0.5, drain_s=1.0, replace_after_s=4.0)
        command = (sys.executable, str(self.folder / "server.py"), "{port}", str(self.folder / f"{name}.froze"))
        workload = Workload(name=name, command=command, directory=str(self.folder), service=service, options={"python": sys.executable})
        plan = Plan(
            number=1, cluster=name, partition="main", node_type="here", workload=workload, resources=Resources(cpus_per_node=1, walltime_s=600.0),
            segments=(Segment(0, 600.0, 590.0, nothing),), needs=Needs(startup=nothing, wait=nothing), run=nothing, wait=nothing, finish=nothing,
            cost=Estimate.exact(0.0, "usd", "test"),
        )  # fmt: skip
        return Run(f"r-{name}", "me", plan, RunState.PLANNED, str(self.folder / "runs" / name), time.time())

    def run(self, name: str) -> Run:
        return self.store.get_run(f"r-{name}")

    def until(self, wish: Callable[[], bool], limit_s: float) -> None:
        end = time.monotonic() + limit_s
        while not wish():
            assert time.monotonic() < end, [(self.run(n).message, [(a.state, a.reason, a.ending) for a in self.run(n).attempts]) for n in CORES]
            self.plane.tick()
            time.sleep(0.2)

    def stop(self) -> None:
        for name in CORES:
            self.plane.cancel(f"r-{name}")
        self.until(lambda: all(self.run(n).state.ended for n in CORES), 40.0)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.stop()


def test_a_frozen_server_is_replaced_beside_it_or_after_it(scene: Scene) -> None:
    scene.until(lambda: all(a is not None and a.serving for a in (scene.run(n).attempt for n in CORES)), 40.0)
    words: dict[str, str] = {}

    def replaced() -> bool:
        for name in CORES:
            run = scene.run(name)
            if len(run.attempts) == 2 and run.attempts[0].ended_seen_at is None and run.attempts[1].job_id:
                words.setdefault(name, explain_run(run, time.time()))
        return all(len(r.attempts) == 2 and r.attempts[1].serving and r.attempts[0].cause is not None for r in map(scene.run, CORES))

    scene.until(replaced, 90.0)
    assert {n: scene.run(n).attempts[0].cause for n in CORES} == {"roomy": Cause.SUPERSEDED, "narrow": Cause.STALLED}
    for name in CORES:
        run = scene.run(name)
        assert run.attempts[1].state is JobState.RUNNING
        assert "The service has not answered in job 1" in words[name]
        with pytest.raises(ProcessLookupError):
            os.kill(int((scene.folder / f"{name}.froze").read_text()), 0)
        found = availability(run, [e for _, e in scene.store.events(run.id)], time.time())
        assert [i.why for i in found.interruptions] == ["it did not answer"]
        assert found.interruptions[0].length_s >= 4.0
        client = Client(Path(run.directory))
        scene.until(lambda c=client: "2.0" in c.who, 20.0)
        client.stop()
    beside, after = (scene.run(n).attempts for n in CORES)
    assert beside[1].started_at < beside[0].ended_at  # type: ignore[operator]
    assert after[1].started_at >= after[0].ended_at  # type: ignore[operator]
