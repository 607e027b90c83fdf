"""What one question to a plug-in may cost, and how a runtime that could not answer says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ischeduler.core.errors import EstimatorFailed

TRUSTED = "trusted"
"""Runs with the user's own rights: it could read the user's files. ``python`` and ``process``."""
ISOLATED = "isolated"
"""Runs where it can neither read the user's files nor reach the network. ``container``."""
REMOTE = "remote"
"""Runs elsewhere: it sees what the request shows and nothing else. ``http`` and ``tapis``."""


@dataclass(frozen=True, slots=True)
class Limits:
    """One answer's limits: wall seconds, memory in bytes (each process's data), bytes of answer."""

    seconds: float = 30.0
    memory_bytes: int = 2**30
    output_bytes: int = 2**20


class RuntimeFailed(EstimatorFailed):
    """The plug-in could not be asked, or did not keep to its limits.

    ``lasting`` means that the next question would fare the same (it hung, it is not installed), so it is put aside for a while.
    """

    def __init__(self, message: str, *, lasting: bool = False) -> None:
        super().__init__(message)
        self.lasting = lasting


class AnswerBroken(EstimatorFailed):
    """The plug-in answered, but not as the contract says: a wrong unit, another version, no JSON. No honest refusal does that."""


class Runtime(Protocol):
    """Carries one message to a plug-in and its answer back."""

    @property
    def trust(self) -> str:
        """:data:`TRUSTED`, :data:`ISOLATED` or :data:`REMOTE`."""
        ...

    @property
    def place(self) -> str:
        """Where it runs, for sentences: ``podman``, ``https://...``."""
        ...

    def exchange(self, message: bytes) -> bytes:
        """The answer's bytes; RuntimeFailed with one sentence otherwise. Always ends within the limits."""
        ...
