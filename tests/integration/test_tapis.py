"""A short run carried by the plane over Tapis through walltime limits: tapipy, a tenant at a real address, real processes, and news
that gets lost, comes twice, late and in the wrong order, and a token that expires on the way."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

pytest.importorskip("tapipy", reason="tapipy is not installed")

from carried import CHAIN, chain_value, seconds
from test_service_live import served as served_service

from ischeduler.batch.clocks import SystemClock
from ischeduler.batch.local import LocalBatch
from ischeduler.batch.spool_events import SpoolEvents
from ischeduler.batch.tapis.batch import TapisBatch
from ischeduler.batch.tapis.client import Login, TapisClient
from ischeduler.batch.tapis.files import TapisRunFiles
from ischeduler.batch.tapis.job import Site
from ischeduler.batch.tapis.resources import training_app
from ischeduler.core.estimate import Estimate
from ischeduler.core.jobs import Resources
from ischeduler.core.plan import Needs, Plan, Segment
from ischeduler.core.run import Run, RunState
from ischeduler.core.workload import Workload
from ischeduler.plane.cadence import Cadence
from ischeduler.plane.loop import Plane
from ischeduler.service.tapis_hooks import hook_path
from ischeduler.testing.service import make_service
from ischeduler.testing.tapis_server import LocalRunner, TapisServer, served

SYSTEM = {"id": "sys", "batchLogicalQueues": [{"name": "main", "hpcQueueName": "main", "maxNodeCount": 1, "maxMinutes": 60}]}
PYTHON = str(Path(__import__("sys").executable))


class World:
    """A tenant on this machine. ``news`` is what was delivered."""

    def __init__(self, folder: Path, *, token_s: float = 3600.0) -> None:
        self.folder, self.clock = folder, SystemClock()
        self.local = LocalBatch(folder / "local", self.clock, ({"name": "main", "max_walltime": "1h"},), cores=2)
        self.news: list[tuple[str, dict[str, Any]]] = []
        self.schema_of_shared = shared_schema()
        self.server = TapisServer(
            self.clock, LocalRunner(self.local), folder / "root", users={"alice": "secret"}, systems={"sys": SYSTEM}, token_s=token_s,
            deliver=self.deliver, submit_schema=self.schema_of_shared,
        )  # fmt: skip
        self.server.apps[("isched-train", "1")] = training_app("isched-train", "1", "tapis://sys/app.zip", "sys")
        (folder / "work").mkdir()
        (folder / "work" / "train.py").write_text(CHAIN)

    def deliver(self, url: str, body: dict[str, Any]) -> None:
        """In a thread of its own, as a notifications service does."""
        self.news.append((url, body))
        if url.startswith("http://127.0.0.1"):
            threading.Thread(target=_post, args=(url, body), daemon=True).start()

    def connect(self, url: str, webhook: str = "") -> TapisBatch:
        client = TapisClient(url, "dev", Login("alice", "secret"), self.clock)
        return TapisBatch("tapis-cluster", client, Site("sys"), self.clock, webhook=webhook, python=PYTHON)

    def plan(self, epochs: int, steps: int, step_s: float) -> Plan:
        workload = Workload(
            name="chain", epochs=epochs, samples=steps, batch_size=1, command=(PYTHON, "train.py", str(epochs), str(steps), str(step_s)),
            directory=str(self.folder / "work"), options={"python": PYTHON},
        )  # fmt: skip
        needs = Needs(startup=seconds(1.0, 2.0), checkpoint=seconds(0.1, 0.5), run=seconds(epochs * steps * step_s))
        return Plan(
            number=1, cluster="tapis-cluster", partition="main", node_type="cpu", workload=workload, resources=Resources(walltime_s=60.0), needs=needs,
            segments=(Segment(0, 60.0, 45.0, seconds(1.0, 5.0)),), run=seconds(60.0), wait=seconds(1.0), finish=seconds(60.0),
            cost=Estimate.exact(0.0, "usd", "test"), signal_lead_s=15,
        )  # fmt: skip

    def close(self) -> None:
        for job in self.local.snapshot().jobs:
            self.local.cancel(job.job_id)


def shared_schema() -> Any:
    """The Jobs service's own schema as one more judge, where it is at hand."""
    shared = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "tapis"
    if not shared.exists():
        return None
    from jsonschema import Draft7Validator
    from referencing import Registry, Resource
    from referencing.jsonschema import DRAFT7

    def find(uri: str) -> Any:
        found = json.loads((shared / uri.rpartition("/")[2]).read_text())
        found.pop("$id", None)
        return Resource.from_contents({**found, "$schema": "http://json-schema.org/draft-07/schema#"}, DRAFT7)

    registry: Any = Registry(retrieve=find)  # type: ignore[call-arg]
    return Draft7Validator(find("/SubmitJobRequest.json").contents, registry=registry).validate


def _post(url: str, body: dict[str, Any]) -> None:
    with suppress(httpx2.HTTPError):  # nobody there: lost, as news may be
        httpx2.post(url, json=body, timeout=10)


class Silent:
    def notify(self, run: Any, subject: str, text: str) -> None:
        """Nobody listens."""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, token_s=75.0)
    yield made
    made.close()


def test_a_run_is_carried_over_tapis_with_bad_news_and_an_expired_token(world: World, tmp_path: Path) -> None:
    service = make_service(tmp_path / "service", more={"ISCHED_BATCH_KIND": "local"})
    service.add_user("alice")
    store = service.centre.store
    with served_service(service) as url, served(world.server) as tenant:
        batch = world.connect(tenant, url + hook_path(service.gate.derived, "alice"))
        run_dir = tmp_path / "runs" / "r-tapis"
        run = Run(
            "r-tapis", "alice", world.plan(5, 10, 1.1), RunState.PLANNED, str(run_dir), time.time(), state_since=time.time()
        )
        plane = Plane(
            store, {"tapis-cluster": batch}, SpoolEvents(), world.clock, Silent(), TapisRunFiles(lambda owner: batch), owner="alice", holder="t",
            cadence=Cadence(fast_s=0.5, slow_s=1.0, idle_s=1.0),
        )  # fmt: skip
        plane.delegate(run)
        faults, began, troubled = world.server.faults, time.monotonic(), [False] * 4
        while not store.get_run(run.id).state.ended and time.monotonic() - began < 180:
            plane.tick()
            age_s = time.monotonic() - began
            for index, (at_s, change) in enumerate(
                (
                    (1.0, {"lose": 2, "double": 2}),
                    (8.0, {"fail": 2}),
                    (12.0, {"refuse_tokens": 1}),
                    (20.0, {"hold": True, "reverse": True}),
                )
            ):
                if age_s > at_s and not troubled[index]:
                    troubled[index] = True
                    for name, value in change.items():
                        setattr(faults, name, value)
            time.sleep(0.5)
        world.server.release()
        after = store.get_run(run.id)
        assert after.state is RunState.COMPLETED, (after.message, after.attempts)
        assert [str(a.cause) for a in after.attempts] == ["walltime", "finished"]
        assert (world.folder / "work" / "result.txt").read_text() == chain_value(5, 10), "every step exactly once, in order"
        assert len(world.server.jobs) == len(after.attempts), "one job an attempt"
        assert all(troubled)
        assert world.server.seen["authenticator.create_token"] >= 3, "the token expired on the way and was replaced"
        assert len(world.news) > 5
        assert run_dir.stat().st_mode & 0o777 == 0o700


def test_news_wakes_the_run_and_the_job_s_own_events_arrive_once(world: World, tmp_path: Path) -> None:
    from dataclasses import replace

    from ischeduler.batch.tapis.events import pack_events
    from ischeduler.core.run import Attempt

    service = make_service(tmp_path / "service", more={"ISCHED_BATCH_KIND": "local"})
    service.add_user("alice")
    store = service.centre.store
    run_id = service.run("alice")
    attempt = Attempt(1, f"{run_id}-1", "tapis-cluster", "main", Resources(), 1, job_id="job-1")
    run = store.get_run(run_id)
    store.save_run(replace(run, attempts=(attempt,), state=RunState.RUNNING))
    events = [
        {"v": 1, "run": run_id, "token": "1.0", "seq": n, "t": 5.0, "kind": "progress", "data": {"step": n, "epoch": 0}}
        for n in (1, 2)
    ]
    said = pack_events(events)[0]
    body = {"event": {"type": "jobs.JOB_USER_EVENT.isched", "subject": "job-1", "seriesSeqCount": 7, "data": json.dumps(said)}}
    with served_service(service) as url:
        address = url + hook_path(service.gate.derived, "alice")
        assert [httpx2.post(address, json=body).status_code for _ in range(3)] == [204] * 3
        found, _ = service.centre.services.events.read(store.get_run(run_id))
        assert [(e.kind, e.seq) for e in found] == [("progress", 1), ("progress", 2)]
        assert httpx2.post(url + "/v1/hooks/tapis/alice/" + "0" * 64, json=body).status_code == 404
        assert httpx2.post(url + hook_path(service.gate.derived, "bob").replace("/bob/", "/alice/"), json=body).status_code == 404
        assert httpx2.post(address, json={"no": "news"}).status_code in (400, 422)
        assert httpx2.post(address, content=b"{").status_code in (400, 422)


def test_a_job_tells_its_progress_through_tapis(world: World) -> None:
    """``sendEvent`` from inside a job, by the same push thread as everywhere."""
    from ischeduler.training.push import Pusher
    from ischeduler.training.spool import SpoolWriter
    from ischeduler.training.token import Token

    with served(world.server) as tenant:
        client = TapisClient(tenant, "dev", Login("alice", "secret"), world.clock)
        batch = world.connect(tenant, "urn:nowhere")
        from ischeduler.core.jobs import JobSpec

        spec = JobSpec(
            "r-p-1",
            "p",
            "main",
            Resources(walltime_s=60.0),
            ("sleep", "30"),
            str(world.folder),
            str(world.folder / "p.out"),
            signal_lead_s=None,
        )
        job_id = batch.submit(spec)
        client.call("systems.getSystem", systemId="sys")
        secret = client._tapis.get_access_jwt()
        spool = SpoolWriter(world.folder / "run" / "events" / "1.0.jsonl", "r-p", Token(1))
        for step in range(300):
            spool.emit("progress", step=step, epoch=0, note="x" * 100)
        spool.flush()
        address = f"{tenant}/v3/jobs/{job_id}/sendEvent"
        pusher = Pusher(address, world.folder / "run", "r-p", Token(1), secret=secret, every_s=1.0)
        assert pusher.push_once()
        assert pusher.sent == 300
        batch.cancel(job_id)
    texts = [json.loads(b["event"]["data"])["eventData"] for _, b in world.news if ".JOB_USER_EVENT." in b["event"]["type"]]
    told = [e for text in texts for e in json.loads(text)]
    assert [e["data"]["step"] for e in told] == list(range(300))
    assert len(texts) > 2
