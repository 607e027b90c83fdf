"""The plane's side of the in-job protocol: what it writes into and reads from a run's directory on the shared file system."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from ischeduler.core.run import Run
from ischeduler.training.files import write_atomic
from ischeduler.training.rundir import RunDir
from ischeduler.training.token import Token, raise_fence

LOG_TAIL_BYTES = 64 * 1024


def open_beneath(folder: Path, parts: Sequence[str]) -> int:
    """A descriptor of ``folder/parts`` for reading; below ``folder`` no symbolic link is followed. OSError where that cannot be."""
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place)
            os.close(place)
            place = inner
        return os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=place)
    finally:
        os.close(place)


class SharedRunFiles:
    """Run directories as ``docs/in-job-protocol.md`` lays them out. Every method is idempotent and may raise OSError."""

    def prepare(self, run: Run) -> None:
        """Create the directory (mode 700), its folders and ``run.json`` where missing."""
        folder = RunDir(Path(run.directory))
        folder.prepare()
        about = folder.path / "run.json"
        if not about.exists():
            workload = run.plan.workload
            value = {
                "v": 1, "run": run.id, "name": workload.name or workload.family, "epochs": workload.epochs,
                "command": list(workload.command),
            }
            write_atomic(about, (json.dumps(value) + "\n").encode())

    def raise_fence(self, run: Run, token: str) -> None:
        """Lift the fence to ``token`` unless it is higher already."""
        raise_fence(Path(run.directory), Token.parse(token))

    def control(self, run: Run, token: str, word: str) -> None:
        """Leave a word for a running incarnation; one that is there already is not written again."""
        folder, who = RunDir(Path(run.directory)), Token.parse(token)
        if folder.read_control(who) != word:
            folder.write_control(who, word)

    def log_tail(self, run: Run, attempt: int) -> str:
        """The last 64 KiB of the attempt's output, '' when there is none. A link planted in the run's directory leads nowhere."""
        try:
            with open(open_beneath(Path(run.directory), ("logs", f"{attempt}.out")), "rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - LOG_TAIL_BYTES))
                return file.read().decode("utf-8", "replace")
        except FileNotFoundError:
            return ""
