"""A Slurm cluster through its own commands: what a user may do at a login node, and nothing more.

One ``squeue`` answers for all jobs; one ``sacct`` for those that have left the queue. Works with accounting off. A job's name is its
idempotency key, because every Slurm keeps job names, where comments are kept only where the site asks for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ischeduler.batch.backoff import Backoff
from ischeduler.batch.commands import Answer, CommandMissing, CommandTimeout, LocalCommands, RunCommand
from ischeduler.batch.names import job_name
from ischeduler.batch.script import render_script
from ischeduler.batch.slurm_snapshot import SNAPSHOT_FIELDS, snapshot_of
from ischeduler.batch.slurm_text import (
    SACCT_FIELDS, SEPARATOR, SQUEUE_FIELDS, refusal, sacct_jobs, squeue_jobs, test_only_start,
)  # fmt: skip
from ischeduler.core.errors import BatchUnavailable, SubmitRefused, SubmitUncertain
from ischeduler.core.jobs import JobRef, JobSpec, JobStatus, Observation, Probe
from ischeduler.core.snapshot import QueueSnapshot
from ischeduler.ports import Clock

_NO_ANSWER = ("nable to contact slurm", "ommunication connection failure", "onnection refused", "ocket timed out", "not respond")
_MAYBE_SENT = ("ocket timed out", "ero Bytes were transmitted", "nexpected message received")
_SITE_LIMITS = (
    "QOSMaxSubmitJobPerUserLimit", "AssocMaxSubmitJobLimit", "Job violates accounting/QOS policy", "ob submit limit", "MaxSubmitJobs",
    "QOSMaxJobsPerUserLimit", "esources temporarily unavailable", "Slurm temporarily unable to accept job",
)  # fmt: skip
_SACCT_OFF = ("accounting storage is disabled", "Slurm accounting storage is disabled")


class SlurmCli:
    """The BatchSystem of one Slurm. ``user`` None means the calling user; ``clock`` gives ``taken_at`` and drives the back-off."""

    def __init__(
        self, name: str, clock: Clock, *, user: str | None = None, run: RunCommand | None = None, timeout_s: float = 30.0,
        history_days: int = 30,
    ) -> None:  # fmt: skip
        self._name, self._clock, self._user, self._timeout_s, self._history_days = name, clock, user, timeout_s, history_days
        self._run: RunCommand = run or LocalCommands()
        self.calls: Counter[str] = Counter()
        self._backoff = Backoff()
        self._sacct_backoff = Backoff(first_s=10.0, longest_s=600.0)

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self._name

    def submit(self, job: JobSpec) -> str:
        """``sbatch``, the script on its standard input."""
        script = render_script(job)
        try:
            done = self._call(["sbatch", "--parsable"], stdin=script)
        except CommandTimeout as error:
            raise SubmitUncertain(f"{error}; the job is looked up before it is sent again.") from None
        if done.code == 0:
            return done.out.strip().split("\n")[-1].split(";")[0]
        raise _submit_error(done)

    def observe(self, jobs: Collection[JobRef]) -> Observation:
        """One squeue for all; one sacct for those it does not show."""
        now = self._clock.now()
        if not jobs:
            return Observation(now)
        keys = {ref.key for ref in jobs}
        found = self._queue(keys)
        missing = [ref for ref in jobs if ref.key not in found or not _settled(found[ref.key], ref)]
        complete = True
        if missing:
            past = self._accounting(missing)
            complete = past is not None
            found = _merged(found, past or [])
        return Observation(now, {k: tuple(v) for k, v in found.items()}, complete)

    def cancel(self, job_id: str, *, signal: str | None = None) -> None:
        """``scancel``; a signal goes to the batch shell."""
        argv = ["scancel", "--batch", f"--signal={signal}", job_id] if signal else ["scancel", job_id]
        self._ask(argv, tolerate=("nvalid job id", "already completing", "ob/step already"))

    def snapshot(self) -> QueueSnapshot:
        """Nodes from scontrol (free GPUs by allocated TRES), jobs of everybody from one squeue."""
        nodes = self._ask(["scontrol", "-o", "show", "node"])
        queue = self._ask(["squeue", "-h", "-r", "-t", "PENDING,RUNNING", "-O", _format(SNAPSHOT_FIELDS)])
        return snapshot_of(self._name, nodes.out, queue.out, self._clock.now(), self._user or _me())

    def probe(self, job: JobSpec) -> Probe:
        """``sbatch --test-only``: about 0.1 s, serialised by the controller; callers keep the answer."""
        now = self._clock.now()
        try:
            done = self._call(["sbatch", "--test-only"], stdin=render_script(job))
        except CommandTimeout as error:
            raise BatchUnavailable(f"{error}; the controller may be busy.") from None
        words = (done.err or done.out).strip()
        if done.code == 0:
            return Probe(True, refusal(words), now, test_only_start(words))
        if any(w in words for w in _NO_ANSWER):
            raise BatchUnavailable(_unavailable(words))
        return Probe(False, refusal(words), now)

    def _queue(self, keys: Collection[str]) -> dict[str, list[JobStatus]]:
        who = [f"--user={self._user}"] if self._user else ["--me"]
        done = self._ask(["squeue", "-h", *who, "--states=all", "-O", _format(SQUEUE_FIELDS)])
        return _by_key(squeue_jobs(done.out), keys)

    def _accounting(self, refs: Sequence[JobRef]) -> list[JobStatus] | None:
        """sacct's rows for the keys; None where it is off or does not answer (then absence proves nothing)."""
        now = self._clock.now()
        try:
            _check(self._sacct_backoff, now)
            done = self._call(
                ["sacct", "-nP", "--delimiter", SEPARATOR, "-S", f"now-{self._history_days}days", *self._whose(),
                 "--name", ",".join(sorted({job_name(ref.key) for ref in refs})), "-o", ",".join(SACCT_FIELDS)],
            )  # fmt: skip
        except (BatchUnavailable, CommandTimeout) as error:
            self._sacct_backoff.failed(now, str(error))
            return None
        if done.code:
            self._sacct_backoff.failed(now, refusal(done.err))
            return None
        self._sacct_backoff.succeeded()
        return sacct_jobs(done.out)

    def _whose(self) -> list[str]:
        return [f"--user={self._user}"] if self._user else []

    def _call(self, argv: Sequence[str], *, stdin: str = "") -> Answer:
        self.calls[argv[0]] += 1
        try:
            return self._run(argv, stdin=stdin, timeout_s=self._timeout_s)
        except CommandMissing as error:
            raise BatchUnavailable(f"{error}; run this on a login node of the cluster.") from None

    def _ask(self, argv: Sequence[str], *, tolerate: Sequence[str] = ()) -> Answer:
        """Run a question under the back-off; BatchUnavailable when it fails."""
        now = self._clock.now()
        _check(self._backoff, now)
        try:
            done = self._call(argv)
        except (BatchUnavailable, CommandTimeout) as error:
            self._backoff.failed(now, str(error))
            raise BatchUnavailable(str(error)) from None
        if done.code and not any(word in done.err for word in tolerate):
            words = _unavailable(done.err)
            self._backoff.failed(now, words)
            raise BatchUnavailable(words)
        self._backoff.succeeded()
        return done


def _check(backoff: Backoff, now: float) -> None:
    if (wait_s := backoff.waits(now)) > 0:
        raise BatchUnavailable(f"{backoff.message} (asked again in {wait_s:.0f} s)")


def _me() -> str:
    import getpass

    return getpass.getuser()


def _format(fields: Sequence[str]) -> str:
    """squeue's long format with a separator behind each field, which also lifts its 20-character cut."""
    return ",".join(f"{field}:{SEPARATOR}" for field in fields)


def _settled(jobs: Sequence[JobStatus], ref: JobRef) -> bool:
    """squeue's row is enough unless the job ended: accounting then adds the memory peak, and the exit code of a requeued job."""
    return all(not job.state.ended for job in jobs)


def _by_key(jobs: Sequence[JobStatus], keys: Collection[str]) -> dict[str, list[JobStatus]]:
    found: dict[str, list[JobStatus]] = {}
    for job in jobs:
        if job.key in keys:
            found.setdefault(job.key, []).append(job)
    return found


def _merged(queue: Mapping[str, list[JobStatus]], past: Sequence[JobStatus]) -> dict[str, list[JobStatus]]:
    """squeue's word on a job's state, with accounting's memory peak; accounting alone where squeue has forgotten."""
    merged = {key: list(jobs) for key, jobs in queue.items()}
    for job in past:
        known = merged.setdefault(job.key, [])
        place = next((i for i, k in enumerate(known) if k.job_id == job.job_id), None)
        if place is None:
            known.append(job)
        elif job.max_rss_bytes:
            known[place] = replace(known[place], max_rss_bytes=job.max_rss_bytes)
    return {key: sorted(jobs, key=lambda j: (j.submit_s or 0.0, int(j.job_id) if j.job_id.isdigit() else 0)) for key, jobs in merged.items()}


def _submit_error(done: Answer) -> Exception:
    words = refusal(done.err or done.out)
    if any(w in done.err for w in _MAYBE_SENT):
        return SubmitUncertain(f"Slurm broke off while taking the job ({words}); it is looked up before it is sent again.")
    if any(w in done.err for w in _NO_ANSWER):
        return BatchUnavailable(_unavailable(done.err))
    kind = "site_limit" if any(w in done.err for w in _SITE_LIMITS) else "invalid"
    return SubmitRefused(f"Slurm refused the job: {words}.", kind=kind)


def _unavailable(stderr: str) -> str:
    return f"Slurm did not answer: {refusal(stderr)}"


