"""The reconcile tick around the pure decisions: observe, decide, store, act, and feed the answers back.

A tick may be run by a daemon, by cron or by any command; whoever holds the lease does it. Whatever a tick wants done is
stored before it is done, so that killing it between any two calls loses nothing and doubles nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from ischeduler.core.errors import IschedError, StoreConflict
from ischeduler.core.event import Event
from ischeduler.core.plan import Plan
from ischeduler.core.run import Run, RunState
from ischeduler.plane.advance import Advance, ask, listen, tell, wanted_jobs
from ischeduler.plane.cadence import Cadence, next_tick_s
from ischeduler.plane.decide import absorb
from ischeduler.plane.execute import Hands
from ischeduler.plane.inputs import Amended, AvoidAsked, CancelAsked, Input, MoveAsked
from ischeduler.plane.leases import LeaseKeeper
from ischeduler.plane.policy import DEFAULT, Policy
from ischeduler.plane.provisioners import REACTIVE
from ischeduler.plane.transitions import LIVE
from ischeduler.ports import BatchSystem, Clock, EventSource, Foresight, Notifier, Provisioner, Replanner, RunFiles, Store

REQUEST_TRIES = 8


@dataclass(frozen=True, slots=True)
class TickReport:
    """What a tick did. ``held`` is False when another holder has the lease: then nothing was done."""

    held: bool
    runs: int = 0
    changed: tuple[str, ...] = ()
    actions: int = 0
    problems: tuple[str, ...] = ()
    next_tick_s: float = 0.0
    states: Mapping[str, RunState] = field(default_factory=dict[str, RunState])


class Plane:
    """The Intelligence Plane of one owner: carries that owner's runs on the given clusters.

    ``job_variables`` are given to every job beside its own: how it may call the plane, say. ``foresight``, where given, names the
    provisioner of each run at each tick; else it is ``provisioner``.
    """

    def __init__(
        self, store: Store, batches: Mapping[str, BatchSystem], events: EventSource, clock: Clock, notifier: Notifier,
        files: RunFiles, *, owner: str, holder: str, replanner: Replanner | None = None,
        provisioner: Provisioner = REACTIVE, policy: Policy = DEFAULT, cadence: Cadence | None = None, lease_ttl_s: float = 60.0,
        job_variables: Mapping[str, str] | None = None, foresight: Foresight | None = None,
    ) -> None:
        self._store, self._batches, self._events, self._clock = store, batches, events, clock
        self._owner, self._holder, self._lease_ttl_s = owner, holder, lease_ttl_s
        self._policy, self._cadence = policy, cadence or Cadence()
        hands = Hands(store, batches, clock, notifier, files, replanner, lambda run: job_variables or {})
        self._advance = Advance(hands, clock, policy=policy, provisioner=provisioner, foresight=foresight)

    @property
    def lease_name(self) -> str:
        """One lease an owner: all of an owner's runs are carried by one hand."""
        return f"plane:{self._owner}"

    def delegate(self, run: Run) -> Run:
        """Store a new run in state planned; the next tick starts it."""
        return self._store.create_run(run)

    def cancel(self, run_id: str) -> Run:
        """Note that the owner wants the run to end; the next tick acts on it. An ended run stays as it is."""
        return self._request(run_id, CancelAsked(), Event(run_id, "cancel_asked", self._clock.now(), source="user"))

    def move(self, run_id: str, plan: Plan) -> Run:
        """Note that the owner wants the run to go on with another plan; the next tick acts on it."""
        event = Event(run_id, "move_asked", self._clock.now(), source="user", data={"to": plan.where})
        return self._request(run_id, MoveAsked(plan), event)

    def amended(self, run_id: str, job_id: str, plan: Plan) -> Run:
        """Note that a waiting job was given what ``plan`` asks for."""
        event = Event(run_id, "amended", self._clock.now(), source="plane", data={"job": job_id, "to": plan.where})
        return self._request(run_id, Amended(job_id, plan), event)

    def avoid(self, run_id: str, nodes: tuple[str, ...], why: str) -> Run:
        """Note that the run's next jobs shall keep off these nodes."""
        event = Event(run_id, "avoid_asked", self._clock.now(), source="plane", data={"nodes": list(nodes), "why": why})
        return self._request(run_id, AvoidAsked(nodes), event)

    def _request(self, run_id: str, wish: Input, event: Event) -> Run:
        """Take a wish in beside whoever holds the lease: compare and swap, tried again when the other was faster."""
        for _ in range(REQUEST_TRIES):
            run = self._store.get_run(run_id)
            wished, _ = absorb(run, wish, self._clock.now(), self._policy)
            if wished == run:
                return run
            try:
                return self._store.save_run(wished, (event,))
            except StoreConflict:
                continue
        raise StoreConflict(f"Run {run_id} is being changed all the time; try again in a moment.")

    def tick(self, run_ids: Collection[str] | None = None) -> TickReport:
        """One round over all live runs (or those named). Raises only what the store raises."""
        lease = self._store.acquire_lease(self.lease_name, self._holder, self._lease_ttl_s, self._clock.now())
        if lease is None:
            return TickReport(held=False, next_tick_s=self._lease_ttl_s / 4)
        try:
            keeper = LeaseKeeper(self._store, self._clock, lease, self._lease_ttl_s)
            return self._tick(keeper, run_ids)
        finally:
            self._store.release_lease(lease)

    def run_forever(self, stop: Callable[[], bool]) -> None:
        """Tick until ``stop`` says so, as often as the runs are worth it. A tick that fails is tried again, later each time."""
        failures = 0
        while not stop():
            try:
                wait_s, failures = self.tick().next_tick_s, 0
            except (IschedError, OSError):
                failures += 1
                wait_s = min(self._cadence.idle_s, self._cadence.fast_s * 2.0**failures)
            self._sleep(wait_s, stop)

    def _sleep(self, wait_s: float, stop: Callable[[], bool]) -> None:
        """In small pieces, so that a stop or a new run is not kept waiting."""
        until = self._clock.now() + wait_s
        while not stop() and (left_s := until - self._clock.now()) > 0:
            self._clock.sleep(min(left_s, self._cadence.fast_s))

    def _tick(self, keeper: LeaseKeeper, run_ids: Collection[str] | None) -> TickReport:
        runs = [r for r in self._store.list_runs(owner=self._owner, states=LIVE) if run_ids is None or r.id in run_ids]
        answers = {c: ask(c, self._batches.get(c), wanted, self._clock) for c, wanted in wanted_jobs(runs).items()}
        changed, problems, count = list[str](), list[str](), 0
        after: dict[str, Run] = {}
        for run in runs:
            if not keeper.holds():
                problems.append("the lease was lost; the next tick goes on")
                break
            heard = listen(self._events, run)
            if isinstance(heard, str):
                problems.append(heard)
                heard = (), run.spool_offsets
            try:
                step = self._advance.step(run, tell(run, answers, heard), self._store.save_run, keeper.holds)
            except StoreConflict:
                continue  # someone asked something of this run meanwhile: the next tick sees it
            after[run.id] = step.run
            count += step.acted
            problems += step.faults
            if step.run.state is not run.state:
                changed.append(run.id)
        now = self._clock.now()
        live = [after.get(r.id, r) for r in runs]
        return TickReport(
            True, len(runs), tuple(changed), count, tuple(dict.fromkeys(problems)), next_tick_s(live, now, self._cadence),
            {r.id: r.state for r in live},
        )
