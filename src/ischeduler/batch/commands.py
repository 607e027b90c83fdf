"""Running a batch system's commands: always with a time limit, never through a shell, and counted."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

_FOREIGN = ("SLURM_", "SBATCH_", "SQUEUE_", "SINFO_", "SACCT_", "SCANCEL_", "SRUN_", "ISCHED_")
_KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT")


class CommandTimeout(Exception):
    """The command was killed because it did not end in time; what it did by then is unknown."""


class CommandMissing(Exception):
    """The command could not be started at all, so it did nothing."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command said: exit ``code`` (negative for a signal), standard output and error."""

    code: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The last line of standard error without the program's prefix, for people."""
        lines = [line.strip() for line in self.err.splitlines() if line.strip()]
        words = lines[-1] if lines else f"exit code {self.code}, and it said nothing"
        head, colon, rest = words.partition(": error: ")
        return rest if colon and " " not in head else words


class RunCommand(Protocol):
    """How commands are run: here, or by another's wrapper (as another user, over ssh)."""

    def __call__(self, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30.0) -> Answer:
        """The answer; CommandTimeout or CommandMissing otherwise."""
        ...


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Without what an enclosing job or a user's profile would slip in.

    ``SBATCH_*`` variables beat the script's own options, and a job that submits a job would hand on its ``SLURM_*`` limits.
    """
    return {k: v for k, v in environment.items() if k in _KEPT or not k.startswith(_FOREIGN)}


@dataclass(frozen=True)
class LocalCommands:
    """Runs commands on this host. ``extra`` is added to the cleaned environment (``SLURM_CONF``)."""

    extra: Mapping[str, str] = field(default_factory=dict[str, str])

    def __call__(self, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30.0) -> Answer:
        """Runs it with ``stdin`` as its input."""
        try:
            done = subprocess.run(
                list(argv), input=stdin, capture_output=True, timeout=timeout_s, check=False, text=True,
                encoding="utf-8", errors="surrogateescape", env={**clean_environment(os.environ), **self.extra},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise CommandTimeout(f"{argv[0]} did not answer within {timeout_s:.0f} s") from None
        except OSError as problem:
            raise CommandMissing(f"{argv[0]} cannot be started: {problem.strerror}") from None
        return Answer(done.returncode, done.stdout, done.stderr)
