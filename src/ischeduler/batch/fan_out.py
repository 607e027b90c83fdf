"""Looking at many users' jobs where each user is asked with their own rights: one after another would take too long."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from ischeduler.core.errors import BatchUnavailable, IschedError
from ischeduler.core.jobs import JobRef, JobSpec, JobStatus, Observation, Probe
from ischeduler.core.snapshot import QueueSnapshot
from ischeduler.ports import BatchSystem, Clock

_SIDE_BY_SIDE = 16


class ByOwner:
    """The observer of a cluster that shows each user only their own jobs.

    ``owners`` tells whose a job is, by key; ``of`` gives an owner's batch system (IschedError where there is none now). One owner who
    cannot be asked leaves that owner's jobs unknown, and nobody else's. ``first`` are owners whose word on the whole queue is taken
    before others'.
    """

    def __init__(
        self, name: str, owners: Callable[[Collection[str]], Mapping[str, str]], of: Callable[[str], BatchSystem], clock: Clock,
        first: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self._name, self._owners, self._of, self._clock, self._first = name, owners, of, clock, tuple(first)
        self._seen: dict[str, None] = {}

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self._name

    def observe(self, jobs: Collection[JobRef]) -> Observation:
        """Each owner's jobs as that owner. BatchUnavailable when nobody could be asked."""
        taken_at, shares, stray = self._clock.now(), dict[str, list[JobRef]](), list[JobRef]()
        owners = self._owners([r.key for r in jobs])
        for ref in jobs:
            owner = owners.get(ref.key)
            (stray if owner is None else shares.setdefault(owner, [])).append(ref)
        self._seen |= dict.fromkeys(shares)
        with ThreadPoolExecutor(min(_SIDE_BY_SIDE, len(shares) or 1)) as pool:
            answers = list(pool.map(self._ask, shares, shares.values()))
        if answers and all(isinstance(a, str) for a in answers):
            raise BatchUnavailable(str(answers[0]))
        found: dict[str, tuple[JobStatus, ...]] = {}
        unknown = {r.key for r in stray}
        complete = True
        for share, answer in zip(shares.values(), answers, strict=True):
            if isinstance(answer, str):
                unknown |= {r.key for r in share}
            else:
                found.update(answer.jobs)
                unknown |= answer.unknown
                complete = complete and answer.complete
        return Observation(taken_at, found, complete, frozenset(unknown))

    def snapshot(self) -> QueueSnapshot:
        """The queue as the first who answers sees it."""
        problem = "nobody has been asked about this cluster yet"
        for owner in dict.fromkeys([*self._first, *self._seen]):
            try:
                return self._of(owner).snapshot()
            except IschedError as error:
                problem = str(error)
        raise BatchUnavailable(f"the queue of {self._name} is not known: {problem}.")

    def submit(self, job: JobSpec) -> str:
        """Nobody acts through an observer."""
        raise BatchUnavailable(f"jobs of {self._name} are submitted by their owners.")

    def cancel(self, job_id: str, *, signal: str | None = None) -> None:
        """Nobody acts through an observer."""
        raise BatchUnavailable(f"jobs of {self._name} are ended by their owners.")

    def probe(self, job: JobSpec) -> Probe:
        """Nobody asks for somebody else."""
        raise BatchUnavailable(f"{self._name} is asked by each user alone.")

    def _ask(self, owner: str, refs: Sequence[JobRef]) -> Observation | str:
        try:
            return self._of(owner).observe(refs)
        except IschedError as error:
            return str(error)
