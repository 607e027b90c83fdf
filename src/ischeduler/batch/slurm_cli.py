"""Slurm through its user's own commands: sbatch, squeue, sacct, scancel, scontrol. No rights beyond the user's."""

from __future__ import annotations

import getpass
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence

from ischeduler.batch.backoff import Backoff
from ischeduler.batch.clocks import SystemClock
from ischeduler.batch.commands import Answer, CommandMissing, CommandTimeout, LocalCommands, RunCommand
from ischeduler.batch.header import sbatch_header
from ischeduler.batch.names import job_name
from ischeduler.batch.observed import Found, add_accounting, add_statuses, is_absent, observation
from ischeduler.batch.script import render_script
from ischeduler.batch.slurm_amend import amend_refused, amend_words, favour_refused
from ischeduler.batch.slurm_errors import accounting_is_off, job_gone, not_reached, refusal, submit_error, unavailable
from ischeduler.batch.slurm_json import read_squeue_json
from ischeduler.batch.slurm_nodes import count_nodes, read_nodes
from ischeduler.batch.slurm_text import (
    FINISHED_FIELDS,
    OWN_FIELDS,
    QUEUE_FIELDS,
    SACCT_FIELDS,
    SEPARATOR,
    read_finished,
    read_queue,
    read_sacct,
    read_squeue,
    seconds,
    squeue_format,
)  # fmt: skip
from ischeduler.core.errors import BadInput, BatchUnavailable, SubmitUncertain
from ischeduler.core.jobs import JobChange, JobRef, JobSpec, JobStatus, Observation, Probe
from ischeduler.core.snapshot import FinishedJob, QueueSnapshot
from ischeduler.ports import Clock

_EPOCH_TIMES = ("env", "TZ=UTC", "SLURM_TIME_FORMAT=%s")
"""Times as epoch seconds, and our own times read as UTC, in every time zone."""
_JOB_ID = re.compile(r"^(\d+)(?:;\S+)?$", re.MULTILINE)
_STARTS = re.compile(r"\bto start at (\S+)")


class SlurmCli:
    """One cluster for one user.

    A tick costs at most one squeue and one sacct however many jobs are asked about; ``calls`` counts them by program. After a
    failure every question raises BatchUnavailable at once until the back-off is over (accounting has a back-off of its own).
    ``reader`` is 'text' (squeue --Format: filters by user on every version) or 'json'. ``requeue`` lets Slurm restart jobs itself.
    """

    def __init__(
        self, name: str, run_command: RunCommand | None = None, user: str | None = None, clock: Clock | None = None, *,
        python: str = "python", requeue: bool = False, reader: str = "text", timeout_s: float = 60.0, lookback_s: float = 60 * 86400.0,
    ) -> None:  # fmt: skip
        if reader not in ("text", "json"):
            raise BadInput(f"reader '{reader}' is unknown; expected text or json.")
        self._name = name
        self._run = run_command or LocalCommands()
        self.user = user or getpass.getuser()
        self._clock = clock or SystemClock()
        self._python, self._requeue, self._reader = python, requeue, reader
        self._timeout_s, self._lookback_s = timeout_s, lookback_s
        self.calls: Counter[str] = Counter()
        self.backoff = Backoff()
        self.accounting_backoff = Backoff(first_s=10.0, longest_s=600.0)

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self._name

    def script(self, job: JobSpec) -> str:
        """The script that :meth:`submit` sends, for people."""
        return render_script(job, python=self._python, header=sbatch_header(job, requeue=self._requeue))

    def submit(self, job: JobSpec) -> str:
        """Sends the script; see the port for what may be raised."""
        script = self.script(job)
        self._mind_backoff()
        try:
            answer = self._command(["sbatch", "--parsable"], stdin=script)
        except CommandTimeout as problem:
            self.backoff.failed(self._clock.now(), str(problem))
            raise SubmitUncertain(f"{problem}; the job may have been accepted: look its key up.") from None
        found = _JOB_ID.findall(answer.out) if answer.code == 0 else []
        if found:
            self.backoff.succeeded()
            return found[-1]
        error = submit_error(answer)
        if isinstance(error, BatchUnavailable):
            self.backoff.failed(self._clock.now(), str(error))
        raise error

    def observe(self, jobs: Collection[JobRef]) -> Observation:
        """squeue for all, then sacct for those that have left the queue or have ended without a figure of their memory."""
        found: Found = {}
        if not jobs:
            return Observation(self._clock.now())
        keys = {job_name(r.key): r.key for r in jobs}
        add_statuses(found, self._squeue(), keys.values())
        absent = [r for r in jobs if is_absent(r, found)]
        ended = [k for k, by_id in found.items() if all(s.state.ended for s in by_id.values())]
        complete = True
        if absent or ended:
            asked = sorted({r.key for r in absent}.union(ended))
            complete = self._ask_accounting(found, asked, [r for r in absent if r.job_id]) or not absent
        return observation(found, self._clock.now(), complete)

    def cancel(self, job_id: str, *, signal: str | None = None) -> None:
        """``scancel``, or ``scancel --signal=NAME --batch``."""
        _check_id(job_id)
        argv = ["scancel", *([f"--signal={signal}", "--batch"] if signal else []), job_id]
        answer = self._ask(argv, accept=_always)
        if answer.code and not job_gone(answer):
            raise BatchUnavailable(f"Slurm did not cancel job {job_id}: {answer.complaint}")

    def amend(self, job_id: str, change: JobChange) -> None:
        """``scontrol update``, for a job that waits; see the port :class:`ischeduler.ports.Amending`."""
        _check_id(job_id)
        answer = self._ask(amend_words(job_id, change), accept=_always)
        if answer.code:
            raise amend_refused(job_id, change, answer)

    def favour_refused(self) -> str:
        """See the port :class:`ischeduler.ports.Favouring`: one scontrol, and one sacctmgr, whose silence is no right."""
        config = self._ask(["scontrol", "show", "config"]).out
        try:
            levels = self._command(["sacctmgr", "-nP", "show", "user", self.user, "format=AdminLevel"])
        except (CommandTimeout, BatchUnavailable):
            levels = Answer(1, "", "")
        return favour_refused(config, self.user, levels.out if levels.code == 0 else "")

    def snapshot(self) -> QueueSnapshot:
        """All nodes and all visible jobs: one scontrol and one squeue."""
        nodes = self._ask([*_EPOCH_TIMES, "scontrol", "show", "node", "-d", "-o"])
        queue = self._ask([*_EPOCH_TIMES, "squeue", "-h", "-a", "-r", f"--Format={squeue_format(QUEUE_FIELDS)}"])
        jobs = tuple(read_queue(queue.out, self.user))
        return QueueSnapshot(self._name, self._clock.now(), count_nodes(read_nodes(nodes.out)), jobs)

    def finished(self, since_s: float) -> tuple[FinishedJob, ...]:
        """Jobs that ended after ``since_s`` (epoch seconds), everybody's where the site shows them, else this user's own.

        One sacct; none where accounting is off or does not answer.
        """
        since = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(max(0.0, since_s)))
        states = "--state=COMPLETED,FAILED,TIMEOUT,CANCELLED,OUT_OF_MEMORY"
        choice = ("-a", "-X", states, f"--starttime={since}", "--endtime=now", f"--format={','.join(FINISHED_FIELDS)}")
        answer = self._account(*choice)
        return tuple(read_finished(answer)) if answer is not None else ()

    def probe(self, job: JobSpec) -> Probe:
        """``sbatch --test-only``. It does not see limits that let a job wait for ever (PartitionTimeLimit): plan those."""
        answer = self._ask([*_EPOCH_TIMES, "sbatch", "--test-only"], stdin=self.script(job), accept=_always)
        if not_reached(answer):
            raise unavailable("sbatch --test-only", answer)
        starts = _STARTS.search(answer.err + answer.out)
        return Probe(answer.code == 0, "" if answer.code == 0 else refusal(answer), self._clock.now(), seconds(starts[1]) if starts else None)

    def _squeue(self) -> list[JobStatus]:
        argv = [*_EPOCH_TIMES, "squeue", f"--user={self.user}", "--states=all"]
        if self._reader == "json":
            return read_squeue_json(self._ask([*argv, "--json"]).out)
        return read_squeue(self._ask([*argv, "-h", f"--Format={squeue_format(OWN_FIELDS)}"]).out)

    def _ask_accounting(self, found: Found, keys: Sequence[str], absent: Sequence[JobRef]) -> bool:
        """Adds what accounting knows; False where it could not be asked. By name first, since that finds doubles too.

        A job cancelled before it could ever start is listed by its id only, hence the second question, seldom asked.
        """
        names = ",".join(job_name(k) for k in keys)
        rows = self._sacct(f"--name={names}", f"--starttime={self._oldest()}")
        if rows is None:
            return False
        add_accounting(found, rows, keys)
        ids = [r.job_id for r in absent if r.job_id and is_absent(r, found)]
        if ids:
            rows = self._sacct(f"--jobs={','.join(ids)}")
            if rows is None:
                return False
            add_accounting(found, rows, keys)
        return True

    def _sacct(self, *choice: str) -> list[JobStatus] | None:
        answer = self._account("--duplicates", *choice, f"--user={self.user}", f"--format={','.join(SACCT_FIELDS)}")
        return None if answer is None else read_sacct(answer)

    def _account(self, *choice: str) -> str | None:
        """What sacct prints; None where it could not be asked."""
        now = self._clock.now()
        if self.accounting_backoff.waits(now):
            return None
        argv = [*_EPOCH_TIMES, "sacct", "-n", "-P", "--noconvert", f"--delimiter={SEPARATOR}", *choice]
        try:
            answer = self._command(argv)
        except (CommandTimeout, BatchUnavailable) as problem:
            self.accounting_backoff.failed(now, str(problem))
            return None
        if answer.code:
            self.accounting_backoff.failed(now, answer.complaint)
            if accounting_is_off(answer):
                self.accounting_backoff.until = now + self.accounting_backoff.longest_s
            return None
        self.accounting_backoff.succeeded()
        return answer.out

    def _oldest(self) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(max(0.0, self._clock.now() - self._lookback_s)))

    def _ask(self, argv: Sequence[str], *, stdin: str = "", accept: Callable[[Answer], bool] | None = None) -> Answer:
        """A question whose failure is BatchUnavailable and starts the back-off; ``accept`` judges a non-zero exit as an answer."""
        self._mind_backoff()
        try:
            answer = self._command(argv, stdin=stdin)
        except CommandTimeout as problem:
            self.backoff.failed(self._clock.now(), str(problem))
            raise BatchUnavailable(f"{problem}; try again later.") from None
        if answer.code != 0 and (accept is None or not_reached(answer) or not accept(answer)):
            error = unavailable(_program(argv), answer)
            self.backoff.failed(self._clock.now(), str(error))
            raise error
        self.backoff.succeeded()
        return answer

    def _command(self, argv: Sequence[str], *, stdin: str = "") -> Answer:
        self.calls[_program(argv)] += 1
        try:
            return self._run(argv, stdin=stdin, timeout_s=self._timeout_s)
        except CommandMissing as problem:
            raise BatchUnavailable(f"{problem}; load Slurm's commands into PATH.") from None

    def _mind_backoff(self) -> None:
        wait_s = self.backoff.waits(self._clock.now())
        if wait_s:
            raise BatchUnavailable(f"{self.backoff.message or 'Slurm did not answer'} (asking again in {wait_s:.0f} s)")


def _check_id(job_id: str) -> None:
    if not re.fullmatch(r"\d+(?:_\d+)?", job_id):
        raise BadInput(f"'{job_id}' is not a Slurm job id; expected a number.")


def _always(answer: Answer) -> bool:
    return True


def _program(argv: Sequence[str]) -> str:
    return next(w for w in argv if w != "env" and "=" not in w)
