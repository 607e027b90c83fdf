"""Slurm over HTTP: slurmrestd with each user's own token. For centres, and for people who have a token but no Slurm commands."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ischeduler.batch.backoff import Backoff
from ischeduler.batch.commands import Answer
from ischeduler.batch.names import job_name
from ischeduler.batch.observed import Found, add_accounting, add_statuses, is_absent, observation
from ischeduler.batch.slurm_errors import not_reached, submit_error
from ischeduler.batch.slurm_json import read_jobs
from ischeduler.batch.slurm_nodes import count_nodes
from ischeduler.batch.slurm_rest_http import Answered, NotSent, SlurmRestHttp
from ischeduler.batch.slurm_rest_job import submit_body
from ischeduler.batch.slurm_rest_json import read_accounting, read_finished, read_nodes, read_queue
from ischeduler.batch.slurm_rest_probe import refusal_of
from ischeduler.batch.slurm_rest_tokens import TokenSource
from ischeduler.core.errors import BadInput, BatchUnavailable, IschedError, SubmitUncertain
from ischeduler.core.jobs import JobRef, JobSpec, Observation, Probe
from ischeduler.core.snapshot import FinishedJob, QueueSnapshot
from ischeduler.ports import Clock

if TYPE_CHECKING:
    import httpx2

_NAMES_A_CALL = 100
"""Names in one question to accounting: more would make its address too long."""
_GONE = {2017, 2021}
"""Slurm's error numbers for a job that is not there, or has ended (slurm_errno.h)."""
_NOTHING_FOUND = 9003
"""What accounting answers where other questions would have an empty list."""


class SlurmRest:
    """One cluster for one user; :class:`BatchSystem` over slurmrestd.

    A tick costs one question to the controller and at most one (a hundred jobs) to accounting, however many jobs are asked about.
    With ``everyone`` the jobs of all users are observed, for a service that looks on behalf of many; else this user's alone.
    """

    def __init__(
        self, name: str, url: str, user: str, tokens: TokenSource, clock: Clock, *, python: str = "python", everyone: bool = False,
        timeout_s: float = 60.0, lookback_s: float = 60 * 86400.0, transport: httpx2.BaseTransport | None = None,
    ) -> None:  # fmt: skip
        self._name, self._clock, self._python, self._everyone = name, clock, python, everyone
        self._http = SlurmRestHttp(url, user, tokens, timeout_s=timeout_s, transport=transport)
        self._lookback_s = lookback_s
        self.user = user
        self.backoff = Backoff()
        self.accounting_backoff = Backoff(first_s=10.0, longest_s=600.0)

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self._name

    @property
    def calls(self) -> dict[str, int]:
        """Requests so far, by kind."""
        return dict(self._http.calls)

    @property
    def version(self) -> str:
        """The version spoken, e.g. ``v0.0.38``."""
        return self._http.dialect().version

    def submit(self, job: JobSpec) -> str:
        """Sends the job; see the port for what may be raised."""
        path = self._path("job/submit")
        body = submit_body(job, self._http.dialect(), python=self._python)
        try:
            found = self._http.ask("submit", "POST", path, body=body)
        except BatchUnavailable as problem:
            error = _submit_error(problem)
            if isinstance(error, BatchUnavailable):
                self.backoff.failed(self._clock.now(), str(error))
            raise error from None
        self.backoff.succeeded()
        job_id = found.get("job_id") or (found.get("result") or {}).get("job_id")
        if not job_id:
            raise SubmitUncertain("slurmrestd took the job without telling its id; look the job's key up.")
        return str(job_id)

    def observe(self, jobs: Collection[JobRef]) -> Observation:
        """The queue for all, then accounting for those that have left it or have ended without a figure of their memory."""
        found: Found = {}
        now = self._clock.now()
        if not jobs:
            return Observation(now)
        rows = self._ask("queue", self._path("jobs")).get("jobs") or []
        mine = rows if self._everyone else [r for r in rows if r.get("user_name") == self.user]
        add_statuses(found, read_jobs(mine), {r.key for r in jobs})
        absent = [r for r in jobs if is_absent(r, found)]
        ended = [k for k, by_id in found.items() if all(s.state.ended for s in by_id.values())]
        complete = True
        if absent or ended:
            asked = sorted({r.key for r in absent}.union(ended))
            complete = self._ask_accounting(found, asked, [r for r in absent if r.job_id]) or not absent
        return observation(found, self._clock.now(), complete)

    def cancel(self, job_id: str, *, signal: str | None = None) -> None:
        """``DELETE /job/ID``, with a signal for the batch shell where the version can name it, else for all of the job's processes."""
        if not job_id.replace("_", "", 1).isdigit():
            raise BadInput(f"'{job_id}' is not a Slurm job id; expected a number.")
        query = {"signal": signal} if signal else {}
        try:
            flags = {"flags": "BATCH_JOB"} if signal and self._http.dialect().kill_flags else {}
            self._ask("cancel", self._path(f"job/{job_id}"), method="DELETE", query={**query, **flags})
        except Answered as answered:
            if not answered.numbers & _GONE:
                raise

    def snapshot(self) -> QueueSnapshot:
        """All nodes and all visible jobs: two requests."""
        nodes = self._ask("nodes", self._path("nodes")).get("nodes") or []
        jobs = self._ask("queue", self._path("jobs")).get("jobs") or []
        return QueueSnapshot(self._name, self._clock.now(), count_nodes(read_nodes(nodes)), tuple(read_queue(jobs, self.user)))

    def finished(self, since_s: float) -> tuple[FinishedJob, ...]:
        """Jobs that ended after ``since_s`` (epoch seconds), as far as accounting shows them; none where it does not answer."""
        query = {
            "start_time": f"uts{max(0, round(since_s))}",
            "skip_steps": "true",
            "state": "COMPLETED,FAILED,TIMEOUT,CANCELLED,OUT_OF_MEMORY",
        }
        rows = self._account(query)
        return tuple(job for job in read_finished(rows or []) if job.end_s >= since_s)

    def probe(self, job: JobSpec) -> Probe:
        """Judged from partitions and nodes, as slurmrestd has no test-only submission; it tells no start."""
        partitions = self._ask("partitions", self._path("partitions")).get("partitions") or []
        nodes = self._ask("nodes", self._path("nodes")).get("nodes") or []
        reason = refusal_of(job, partitions, nodes)
        return Probe(not reason, reason, self._clock.now())

    def show(self, kind: str) -> dict[str, Any]:
        """The whole document of ``nodes``, ``partitions`` ..., as ``scontrol --json show`` prints it."""
        return self._ask(kind, self._path(kind))

    def _ask_accounting(self, found: Found, keys: Sequence[str], absent: Sequence[JobRef]) -> bool:
        """Adds what accounting knows; False where it could not be asked. By name first, since that finds doubles too."""
        user = None if self._everyone else self.user
        for first in range(0, len(keys), _NAMES_A_CALL):
            some = keys[first : first + _NAMES_A_CALL]
            rows = self._account({"job_name": ",".join(job_name(k) for k in some), "start_time": self._oldest()})
            if rows is None:
                return False
            add_accounting(found, read_accounting(rows, user), keys)
        for ref in absent:
            if is_absent(ref, found):
                rows = self._account({}, job_id=ref.job_id)
                if rows is None:
                    return False
                add_accounting(found, read_accounting(rows, user), keys)
        return True

    def _account(self, query: dict[str, str], *, job_id: str | None = None) -> list[Any] | None:
        """Rows that slurmdbd remembers; None where it could not be asked."""
        now = self._clock.now()
        if self.accounting_backoff.waits(now):
            return None
        try:
            if not self._http.dialect().accounting:
                return None
            path = self._http.accounting(f"job/{job_id}" if job_id else "jobs")
            found = self._http.ask("accounting", "GET", _with(path, query))
        except BatchUnavailable as problem:
            if isinstance(problem, Answered) and _NOTHING_FOUND in problem.numbers:
                self.accounting_backoff.succeeded()
                return []
            self.accounting_backoff.failed(now, str(problem))
            return None
        self.accounting_backoff.succeeded()
        return found.get("jobs") or []

    def _oldest(self) -> str:
        return f"uts{max(0, round(self._clock.now() - self._lookback_s))}"

    def _path(self, words: str) -> str:
        self._mind_backoff()
        try:
            return self._http.slurm(words)
        except BatchUnavailable as error:
            self.backoff.failed(self._clock.now(), str(error))
            raise

    def _ask(self, kind: str, path: str, *, method: str = "GET", query: dict[str, str] | None = None) -> dict[str, Any]:
        """A question whose failure starts the back-off; an answer that only names a job as gone does not."""
        self._mind_backoff()
        try:
            found = self._http.ask(kind, method, _with(path, query or {}))
        except Answered as answered:
            if not answered.numbers & _GONE and (kind != "cancel" or not_reached(Answer(1, "", answered.text))):
                self.backoff.failed(self._clock.now(), str(answered))
            raise
        except BatchUnavailable as error:
            self.backoff.failed(self._clock.now(), str(error))
            raise
        self.backoff.succeeded()
        return found

    def _mind_backoff(self) -> None:
        wait_s = self.backoff.waits(self._clock.now())
        if wait_s:
            raise BatchUnavailable(f"{self.backoff.message or 'slurmrestd did not answer'} (asking again in {wait_s:.0f} s)")


def _submit_error(problem: BatchUnavailable) -> IschedError:
    """Only what certainly never reached the controller is BatchUnavailable; broken conversations are SubmitUncertain."""
    if isinstance(problem, NotSent):
        return problem
    if isinstance(problem, Answered):
        return submit_error(Answer(1, "", problem.text))
    return SubmitUncertain(f"{problem} The job may have been accepted: look its key up.")


def _with(path: str, query: dict[str, str]) -> str:
    """The path with its query, every reserved character escaped: slurmrestd refuses a plain comma."""
    words = "&".join(f"{quote(k, safe='')}={quote(v, safe='')}" for k, v in query.items())
    return f"{path}?{words}" if words else path
