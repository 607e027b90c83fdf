"""``isched ingest``: reads events from Kafka or from spools into the database until told to end."""

from __future__ import annotations

import gc
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ischeduler.core.errors import BadInput, ConfigError, IschedError, StoreUnavailable
from ischeduler.helper.config import Config

if TYPE_CHECKING:
    from ischeduler.service.ingest.kafka import KafkaSettings
    from ischeduler.service.ingest.kafka_batches import Admit
    from ischeduler.wiring import Services

TRANSPORTS = ("kafka", "spool")
SPOOL_EVERY_S = 1.0
KEEP_EVERY_S = 3600.0
_RETRY_MAX_S = 10.0
_GC_EVERY = 200_000


@dataclass(frozen=True, slots=True)
class Ingested:
    """What a reader did: events that were new, those the database had, messages refused, and seconds it waited for the database."""

    transport: str
    new: int
    repeated: int
    refused: int
    held_s: float = 0.0


def ingest(config: Config, transport: str, *, until_idle_s: float | None = None) -> Ingested:
    """Read until SIGTERM or Ctrl-C, or until nothing came for ``until_idle_s`` seconds. Killing it loses and doubles nothing.

    Raises BadInput for another transport, ConfigError for what is not set up.
    """
    from ischeduler.helper.telemetry import telemetry_settings
    from ischeduler.service.telemetry import begin
    from ischeduler.wiring import wire

    if transport not in TRANSPORTS:
        raise BadInput(f"'{transport}' is no transport; expected {' or '.join(TRANSPORTS)}.")
    services = wire(config)
    # A batch is thousands of small tuples and no cycles: with the usual thresholds the collector takes two fifths of the time.
    gc.freeze()
    gc.set_threshold(_GC_EVERY, 50, 100)
    stop = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stop.set())
    telemetry = begin(telemetry_settings(config, "ischeduler-ingest"), services.engine)
    keeper = threading.Thread(target=_keep, args=(services, stop), name="isched-keep", daemon=True)
    keeper.start()
    idle = _Idle(until_idle_s)
    try:
        return (_from_kafka if transport == "kafka" else _from_spools)(services, config, stop, idle)
    finally:
        stop.set()
        keeper.join(5.0)
        telemetry.close()


@dataclass(frozen=True, slots=True)
class RefusedMessage:
    """A message that was put aside: from where, of which run ('' unknown), why, its length, and the beginning of what was sent."""

    at: float
    channel: str
    run: str
    reason: str
    payload_bytes: int
    beginning: str


def refused(config: Config, limit: int) -> list[RefusedMessage]:
    """The last messages that were put aside, oldest first."""
    from ischeduler.store.ingest_read import EventArchive
    from ischeduler.wiring import wire

    letters = EventArchive(wire(config).engine).newest_dead_letters(limit)
    return [
        RefusedMessage(d.received_at, d.channel, d.run_id, d.reason, d.payload_bytes, d.payload[:200].decode("utf-8", "backslashreplace"))
        for d in letters
    ]


def kafka_settings(config: Config) -> KafkaSettings:
    """How Kafka is read. ConfigError when no server is named."""
    from ischeduler.service.ingest.kafka import KafkaSettings

    servers = config["kafka.servers"]
    if not servers:
        raise ConfigError("kafka.servers is not set; name the brokers, e.g. --set kafka.servers=broker1:9092,broker2:9092")
    extra = client_properties(config["kafka.config_file"])
    return KafkaSettings(
        servers, prefix=config["kafka.prefix"], group=config["kafka.group"], reference=config["kafka.reference"], extra=extra
    )


def client_properties(file: str) -> Mapping[str, Any]:
    """``name=value`` lines of librdkafka's own settings from a file of mode 600, where passwords may stand. ConfigError otherwise."""
    from ischeduler.helper.serving import read_secret

    found: dict[str, Any] = {}
    for line in read_secret(file, "kafka.config_file").splitlines():
        name, equals, value = line.strip().partition("=")
        if not name or name.startswith("#"):
            continue
        if not equals:
            raise ConfigError(f"kafka.config_file {file}: expected lines of name=value, one is not.")
        found[name.strip()] = value.strip()
    return found


def make_topics(config: Config, partitions: int, replicas: int = 1) -> list[str]:
    """Create the topics that are missing; their names. ConfigError when the broker does not answer or refuses."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    settings = kafka_settings(config)
    admin = AdminClient({"bootstrap.servers": settings.servers, **settings.extra, "log_level": 0})
    wanted = [NewTopic(name, num_partitions=partitions, replication_factor=replicas) for name in settings.topics()]
    made: list[str] = []
    for name, answer in admin.create_topics(wanted, request_timeout=10.0).items():
        try:
            answer.result()
            made.append(name)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise ConfigError(f"the topic {name} could not be made ({error.args[0].str()}).") from None
    return made


def _from_kafka(services: Services, config: Config, stop: threading.Event, idle: _Idle) -> Ingested:
    from ischeduler.service.ingest.kafka import KafkaIngest
    from ischeduler.store.ingest import EventInbox
    from ischeduler.store.ingest_jobs import JobNamesOfStore

    engine = services.engine
    reader = KafkaIngest(
        EventInbox(engine), kafka_settings(config), holder=_holder(), jobs=JobNamesOfStore(engine),
        wake=getattr(services.store, "wake", None), admit=_admit(services, config),
    )  # fmt: skip

    def ended() -> bool:
        return stop.is_set() or idle.too_long(reader.figures.messages)

    reader.run(ended)
    figures = reader.figures
    return Ingested("kafka", figures.new, figures.repeated, figures.refused, round(reader.held_s, 3))


def _admit(services: Services, config: Config) -> Admit | None:
    """Who may speak for a run, by the tokens of its jobs; None where the topics' writers are trusted."""
    if not config["kafka.job_tokens"]:
        return None
    from ischeduler.helper.serving import key_path
    from ischeduler.service.auth.secrets import Derived, read_key
    from ischeduler.service.auth.tokens import Tokens
    from ischeduler.service.ingest.admission import JobTokens
    from ischeduler.store.credentials import Credentials

    derived = Derived(read_key(key_path(config)))
    return JobTokens(Tokens(Credentials(services.engine, clock=services.clock.now), derived, services.clock))


def _from_spools(services: Services, config: Config, stop: threading.Event, idle: _Idle) -> Ingested:
    from ischeduler.plane.transitions import LIVE
    from ischeduler.service.ingest.spools import SpoolIngest
    from ischeduler.store.ingest import EventInbox

    store = services.store
    reader = SpoolIngest(
        EventInbox(services.engine), lambda: store.list_runs(states=LIVE), holder=_holder(), wake=getattr(store, "wake", None)
    )
    count, held_s, wait_s = 0, 0.0, SPOOL_EVERY_S
    while not stop.is_set() and not idle.too_long(count):
        try:
            count += reader.step()
            wait_s = SPOOL_EVERY_S
        except StoreUnavailable:
            held_s += wait_s
            wait_s = min(_RETRY_MAX_S, wait_s * 2)
        stop.wait(wait_s)
    figures = reader.figures
    return Ingested("spool", figures.new, figures.repeated, figures.refused, round(held_s, 3))


def _keep(services: Services, stop: threading.Event) -> None:
    """Remove what is too old, in one process of all, about once an hour."""
    from ischeduler.store.ingest_keep import Keep, prune

    holder = _holder()
    while not stop.wait(60.0):
        try:
            now = services.clock.now()
            if services.store.acquire_lease("events:keep", holder, KEEP_EVERY_S, now) is not None:
                prune(services.engine, now, Keep())
                stop.wait(KEEP_EVERY_S)
        except IschedError:
            continue  # the next hour is as good


def _holder() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"


class _Idle:
    """Whether nothing came for too long."""

    def __init__(self, limit_s: float | None) -> None:
        self._limit_s, self._count, self._since = limit_s, -1, time.monotonic()

    def too_long(self, count: int) -> bool:
        if count != self._count:
            self._count, self._since = count, time.monotonic()
        return self._limit_s is not None and time.monotonic() - self._since > self._limit_s
