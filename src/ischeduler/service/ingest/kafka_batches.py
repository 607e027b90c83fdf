"""Turns what the Kafka client hands out into parts of a batch: events, refusals and how far each partition was read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ischeduler.core.incoming import Claimed, Incoming, Mark, Refused
from ischeduler.service.ingest.messages import STREAMS, Malformed, ReferenceMessage, numbered, read_event, read_reference
from ischeduler.service.ingest.shapes import REFERENCE

Place = tuple[str, int]
"""Topic and partition."""
Shown = tuple[str, bytes | None]
"""A run, and the secret that was shown for it."""
Admit = Callable[[Collection[Shown]], Collection[Shown]]
"""Those of the secrets (the message's header ``isched-token``) that may speak for their run."""


class JobNames(Protocol):
    """Whose job a batch system's id is."""

    def find(self, jobs: Iterable[str]) -> Mapping[str, tuple[str, str]]:
        """Run and token of each job that is known and no other's namesake."""
        ...


@dataclass(slots=True)
class Part:
    """What a batch holds of one partition."""

    claimed: Claimed
    position: int
    events: list[Incoming] = field(default_factory=list[Incoming])
    refused: list[Refused] = field(default_factory=list[Refused])

    @property
    def mark(self) -> Mark:
        """How far it goes."""
        return Mark(self.claimed.channel, self.claimed.generation, self.position)

    def refuse(self, offset: int, reason: str, payload: bytes, run: str = "") -> None:
        """Put a message aside."""
        self.refused.append(Refused(f"{self.claimed.channel}@{offset}", reason, payload, run))


class Sorter:
    """``topics`` says what each topic carries. ``admit`` None takes everybody's word. Both helpers may raise StoreUnavailable."""

    def __init__(self, topics: Mapping[str, str], jobs: JobNames | None, admit: Admit | None) -> None:
        self._topics, self._jobs, self._admit = topics, jobs, admit

    def sort(self, messages: Iterable[Any], claims: Mapping[Place, Claimed]) -> list[Part]:
        """Messages without errors, in their order. What comes from a partition that is not claimed is left to who has it."""
        parts: dict[Place, Part] = {}
        shown: list[tuple[Part, Incoming, bytes | None, int]] = []
        named: list[tuple[Part, ReferenceMessage, int, float]] = []
        for message in messages:
            topic, offset = message.topic(), message.offset()
            place = (topic, message.partition())
            part = parts.get(place)
            if part is None:
                claimed = claims.get(place)
                if claimed is None:
                    continue
                part = parts[place] = Part(claimed, offset)
            part.position = offset + 1
            payload, stream = message.value() or b"", self._topics[topic]
            read = read_reference(stream, payload) if stream in REFERENCE else read_event(payload, STREAMS[stream])
            if isinstance(read, Malformed):
                part.refuse(offset, read.reason, payload, read.run)
            elif isinstance(read, ReferenceMessage):
                named.append((part, read, offset, max(0.0, message.timestamp()[1] / 1000)))
            elif self._admit is None:
                part.events.append(read)
            else:
                shown.append((part, read, _secret_of(message), offset))
        self._let_in(shown)
        self._name(named)
        return list(parts.values())

    def _let_in(self, shown: Collection[tuple[Part, Incoming, bytes | None, int]]) -> None:
        if self._admit is None or not shown:
            return
        admitted = self._admit({(event.run, secret) for _, event, secret, _ in shown})
        for part, event, secret, offset in shown:
            if (event.run, secret) in admitted:
                part.events.append(event)
            else:
                part.refuse(offset, "its token may not speak for this run", event.data.encode(), event.run)

    def _name(self, named: Collection[tuple[Part, ReferenceMessage, int, float]]) -> None:
        if not named:
            return
        found = self._jobs.find({read.job for _, read, _, _ in named}) if self._jobs is not None else {}
        for part, read, offset, sent_at in named:
            where = found.get(read.job)
            if where is None:
                part.refuse(offset, f"no run under way has the job '{read.job[:60]}', or several have", read.data.encode())
                continue
            source = f"{part.claimed.channel[-48:]}:{part.claimed.epoch}"
            part.events.append(numbered(read, where[0], where[1], source, offset + 1, sent_at))


def _secret_of(message: Any) -> bytes | None:
    for name, value in message.headers() or ():
        if name == "isched-token":
            return value
    return None
