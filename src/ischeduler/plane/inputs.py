"""What ``decide`` receives. Each may come twice, late, or for something that is gone: none of that may do harm."""

from __future__ import annotations

from dataclasses import dataclass

from ischeduler.core.event import Event
from ischeduler.core.jobs import Observation
from ischeduler.core.plan import Plan


@dataclass(frozen=True, slots=True)
class Delegated:
    """A plan was handed to the plane: the run exists in state planned."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class CancelAsked:
    """The owner wants the run to end."""


@dataclass(frozen=True, slots=True)
class MoveAsked:
    """The owner wants the run to go on elsewhere."""

    plan: Plan


@dataclass(frozen=True, slots=True)
class Amended:
    """A waiting job was changed in place: it asks for what ``plan`` says now."""

    job_id: str
    plan: Plan


@dataclass(frozen=True, slots=True)
class AvoidAsked:
    """The run's next jobs shall keep off these nodes: it was slow there."""

    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Submitted:
    """The batch system accepted submission number ``tries`` of a key."""

    key: str
    tries: int
    job_id: str


@dataclass(frozen=True, slots=True)
class SubmitFailed:
    """Submission number ``tries`` of a key did not succeed, or nobody knows (``uncertain``).

    ``kind`` is 'site_limit' (waiting helps), 'invalid' (it does not) or 'not_sent' (it never left the plane).
    """

    key: str
    tries: int
    kind: str
    message: str
    uncertain: bool = False


@dataclass(frozen=True, slots=True)
class Observed:
    """A cluster's answer about this run's keys. ``asked_at`` is the plane's clock just before it asked."""

    cluster: str
    asked_at: float
    observation: Observation


@dataclass(frozen=True, slots=True)
class QueryFailed:
    """A cluster did not answer; this says nothing about any job."""

    cluster: str
    message: str


@dataclass(frozen=True, slots=True)
class JobEvent:
    """An event from inside a job."""

    event: Event


@dataclass(frozen=True, slots=True)
class LogRead:
    """The end of an attempt's output."""

    key: str
    text: str


@dataclass(frozen=True, slots=True)
class Replanned:
    """The planner's options for the question ``reason``; none when it found none or could not answer."""

    reason: str
    plans: tuple[Plan, ...] = ()


@dataclass(frozen=True, slots=True)
class Recorded:
    """The run's evidence is in the history."""


Input = (
    Delegated | Tick | CancelAsked | MoveAsked | Amended | AvoidAsked | Submitted | SubmitFailed | Observed | QueryFailed | JobEvent | LogRead
    | Replanned | Recorded
)
