"""The files of the local batch system: one folder a job, every change atomic, one lock for the queue.

``spec.json`` (the JobSpec), ``script`` (what bash runs), ``submit.json``, ``start.json``, ``keeper.json`` (its supervisor),
``running.json``, ``end.json``, ``cancel`` (an empty wish). What is there says what has happened, so any process may look at any time
and a killed one leaves nothing half said.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ischeduler.core.codec import from_plain, to_plain
from ischeduler.core.jobs import JobSpec, JobState, JobStatus


@dataclass(frozen=True, slots=True)
class JobFolder:
    """One job on disk."""

    path: Path

    @property
    def job_id(self) -> str:
        """Its number."""
        return self.path.name

    @property
    def spec(self) -> JobSpec:
        """What was asked for."""
        return from_plain(JobSpec, self.read("spec.json"))

    def read(self, name: str) -> dict[str, Any]:
        """A file's content, empty where it is not there."""
        try:
            return json.loads((self.path / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}

    def write(self, name: str, content: Any) -> None:
        """Write atomically and durably."""
        scratch = self.path / f".{name}.{os.getpid()}"
        with scratch.open("w", encoding="utf-8") as file:
            file.write(json.dumps(content))
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(self.path / name)

    def keep(self) -> bool:
        """Make the calling process this job's only supervisor; False when there is one already."""
        return self.take("keeper.json", {"supervisor": os.getpid(), "supervisor_start": process_start(os.getpid())})

    def take(self, name: str, content: Any) -> bool:
        """Write a file that only one process can ever write; False when it is there already."""
        scratch = self.path / f".{name}.{os.getpid()}"
        scratch.write_text(json.dumps(content), encoding="utf-8")
        try:
            os.link(scratch, self.path / name)
        except FileExistsError:
            return False
        finally:
            scratch.unlink()
        return True

    def status(self) -> JobStatus:
        """The job as the port wants it. A job whose supervisor is gone without a word is lost with its node."""
        spec, submitted, started, ended = self.spec, self.read("submit.json"), self.read("start.json"), self.read("end.json")
        state = JobState(ended["state"]) if ended else JobState.RUNNING if started else JobState.PENDING
        keeper = self.read("keeper.json") or started  # the supervisor that won, however many were started
        if state is JobState.RUNNING and not alive(keeper["supervisor"], keeper["supervisor_start"]):
            ended = self.read("end.json")  # it may have ended between the two looks
            state = JobState(ended["state"]) if ended else JobState.NODE_FAIL
        waits_for = "" if state is not JobState.PENDING else "Dependency" if spec.after else "Resources"
        return JobStatus(
            job_id=self.job_id, key=spec.key, state=state, raw_state=state.value.upper(), reason=ended.get("reason", waits_for),
            partition=spec.partition, exit_code=ended.get("exit_code"), signal=ended.get("signal"),
            nodes=("localhost",) if started else (), submit_s=submitted.get("at"), start_s=started.get("at"), end_s=ended.get("at"),
            limit_s=spec.resources.walltime_s, max_rss_bytes=ended.get("peak_bytes"),
        )  # fmt: skip


class JobFolders:
    """All jobs of one local batch system."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "jobs").mkdir(parents=True, exist_ok=True, mode=0o700)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One hand in the queue at a time, over all processes; the lock goes with the process that dies."""
        with (self.root / "lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def all(self) -> list[JobFolder]:
        """Every job, oldest first."""
        numbers = sorted(int(p.name) for p in (self.root / "jobs").iterdir() if p.name.isdigit())
        return [JobFolder(self.root / "jobs" / str(n)) for n in numbers]

    def one(self, job_id: str) -> JobFolder | None:
        """A job by its number."""
        path = self.root / "jobs" / job_id
        return JobFolder(path) if job_id.isdigit() and (path / "submit.json").exists() else None

    def new(self, spec: JobSpec, script: str, now: float) -> JobFolder:
        """Write a job down; call under the lock. It exists once ``submit.json`` does."""
        number = max((int(f.job_id) for f in self.all()), default=0) + 1
        folder = JobFolder(self.root / "jobs" / str(number))
        folder.path.mkdir(mode=0o700)
        (folder.path / "script").write_text(script, encoding="utf-8", errors="surrogateescape")
        folder.write("spec.json", to_plain(spec))
        folder.write("submit.json", {"at": now})
        return folder

    def submitted(self) -> list[JobFolder]:
        """Jobs that were completely written down."""
        return [f for f in self.all() if (f.path / "submit.json").exists()]


def process_start(pid: int) -> str:
    """When a process started, in kernel ticks: with the pid it names one process for good. '' when there is none, or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


def alive(pid: int, start: str) -> bool:
    """Whether that very process still runs."""
    return bool(start) and process_start(pid) == start
