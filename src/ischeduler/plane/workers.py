"""A plane worker: one of several processes that carry the runs of all users from one shared store.

Each takes a batch of runs that are due, asks each controller once for all of them, and takes every run a step on exactly as the
single plane does: the same decisions, stored before they are acted on. What keeps workers apart is a lease on each run: a save
needs its newest token, an action at least half of its time to come. Nothing is in a worker's memory that matters, so any of them
may be killed at any instant; its runs are due for the others when their leases end.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ischeduler.core import meters
from ischeduler.core.errors import BatchUnavailable, IschedError, StoreConflict
from ischeduler.core.event import Event
from ischeduler.core.jobs import JobRef, JobSpec, Observation, Probe
from ischeduler.core.run import Run
from ischeduler.core.snapshot import QueueSnapshot
from ischeduler.plane.advance import Advance, Heard, Step, ask, listen, tell, wanted_jobs
from ischeduler.plane.cadence import Cadence, next_tick_s
from ischeduler.plane.execute import Hands
from ischeduler.plane.inputs import Observed, QueryFailed
from ischeduler.plane.leases import ClaimKeeper, StoreClock
from ischeduler.plane.policy import DEFAULT, Policy
from ischeduler.plane.provisioners import REACTIVE
from ischeduler.ports import (
    BatchDirectory,
    BatchSystem,
    Carried,
    Claim,
    EventSource,
    Foresight,
    ManyEvents,
    Notifier,
    Provisioner,
    Replanner,
    RunFiles,
    SharedStore,
    WorkerSign,
)

_LOG = logging.getLogger(__name__)
_LATE_S = 0.02
"""Clocks are compared anew at each tick: a look is not asked for a moment too early."""
_TOGETHER = 100
"""Runs stored in one transaction at most: their rows are locked until its end."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How much a worker takes on and how often it asks; times in seconds.

    ``look_s``: a controller is asked at most once in that time by all workers together, however many runs there are. ``lease_ttl_s``
    must be more than twice as long as any call to a batch system may take. ``batch``: runs taken at once.
    """

    look_s: float = 5.0
    lease_ttl_s: float = 60.0
    batch: int = 500
    sign_s: float = 10.0
    cadence: Cadence = Cadence()


@dataclass(frozen=True, slots=True)
class Round:
    """What one tick did. ``looks`` are the clusters asked; ``problems`` are for people."""

    claimed: int = 0
    changed: tuple[str, ...] = ()
    actions: int = 0
    looks: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    more: bool = False


@dataclass(frozen=True, slots=True)
class Aides:
    """What a worker makes for each owner: who answers a run's question to the planner, and who foresees the queue for it.

    ``variables`` gives each job what it needs beside its own, a token for its events, say.
    """

    replanner: Callable[[str], Replanner | None] = lambda owner: None
    foresight: Callable[[str], Foresight | None] = lambda owner: None
    variables: Callable[[Run], Mapping[str, str]] = lambda run: {}
    provisioner: Provisioner = REACTIVE


class Worker:
    """Carries due runs. ``name`` tells it apart from all other workers, those before its own restart included."""

    def __init__(
        self, store: SharedStore, directory: BatchDirectory, events: EventSource, clock: StoreClock, notifier: Notifier,
        files: RunFiles, *, name: str, host: str = "", pid: int = 0, aides: Aides | None = None, policy: Policy = DEFAULT,
        pace: Pace | None = None,
    ) -> None:
        self._store, self._directory, self._events, self._clock = store, directory, events, clock
        self._notifier, self._files, self._aides = notifier, files, aides or Aides()
        self._policy, self._pace = policy, pace or Pace()
        self._name, self._host, self._pid = name, host, pid
        self._started_at: float | None = None
        self._signed_at: float | None = None
        self._looks: dict[str, int] = {}
        self._look_at: dict[str, float] = {}
        self._in_hand: Sequence[Claim] = ()
        self._carried = 0

    def tick(self) -> Round:
        """Take what is due and carry each run a step. Raises only what the store raises; then others go on when the leases end."""
        with meters.timed("isched_worker_tick_seconds", worker=self._host):
            return self._tick()

    def _tick(self) -> Round:
        now = self._clock.sync()
        self._let_go(now)
        self._sign(now)
        granted = {c for c in self._store.due_clusters(now) if self._may_look(c, now)}
        claims = self._store.claim_runs(
            self._name, now=now, ttl_s=self._pace.lease_ttl_s, limit=self._pace.batch, clusters=granted
        )
        meters.count("isched_lease_events_total", len(claims), event="claimed")
        self._carried = len(claims)
        return self._carry(claims, granted) if claims else Round()

    def _may_look(self, cluster: str, now: float) -> bool:
        """Whether this worker, of all, has the next look at a controller."""
        granted = self._store.reserve_look(cluster, now=now, interval_s=self._pace.look_s)
        if granted:
            self._look_at[cluster] = now + self._pace.look_s
        return granted

    def _let_go(self, now: float) -> None:
        """A round that the store broke off left runs in hand: they are due at once, for whoever is first."""
        if self._in_hand:
            self._store.release_claims([(claim, now) for claim in self._in_hand])
        self._in_hand = ()

    def run_forever(self, stop: Callable[[], bool], tell_of: Callable[[Round], None] = lambda done: None) -> None:
        """Tick until ``stop`` says so. While the store does not answer, tries again, later each time."""
        failures = 0
        while not stop():
            try:
                done, failures = self.tick(), 0
            except (IschedError, OSError) as error:
                failures += 1
                done = Round(problems=(str(error),))
            tell_of(done)
            cadence = self._pace.cadence
            wait_s = 0.0 if done.more else min(cadence.slow_s, cadence.fast_s * 2.0 ** min(failures, 8))
            self._sleep(wait_s if failures else min(wait_s, self._to_next_look_s()), stop)

    def _to_next_look_s(self) -> float:
        """Until the next look that is this worker's to take: so a controller is asked as often with few runs as with many."""
        now = self._clock.now()
        return min((at - now + _LATE_S for at in self._look_at.values() if at > now), default=math.inf)

    def _sleep(self, wait_s: float, stop: Callable[[], bool]) -> None:
        left_s = wait_s
        while left_s > 0 and not stop():
            self._clock.sleep(min(left_s, self._pace.cadence.fast_s))
            left_s -= self._pace.cadence.fast_s

    def _carry(self, claims: Sequence[Claim], granted: Collection[str]) -> Round:
        self._in_hand = claims
        keeper = ClaimKeeper(self._store, self._clock, claims, self._pace.lease_ttl_s)
        problems: list[str] = []
        answers = self._ask([c.run for c in claims], granted)
        heard = self._listen([c.run for c in claims], problems)
        advances: dict[str, Advance] = {}
        releases: list[tuple[Claim, float]] = []
        quiet = _Quiet(self._store, self._clock)
        steps: list[tuple[Run, Step]] = []
        for claim in claims:
            if not keeper.holds(claim.run.id):
                meters.count("isched_lease_events_total", event="lost")
                problems.append(f"{claim.run.id}: another worker took it over")
                continue
            owner = claim.run.owner
            if owner not in advances:
                advances[owner] = self._advance_of(owner)
            step, due_at = self._one(claim, advances[owner], answers, heard.get(claim.run.id), keeper, quiet)
            steps.append((claim.run, step))
            if not quiet.takes(claim, due_at):
                releases.append((claim, due_at))
            problems += step.faults
        quiet.store()
        self._store.release_claims([*releases, *quiet.again])
        self._in_hand = ()
        meters.count("isched_lease_events_total", len(releases), event="released")
        return Round(
            len(claims), tuple(s.run.id for old, s in steps if s.run.state is not old.state), sum(s.acted for _, s in steps),
            tuple(answers), tuple(dict.fromkeys(problems)), more=len(claims) == self._pace.batch,
        )

    def _one(
        self, claim: Claim, advance: Advance, answers: Mapping[str, Observed | QueryFailed], heard: Heard | None, keeper: ClaimKeeper,
        quiet: _Quiet,
    ) -> tuple[Step, float]:
        """One run's step and when it is due again. A run that trips the worker up is put aside for a while: the others go on."""
        run, held = claim.run, _Held(claim, self._store, quiet)
        try:
            told = tell(run, answers, heard or ((), run.spool_offsets))
            step = advance.step(run, told, held.save, lambda: keeper.holds(run.id), later=quiet.hold)
        except StoreConflict:
            return Step(run, 0, ()), self._clock.now()  # its owner wished something meanwhile: the next tick sees it
        except (IschedError, OSError):
            raise
        except Exception as error:
            _LOG.exception("run %s could not be carried", run.id)
            return Step(run, 0, (f"{run.id}: {error}",)), self._clock.now() + self._pace.cadence.idle_s
        now = self._clock.now()
        return step, now + next_tick_s([step.run], now, self._pace.cadence)

    def _ask(self, runs: Sequence[Run], granted: Collection[str]) -> dict[str, Observed | QueryFailed]:
        """One query a cluster, and none where this worker has not the look: then the run hears nothing new this time."""
        answers: dict[str, Observed | QueryFailed] = {}
        for cluster, wanted in wanted_jobs(runs).items():
            if cluster in granted or self._may_look(cluster, self._clock.now()):
                answers[cluster] = ask(cluster, self._directory.observer(cluster), wanted, self._clock)
                self._looks[cluster] = self._looks.get(cluster, 0) + 1
        return answers

    def _listen(self, runs: Sequence[Run], problems: list[str]) -> Mapping[str, Heard]:
        """What all the runs' jobs said: in one question where the source can, after the look."""
        begun = [r for r in runs if r.attempts]
        many: ManyEvents | None = getattr(self._events, "read_many", None) and self._events  # type: ignore[assignment]
        if many is not None:
            try:
                return many.read_many(begun)
            except (OSError, IschedError) as error:
                problems.append(f"events could not be read ({error})")
                return {}
        found = {r.id: listen(self._events, r) for r in begun}
        problems += [words for words in found.values() if isinstance(words, str)]
        return {run_id: heard for run_id, heard in found.items() if not isinstance(heard, str)}

    def _advance_of(self, owner: str) -> Advance:
        """The hands of one owner: every action is done as that user."""
        aides = self._aides
        hands = Hands(
            self._store, _ActingAs(self._directory, owner), self._clock, self._notifier, self._files, aides.replanner(owner), aides.variables
        )
        return Advance(hands, self._clock, policy=self._policy, provisioner=aides.provisioner, foresight=aides.foresight(owner))

    def _sign(self, now: float) -> None:
        if self._started_at is None:
            self._started_at = now
        if self._signed_at is None or now - self._signed_at >= self._pace.sign_s:
            self._store.sign(WorkerSign(self._name, self._host, self._pid, self._started_at, now, self._carried, dict(self._looks)))
            self._signed_at = now
            meters.gauge("isched_worker_runs", self._carried, worker=self._host)


class _Quiet:
    """Runs about which there is nothing to do, stored and given back many in one transaction: most of what a worker writes."""

    def __init__(self, store: SharedStore, clock: StoreClock) -> None:
        self._store, self._clock = store, clock
        self._held: tuple[Run, Sequence[Event]] | None = None
        self._waiting: list[Carried] = []
        self.again: list[tuple[Claim, float]] = []
        """Claims of those that somebody changed meanwhile: due at once."""

    def hold(self, run: Run, events: Sequence[Event]) -> None:
        """The run of the step that is being taken."""
        self._held = run, events

    def takes(self, claim: Claim, due_at: float) -> bool:
        """Whether the step just taken was such a one; then it is stored with the next."""
        if self._held is None:
            return False
        self._waiting.append(Carried(claim, *self._held, due_at))
        self._held = None
        if len(self._waiting) >= _TOGETHER:
            self.store()
        return True

    def store(self) -> None:
        """Store those that wait."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            saved = self._store.save_and_release(waiting)
            self.again += [(c.claim, self._clock.now()) for c in waiting if c.run.id not in saved]


@dataclass(slots=True)
class _Held:
    """Saves under a claim; before anything is done, what waits to be stored is stored: an action may take a minute."""

    claim: Claim
    store: SharedStore
    quiet: _Quiet

    def save(self, run: Run, events: Sequence[Event]) -> Run:
        self.quiet.store()
        self.claim = self.store.save_claimed(self.claim, run, events)
        return self.claim.run


class _ActingAs(Mapping[str, BatchSystem]):
    """One owner's batch systems, made when first acted on: most runs only need a look."""

    def __init__(self, directory: BatchDirectory, owner: str) -> None:
        self._directory, self._owner = directory, owner
        self._found: Mapping[str, BatchSystem] | None = None
        self._trouble = ""

    def _all(self) -> Mapping[str, BatchSystem]:
        if self._found is None:
            try:
                self._found = self._directory.of(self._owner)
            except IschedError as error:
                self._found, self._trouble = dict[str, BatchSystem](), str(error)
        return self._found

    def __getitem__(self, cluster: str) -> BatchSystem:
        found = self._all()
        return _Barred(cluster, self._trouble) if self._trouble else found[cluster]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


class _Barred:
    """A cluster that one cannot act on as this owner now: every call says why, and nothing was sent."""

    def __init__(self, name: str, why: str) -> None:
        self.name, self._why = name, why

    def submit(self, job: JobSpec) -> str:
        raise BatchUnavailable(self._why)

    def observe(self, jobs: Collection[JobRef]) -> Observation:
        raise BatchUnavailable(self._why)

    def cancel(self, job_id: str, *, signal: str | None = None) -> None:
        raise BatchUnavailable(self._why)

    def snapshot(self) -> QueueSnapshot:
        raise BatchUnavailable(self._why)

    def probe(self, job: JobSpec) -> Probe:
        raise BatchUnavailable(self._why)


__all__ = ["Aides", "Pace", "Round", "Worker"]
