"""Carrying a steered pool's changes out: the queue first, then the run's own row; what a crash leaves half done is asked for again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from ischeduler.core.errors import AmendRefused, BatchUnavailable, IschedError, NotFound
from ischeduler.core.jobs import JobChange
from ischeduler.core.plan import Plan
from ischeduler.core.pool import Pool
from ischeduler.core.run import Run
from ischeduler.plane.pools.slow_nodes import slow_nodes
from ischeduler.plane.pools.steer import QueueChange, Steering, steer
from ischeduler.policies.problem import Allocation
from ischeduler.ports import Amending, BatchSystem, Store


class Moves(Protocol):
    """What steering asks of the plane."""

    def move(self, run_id: str, plan: Plan) -> Run:
        """Let a run save and go on with another plan."""
        ...

    def avoid(self, run_id: str, nodes: tuple[str, ...], why: str) -> Run:
        """A run's next jobs shall keep off these nodes."""
        ...

    def amended(self, run_id: str, job_id: str, plan: Plan) -> Run:
        """A waiting job was given what another plan asks for: that is the run's plan now."""
        ...


class Steerer:
    """One owner's hands for pools in mode 'steer'. ``batches`` by cluster, asked for when needed."""

    def __init__(self, store: Store, plane: Moves, batches: Callable[[], Mapping[str, BatchSystem]]) -> None:
        self._store, self._plane, self._batches = store, plane, batches

    def propose(self, pool: Pool, now: float, memory: Allocation | None = None, *, whole: bool | None = None) -> Steering:
        """What would be done. Changes nothing."""
        runs = {m.run_id: run for m in pool.members if (run := self._run(m.run_id)) is not None}
        begins = whole if whole is not None else pool.next_round_at is None or now >= pool.next_round_at
        slow = slow_nodes(runs, {i: [e for _, e in self._store.events(i)] for i in runs}) if begins else {}
        return steer(pool, runs, now, memory, whole=begins, slow=slow)

    def carry_out(self, change: QueueChange) -> None:
        """Do it. Raises IschedError with one sentence."""
        if change.kind != "amend":
            assert change.plan is not None
            if change.avoid:
                self._plane.avoid(change.run_id, change.avoid, change.why)
            self._plane.move(change.run_id, change.plan)
            return
        assert change.change is not None
        batch = self._batches().get(change.cluster)
        if batch is None:
            raise BatchUnavailable(f"cluster '{change.cluster}' is not configured here")
        hands, first = amending(batch), replace(change.change, site_factor=None)
        if first != JobChange():
            hands.amend(change.job_id, first)
        if change.plan is not None:
            self._plane.amended(change.run_id, change.job_id, change.plan)
        if change.change.site_factor is not None:  # by itself: it may be refused where all else is allowed
            hands.amend(change.job_id, JobChange(site_factor=change.change.site_factor))

    def _run(self, run_id: str) -> Run | None:
        try:
            return self._store.get_run(run_id)
        except NotFound:
            return None


def amending(batch: BatchSystem) -> Amending:
    """The batch system as one that changes waiting jobs. AmendRefused where it cannot."""
    if isinstance(batch, Amending):
        return batch
    raise AmendRefused(f"{batch.name} cannot change jobs that wait; a pool can move its members there, or use pilots.")


def words_of(error: IschedError, change: QueueChange) -> str:
    """A failed change for the pool's problems."""
    return f"{change.run_id}: {change.kind} of job {change.job_id} did not succeed ({error})"
