"""The ``process`` runtime: an argument list, JSON on stdin and stdout. Trusted code with the user's own rights."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from ischeduler.estimators.runtimes.bounded import ask_command
from ischeduler.estimators.runtimes.limits import TRUSTED, Limits


@dataclass(frozen=True)
class ProcessRuntime:
    """``command`` is never given to a shell. ``environment`` comes on top of the caller's; ``directory`` is where it starts."""

    command: tuple[str, ...]
    directory: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    limits: Limits = Limits()
    trust: str = TRUSTED

    @property
    def place(self) -> str:
        """For sentences."""
        return "a process"

    def exchange(self, message: bytes) -> bytes:
        """Start it, write, read, end it."""
        environment = {**os.environ, **self.environment}
        return ask_command(
            self.place, self.command, message, self.limits, environment=environment, directory=self.directory
        )
