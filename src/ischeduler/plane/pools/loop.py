"""The tick around the pure rounds: look, decide, save, act. Whoever holds the pool's lease does it; its token fences the orders."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, assert_never

from ischeduler.core.errors import BadInput, BatchUnavailable, IschedError, NotFound, StoreConflict
from ischeduler.core.pilots import PilotOrders
from ischeduler.core.plan import Plan
from ischeduler.core.pool import Pool, PoolState
from ischeduler.core.run import Run
from ischeduler.plane.attempts import alive, by_key
from ischeduler.plane.pools.decide import decide, next_tick_s
from ischeduler.plane.pools.hire import pilot_run_of
from ischeduler.plane.pools.seats import warm_up
from ischeduler.plane.pools.seen import (
    AskPilot,
    ClosePilot,
    PoolAction,
    ReleasePilot,
    Resize,
    Seen,
    Steps,
    member_seen,
    pilot_run,
)
from ischeduler.plane.pools.sizes import plan_of_size
from ischeduler.plane.pools.slow_nodes import SlowSeen
from ischeduler.plane.pools.steer import Steering, not_given
from ischeduler.plane.pools.steering import Steerer, words_of
from ischeduler.policies.problem import Allocation
from ischeduler.ports import Clock, Lease, PilotFloor, PoolStore, Store

SAVE_TRIES = 4
KEPT_S = 3600.0
"""How long a segment that is over stays on the floor, where nobody but people looks at it; its output and events are its run's."""
SWEEP_S = 600.0


class Wishes(Protocol):
    """What a pool asks of the plane."""

    def delegate(self, run: Run) -> Run:
        """Take a new run."""
        ...

    def cancel(self, run_id: str) -> Run:
        """End a run."""
        ...

    def move(self, run_id: str, plan: Plan) -> Run:
        """Let a run save and go on with another plan."""
        ...


@dataclass(frozen=True, slots=True)
class PoolsReport:
    """What a tick over all pools did: how many were looked at, what went wrong, and when the next look is worth it (None: there are none)."""

    pools: int = 0
    actions: int = 0
    problems: tuple[str, ...] = ()
    next_tick_s: float | None = None


class Pools:
    """The live pools of one owner. ``floor`` finds a pool's directory by its name; ``python`` runs pilots, ``runs_dir`` is for their runs."""

    def __init__(
        self, pools: PoolStore, store: Store, plane: Wishes, floor: Callable[[str], PilotFloor], clock: Clock, *, owner: str, holder: str,
        python: str, runs_dir: str, fast_s: float = 1.0, lease_ttl_s: float = 60.0,
        steerer: Steerer | None = None,
    ) -> None:  # fmt: skip
        self._pools, self._store, self._plane, self._floor, self._clock = pools, store, plane, floor, clock
        self._owner, self._holder, self._python, self._runs_dir = owner, holder, python, runs_dir
        self._fast_s, self._lease_ttl_s = fast_s, lease_ttl_s
        self._steerer = steerer
        self._memory: dict[str, Allocation | None] = {}
        self._warm: set[str] = set()
        self._swept_at: dict[str, float] = {}
        self._slow = SlowSeen(store)

    def tick(self) -> PoolsReport:
        """One look at every pool that is not drained. Raises only what the store raises."""
        live = [p for p in self._pools.list(self._owner) if p.state is not PoolState.DRAINED and (p.mode == "pilots" or self._steerer is not None)]
        waits, problems, actions = list[float](), list[str](), 0
        for policy in {p.policy for p in live} - self._warm:
            # Loading (and compiling) a policy may take many seconds: not with a pool's lease in hand, nor between a look and what follows it.
            self._warm.add(policy)
            warm_up(policy)
        for pool in live:
            lease = self._store.acquire_lease(f"pool:{pool.owner}/{pool.name}", self._holder, self._lease_ttl_s, self._clock.now())
            if lease is None:
                waits.append(self._lease_ttl_s / 4)
                continue
            try:
                step = self._step if pool.mode == "pilots" else self._steer
                done, wait_s = step(pool.name, lease, problems)
                actions, waits = actions + done, [*waits, wait_s]
            finally:
                self._store.release_lease(lease)
        return PoolsReport(len(live), actions, tuple(problems), min(waits, default=None))

    def _step(self, name: str, lease: Lease, problems: list[str]) -> tuple[int, float]:
        """One pool: (actions, seconds until the next look). A change of its owner meanwhile is looked at the next time."""
        try:
            pool = self._pools.get(self._owner, name)
            floor = self._floor(name)
            seen = self._look(pool, floor)
            now = self._clock.now()
            decision = decide(pool, seen, now, self._memory.get(name))
            pool = self._pools.save(decision.pool) if decision.pool != pool else pool
            self._memory[name] = decision.memory
        except StoreConflict:
            return 0, self._fast_s
        except (BatchUnavailable, NotFound, KeyError) as error:
            problems.append(f"pool {name}: {error}")
            return 0, 10 * self._fast_s
        for action in decision.actions:
            try:
                self._do(pool, floor, action, lease, now)
            except (IschedError, OSError) as error:
                problems.append(f"pool {name}: {error}")
        self._sweep(name, floor, now, problems)
        if pool.trouble:
            problems.append(f"pool {name}: {pool.trouble}")
        return len(decision.actions), next_tick_s(pool, seen, now, self._fast_s)

    def _steer(self, name: str, lease: Lease, problems: list[str]) -> tuple[int, float]:
        """As :meth:`_step`, for a pool without pilots."""
        done = self.steer(name, problems=problems)
        return len(done.changes), max(10 * self._fast_s, min(60.0, done.pool.round_s / 60))

    def steer(self, name: str, *, dry_run: bool = False, whole: bool | None = None, problems: list[str] | None = None) -> Steering:
        """One look at a pool in mode 'steer': what is to be changed, saved and done (with ``dry_run`` neither). ``whole``: a round begins now."""
        if self._steerer is None:
            raise BadInput("pools cannot be steered from here.")
        now, told = self._clock.now(), problems if problems is not None else list[str]()
        pool = self._pools.get(self._owner, name)
        found = self._steerer.propose(pool, now, self._memory.get(name), whole=whole)
        if dry_run:
            return found
        try:
            saved = self._pools.save(found.pool) if found.pool != pool else pool
        except StoreConflict:
            return Steering(pool, ())
        self._memory[name] = found.memory
        refused: list[str] = []
        for change in found.changes:
            try:
                self._steerer.carry_out(change)
            except (IschedError, OSError) as error:
                refused.append(change.run_id)
                told.append(f"pool {name}: {words_of(error, change) if isinstance(error, IschedError) else error}")
        if refused:
            with contextlib.suppress(StoreConflict):
                saved = self.change(name, lambda p: not_given(p, pool, refused))
        if saved.trouble:
            told.append(f"pool {name}: {saved.trouble}")
        return Steering(saved, found.changes, found.memory)

    def _look(self, pool: Pool, floor: PilotFloor) -> Seen:
        """Segments and pilots first, then the runs: a pilot that ended meanwhile has its last word read."""
        now = self._clock.now()
        since = min(now - max(60.0, pool.round_s), now if pool.accounted_to is None else pool.accounted_to)
        jobs, signs = tuple(floor.jobs(since)), tuple(floor.signs())
        runs = {m.run_id: run for m in pool.members if (run := self._run(m.run_id)) is not None}
        members = {i: member_seen(run) for i, run in runs.items()}
        pilots = {p.run_id: pilot_run(run) for p in pool.pilots if (run := self._run(p.run_id)) is not None}
        begins = pool.next_round_at is None or now >= pool.next_round_at
        return Seen(signs, jobs, members, pilots, self._slow.look(pool.name, runs, signs, anew=begins))

    def _sweep(self, name: str, floor: PilotFloor, now: float, problems: list[str]) -> None:
        """Now and then, take away segments whose ends their runs have understood. The accounts are kept until now: none of them counts any more."""
        if now - self._swept_at.get(name, -SWEEP_S) < SWEEP_S:
            return
        self._swept_at[name] = now
        try:
            floor.sweep(now - KEPT_S, self._done_with)
        except (IschedError, OSError) as error:
            problems.append(f"pool {name}: what is over could not be taken away ({error})")

    def _done_with(self, key: str) -> bool:
        """Whether nobody will ask for a segment again: its run has ended (and said so), or has understood how it ended."""
        run = self._run(key.rpartition("-")[0])
        if run is None or run.state.ended:
            return True
        attempt = by_key(run, key)
        return attempt is not None and not alive(attempt) and attempt.cause is not None

    def _run(self, run_id: str) -> Run | None:
        try:
            return self._store.get_run(run_id)
        except NotFound:
            return None

    def _do(self, pool: Pool, floor: PilotFloor, action: PoolAction, lease: Lease, now: float) -> None:
        match action:
            case Steps():
                look_s = min(2.0, max(0.1, pool.round_s / 60))
                floor.order(PilotOrders(action.pilot, lease.token, action.steps, look_s))
            case ClosePilot():
                floor.close(action.name)
            case AskPilot():
                self._hire(pool, action, now)
            case ReleasePilot():
                self._release(action.run_id)
            case Resize():
                self._resize(pool, action)
            case _:
                assert_never(action)

    def _hire(self, pool: Pool, action: AskPilot, now: float) -> None:
        try:
            self._plane.delegate(pilot_run_of(pool, action.type, action.run_id, self._python, self._runs_dir, now))
        except StoreConflict:
            pass  # delegated already

    def _resize(self, pool: Pool, action: Resize) -> None:
        """Asked at every look until it is done: the same wish twice is one."""
        run = self._run(action.run_id)
        if run is not None and not run.state.ended and (run.move_to is None or run.move_to.cluster == run.plan.cluster):
            self._plane.move(action.run_id, plan_of_size(run.plan, action.gpus, pool))

    def _release(self, run_id: str) -> None:
        run = self._run(run_id)
        if run is not None and not run.state.ended and not run.cancel_requested:
            self._plane.cancel(run_id)

    def change(self, name: str, how: Callable[[Pool], Pool]) -> Pool:
        """Change a pool beside whoever keeps it: compare and swap, tried again when the other was faster."""
        for _ in range(SAVE_TRIES):
            pool = self._pools.get(self._owner, name)
            try:
                return self._pools.save(replace(how(pool), version=pool.version))
            except StoreConflict:
                self._clock.sleep(0.05)
        raise StoreConflict(f"Pool {name} is being changed all the time; try again in a moment.")
