"""Events by HTTP into the real application: from a job's own pusher, refused one by one, and told to come back when it is too much."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the service's libraries are not installed")

from fastapi.testclient import TestClient

from ischeduler.batch.stored_events import StoredEvents
from ischeduler.core.errors import StoreUnavailable
from ischeduler.core.incoming import Incoming, Written
from ischeduler.service.backend import Busy
from ischeduler.service.ingest.funnel import Funnel
from ischeduler.service.ingest.http import IngestSettings
from ischeduler.store.ingest_read import EventArchive
from ischeduler.testing.broker import free_port
from ischeduler.testing.service import TestService, make_service
from ischeduler.training.push import Pusher
from ischeduler.training.spool import SpoolWriter
from ischeduler.training.token import Token


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> TestService:
    limits = IngestSettings(rate=10.0, burst=3000.0, trust_s=0.0)
    return make_service(tmp_path_factory.mktemp("service"), extra={"ingest": limits})


@pytest.fixture(scope="module")
def client(service: TestService) -> Iterator[TestClient]:
    with TestClient(service.app, raise_server_exceptions=False) as found:
        yield found


@pytest.fixture(scope="module")
def alice(service: TestService) -> dict[str, str]:
    return service.add_user("alice")


@pytest.fixture
def run(service: TestService, alice: dict[str, str]) -> str:
    return service.run("alice")


@pytest.fixture
def job(client: TestClient, alice: dict[str, str], run: str) -> dict[str, str]:
    """A job's own credential."""
    return {"Authorization": f"Bearer {client.post(f'/v1/runs/{run}/token', headers=alice).json()['token']}"}


def event(run: str, seq: int, kind: str = "progress", **data: Any) -> dict[str, Any]:
    return {"v": 1, "run": run, "token": "1.0", "seq": seq, "t": 1000.0 + seq, "kind": kind, "data": data}


def post(client: TestClient, run: str, who: dict[str, str], *events: Any, **body: Any) -> Any:
    return client.post(f"/v1/runs/{run}/events", json={"run": run, "events": list(events), **body}, headers=who)


def stored(service: TestService, run: str) -> list[int]:
    events, _ = StoredEvents(EventArchive(service.centre.engine)).read(service.centre.store.get_run(run))
    return [e.seq for e in events]


def test_a_job_sends_its_events_and_again(service: TestService, client: TestClient, run: str, job: dict[str, str]):
    first = post(client, run, job, event(run, 1, step=1), event(run, 2, step=2))
    assert (first.status_code, first.json()) == (200, {"run": run, "accepted": 2, "refused": [], "refused_count": 0})
    assert post(client, run, job, event(run, 2, step=2), event(run, 3, step=3)).json()["accepted"] == 2
    assert stored(service, run) == [1, 2, 3]


def test_one_bad_event_is_refused_alone(service: TestService, client: TestClient, run: str, job: dict[str, str]):
    bad = [{"v": 1}, event("r-other", 1), event(run, 0), event(run, 4, step="far"), 7, event(run, 5, text="a\0b"), event(run, 6, x="y" * 70_000)]
    answer = post(client, run, job, event(run, 1), *bad, event(run, 2))
    assert (answer.status_code, answer.json()["accepted"], answer.json()["refused_count"]) == (200, 2, len(bad))
    assert [r["index"] for r in answer.json()["refused"]] == list(range(1, len(bad) + 1))
    assert stored(service, run) == [1, 2]
    assert len(EventArchive(service.centre.engine).dead_letters(run_id=run)) == len(bad)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"events": {}}', b'{"run": "r-other", "events": []}', b"\xff", b"[" * 10_000])
def test_a_body_that_is_none_is_refused_for_good(client: TestClient, run: str, job: dict[str, str], body: bytes):
    answer = client.post(f"/v1/runs/{run}/events", content=body, headers=job)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"


def test_nobody_sends_for_anothers_run(service: TestService, client: TestClient, run: str, job: dict[str, str]):
    other = service.run("alice")
    bob = service.add_user("bob")
    assert post(client, other, job, event(other, 1)).status_code == 404
    assert post(client, run, bob, event(run, 1)).status_code == 404
    assert post(client, run, {}, event(run, 1)).status_code == 401
    assert post(client, run, {"Authorization": "Bearer isj_0123456789abcdef_" + "A" * 43}, event(run, 1)).status_code == 401
    assert stored(service, run) == stored(service, other) == []


def test_too_many_are_told_when_to_come_again(service: TestService, client: TestClient, run: str, job: dict[str, str]):
    many = [event(run, n) for n in range(1, 2001)]
    assert post(client, run, job, *many).status_code == 200
    answer = post(client, run, job, *many)
    assert answer.status_code == 429
    assert int(answer.headers["Retry-After"]) > 0
    assert post(client, run, job, *[event(run, n) for n in range(5001)]).status_code == 422


def test_a_body_beyond_all_measure_is_cut_off(client: TestClient, run: str, job: dict[str, str]):
    assert client.post(f"/v1/runs/{run}/events", content=b" " * (9 << 20), headers=job).status_code == 413


def test_an_outage_of_the_database_says_come_again(client: TestClient, service: TestService, run: str, job: dict[str, str], monkeypatch: pytest.MonkeyPatch):
    funnel = service.app.state.ingest.funnel

    class Away:
        def write(self, *_: Any) -> Written:
            raise StoreUnavailable("the database is away; try again.")

    with monkeypatch.context() as patch:
        patch.setattr(funnel, "_sink", Away())
        answer = post(client, run, job, event(run, 1))
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert post(client, run, job, event(run, 1)).status_code == 200
    assert stored(service, run) == [1]


def test_a_jobs_own_pusher_reaches_the_service(service: TestService, run: str, client: TestClient, job: dict[str, str], tmp_path: Path):
    """The wrapper's code, over a real socket: what is written to the spool arrives, once, in order."""
    import uvicorn

    token = Token(1, 0)
    spool = SpoolWriter(tmp_path / "events" / "1.0.jsonl", run, token)
    spool.emit("started", job_id="7")
    for step in range(450):
        spool.emit("progress", step=step)
    config = uvicorn.Config(service.app, host="127.0.0.1", port=free_port(), log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        url = f"http://127.0.0.1:{config.port}/v1/runs/{run}/events"
        secret = job["Authorization"].removeprefix("Bearer ")
        pusher = Pusher(url, tmp_path, run, token, secret=secret, every_s=0.1)
        arrived = threading.Event()
        for _ in range(100):
            if pusher.push_once():
                break
            arrived.wait(0.1)
        assert pusher.sent == 451
        again = Pusher(url, tmp_path, run, token, secret=secret, every_s=0.1)
        assert again.push_once()
    finally:
        server.should_exit = True
        thread.join(20)
    assert stored(service, run) == list(range(1, 452))


class Recording:
    """A sink that notes how much came at once, and may be held."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.gate = threading.Event()
        self.gate.set()
        self.reached = threading.Event()

    def write(self, events: Any, refused: Any = (), marks: Any = ()) -> Written:
        self.reached.set()
        self.gate.wait(30)
        self.sizes.append(len(events))
        return Written(len(events), runs=frozenset(e.run for e in events))


def incoming(seq: int) -> Incoming:
    return Incoming("r-1", "job", "1.0", seq, "exit", 1.0, json.dumps({}))


def test_what_arrives_during_a_commit_goes_together_and_no_more_than_fits_waits():
    sink, woken = Recording(), set[str]()

    async def scene() -> None:
        funnel = Funnel(sink, wake=woken.update, most_waiting=10)  # pyright: ignore[reportArgumentType]
        await funnel.start()
        sink.gate.clear()
        first = asyncio.create_task(funnel.put([incoming(1)]))
        assert await asyncio.to_thread(sink.reached.wait, 30)
        rest = [asyncio.create_task(funnel.put([incoming(n)])) for n in range(2, 11)]
        while funnel.waiting < 10:
            await asyncio.sleep(0)
        with pytest.raises(Busy):
            await funnel.put([incoming(11)])
        sink.gate.set()
        await asyncio.gather(first, *rest)
        assert funnel.waiting == 0
        await funnel.stop()
        with pytest.raises(Busy):
            await funnel.put([incoming(12)])

    asyncio.run(scene())
    assert sink.sizes == [1, 9]
    assert woken == {"r-1"}
