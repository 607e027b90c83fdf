"""Running a batch system's commands: argument lists only, time limits always, and counting, so that gentleness can be measured."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ischeduler.core.errors import BatchUnavailable


class CommandTimedOut(BatchUnavailable):
    """The command did not end in time; what it asked for may have happened."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A command that ended."""

    returncode: int
    stdout: str
    stderr: str


RunCommand = Callable[[Sequence[str], str | None, float], Finished]
"""(argument list, standard input, time limit in seconds) -> Finished."""


def run_command(argv: Sequence[str], stdin: str | None, timeout_s: float) -> Finished:
    """Run it here. BatchUnavailable when the program is missing, CommandTimedOut when it hangs."""
    try:
        done = subprocess.run(
            list(argv), input=stdin, stdin=subprocess.DEVNULL if stdin is None else None, capture_output=True, text=True,
            timeout=timeout_s, check=False, errors="replace",
        )  # fmt: skip
    except FileNotFoundError:
        raise BatchUnavailable(f"'{argv[0]}' is not installed here; run this on a login node of the cluster.") from None
    except subprocess.TimeoutExpired:
        raise CommandTimedOut(f"'{argv[0]}' did not answer within {timeout_s:.0f} s; the controller may be busy.") from None
    return Finished(done.returncode, done.stdout, done.stderr)


@dataclass
class Backoff:
    """After a failure the next question waits, twice as long each time; within the wait nothing is asked at all."""

    first_s: float = 2.0
    max_s: float = 120.0
    failures: int = 0
    until: float = 0.0
    last_words: str = ""

    def check(self, now: float) -> None:
        """BatchUnavailable while waiting."""
        if now < self.until:
            raise BatchUnavailable(f"{self.last_words} (asked again in {self.until - now:.0f} s)")

    def failed(self, now: float, words: str) -> None:
        """Remember a failure."""
        self.failures += 1
        self.until = now + min(self.max_s, self.first_s * 2.0 ** min(10, self.failures - 1))
        self.last_words = words

    def succeeded(self) -> None:
        """Forget all failures."""
        self.failures, self.until = 0, 0.0


@dataclass
class Caller:
    """Runs commands with counting."""

    run: RunCommand = run_command
    calls: Counter[str] = field(default_factory=Counter[str])

    def __call__(self, argv: Sequence[str], *, stdin: str | None = None, timeout_s: float = 30.0) -> Finished:
        self.calls[argv[0]] += 1
        return self.run(argv, stdin, timeout_s)
