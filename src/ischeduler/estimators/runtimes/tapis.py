"""The ``tapis`` runtime: a request becomes a job of a Tapis v3 app, its output the answer.

Fields of the job request: Tapis Jobs API, schema ``ReqSubmitJob``. The app is called with two arguments, the request's file and
the answer's. The client is a port: whatever connects to a Tapis tenant gives one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ischeduler.core.errors import IschedError
from ischeduler.estimators.runtimes.limits import REMOTE, Limits, RuntimeFailed
from ischeduler.estimators.runtimes.words import clean
from ischeduler.ports import Clock

REQUEST_FILE = "request.json"
ANSWER_FILE = "answer.json"
ENDED_WELL = "FINISHED"
ENDED_BADLY = ("FAILED", "CANCELLED", "PAUSED", "BLOCKED")
"""States of a Tapis job after which nothing more comes (paused and blocked ones wait for a person)."""
QUEUE_LIMIT_S = 900.0
"""An app waits in a queue, so its answer may take longer than a local one's."""
_POLL_S = 5.0


class TapisJobs(Protocol):
    """What is needed of a Tapis client. Every method may raise IschedError or OSError."""

    def put(self, name: str, data: bytes) -> str:
        """Keep a file where jobs can read it; its ``tapis://`` URL."""
        ...

    def submit(self, job: Mapping[str, Any]) -> str:
        """The uuid of the submitted job."""
        ...

    def status(self, job: str) -> str:
        """The job's status, e.g. ``RUNNING``."""
        ...

    def output(self, job: str, path: str, limit_bytes: int) -> bytes:
        """At most ``limit_bytes`` + 1 bytes of a file in the job's output folder."""
        ...

    def cancel(self, job: str) -> None:
        """End the job."""
        ...


@dataclass(frozen=True)
class TapisRuntime:
    """One app in one version. ``client`` makes the connection, or is None where no Tapis tenant is configured."""

    app: str
    app_version: str
    client: Callable[[], TapisJobs] | None = None
    clock: Clock | None = None
    limits: Limits = Limits(seconds=QUEUE_LIMIT_S)
    trust: str = REMOTE

    @property
    def place(self) -> str:
        """For sentences."""
        return f"Tapis app {self.app}-{self.app_version}"

    def exchange(self, message: bytes) -> bytes:
        """Submit, wait, read; the job is cancelled when it takes too long."""
        if self.client is None or self.clock is None:
            raise RuntimeFailed(
                f"it runs as {self.place}, and no Tapis tenant is connected; connect one, or add it as a container or process.",
                lasting=True,
            )
        try:
            jobs = self.client()
            job = jobs.submit(self.job(jobs.put(REQUEST_FILE, message)))
            self._wait(jobs, job, self.clock)
            answer = jobs.output(job, ANSWER_FILE, self.limits.output_bytes)
        except RuntimeFailed:
            raise
        except (IschedError, OSError) as error:
            raise RuntimeFailed(f"{self.place} could not be asked: {clean(error)}", lasting=True) from None
        if len(answer) > self.limits.output_bytes:
            raise RuntimeFailed(f"{self.place} answered with more than {self.limits.output_bytes} bytes.")
        return answer

    def job(self, request_url: str) -> dict[str, Any]:
        """The job request (``ReqSubmitJob``) whose input is the message at ``request_url``."""
        return {
            "name": f"isched-{self.app}"[:64], "appId": self.app, "appVersion": self.app_version,
            "nodeCount": 1, "coresPerNode": 1, "memoryMB": max(1, self.limits.memory_bytes // 2**20),
            "maxMinutes": max(1, round(self.limits.seconds / 60)),
            "fileInputs": [{"name": "request", "sourceUrl": request_url, "targetPath": REQUEST_FILE}],
            "parameterSet": {"appArgs": [
                {"name": "request", "arg": f"/TapisInput/{REQUEST_FILE}"},
                {"name": "answer", "arg": f"/TapisOutput/{ANSWER_FILE}"},
            ]},
            "tags": ["ischeduler", "estimator"],
        }

    def _wait(self, jobs: TapisJobs, job: str, clock: Clock) -> None:
        deadline = clock.now() + self.limits.seconds
        while (status := jobs.status(job)) != ENDED_WELL:
            if status in ENDED_BADLY:
                raise RuntimeFailed(f"{self.place} ended as {clean(status, 40)} (job {clean(job, 60)}).")
            if clock.now() >= deadline:
                jobs.cancel(job)
                raise RuntimeFailed(f"{self.place} did not answer within {self.limits.seconds:g} s; cancelled.", lasting=True)
            clock.sleep(_POLL_S)
