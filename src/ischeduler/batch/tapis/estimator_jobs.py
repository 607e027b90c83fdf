"""Estimators that run as Tapis apps: what :class:`ischeduler.estimators.runtimes.tapis.TapisRuntime` needs of a tenant."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from ischeduler.batch.tapis.client import Missing, TapisClient
from ischeduler.batch.tapis.schema import check_job
from ischeduler.core.errors import BatchUnavailable


class EstimatorJobs:
    """Puts requests into ``folder`` of ``system``, where the app's jobs read them."""

    def __init__(self, client: TapisClient, system: str, folder: str = "isched/estimators") -> None:
        self._client, self._system, self._folder = client, system, folder.strip("/")

    def put(self, name: str, data: bytes) -> str:
        """Keep a file where jobs can read it; its ``tapis://`` URL."""
        path = f"{self._folder}/{secrets.token_hex(8)}-{name}"
        self._client.call("files.insert", systemId=self._system, path=quote(path), file=data)
        return f"tapis://{self._system}/{quote(path)}"

    def submit(self, job: Mapping[str, Any]) -> str:
        """The uuid of the submitted job; BadInput for a request that the server would refuse."""
        request = {"execSystemId": self._system, **job}
        check_job(request)
        found = self._client.call("jobs.submitJob", **request)
        if not isinstance(found, Mapping) or not found.get("uuid"):
            raise BatchUnavailable("Tapis took the job without telling its id.")
        return str(found["uuid"])

    def status(self, job: str) -> str:
        """The job's status, e.g. ``RUNNING``."""
        return str((self._client.call("jobs.getJobStatus", jobUuid=job) or {}).get("status"))

    def output(self, job: str, path: str, limit_bytes: int) -> bytes:
        """At most ``limit_bytes`` + 1 bytes of a file in the job's output folder."""
        try:
            found = self._client.content("jobs.getJobOutputDownload", jobUuid=job, outputPath=quote(path))
        except Missing:
            raise BatchUnavailable(f"the job left no {path}.") from None
        return found[: limit_bytes + 1]

    def cancel(self, job: str) -> None:
        """End the job."""
        self._client.call("jobs.cancelJob", jobUuid=job)
