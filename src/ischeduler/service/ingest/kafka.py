"""Reads events from Kafka into the store, each with exactly one effect.

The store's offsets count, not the group's: a batch and how far it goes are one transaction, and whoever is given a partition
claims it in the store and goes on from there. The claim's generation fences off a reader that was given up for dead.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ischeduler.core import meters
from ischeduler.core.errors import ConfigError, StoreUnavailable
from ischeduler.core.incoming import Claimed, Written
from ischeduler.ports import EventSink
from ischeduler.service.ingest.kafka_batches import Admit, JobNames, Part, Place, Sorter
from ischeduler.service.ingest.messages import STREAMS
from ischeduler.service.ingest.shapes import REFERENCE
from ischeduler.service.ingest.writer import Writer

log = logging.getLogger(__name__)
_SLICE, _SLICE_S = 500, 0.05
_HOLD_S, _OFFER_S, _DRAIN_S, _END_S = 1.0, 1.0, 2.0, 10.0
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


@dataclass(slots=True)
class Figures:
    """What a reader did since its start."""

    messages: int = 0
    new: int = 0
    repeated: int = 0
    refused: int = 0
    batches: int = 0
    pauses: int = 0
    fenced: int = 0


class KafkaIngest:
    """One member of the group. Run as many as there are partitions at most, each in a process of its own.

    ``wake`` is told of runs that should be looked at soon. ``admit`` None takes everybody's word: then only those who may
    write to the topics must be trusted with every run. Raises ConfigError where the client is not installed.
    """

    def __init__(
        self, sink: EventSink, settings: KafkaSettings, *, holder: str, jobs: JobNames | None = None,
        wake: Callable[[frozenset[str]], None] | None = None, admit: Admit | None = None,
    ) -> None:  # fmt: skip
        try:
            from confluent_kafka import Consumer
        except ImportError:
            raise ConfigError("Kafka needs its client; install it with: pip install 'ischeduler[kafka]'.") from None
        self._sink, self._settings, self._holder, self._wake = sink, settings, holder, wake
        self._topics = settings.topics()
        self._sorter, self._writer = Sorter(self._topics, jobs, admit), Writer(sink, self._count)
        self._claims: dict[Place, Claimed] = {}
        self._given: list[Any] = []
        self._claim_wanted = False
        self._out_of_range: set[tuple[str, int]] = set()
        self._verify_at = 0.0
        self.figures = Figures()
        self._consumer = Consumer(settings.consumer() | {"error_cb": self._on_error}, logger=log)
        self._subscribe()

    @property
    def held_s(self) -> float:
        """Seconds that a batch has waited for the database so far."""
        return self._writer.held_s

    def run(self, stop: Callable[[], bool]) -> None:
        """Read until ``stop`` says so. An outage of the broker or the database is waited out; nothing is lost by it."""
        try:
            while not stop():
                self.step(stop)
            self._writer.close(_END_S)
        finally:
            self._consumer.close()

    def step(self, stop: Callable[[], bool] = lambda: False) -> int:
        """One batch, or a short wait when there is nothing; how many messages it had."""
        self._leave_lost()
        if self._claim_wanted:
            self._claim_all(stop)
            if self._claim_wanted:
                return 0
        elif time.monotonic() >= self._verify_at:
            self._verify()
        messages = self._without_errors(self._gather())
        if messages:
            self._hand_over(self._sorted(messages, stop), stop)
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
        # What is being written now, the next owner need not read again; if it takes too long, the claim's generation fences it off.
        self._writer.drain(_DRAIN_S)
        self._claims.clear()
        self._given, self._claim_wanted = [], False
        consumer.unassign()

    def _claim_anew(self) -> None:
        """Read again from the store's positions. Until then nothing that comes is taken: a message was passed over, or offsets lie."""
        self._claims.clear()
        self._claim_wanted = True

    def _on_error(self, error: Any) -> None:
        log.info("the Kafka client says: %s", error)
        self._verify_at = 0.0

    def _claim_all(self, stop: Callable[[], bool]) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        given = self._given
        self._writer.drain(_DRAIN_S)
        try:
            ids = self._topic_ids(sorted({p.topic for p in given}))
            claims = {(p.topic, p.partition): self._claim(p.topic, p.partition, ids[p.topic]) for p in given}
        except (StoreUnavailable, KafkaException) as error:
            log.warning("partitions cannot be claimed yet (%s)", error)
            self._wait(_HOLD_S, stop)
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
        self._tell_lag()
        known = {topic: c.incarnation for (topic, _), c in self._claims.items()}
        try:
            now = self._topic_ids(sorted(known))
        except KafkaException:
            return  # away: the next look tells
        if any(now[topic] and known[topic] and now[topic] != known[topic] for topic in known):
            self._claim_anew()

    def _tell_lag(self) -> None:
        """How much of each partition is unread, as the last answer of its broker knows it."""
        from confluent_kafka import KafkaException, TopicPartition

        places = [TopicPartition(topic, partition) for topic, partition in self._claims]
        try:
            for at in self._consumer.position(places):
                _, high = self._consumer.get_watermark_offsets(at, cached=True)
                lag = max(0, high - at.offset) if high >= 0 and at.offset >= 0 else 0
                meters.gauge("isched_ingest_lag_events", lag, topic=at.topic, partition=str(at.partition))
        except KafkaException:
            return  # not being fetched just now: the next look tells

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

    def _without_errors(self, messages: Iterable[Any]) -> list[Any]:
        from confluent_kafka import KafkaError

        sound: list[Any] = []
        for message in messages:
            error = message.error()
            if error is None:
                sound.append(message)
            elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                self._out_of_range.add((message.topic(), message.partition()))
                self._claim_anew()
        return sound

    def _sorted(self, messages: Sequence[Any], stop: Callable[[], bool]) -> list[Part]:
        """Sorting asks the database whose tokens and jobs these are; while it is away, wait."""
        claims = dict(self._claims)
        with self._paused() as pause:
            while not stop():
                try:
                    return self._sorter.sort(messages, claims)
                except StoreUnavailable as error:
                    pause(f"events wait for the database ({error})")
                    self._wait(_HOLD_S, stop)
        return []

    def _hand_over(self, parts: list[Part], stop: Callable[[], bool]) -> None:
        with self._paused() as pause:
            while parts and not stop() and not self._writer.offer(parts, _OFFER_S):
                if self._writer.away:
                    pause("reading pauses: the database is away")
                    self._wait(_HOLD_S, stop)

    @contextmanager
    def _paused(self) -> Iterator[Callable[[str], None]]:
        """Gives what to call when a wait gets long; afterwards reading goes on."""
        held = False

        def pause(why: str) -> None:
            nonlocal held
            if not held:
                log.warning("%s", why)
                self._consumer.pause(self._consumer.assignment())
                self.figures.pauses += 1
                held = True

        try:
            yield pause
        finally:
            if held:
                self._consumer.resume(self._consumer.assignment())

    def _wait(self, wait_s: float, stop: Callable[[], bool]) -> None:
        """Stay a member of the group while waiting; paused, it hands out no message."""
        began = time.monotonic()
        while not stop() and (left_s := began + wait_s - time.monotonic()) > 0:
            for message in self._consumer.consume(1, min(0.2, left_s)):
                if message.error() is None:  # a rebalance has ended the pause
                    self._claim_anew()

    def _leave_lost(self) -> None:
        """Another reader has claimed what we still thought ours: join the group anew, and it says who has what."""
        lost = {c.channel for c in self._writer.fenced() if c in self._claims.values()}
        if lost:
            self.figures.fenced += 1
            self._claims = {place: c for place, c in self._claims.items() if c.channel not in lost}
            self._consumer.unsubscribe()
            self._subscribe()

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


def channel_of(topic: str, partition: int) -> str:
    """The store's name for a partition."""
    return f"kafka:{topic}:{partition}"
