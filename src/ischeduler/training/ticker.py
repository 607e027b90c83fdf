"""The running job calls the plane: a look from time to time, and one last look when the training has saved and left.

So a run is carried where no daemon may live on a login node. The plane is told by a file how it is called (`ISCHED_TICK_FILE`, mode
600, written by whoever submitted); it runs as a process of its own, and nothing it does or fails to do reaches the training.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ischeduler.training.files import say

EVERY_S = 300.0
LAST_LOOK_S = 30.0
_RESERVE_S = 2.0
_SHARE = 0.2


class Ticker:
    """Calls the command of a file. `every_s` is the time between two looks; two never run at once."""

    def __init__(self, command: list[str], environment: Mapping[str, str], every_s: float = EVERY_S) -> None:
        self._command, self._environment, self._every_s = command, {**os.environ, **environment}, every_s
        self._due_s = time.monotonic() + every_s
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def training_ends(deadline: float | None, now: float) -> float | None:
        """The training's own deadline: half a minute before the job's, in short jobs a fifth of it, so that the last look fits in."""
        return None if deadline is None else deadline - min(LAST_LOOK_S, _SHARE * max(0.0, deadline - now))

    def look(self) -> None:
        """Start a look when one is due and the last one has ended."""
        if time.monotonic() < self._due_s or (self._process is not None and self._process.poll() is None):
            return
        self._due_s = time.monotonic() + self._every_s
        self._process = self._start()

    def last_look(self, deadline: float | None) -> None:
        """One more look, waited for as long as the job may live (`deadline`: epoch seconds), at most half a minute."""
        left_s = LAST_LOOK_S if deadline is None else min(LAST_LOOK_S, deadline - time.time() - _RESERVE_S)
        ends_s = time.monotonic() + left_s
        done = self._process is None or _wait(self._process, left_s)
        last = self._start() if done else None
        if not done or (last is not None and not _wait(last, ends_s - time.monotonic())):
            say("the plane's last look was cut off; the next command, daemon or cron line goes on")

    def _start(self) -> subprocess.Popen[bytes] | None:
        try:
            return subprocess.Popen(
                self._command, env=self._environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=None,
                start_new_session=True, cwd="/",
            )  # fmt: skip
        except OSError as error:
            say(f"the plane cannot be called from this job ({error.strerror}: {self._command[0]})")
            return None


def _wait(process: subprocess.Popen[bytes], left_s: float) -> bool:
    try:
        process.wait(max(0.0, left_s))
    except subprocess.TimeoutExpired:
        process.kill()
        return False
    return True


def ticker_from_environ(environ: Mapping[str, str]) -> Ticker | None:
    """The job's ticker; None where nobody asked for one, or (with a word) where its file is not to be trusted."""
    path = environ.get("ISCHED_TICK_FILE")
    if not path:
        return None
    try:
        entry = _read(Path(path))
        return Ticker([str(word) for word in entry["command"]], entry["environment"], float(entry["every_s"]))
    except (OSError, ValueError, TypeError, KeyError) as error:
        say(f"the plane will not be called from this job: {path}: {error}")
        return None


def _read(path: Path) -> dict[str, Any]:
    """The file's content, if it is this user's own and nobody else may write or read it."""
    descriptor = os.open(path, os.O_RDONLY)
    with open(descriptor, encoding="utf-8") as file:
        status = os.fstat(file.fileno())
        if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise PermissionError(f"must be this user's own with mode 600, has mode {stat.S_IMODE(status.st_mode):o}")
        return json.load(file)
