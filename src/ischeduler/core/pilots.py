"""What a pool's pilots and the segments of its members say of themselves, and what is asked of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

ROUND_OVER = "its round in the pool was over"
"""The reason of a segment that the pool asked to save and leave: neither a limit nor a failure."""


@dataclass(frozen=True, slots=True)
class PilotSign:
    """A pilot's own report. ``name`` is RUN-ATTEMPT.RESTART; ``beat_at`` and ``ends_at`` are by its host's clock.

    ``leaving``: it takes no more steps.
    """

    name: str
    type: str
    node: str
    gpus: int
    beat_at: float
    started_at: float
    ends_at: float | None = None
    leaving: bool = False


@dataclass(frozen=True, slots=True)
class MemberJob:
    """A member's segment as the pool's batch system knows it. ``confined`` to one type, '' for any. ``cpus`` and ``gpus`` of one node.

    ``limit_s`` is what it asked for. ``pilot``, ``node`` and ``type`` say where it runs or ran; ``asked`` that it was told to save and leave.
    """

    job_id: str
    key: str
    gpus: int
    cpus: int = 1
    confined: str = ""
    exclude_nodes: tuple[str, ...] = ()
    pilot: str = ""
    node: str = ""
    type: str = ""
    limit_s: float = 0.0
    submitted_at: float = 0.0
    started_at: float | None = None
    ended_at: float | None = None
    asked: bool = False

    @property
    def run_id(self) -> str:
        """The run whose segment it is: the key without the attempt's number."""
        return self.key.rpartition("-")[0]

    @property
    def pending(self) -> bool:
        """It waits for the pool."""
        return self.started_at is None and self.ended_at is None

    @property
    def running(self) -> bool:
        """It has accelerators."""
        return self.started_at is not None and self.ended_at is None


@dataclass(frozen=True, slots=True)
class PilotOrders:
    """What one pilot shall run: job id -> seconds it may run at most. What runs and is not named saves and leaves.

    ``token`` is the pool's lease's: a pilot takes no orders of an older token. ``look_s``: how often it shall look.
    """

    pilot: str
    token: int
    steps: Mapping[str, float] = field(default_factory=dict[str, float])
    look_s: float = 1.0
