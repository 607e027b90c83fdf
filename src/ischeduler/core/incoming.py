"""Events on their way in: what a transport hands to the store, and what it is told in return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ischeduler.core.errors import IschedError

TELEMETRY = frozenset({"performance", "utilisation"})
"""Kinds that no decision reads. They are kept apart, thinned with age, and never reach the plane."""
SOURCE_MAX, TOKEN_MAX, RUN_MAX, KIND_MAX = 64, 32, 64, 64


class Incoming(NamedTuple):
    """One checked event. ``(run, source, token, seq)`` is its identity: however often it comes, it is stored once.

    ``source`` is 'job' for what the wrapper numbers itself. ``at`` is epoch seconds by the job's clock; ``data`` is the text of
    a JSON object.
    """

    run: str
    source: str
    token: str
    seq: int
    kind: str
    at: float
    data: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A message that is no event, kept with the reason so that a person can see what was sent. ``run`` is '' when unknown."""

    channel: str
    reason: str
    payload: bytes
    run: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a channel was read. ``generation`` is the one that claiming the channel gave; an older one is refused."""

    channel: str
    generation: int
    position: int


@dataclass(frozen=True, slots=True)
class Claimed:
    """A channel in our hands. Go on reading at ``position``; ``epoch`` counts how often the channel began anew."""

    channel: str
    generation: int
    position: int
    epoch: int
    incarnation: str = ""


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a batch: events new to the store, events it had, messages refused, and runs the plane should look at."""

    new: int = 0
    repeated: int = 0
    refused: int = 0
    runs: frozenset[str] = frozenset()


class Fenced(IschedError):
    """Another reader has claimed these channels since: nothing was written. ``channels`` names them."""

    def __init__(self, channels: tuple[str, ...]) -> None:
        super().__init__(f"another reader has taken over {', '.join(channels)}; nothing was written.")
        self.channels = channels
