"""Reads events from Kafka into the store, each with exactly one effect.

The store's offsets count, not the group's: a batch and how far it goes are one transaction, and whoever is given a partition
claims it in the store and goes on from there. The claim's generation fences off a reader that was given up for dead.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

from ischeduler.core import meters
from ischeduler.core.errors import ConfigError, StoreUnavailable
from ischeduler.core.incoming import Claimed, Fenced, Incoming, Mark, Refused, Written
from ischeduler.ports import EventSink
from ischeduler.service.ingest.messages import STREAMS, Malformed, numbered, read_event, read_reference
from ischeduler.service.ingest.shapes import REFERENCE

T = TypeVar("T")
log = logging.getLogger(__name__)
_SLICE, _SLICE_S = 500, 0.05
_HOLD_FIRST_S, _HOLD_MAX_S = 0.25, 5.0
_ASK_S = 5.0


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Where and how to read. ``extra`` are librdkafka's own settings (TLS, SASL); they go before ours.

    A batch ends at ``batch_events`` or ``batch_bytes``, or ``linger_s`` after its first message. ``prefetch_bytes`` is what
    the client holds of unread messages at most.
    """

    servers: str
    prefix: str = "isched."
    group: str = "isched-ingest"
    reference: bool = True
    batch_events: int = 5000
    batch_bytes: int = 8 << 20
    linger_s: float = 0.2
    prefetch_bytes: int = 16 << 20
    session_s: float = 10.0
    verify_s: float = 15.0
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    def topics(self) -> dict[str, str]:
        """Topic to what it carries: one of STREAMS, or of REFERENCE."""
        own = {f"{self.prefix}{stream}": stream for stream in STREAMS}
        return own | ({name: name for name in REFERENCE} if self.reference else {})

    def consumer(self) -> dict[str, Any]:
        """The client's configuration."""
        return {
            "bootstrap.servers": self.servers, "group.id": self.group, "enable.auto.commit": False, "auto.offset.reset": "error",
            "session.timeout.ms": int(self.session_s * 1000), "heartbeat.interval.ms": max(100, int(self.session_s * 100)),
            "queued.max.messages.kbytes": self.prefetch_bytes >> 10, "queued.min.messages": 20_000,
            "fetch.message.max.bytes": 1 << 20, "topic.metadata.refresh.interval.ms": 10_000,
            "allow.auto.create.topics": False, **self.extra,
        }  # fmt: skip


class JobNames(Protocol):
    """Whose job a batch system's id is."""

    def find(self, jobs: Iterable[str]) -> Mapping[str, tuple[str, str]]:
        """Run and token of each job that is known and no other's namesake."""
        ...


Admit = Callable[[str, bytes | None], bool]
"""Whether this secret (the message's header ``isched-token``) may speak for that run."""


@dataclass(slots=True)
class Figures:
    """What a reader did since its start."""

    messages: int = 0
    new: int = 0
    repeated: int = 0
    refused: int = 0
    batches: int = 0
    held_s: float = 0.0
    fenced: int = 0


@dataclass(slots=True)
class _Part:
    """What a batch holds of one partition."""

    claimed: Claimed
    position: int
    events: list[Incoming] = field(default_factory=list[Incoming])
    refused: list[Refused] = field(default_factory=list[Refused])


class KafkaIngest:
    """One member of the group. Run as many as there are partitions at most, each in a process of its own.

    ``wake`` is told of runs that should be looked at soon. ``admit`` None takes everybody's word: then only those who may
    write to the topics must be trusted with every run. Raises ConfigError where the client is not installed.
    """

    def __init__(
        self, sink: EventSink, settings: KafkaSettings, *, holder: str, jobs: JobNames | None = None,
        wake: Callable[[frozenset[str]], None] | None = None, admit: Admit | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        try:
            from confluent_kafka import Consumer
        except ImportError:
            raise ConfigError("Kafka needs its client; install it with: pip install 'ischeduler[kafka]'.") from None
        self._sink, self._settings, self._holder, self._jobs = sink, settings, holder, jobs
        self._wake, self._admit, self._clock = wake, admit, clock
        self._topics = settings.topics()
        self._claims: dict[tuple[str, int], Claimed] = {}
        self._given: list[Any] = []
        self._claim_wanted = False
        self._out_of_range: set[tuple[str, int]] = set()
        self._verify_at = 0.0
        self.figures = Figures()
        self._consumer = Consumer(settings.consumer() | {"error_cb": self._on_error}, logger=log)
        self._subscribe()

    def run(self, stop: Callable[[], bool]) -> None:
        """Read until ``stop`` says so. An outage of the broker or the database is waited out; nothing is lost by it."""
        try:
            while not stop():
                self.step(stop)
        finally:
            self._consumer.close()

    def step(self, stop: Callable[[], bool] = lambda: False) -> int:
        """One batch, or a short wait when there is nothing; how many messages it had."""
        if self._claim_wanted:
            self._claim_all(stop)
        elif time.monotonic() >= self._verify_at:
            self._verify()
        messages = self._gather()
        if messages:
            self._store(self._patiently(partial(self._parts, messages), stop) or {}, stop)
        return len(messages)

    def _subscribe(self) -> None:
        self._consumer.subscribe(
            list(self._topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
        )

    def _on_assign(self, consumer: Any, partitions: list[Any]) -> None:
        # Nothing is fetched before the store has told where to begin; the database may be away just now.
        self._given, self._claim_wanted = list(partitions), True
        consumer.assign([])

    def _on_revoke(self, consumer: Any, partitions: list[Any]) -> None:
        self._claims.clear()
        self._given, self._claim_wanted = [], False
        consumer.unassign()

    def _on_error(self, error: Any) -> None:
        log.info("the Kafka client says: %s", error)
        self._verify_at = 0.0

    def _claim_all(self, stop: Callable[[], bool]) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        given = self._given
        try:
            ids = self._topic_ids(sorted({p.topic for p in given}))
            claims = {(p.topic, p.partition): self._claim(p.topic, p.partition, ids[p.topic]) for p in given}
        except (StoreUnavailable, KafkaException) as error:
            log.warning("partitions cannot be claimed yet (%s)", error)
            self._wait(_HOLD_FIRST_S, stop)
            return
        if self._given is not given:
            return  # given others meanwhile
        self._claims, self._claim_wanted = claims, False
        self._consumer.assign([TopicPartition(t, p, c.position) for (t, p), c in claims.items()])
        self._verify_at = time.monotonic() + self._settings.verify_s

    def _claim(self, topic: str, partition: int, topic_id: str) -> Claimed:
        claimed = self._sink.claim(channel_of(topic, partition), self._holder, topic_id)
        if (topic, partition) not in self._out_of_range:
            return claimed
        # Retention went past us, or the log was cut: begin with what is there. What is sent again is stored once all the same.
        from confluent_kafka import TopicPartition

        low, _ = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_ASK_S, cached=False)
        log.error("%s holds nothing at %d any more, it begins at %d", claimed.channel, claimed.position, low)
        self._out_of_range.discard((topic, partition))
        return self._sink.restart(claimed, low)

    def _topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """A topic that was made anew, or whose broker lost its memory, has another id: its offsets mean nothing any more."""
        from confluent_kafka import TopicCollection
        from confluent_kafka.admin import AdminClient

        if not topics:
            return {}
        admin = AdminClient({"bootstrap.servers": self._settings.servers, **self._settings.extra}, logger=log)
        answers = admin.describe_topics(TopicCollection(list(topics)), request_timeout=_ASK_S)
        return {name: str(answer.result().topic_id or "") for name, answer in answers.items()}

    def _verify(self) -> None:
        """Have the topics' logs begun anew under our feet?"""
        from confluent_kafka import KafkaException

        self._verify_at = time.monotonic() + self._settings.verify_s
        known = {topic: c.incarnation for (topic, _), c in self._claims.items()}
        try:
            now = self._topic_ids(sorted(known))
        except KafkaException:
            return  # away: the next look tells
        if any(now[topic] and known[topic] and now[topic] != known[topic] for topic in known):
            self._claim_wanted = True

    def _gather(self) -> list[Any]:
        settings = self._settings
        found: list[Any] = []
        size, until = 0, 0.0
        while len(found) < settings.batch_events and size < settings.batch_bytes:
            some = self._consumer.consume(min(_SLICE, settings.batch_events - len(found)), _SLICE_S if found else settings.linger_s)
            if some and not found:
                until = time.monotonic() + settings.linger_s
            found += some
            size += sum(map(len, some))
            if self._claim_wanted or not some or time.monotonic() >= until:
                break
        return found

    def _parts(self, messages: Iterable[Any]) -> dict[str, _Part]:
        """Events and refusals by channel. What comes from a partition that is not claimed is left to who has it."""
        from confluent_kafka import KafkaError

        parts: dict[str, _Part] = {}
        by_place: dict[tuple[str, int], _Part] = {}
        pending: list[tuple[_Part, Any, int, float]] = []
        for message in messages:
            error = message.error()
            if error is not None:
                if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                    self._out_of_range.add((message.topic(), message.partition()))
                    self._claim_wanted = True
                continue
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            part = by_place.get((topic, partition))
            if part is None:
                claimed = self._claims.get((topic, partition))
                if claimed is None:
                    continue
                part = by_place[topic, partition] = parts[claimed.channel] = _Part(claimed, offset)
            part.position = offset + 1
            self._sort_in(part, self._topics[topic], message, pending)
        self._name_jobs(pending)
        return parts

    def _sort_in(self, part: _Part, stream: str, message: Any, pending: list[tuple[_Part, Any, int, float]]) -> None:
        payload = message.value() or b""
        if stream in REFERENCE:
            read = read_reference(stream, payload)
            if not isinstance(read, Malformed):
                pending.append((part, read, message.offset(), message.timestamp()[1] / 1000))
                return
        else:
            read = read_event(payload, STREAMS[stream])
            if isinstance(read, Incoming):
                if self._admit is None or self._admit(read.run, _secret_of(message)):
                    part.events.append(read)
                    return
                read = Malformed("its token may not speak for this run", read.run)
        part.refused.append(Refused(f"{part.claimed.channel}@{message.offset()}", read.reason, payload, read.run))

    def _name_jobs(self, pending: Sequence[tuple[_Part, Any, int, float]]) -> None:
        if not pending:
            return
        found = self._jobs.find({read.job for _, read, _, _ in pending}) if self._jobs is not None else {}
        for part, read, offset, sent_at in pending:
            where = found.get(read.job)
            if where is None:
                reason = f"no run under way has the job '{read.job[:60]}', or several have"
                part.refused.append(Refused(f"{part.claimed.channel}@{offset}", reason, read.data.encode()))
                continue
            source = f"{part.claimed.channel[-48:]}:{part.claimed.epoch}"
            part.events.append(numbered(read, where[0], where[1], source, offset + 1, max(0.0, sent_at)))

    def _store(self, parts: dict[str, _Part], stop: Callable[[], bool]) -> None:
        """Write until it is written, without those parts that others have taken over."""
        while parts:
            write = partial(_write, self._sink, list(parts.values()))
            try:
                with meters.timed("isched_ingest_batch_seconds"):
                    written = self._patiently(write, stop)
                if written is not None:
                    self._count(written)
                return
            except Fenced as fenced:
                log.warning("%s", fenced)
                self.figures.fenced += 1
                parts = {name: part for name, part in parts.items() if name not in fenced.channels}
                self._claims = {place: c for place, c in self._claims.items() if c.channel not in fenced.channels}
                self._consumer.unsubscribe()
                self._subscribe()

    def _patiently(self, call: Callable[[], T], stop: Callable[[], bool]) -> T | None:
        """What the call returns, tried until the database answers; None when told to stop first."""
        wait_s, held = _HOLD_FIRST_S, False
        try:
            while not stop():
                try:
                    return call()
                except StoreUnavailable as error:
                    if not held:
                        log.warning("events wait for the database (%s)", error)
                        self._consumer.pause(self._consumer.assignment())
                        held = True
                    self._wait(wait_s, stop)
                    wait_s = min(_HOLD_MAX_S, wait_s * 2)
            return None
        finally:
            if held:
                self._consumer.resume(self._consumer.assignment())

    def _wait(self, wait_s: float, stop: Callable[[], bool]) -> None:
        """Stay a member of the group while waiting; paused, it hands out no message."""
        began = time.monotonic()
        while not stop() and (left_s := began + wait_s - time.monotonic()) > 0:
            for message in self._consumer.consume(1, min(0.2, left_s)):
                if message.error() is None:  # a rebalance has ended the pause: read it again from the store's position
                    self._claim_wanted = True
        self.figures.held_s += time.monotonic() - began

    def _count(self, written: Written) -> None:
        figures = self.figures
        figures.new += written.new
        figures.repeated += written.repeated
        figures.refused += written.refused
        figures.messages += written.new + written.repeated + written.refused
        figures.batches += 1
        meters.count("isched_events_ingested_total", written.new, transport="kafka")
        meters.count("isched_events_duplicate_total", written.repeated, transport="kafka")
        meters.count("isched_events_dead_total", written.refused, transport="kafka", reason="malformed")
        if self._wake is not None and written.runs:
            try:
                self._wake(written.runs)
            except StoreUnavailable:
                log.info("runs could not be woken; the plane looks at them in its time")


def _write(sink: EventSink, parts: Iterable[_Part]) -> Written:
    events: list[Incoming] = []
    refused: list[Refused] = []
    marks: list[Mark] = []
    for part in parts:
        events += part.events
        refused += part.refused
        marks.append(Mark(part.claimed.channel, part.claimed.generation, part.position))
    return sink.write(events, refused, marks)


def channel_of(topic: str, partition: int) -> str:
    """The store's name for a partition."""
    return f"kafka:{topic}:{partition}"


def _secret_of(message: Any) -> bytes | None:
    for name, value in message.headers() or ():
        if name == "isched-token":
            return value
    return None
