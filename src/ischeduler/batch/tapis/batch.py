"""Tapis as a batch system: jobs by the Jobs API, the queue's limits by the Systems API, words to jobs by the Files API."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import quote

from ischeduler.batch.backoff import Backoff
from ischeduler.batch.names import job_name
from ischeduler.batch.tapis.client import Missing, TapisClient, Unsure
from ischeduler.batch.tapis.events import due_for_renewal, subscription
from ischeduler.batch.tapis.job import SCRIPT, WORD, Site, job_request, job_script
from ischeduler.batch.tapis.schema import check_job
from ischeduler.batch.tapis.states import status_of
from ischeduler.core.errors import BadInput, BatchUnavailable, IschedError, SubmitRefused, SubmitUncertain
from ischeduler.core.jobs import JobRef, JobSpec, JobState, JobStatus, Observation, Probe
from ischeduler.core.snapshot import NodeCounts, QueuedJob, QueueSnapshot
from ischeduler.ports import Clock

_NAMES_A_CALL, _ROWS = 50, 1000
_STATES = {JobState.PENDING: "PENDING", JobState.RUNNING: "RUNNING"}


class TapisBatch:
    """One Tapis system for one user. A tick costs one search (fifty jobs each), however many are asked about.

    ``scripts`` is the folder on the system where job scripts are put. ``webhook`` is where Tapis shall tell news; '' for none: it is
    asked anyway, news only make that sooner. ``push`` lets jobs tell their progress to Tapis.
    """

    def __init__(
        self, name: str, client: TapisClient, site: Site, clock: Clock, *, scripts: str = "isched", webhook: str = "", python: str = "python",
        push: bool = False,
    ) -> None:  # fmt: skip
        self._name, self._client, self.site, self._clock = name, client, site, clock
        self._scripts, self._webhook, self._python, self._push = scripts.strip("/"), webhook, python, push
        self.backoff = Backoff()
        self._system: Mapping[str, Any] = {}
        self._subscribed: dict[str, float] = {}

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self._name

    @property
    def client(self) -> TapisClient:
        """The connection to the tenant."""
        return self._client

    def submit(self, job: JobSpec) -> str:
        """The job's uuid; see the port for what may be raised. Nothing is sent that the server would refuse for its form."""
        place = f"{self._scripts}/{job_name(job.key)}.sh"
        news = [subscription(self._webhook)] if self._webhook else []
        url = f"tapis://{self.site.system}/{quote(place)}"
        request = job_request(job, self.site, url, news, follows=self._follows(job))
        check_job(request)
        script = job_script(job, python=self._python, push_base=self._client.url if self._push else "")
        self._ask("files.insert", systemId=self.site.system, path=quote(place), file=script.encode())
        self._mind_backoff()
        try:
            found = self._client.call("jobs.submitJob", **request)
        except Unsure as error:
            self.backoff.failed(self._clock.now(), str(error))
            raise SubmitUncertain(f"{error} The job may have been accepted: look its key up.") from None
        except BatchUnavailable as error:
            self.backoff.failed(self._clock.now(), str(error))
            raise
        self.backoff.succeeded()
        uuid = found.get("uuid") if isinstance(found, Mapping) else None
        if not uuid:
            raise SubmitUncertain("Tapis took the job without telling its id; look the job's key up.")
        return str(uuid)

    def observe(self, jobs: Collection[JobRef]) -> Observation:
        """One search by name, which finds doubles too; Tapis remembers every job."""
        taken_at = self._clock.now()
        found: dict[str, list[JobStatus]] = {}
        keys = sorted({r.key for r in jobs})
        for first in range(0, len(keys), _NAMES_A_CALL):
            some = set(keys[first : first + _NAMES_A_CALL])
            for row in self._search({"name.in": ",".join(job_name(k) for k in sorted(some))}):
                status = status_of(row)
                if status is not None and status.key in some:
                    found.setdefault(status.key, []).append(status)
        self._renew([s for found_of_key in found.values() for s in found_of_key], taken_at)
        return Observation(taken_at, {k: tuple(sorted(v, key=lambda s: (s.submit_s or 0.0, s.job_id))) for k, v in found.items()})

    def cancel(self, job_id: str, *, signal: str | None = None) -> None:
        """End the job, or leave a signal's name beside its input, where its script looks every second."""
        if not job_id or not all(c.isalnum() or c == "-" for c in job_id):
            raise BadInput(f"'{job_id}' is not the uuid of a Tapis job.")
        try:
            if signal is None:
                self._ask("jobs.cancelJob", jobUuid=job_id)
            else:
                self._leave_word(job_id, signal)
        except Missing:
            return  # gone already
        except SubmitRefused as error:
            if not self._ended(job_id):
                raise BatchUnavailable(f"Tapis did not end job {job_id}: {error}") from None

    def snapshot(self) -> QueueSnapshot:
        """The user's own jobs and the system's queues: of other people's jobs and of nodes Tapis tells nothing."""
        queues = self.system().get("batchLogicalQueues") or []
        rows = self._search({"name.like": "*", "status.nin": "FINISHED,CANCELLED,FAILED"})
        jobs = tuple(_queued(row) for row in rows)
        nodes = tuple(NodeCounts(str(q.get("name")), "unknown", idle=int(q.get("maxNodeCount") or 1)) for q in queues)
        return QueueSnapshot(self._name, self._clock.now(), nodes, jobs)

    def probe(self, job: JobSpec) -> Probe:
        """The request checked against the server's schema and the logical queue's limits. Nothing is submitted."""
        now = self._clock.now()
        try:
            request = job_request(job, self.site, f"tapis://{self.site.system}/{SCRIPT}")
            check_job(request)
        except BadInput as error:
            return Probe(False, str(error), now)
        reason = _beyond(request, self.system())
        return Probe(not reason, reason, now)

    def system(self) -> Mapping[str, Any]:
        """The Tapis system's definition, asked for once."""
        if not self._system:
            self._system = self._ask("systems.getSystem", systemId=self.site.system) or {}
        return self._system

    def subscribe(self, job_id: str) -> None:
        """A new subscription for a job: those made with it live a week only."""
        if self._webhook:
            self._ask("jobs.subscribe", jobUuid=job_id, **subscription(self._webhook))

    def _renew(self, jobs: Collection[JobStatus], now: float) -> None:
        """New subscriptions for jobs that outlive the first; one that fails is tried at the next look, polling goes on meanwhile."""
        for job in jobs if self._webhook else ():
            made_at = self._subscribed.get(job.job_id, job.submit_s or now)
            if not job.state.ended and due_for_renewal(made_at, now):
                try:
                    self.subscribe(job.job_id)
                except IschedError:
                    continue
                self._subscribed[job.job_id] = now

    def files(self, job_id: str, path: str = "/") -> list[Mapping[str, Any]]:
        """What lies in a job's output folder."""
        return list(self._ask("jobs.getJobOutputList", jobUuid=job_id, outputPath=path or "/") or [])

    def read(self, path: str) -> bytes:
        """A file of the system. Missing where there is none."""
        self._mind_backoff()
        return self._client.content("files.getContents", systemId=self.site.system, path=quote(path.strip("/")))

    def write(self, path: str, data: bytes) -> None:
        """A file of the system, its folders made where missing."""
        self._ask("files.insert", systemId=self.site.system, path=quote(path.strip("/")), file=data)

    def _leave_word(self, job_id: str, signal: str) -> None:
        job = self._ask("jobs.getJob", jobUuid=job_id) or {}
        if str(job.get("status")) not in ("RUNNING",):
            return
        self.write(f"{job.get('execSystemInputDir')}/{WORD}", f"{signal}\n".encode())

    def _follows(self, job: JobSpec) -> str:
        """The scheduler's id of the job that must have ended before; '' where it has."""
        if not job.after:
            return ""
        before = self._ask("jobs.getJob", jobUuid=job.after) or {}
        if before.get("status") in ("FINISHED", "FAILED", "CANCELLED"):
            return ""
        remote = before.get("remoteJobId")
        if not remote:
            raise BatchUnavailable(
                f"job {job.after} has not reached the scheduler yet, so that nothing can follow it; try again later."
            )
        return str(remote)

    def _ended(self, job_id: str) -> bool:
        try:
            job = self._ask("jobs.getJobStatus", jobUuid=job_id) or {}
        except IschedError:
            return False
        return str(job.get("status")) in ("FINISHED", "FAILED", "CANCELLED")

    def _search(self, query: Mapping[str, str]) -> list[Mapping[str, Any]]:
        rows: list[Mapping[str, Any]] = []
        while True:
            page = self._ask(
                "jobs.getJobSearchList", limit=_ROWS, skip=len(rows), select="allAttributes", listType="MY_JOBS",
                _tapis_query_parameters=dict(query),
            ) or []  # fmt: skip
            rows += page
            if len(page) < _ROWS:
                return rows

    def _ask(self, operation: str, **arguments: Any) -> Any:
        """A question whose silence starts the back-off; an answer, even a refusal, does not."""
        self._mind_backoff()
        try:
            found = self._client.call(operation, **arguments)
        except Missing:
            raise
        except BatchUnavailable as error:
            self.backoff.failed(self._clock.now(), str(error))
            raise
        self.backoff.succeeded()
        return found

    def _mind_backoff(self) -> None:
        wait_s = self.backoff.waits(self._clock.now())
        if wait_s:
            raise BatchUnavailable(f"{self.backoff.message or 'Tapis did not answer'} (asking again in {wait_s:.0f} s)")


def _queued(row: Mapping[str, Any]) -> QueuedJob:
    from ischeduler.batch.tapis.states import moment, state_of

    status = str(row.get("status") or "")
    state = state_of(status)
    return QueuedJob(
        job_id=str(row.get("uuid")), partition=str(row.get("execSystemLogicalQueue") or ""), state=_STATES.get(state, status),
        nodes=int(row.get("nodeCount") or 1), submit_s=moment(row.get("created")),
        start_s=None if state is JobState.PENDING else moment(row.get("remoteStarted")),
        limit_s=float(row.get("maxMinutes") or 0) * 60.0 or None, mine=True, name=str(row.get("name") or ""), user=str(row.get("owner") or ""),
    )  # fmt: skip


def _beyond(request: Mapping[str, Any], system: Mapping[str, Any]) -> str:
    """Which limit of its logical queue a request is beyond; '' for none."""
    queues = {q.get("name"): q for q in system.get("batchLogicalQueues") or []}
    queue = queues.get(request["execSystemLogicalQueue"])
    if queue is None:
        return f"the system has no logical queue '{request['execSystemLogicalQueue']}'; it has {', '.join(map(str, queues)) or 'none'}."
    for field, limit in (
        ("nodeCount", "NodeCount"),
        ("coresPerNode", "CoresPerNode"),
        ("memoryMB", "MemoryMB"),
        ("maxMinutes", "Minutes"),
    ):
        asked, least, most = request.get(field), queue.get(f"min{limit}"), queue.get(f"max{limit}")
        if asked is not None and most is not None and 0 < most < asked:
            return f"{field} {asked} is beyond the {most} of logical queue '{queue['name']}'."
        if asked is not None and least is not None and asked < least:
            return f"{field} {asked} is below the {least} of logical queue '{queue['name']}'."
    return ""
