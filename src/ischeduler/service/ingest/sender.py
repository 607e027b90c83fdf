"""Sends events to Kafka: for a gateway beside the jobs, and for tests and measurements. Jobs themselves need only HTTP or their spool."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

from ischeduler.core.incoming import Incoming
from ischeduler.service.ingest.kafka import KafkaSettings

_STREAM_OF = {"performance": "performance", "progress": "progress", "utilisation": "utilisation", "heartbeat": "utilisation"}


class KafkaSender:
    """Keeps what the broker has not taken yet, up to ``kept`` messages; then :meth:`send` waits. ``unsent`` counts them.

    Delivery is at least once and in order for each key. A sender that ends with events unsent, or whose broker lost its log,
    sends them again from the spool: the store drops what it has.
    """

    def __init__(self, settings: KafkaSettings, *, secret: str | None = None, kept: int = 100_000, **extra: Any) -> None:
        from confluent_kafka import Producer

        self._prefix = settings.prefix
        self._headers: Any = [("isched-token", secret.encode())] if secret else []
        self.failed = 0
        self._producer = Producer(
            {
                "bootstrap.servers": settings.servers, "enable.idempotence": False, "acks": "all", "linger.ms": 20,
                "max.in.flight.requests.per.connection": 1, "queue.buffering.max.messages": kept, "batch.num.messages": 10_000,
                "message.timeout.ms": 0, "partitioner": "murmur2_random", **settings.extra, **extra,
            }
        )  # fmt: skip

    @property
    def unsent(self) -> int:
        """Messages the broker has not acknowledged."""
        return len(self._producer)

    def send(self, events: Iterable[Incoming]) -> None:
        """Hand events over, each to its topic with its run as key. Waits while too many are unsent."""
        for event in events:
            self.send_text(_STREAM_OF.get(event.kind, "state"), event.run, as_text(event))

    def send_text(self, stream: str, run: str, text: str) -> None:
        """As :meth:`send`, for an event that is JSON text already."""
        while True:
            try:
                return self._producer.produce(
                    self._prefix + stream, text, key=run, on_delivery=self._delivered, headers=self._headers
                )
            except BufferError:
                self._producer.poll(0.1)

    def flush(self, timeout_s: float) -> int:
        """Wait until all is acknowledged; how many messages are not."""
        return self._producer.flush(timeout_s)

    def _delivered(self, error: Any, message: Any) -> None:
        self.failed += error is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self._producer.purge()


def as_text(event: Incoming) -> str:
    """The message: one event as it stands in a spool."""
    return (
        f'{{"v":1,"run":"{event.run}","token":"{event.token}","seq":{event.seq},"t":{event.at!r},"kind":"{event.kind}","data":{event.data}}}'
    )
