"""The Kafka ingest on a real broker and a real PostgreSQL: one effect for each event, whatever stops in between."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
from sqlalchemy import Engine, text

from ischeduler.core.errors import StoreUnavailable
from ischeduler.core.incoming import Claimed, Incoming
from ischeduler.service.ingest.kafka import KafkaIngest, KafkaSettings
from ischeduler.service.ingest.sender import KafkaSender
from ischeduler.store.engine import open_engine
from ischeduler.store.ingest import EventInbox
from ischeduler.store.ingest_read import EventArchive
from ischeduler.store.migrate import migrate
from ischeduler.testing.broker import Broker, BrokerMissing, throwaway_broker
from ischeduler.testing.postgres import PostgresMissing, ThrowawayPostgres, throwaway_postgres

pytestmark = pytest.mark.postgres
RUNS = 8
WITHIN_S = 60.0


@pytest.fixture(scope="module")
def server() -> Iterator[ThrowawayPostgres]:
    try:
        with throwaway_postgres(durable=True) as found:
            yield found
    except PostgresMissing as missing:
        if os.environ.get("CI"):
            pytest.fail(f"CI must run the event tests, but {missing}", pytrace=False)
        pytest.skip(str(missing))


@pytest.fixture
def engine(server: ThrowawayPostgres) -> Iterator[Engine]:
    engine = open_engine(server.url)
    migrate(engine)
    with engine.begin() as connection:
        connection.execute(text("TRUNCATE runs, event_lanes, job_events, telemetry, event_channels, dead_letters CASCADE"))
        for n in range(RUNS):
            connection.execute(
                text("INSERT INTO runs (id, owner, state, version, doc, created_at, updated_at) VALUES (:id, 'u', 'running', 1, :doc, 0, 0)"),
                {"id": f"r-{n}", "doc": json.dumps({"attempts": [{"number": 2, "restarts": 1, "job_id": str(70 + n)}]})},
            )
    yield engine
    engine.dispose()


@pytest.fixture
def broker() -> Iterator[Broker]:
    try:
        with throwaway_broker() as found:
            found.make_topics(list(KafkaSettings("").topics()), partitions=2)
            yield found
    except BrokerMissing as missing:
        if os.environ.get("CI"):
            pytest.fail(f"CI must run the event tests, but {missing}", pytrace=False)
        pytest.skip(str(missing))


@pytest.fixture
def settings(broker: Broker) -> KafkaSettings:
    return KafkaSettings(broker.servers, session_s=3.0, verify_s=1.0, linger_s=0.05, batch_events=64, extra={"log_level": 0, "reconnect.backoff.max.ms": 200})


def events(first: int, last: int, kind: str = "progress") -> list[Incoming]:
    return [
        Incoming(f"r-{n}", "job", "1.0", seq, kind, 1000.0 + seq, json.dumps({"step": seq})) for seq in range(first, last + 1) for n in range(RUNS)
    ]


class Reader:
    """An ingest in a thread of its own."""

    def __init__(self, ingest: KafkaIngest) -> None:
        self.ingest, self._stop, self.failure = ingest, threading.Event(), None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.ingest.run(self._stop.is_set)
        except BaseException as error:
            self.failure = error

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30)
        assert self.failure is None
        assert not self._thread.is_alive()


@pytest.fixture
def read(engine: Engine, settings: KafkaSettings) -> Iterator[Callable[..., Reader]]:
    """Starts readers and stops those still going at the end."""
    going: list[Reader] = []

    def start(sink: EventInbox | None = None, **more: object) -> Reader:
        ingest = KafkaIngest(sink or EventInbox(engine), settings, holder=f"reader-{len(going)}", **more)  # pyright: ignore[reportArgumentType]
        going.append(Reader(ingest))
        return going[-1]

    yield start
    for reader in going:
        reader.stop()


def one(engine: Engine, query: str) -> int:
    with engine.connect() as connection:
        return connection.execute(text(query)).scalar_one()


def until(found: Callable[[], bool], what: str) -> None:
    waiting = threading.Event()
    for _ in range(int(WITHIN_S / 0.1)):
        if found():
            return
        waiting.wait(0.1)
    raise AssertionError(f"not within {WITHIN_S:g} s: {what}")


def stored(engine: Engine) -> int:
    return one(engine, "SELECT count(*) FROM job_events")


def send(settings: KafkaSettings, found: list[Incoming]) -> None:
    with KafkaSender(settings) as sender:
        sender.send(found)
        assert sender.flush(20.0) == 0


def test_each_event_has_one_effect_though_everything_comes_twice(engine: Engine, settings: KafkaSettings, read: Callable[..., Reader]):
    woken: set[str] = set()
    found = [*events(1, 20), *events(21, 21, "exit"), *events(22, 23, "utilisation")]
    send(settings, found)
    send(settings, found)
    reader = read(wake=woken.update)
    until(lambda: reader.ingest.figures.messages == 2 * len(found), "both rounds read")
    assert stored(engine) == 21 * RUNS
    assert one(engine, "SELECT count(*) FROM telemetry") == 2 * RUNS
    assert woken == {f"r-{n}" for n in range(RUNS)}
    assert one(engine, "SELECT sum(position) FROM event_channels") == 2 * len(found)


def test_a_second_reader_shares_the_work_and_takes_over(engine: Engine, settings: KafkaSettings, read: Callable[..., Reader]):
    first = read()
    send(settings, events(1, 5))
    until(lambda: stored(engine) == 5 * RUNS, "the first reader at work")
    second = read()
    until(lambda: len(second.ingest._claims) > 0 and len(first.ingest._claims) > 0, "both have partitions")
    send(settings, events(6, 10))
    until(lambda: stored(engine) == 10 * RUNS, "both at work")
    first.stop()
    send(settings, events(11, 15))
    until(lambda: stored(engine) == 15 * RUNS, "the second has taken over")
    assert second.ingest.figures.repeated == 0
    assert first.ingest.figures.repeated == 0


def test_a_reader_given_up_for_dead_writes_nothing_more(engine: Engine, settings: KafkaSettings, read: Callable[..., Reader]):
    """A zombie: it holds a batch while another reader claims its partitions in the store."""

    class Slow(EventInbox):
        gate, reached = threading.Event(), threading.Event()

        def write(self, *args, **more):  # pyright: ignore[reportIncompatibleMethodOverride]
            self.reached.set()
            self.gate.wait(30)
            return super().write(*args, **more)

    send(settings, events(1, 10))
    slow = Slow(engine)
    zombie = read(slow)
    assert slow.reached.wait(WITHIN_S)
    box = EventInbox(engine)
    with engine.connect() as connection:
        channels = list(connection.execute(text("SELECT name FROM event_channels")).scalars())
    for channel in channels:
        box.claim(channel, "another")
    slow.gate.set()
    until(lambda: zombie.ingest.figures.fenced > 0, "the zombie was refused")
    until(lambda: stored(engine) == 10 * RUNS, "it joined again and read all of it")
    assert zombie.ingest.figures.new == 10 * RUNS


def test_bad_messages_go_aside_with_their_reason(engine: Engine, settings: KafkaSettings, read: Callable[..., Reader]):
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": settings.servers, "log_level": 0})
    bad = [b"", b"{", b'{"v":1}', b"\xff" * 70_000, b"[" * 3000]
    for payload in bad:
        producer.produce("isched.state", payload, key=b"r-1")
    wrong = {"v": 1, "run": "r-1", "token": "1.0", "seq": 1, "t": 1.0, "kind": "exit", "data": {}}
    producer.produce("isched.progress", json.dumps(wrong).encode(), key=b"r-1")
    assert producer.flush(20) == 0
    send(settings, events(1, 1))
    reader = read()
    until(lambda: stored(engine) == RUNS, "the good ones")
    until(lambda: reader.ingest.figures.refused == len(bad) + 1, "the bad ones")
    letters = EventArchive(engine).dead_letters()
    assert {letter.payload_bytes for letter in letters} >= {0, 1, 70_000}
    assert any("kind 'exit' does not belong here" in letter.reason and letter.run_id == "r-1" for letter in letters)


def test_nobody_speaks_for_anothers_run(engine: Engine, settings: KafkaSettings, read: Callable[..., Reader]):
    with KafkaSender(settings, secret="isj_one") as sender:
        sender.send(events(1, 1))
        assert sender.flush(20.0) == 0
    reader = read(admit=lambda shown: {one for one in shown if one == ("r-1", b"isj_one")})
    until(lambda: reader.ingest.figures.messages == RUNS, "all read")
    assert (stored(engine), reader.ingest.figures.refused) == (1, RUNS - 1)
    assert all(b"isj_one" not in letter.payload for letter in EventArchive(engine).dead_letters())


def test_messages_of_the_reference_find_their_run(engine: Engine, settings: KafkaSettings, read: Callable[..., Reader]):
    from confluent_kafka import Producer

    from ischeduler.store.ingest_jobs import JobNamesOfStore

    producer = Producer({"bootstrap.servers": settings.servers, "log_level": 0})
    messages = {
        "performance-messages": {"accuracy": 0.9, "fmeasure": 0.8, "precision": 0.7, "recall": 0.6, "jobId": "73"},
        "progress-messages": {"epochsCompleted": 3, "totalEpochs": 10, "days": 0, "hours": 1, "minutes": 5, "jobId": 73},
        "utilization-messages": {"cpu": {"us": 1.5}, "memory": {"total": 10}, "swap": {"total": 0}, "jobId": "73"},
    }
    for topic, body in messages.items():
        producer.produce(topic, json.dumps(body).encode(), key=b"73")
        producer.produce(topic, json.dumps({**body, "jobId": "nobody's"}).encode())
    assert producer.flush(20) == 0
    reader = read(jobs=JobNamesOfStore(engine))
    until(lambda: reader.ingest.figures.messages == 6, "all read")
    archive = EventArchive(engine)
    ((_, progress),) = [(e.token, e) for e in archive.news({"r-3": {}})["r-3"][0]]
    assert (progress.kind, progress.token, progress.seq) == ("progress", "2.1", 0)
    assert (progress.data["epoch"], progress.data["epochs"], progress.data["minutes"]) == (3, 10, 5)
    assert [p["accuracy"] for _, p in archive.curve("r-3", "performance")] == [0.9]
    assert [p["memory"] for _, p in archive.curve("r-3", "utilisation")] == [{"total": 10}]
    assert reader.ingest.figures.refused == 3


def test_an_outage_of_the_database_is_waited_out(
    engine: Engine, server: ThrowawayPostgres, settings: KafkaSettings, read: Callable[..., Reader]
):
    """PostgreSQL is stopped as by a crash while events come, and comes back."""
    reader = read()
    send(settings, events(1, 3))
    until(lambda: stored(engine) == 3 * RUNS, "before")
    server.stop()
    try:
        send(settings, events(4, 40))
        until(lambda: reader.ingest.figures.pauses > 0, "it reads no further while it cannot write")
        assert reader.ingest.held_s > 0
    finally:
        server.start()
    until(lambda: reader.ingest.figures.new == 40 * RUNS, "after")
    assert (stored(engine), reader.ingest.figures.repeated) == (40 * RUNS, 0)


def test_a_frozen_broker_loses_nothing(engine: Engine, broker: Broker, settings: KafkaSettings, read: Callable[..., Reader]):
    read()
    send(settings, events(1, 3))
    until(lambda: stored(engine) == 3 * RUNS, "before")
    broker.freeze()
    try:
        with KafkaSender(settings) as sender:
            sender.send(events(4, 6))
            assert sender.flush(2.0) > 0  # kept by the sender
            broker.thaw()
            assert sender.flush(20.0) == 0
    finally:
        broker.thaw()
    until(lambda: stored(engine) == 6 * RUNS, "after")


def test_a_broker_that_lost_its_memory_is_filled_again_from_the_source(
    engine: Engine, broker: Broker, settings: KafkaSettings, read: Callable[..., Reader]
):
    """Events 1-6 reached the broker; 4-6 were never read when it died. Sent again, with more, each has one effect."""
    reader = read()
    send(settings, events(1, 3))
    until(lambda: stored(engine) == 3 * RUNS, "before")
    reader.stop()
    send(settings, events(4, 6))
    broker.kill()
    broker.start()
    broker.make_topics(list(settings.topics()), partitions=2)
    send(settings, events(1, 8))  # the spool is the durable source: it sends all it has
    again = read()
    until(lambda: stored(engine) == 8 * RUNS, "after")
    until(lambda: again.ingest.figures.messages == 8 * RUNS, "all of it read")
    assert (again.ingest.figures.new, again.ingest.figures.repeated) == (5 * RUNS, 3 * RUNS)
    assert one(engine, "SELECT max(epoch) FROM event_channels") == 1


def test_nothing_is_read_on_while_its_place_is_in_doubt(monkeypatch: pytest.MonkeyPatch):
    """A message was passed over in a pause, and the database is away: what comes after it must not be written before it."""

    class Away:
        def claim(self, *_: object) -> None:
            raise StoreUnavailable("the database is away.")

    settings = KafkaSettings("127.0.0.1:1", extra={"log_level": 0})
    ingest = KafkaIngest(Away(), settings, holder="test")  # pyright: ignore[reportArgumentType]
    monkeypatch.setattr(ingest, "_topic_ids", lambda topics: dict.fromkeys(topics, "one"))
    monkeypatch.setattr(ingest, "_wait", lambda *_: None)
    monkeypatch.setattr(ingest, "_gather", lambda: pytest.fail("it read on"))
    place = ("isched.state", 0)
    ingest._claims[place] = Claimed("kafka:isched.state:0", 1, 7, 0)
    ingest._given = [SimpleNamespace(topic=place[0], partition=place[1])]
    ingest._claim_anew()
    assert ingest.step() == 0
    assert ingest._claims == {}
    ingest.run(lambda: True)
