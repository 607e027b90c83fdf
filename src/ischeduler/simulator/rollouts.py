"""The twin of a queue in a trace's world: its jobs' run times drawn many times, and when a job queued now would start."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ischeduler.simulator import kernel
from ischeduler.simulator.chain import QueueAt, World

Times = NDArray[np.int64]


@dataclass(frozen=True)
class Arrivals:
    """Jobs that may arrive later, by submission; one sequence for all roll-outs."""

    submit_s: Times
    units: Times
    run_s: Times
    limit_s: Times

    @classmethod
    def none(cls) -> Arrivals:
        """Nobody comes."""
        return cls(*(np.empty(0, np.int64) for _ in range(4)))

    @classmethod
    def as_before(cls, world: World, now_s: int, back_s: int, span_s: int) -> Arrivals:
        """What arrived in the ``span_s`` that began ``back_s`` ago (a whole number of days keeps the hour), as if it came again.

        Jobs of then that have not ended by ``now_s`` are taken to run their limit: their true end is not known yet.
        """
        chosen = (world.submit_s > now_s - back_s) & (world.submit_s <= min(now_s, now_s - back_s + span_s)) & (world.row >= 0)
        known = world.end_s <= now_s
        run = np.where(known, world.run_s, world.limit_s)
        return cls(world.submit_s[chosen] + back_s, world.units[chosen], run[chosen], world.limit_s[chosen])


def start_waits_s(
    world: World, queue: QueueAt, run_s: Times, units: int, limit_s: int, arrivals: Arrivals | None = None, *, scheduler: str = "easy"
) -> NDArray[np.float64]:
    """Seconds from now until a job queued now would start, sorted, one a roll-out; infinite where it never starts.

    ``run_s``: total run times of ``queue.alive`` (running, then waiting), shape (roll-outs, jobs), each at least what has elapsed.
    Nothing else of the world's future is read.
    """
    later = arrivals or Arrivals.none()
    running, alive = len(queue.running), queue.alive
    start = world.start_s[queue.running]
    waiting = np.full(len(queue.waiting) + 1, queue.now_s)
    run = np.concatenate(
        [run_s, np.full((len(run_s), 1), limit_s), np.broadcast_to(later.run_s, (len(run_s), len(later.run_s)))], axis=1
    )
    found = kernel.rollouts(
        np.concatenate([start, waiting, later.submit_s]),
        np.concatenate([world.units[alive], [units], later.units]), run,
        np.concatenate([world.limit_s[alive], [limit_s], later.limit_s]), world.capacity, scheduler=scheduler,
        fixed_start_s=np.concatenate([start, np.full(len(run[0]) - running, -1)]), stop_at_job=len(alive),
    )[:, len(alive)]
    return np.sort(np.where(found < 0, np.inf, (found - queue.now_s).astype(float)))
