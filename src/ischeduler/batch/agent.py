"""A batch system behind a user's own agent: requests are left in a mailbox, the agent fetches them, acts, and answers.

For centres that give no API: nothing reaches in. Calls wait some seconds for the answer. A submission that no agent has begun is
taken back, so it surely never happened; one that was begun and not answered is uncertain, and the plane looks its key up.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Protocol

from ischeduler.batch.agent_words import value_of
from ischeduler.core.cluster import Cluster
from ischeduler.core.codec import from_plain, to_plain
from ischeduler.core.errors import BatchUnavailable, SubmitUncertain
from ischeduler.core.jobs import JobRef, JobSpec, Observation, Probe
from ischeduler.core.run import Run
from ischeduler.core.snapshot import QueueSnapshot
from ischeduler.ports import Clock

BEGIN_S, WAIT_S, LOOK_S = 10.0, 20.0, 0.1
"""A request is begun within ``BEGIN_S`` or never; its answer is waited for up to ``WAIT_S``, looking every ``LOOK_S``."""


class AgentAway(BatchUnavailable):
    """No agent of that user is there. Nothing was asked."""


class MailboxPort(Protocol):
    """What is needed of the mailbox (:class:`ischeduler.store.mailbox.Mailbox`)."""

    def post(self, owner: str, cluster: str, kind: str, body: Mapping[str, Any], ttl_s: float) -> int: ...
    def answer(self, number: int) -> Mapping[str, Any] | None: ...
    def withdraw(self, number: int) -> bool: ...
    def alive(self, owner: str, cluster: str) -> bool: ...


class Errands:
    """Asks one user's agent on one cluster."""

    def __init__(self, mailbox: MailboxPort, owner: str, cluster: str, clock: Clock) -> None:
        self._mailbox, self._owner, self._cluster, self._clock = mailbox, owner, cluster, clock

    def ask(self, kind: str, body: Mapping[str, Any]) -> Any:
        """The answer's value; its error raised. AgentAway, BatchUnavailable (never begun), or SubmitUncertain (begun, not answered)."""
        if not self._mailbox.alive(self._owner, self._cluster):
            raise AgentAway(f"no agent of {self._owner} is at work on {self._cluster}; start one there: isched agent")
        number = self._mailbox.post(self._owner, self._cluster, kind, to_plain(body), BEGIN_S)
        until = self._clock.now() + WAIT_S
        while (answer := self._mailbox.answer(number)) is None and self._clock.now() < until:
            self._clock.sleep(LOOK_S)
        if answer is not None:
            return value_of(answer)
        if self._mailbox.withdraw(number):
            raise BatchUnavailable(f"the agent of {self._owner} on {self._cluster} did not fetch the request; nothing was done.")
        raise SubmitUncertain(
            f"the agent of {self._owner} on {self._cluster} began '{kind}' and has not answered; look what became of it."
        )


class AgentBatch:
    """One cluster as one user's agent sees it and acts on it."""

    def __init__(self, mailbox: MailboxPort, owner: str, cluster: str, clock: Clock) -> None:
        self._errands, self._name = Errands(mailbox, owner, cluster, clock), cluster

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self._name

    def submit(self, job: JobSpec) -> str:
        """Submitted by the agent; see the port for what may be raised."""
        return str(self._errands.ask("submit", {"job": job}))

    def observe(self, jobs: Collection[JobRef]) -> Observation:
        """What the agent's Slurm says of all of them, in one question."""
        return from_plain(Observation, self._question("observe", {"jobs": list(jobs)}))

    def cancel(self, job_id: str, *, signal: str | None = None) -> None:
        """Ended, or signalled, by the agent."""
        self._question("cancel", {"job_id": job_id, "signal": signal})

    def snapshot(self) -> QueueSnapshot:
        """The queue as the agent's user sees it."""
        return replace(from_plain(QueueSnapshot, self._question("snapshot", {})), cluster=self._name)

    def probe(self, job: JobSpec) -> Probe:
        """Asked by the agent."""
        return from_plain(Probe, self._question("probe", {"job": job}))

    def cluster(self, now: float) -> Cluster:
        """Partitions, node types and limits as the agent reads them."""
        return replace(from_plain(Cluster, self._question("discover", {})), name=self._name)

    def _question(self, kind: str, body: Mapping[str, Any]) -> Any:
        """What may be asked again at any time is never uncertain."""
        try:
            return self._errands.ask(kind, body)
        except SubmitUncertain as error:
            raise BatchUnavailable(str(error)) from None
        except (KeyError, TypeError) as error:
            raise BatchUnavailable(f"the agent's answer makes no sense ({error}).") from None


class AgentRunFiles:
    """Run directories by the hands of each owner's agent, which is that user on a host that has the file system."""

    def __init__(self, mailbox: MailboxPort, clock: Clock) -> None:
        self._mailbox, self._clock = mailbox, clock

    def prepare(self, run: Run) -> None:
        """Create the directory and its ``run.json`` where missing."""
        self._ask("prepare", run)

    def raise_fence(self, run: Run, token: str) -> None:
        """Lift the fence, never down."""
        self._ask("fence", run, token=token)

    def control(self, run: Run, token: str, word: str) -> None:
        """Leave a word for a running incarnation."""
        self._ask("control", run, token=token, word=word)

    def log_tail(self, run: Run, attempt: int) -> str:
        """The last lines of an attempt's output."""
        return str(self._ask("log", run, attempt=attempt))

    def _ask(self, kind: str, run: Run, **more: Any) -> Any:
        """OSError where the agent is away or failed: what the plane expects of a directory that cannot be written now."""
        cluster = run.attempt.cluster if run.attempt is not None else run.plan.cluster
        bare = replace(run, attempts=(), first_plan=None, move_to=None)
        try:
            return Errands(self._mailbox, run.owner, cluster, self._clock).ask(kind, {"run": bare, **more})
        except BatchUnavailable as error:
            raise OSError(str(error)) from None
