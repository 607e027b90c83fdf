"""What ``decide`` wants done. Each is idempotent or carries a key; what a crash swallowed is asked for again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ischeduler.core.history import HistoryRecord
from ischeduler.core.jobs import JobSpec


@dataclass(frozen=True, slots=True)
class Prepare:
    """Create the run's directory where it is missing."""


@dataclass(frozen=True, slots=True)
class RaiseFence:
    """Lift the fence to a token: older incarnations stop themselves."""

    token: str


@dataclass(frozen=True, slots=True)
class Submit:
    """Send a job. The attempt with this key and try is stored before this is done, so that a crash leaves a trace to look up."""

    cluster: str
    number: int
    key: str
    tries: int
    job: JobSpec


@dataclass(frozen=True, slots=True)
class CancelJob:
    """End a job."""

    cluster: str
    job_id: str
    why: str


@dataclass(frozen=True, slots=True)
class SignalJob:
    """Send the job's batch shell a signal (a name without SIG)."""

    cluster: str
    job_id: str
    signal: str


@dataclass(frozen=True, slots=True)
class Control:
    """Leave a word in an incarnation's control file."""

    token: str
    word: str


@dataclass(frozen=True, slots=True)
class ReadLog:
    """Fetch the end of an attempt's output: the batch system calls some out-of-memory kills plain failures."""

    key: str
    number: int


@dataclass(frozen=True, slots=True)
class Replan:
    """Ask the planner; the answer comes back as Replanned with the same reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class RecordHistory:
    """Keep what was observed as evidence for later estimates."""

    records: tuple[HistoryRecord, ...]


@dataclass(frozen=True, slots=True)
class Notify:
    """Tell the owner."""

    subject: str
    text: str


@dataclass(frozen=True, slots=True)
class Note:
    """Write an event of the plane into the run's log, together with the run itself."""

    kind: str
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])


Action = (
    Prepare | RaiseFence | Submit | CancelJob | SignalJob | Control | ReadLog | Replan | RecordHistory | Notify | Note
)
