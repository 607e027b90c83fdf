"""``python -m benchmarks.events_producer``: sends events at a pace; a process of its own beside what is measured.

It keeps what the broker has not taken (bounded) and can show each message's job token. Every hundredth event goes twice.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable

from benchmarks.events_world import CENTRE_MIX, PLANE_MIX, STREAMS, kind_of, message, run_name
from ischeduler.service.ingest.kafka import KafkaSettings

TWICE_EVERY = 100


def main() -> int:
    """Send; one JSON line about it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--servers", required=True)
    parser.add_argument("--events", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--runs", type=int, required=True)
    parser.add_argument("--mix", choices=("centre", "plane"), required=True)
    parser.add_argument("--prefix", required=True)
    asked = parser.parse_args()
    tokens = [line.encode() for line in sys.stdin.read().split()]
    print(json.dumps(send(asked, tokens)))
    return 0


def send(asked: argparse.Namespace, tokens: list[bytes]) -> dict[str, float]:
    """Keep the pace where the broker takes it; waits where it does not."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": asked.servers, "acks": "all", "linger.ms": 50, "batch.num.messages": 10_000, "compression.type": "lz4",
            "queue.buffering.max.messages": 200_000, "queue.buffering.max.kbytes": 131_072, "message.timeout.ms": 0, "log_level": 0,
            "max.in.flight.requests.per.connection": 1, "reconnect.backoff.max.ms": 500, "partitioner": "murmur2_random",
        }
    )  # fmt: skip
    names = [run_name(n) for n in range(asked.runs)]
    mix = CENTRE_MIX if asked.mix == "centre" else PLANE_MIX
    headers = [[("isched-token", t)] for t in tokens] or [None] * asked.runs
    began, held_s, messages = time.monotonic(), 0.0, 0
    for number in range(asked.events):
        run = number % asked.runs
        kind = kind_of(number, asked.runs, mix)
        body = message(names[run], number // asked.runs + 1, kind, time.time())
        for _ in range(2 if number % TWICE_EVERY == 0 else 1):
            messages += 1
            while True:
                try:
                    producer.produce(asked.prefix + STREAMS[kind], body, key=names[run], headers=headers[run])
                    break
                except BufferError:
                    held_s += _timed(lambda: producer.poll(0.2))
        if number % 500 == 0:
            producer.poll(0)
            ahead_s = number / asked.rate - (time.monotonic() - began)
            if ahead_s > 0:
                time.sleep(ahead_s)
    unsent = producer.flush(600)
    return {
        "messages": messages, "unsent": unsent, "took_s": time.monotonic() - began, "held_s": held_s,
        "cpu_s": time.process_time(),
    }  # fmt: skip


def _timed(call: Callable[[], object]) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


def settings(servers: str) -> KafkaSettings:
    """The topics that are used."""
    return KafkaSettings(servers, reference=False)


if __name__ == "__main__":
    sys.exit(main())
