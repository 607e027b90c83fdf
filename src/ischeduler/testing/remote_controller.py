"""A caller's end of :mod:`ischeduler.testing.batch_server`: what a plane worker has in the place of Slurm's commands."""

from __future__ import annotations

import json
import socket
import threading
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

from ischeduler.batch.sockets import mortal
from ischeduler.core.codec import dumps, from_plain, to_plain
from ischeduler.core.errors import BatchUnavailable, SubmitRefused, SubmitUncertain
from ischeduler.core.jobs import JobRef, JobSpec, Observation, Probe
from ischeduler.core.run import Run
from ischeduler.core.snapshot import QueueSnapshot

Address = tuple[str, int]


class RemoteController:
    """A caller's end: the BatchSystem, and the RunFiles of the directories in memory. One connection a thread-safe object."""

    def __init__(self, address: Address, name: str = "sim", *, timeout_s: float = 5.0, folders: bool = True) -> None:
        self._address, self._name, self._timeout_s = (str(address[0]), int(address[1])), name, timeout_s
        self._lock, self._folders = threading.Lock(), folders
        self._socket: socket.socket | None = None
        self._answers: Any = None
        self.calls: Counter[str] = Counter()

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self._name

    def ask(self, call: str, **given: Any) -> Any:
        """One question. BatchUnavailable where there is no answer; SubmitUncertain where a job may have been accepted."""
        with self._lock:
            self.calls[call] += 1
            sent = False
            try:
                connection = self._connect()
                connection.sendall(dumps({"call": call, "given": given}).encode() + b"\n")
                sent = True
                line = self._answers.readline()
                if not line.endswith(b"\n"):
                    raise ConnectionError("the controller hung up")
            except OSError as error:
                self.close()
                kind = SubmitUncertain if call == "submit" and sent else BatchUnavailable
                raise kind(f"{self._name} does not answer ({error}).") from None
        answer = json.loads(line)
        if "refused" in answer:
            raise SubmitRefused(answer["refused"], kind=answer["kind"])
        if "away" in answer:
            raise BatchUnavailable(answer["away"])
        return answer["ok"]

    def _connect(self) -> socket.socket:
        if self._socket is None:
            self._socket = socket.create_connection(self._address, timeout=self._timeout_s)
            for option in mortal(self._timeout_s):
                self._socket.setsockopt(*option)
            self._answers = self._socket.makefile("rb")
        return self._socket

    def close(self) -> None:
        """Hang up; the next question connects anew."""
        if self._socket is not None:
            self._socket.close()
            self._socket = self._answers = None

    def submit(self, job: JobSpec) -> str:
        """Queue a job."""
        return str(self.ask("submit", job=to_plain(job)))

    def observe(self, jobs: Collection[JobRef]) -> Observation:
        """All jobs of these keys."""
        return from_plain(Observation, self.ask("observe", jobs=[[r.key, r.job_id] for r in jobs]))

    def cancel(self, job_id: str, *, signal: str | None = None) -> None:
        """End the job, or send it a signal."""
        self.ask("cancel", job_id=job_id, signal=signal)

    def snapshot(self) -> QueueSnapshot:
        """The queue."""
        return from_plain(QueueSnapshot, self.ask("snapshot"))

    def probe(self, job: JobSpec) -> Probe:
        """Whether it would be taken."""
        return from_plain(Probe, self.ask("probe", job=to_plain(job)))

    def prepare(self, run: Run) -> None:
        """The folder for the spool is made as on a shared file system."""
        if self._folders:
            (Path(run.directory) / "events").mkdir(parents=True, exist_ok=True, mode=0o700)
        self._tell("prepare", run=run.id)

    def raise_fence(self, run: Run, token: str) -> None:
        """Older incarnations stop themselves."""
        self._tell("fence", run=run.id, token=token)

    def control(self, run: Run, token: str, word: str) -> None:
        """Leave a word."""
        self._tell("control", run=run.id, token=token, word=word)

    def log_tail(self, run: Run, attempt: int) -> str:
        """What the attempt printed last."""
        return str(self._tell("log_tail", run=run.id, attempt=attempt))

    def _tell(self, call: str, **given: Any) -> Any:
        try:
            return self.ask(call, **given)
        except BatchUnavailable as error:
            raise OSError(5, str(error)) from None  # what a shared file system says that is away
