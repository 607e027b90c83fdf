"""Starting and watching real `isched exec` processes for the tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from ischeduler.training.spool import SpoolEvent, read_events

WRAPPER = [sys.executable, "-m", "ischeduler.training.wrapper"]


def environ(run: Path, attempt: int | None = 1, **more: str) -> dict[str, str]:
    """This process's environment without any job's traces, plus the run's."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("ISCHED_", "SLURM_", "RANK", "LOCAL_RANK"))}
    env["ISCHED_RUN_DIR"] = str(run)
    if attempt is not None:
        env["ISCHED_ATTEMPT"] = str(attempt)
    return env | more


class Exec:
    """One running wrapper. Leaving the `with` block kills what is left of it and its children."""

    def __init__(
        self, run: Path, *command: str, attempt: int | None = 1, options: tuple[str, ...] = (), stdout=None, **env: str
    ) -> None:
        self.run = run
        self.process = subprocess.Popen(
            [*WRAPPER, "--heartbeat", "0.2", *options, "--", *command],
            env=environ(run, attempt, **env),
            stdout=subprocess.PIPE if stdout is None else stdout,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def __enter__(self) -> Exec:
        return self

    def __exit__(self, *args: object) -> None:
        from ischeduler.training.processes import family, send

        for pid in [*family(self.process.pid), self.process.pid]:
            send(pid, signal.SIGKILL)
        self.process.communicate()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def finish(self, timeout_s: float = 120.0) -> tuple[int, bytes, str]:
        """Exit code, stdout, stderr."""
        out, err = self.process.communicate(timeout=timeout_s)
        return self.process.returncode, out or b"", err.decode(errors="replace")

    def await_line(self, start: str) -> None:
        """Read the training's output up to a line that begins so."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(start.encode()):
                return
        raise AssertionError(f"no line began with '{start}'; exit {self.process.wait()}: {self.finish()[2][-2000:]}")

    def events(self, *kinds: str) -> list[SpoolEvent]:
        """What the run's spools hold, of these kinds (all when none is named)."""
        found, _ = read_events(self.run, {})
        return [event for event in found if not kinds or event.kind in kinds]

    def await_event(self, kind: str, count: int = 1, timeout_s: float = 120.0) -> SpoolEvent:
        """The count-th event of a kind."""
        until(lambda: len(self.events(kind)) >= count or self.process.poll() is not None, timeout_s)
        found = self.events(kind)
        assert len(found) >= count, f"no {kind} event; exit {self.process.poll()}"
        return found[count - 1]


def until(condition: Callable[[], object], timeout_s: float = 120.0) -> None:
    """Wait for something another process does."""
    end_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end_s, "waited in vain"
        time.sleep(0.02)


def python(code: str) -> tuple[str, ...]:
    """A command line that runs this code, unbuffered."""
    return (sys.executable, "-u", "-c", code)
