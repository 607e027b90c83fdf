"""Why a sandbox cannot be started, stopped or asked."""

from __future__ import annotations

from ischeduler.core.errors import IschedError


class SandboxError(IschedError):
    """The sandbox could not do what was asked; one sentence says what was wrong and what to do."""


class SandboxUnavailable(SandboxError):
    """This host cannot run a sandbox at all (not Linux, not root, Slurm not installed)."""


class SandboxCommandFailed(SandboxError):
    """A command of the sandbox's Slurm ended with an error; ``returncode`` and ``stderr`` are its own."""

    def __init__(self, message: str, *, returncode: int, stderr: str) -> None:
        super().__init__(message)
        self.returncode = returncode
        self.stderr = stderr
