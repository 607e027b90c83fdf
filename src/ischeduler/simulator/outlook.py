"""A live queue run forward many times: when would a job that is handed in now start? Pure, given a source of random numbers.

Every roll-out draws true run times for the jobs alive and jobs that arrive later, and runs EASY backfill over them. The same draws serve
all variants of a question, so their differences are not noise.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ischeduler.core.snapshot import FinishedJob
from ischeduler.simulator.live import LiveQueue, Pool, units_of
from ischeduler.simulator.runlaw import RunLaw

if TYPE_CHECKING:
    from numpy import float64, int64
    from numpy.random import Generator
    from numpy.typing import NDArray

ROLLS = 200
STREAMS = 8
"""Sequences of arrivals; the roll-outs are dealt out to them."""
ARRIVALS_MOST = 2000
AT_ONCE_S, DELAYS_LEAST, SCHED_INTERVAL_S = 120.0, 20, 60.0
"""slurm.conf(5), SchedulerParameters, sched_interval: the main loop runs once a minute at the latest."""
LOOK_BACK_S = 7 * 86400.0
HOLE_LEAST_S = 300
DEPTH = 500
"""Jobs that backfill looks at in one pass; Slurm's own default (slurm.conf(5), bf_max_job_test)."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A job that might be handed in: ``gpus`` over all nodes."""

    nodes: int = 1
    gpus: int = 0
    limit_s: int = 3600


@dataclass(frozen=True, slots=True)
class Hole:
    """So much is free now, for so long: a job of at most that length starts at once (backfill); None: for ever."""

    amount: float
    seconds: int | None


@dataclass(frozen=True, eq=False)
class Draws:
    """Run times of the jobs alive, streams of later arrivals (submit from now, units, limit, run), each an array of seconds, and how
    long the scheduler takes to start what could start, one a roll-out."""

    runs: NDArray[int64]
    delay_s: NDArray[float64]
    streams: tuple[tuple[NDArray[int64], NDArray[int64], NDArray[int64], NDArray[int64]], ...]


def draws(
    queue: LiveQueue, law: RunLaw, finished: Sequence[FinishedJob], random: Generator, rolls: int = ROLLS, *, to_their_limit: Collection[str] = (),
) -> Draws:
    """What the roll-outs need, drawn once. Jobs named in ``to_their_limit`` are known to use all of their time."""
    streams, runs = min(STREAMS, rolls), law.sample(queue, rolls, random)
    for i, job in enumerate(queue.jobs):
        if job is not None and job.job_id in to_their_limit:
            runs[:, i] = queue.limit_s[i]
    return Draws(runs, _delays(queue, finished, rolls, random), tuple(_arrivals(queue, finished, random) for _ in range(streams)))


def waits(queue: LiveQueue, ask: Ask, drawn: Draws) -> NDArray[float64]:
    """Seconds from now to the start of the job, one a roll-out; infinite where it never starts."""
    import numpy as np

    mine = units_of(queue.pool, ask.nodes, ask.gpus)
    if not 0 < mine <= queue.pool.capacity:
        return np.full(len(drawn.runs), math.inf)
    found = np.empty(len(drawn.runs))
    with ThreadPoolExecutor() as threads:
        rolled = threads.map(lambda i: _rolled(queue, ask, mine, drawn, i), range(len(drawn.streams)))
        for i, seconds in enumerate(rolled):
            found[i :: len(drawn.streams)] = seconds
    return found + drawn.delay_s


def _delays(queue: LiveQueue, finished: Sequence[FinishedJob], rolls: int, random: Generator) -> NDArray[float64]:
    """Waits of those who hardly waited: the scheduler's own rhythm as this site shows it, else up to Slurm's default interval."""
    import numpy as np

    recent = [j.start_s - j.submit_s for j in finished if j.partition in queue.pool.partitions and j.start_s <= queue.now_s]
    short = [s for s in recent if 0 <= s <= AT_ONCE_S]
    if len(short) < DELAYS_LEAST:
        return random.random(rolls) * SCHED_INTERVAL_S
    return np.sort(np.array(short))[(random.random(rolls) * len(short)).astype(np.int64)]


def _rolled(queue: LiveQueue, ask: Ask, mine: int, drawn: Draws, stream: int) -> NDArray[float64]:
    """The waits of one stream's roll-outs. Jobs that run enter by their remaining times, the soonest end first."""
    import numpy as np

    from ischeduler.simulator.kernel import rollouts

    later, units, limits, runs = drawn.streams[stream]
    rows, since = drawn.runs[stream :: len(drawn.streams)], np.maximum(queue.elapsed_s, 0)
    left = queue.limit_s - since
    order = np.concatenate([np.argsort(left[: queue.running], kind="stable"), np.arange(queue.running, len(queue.jobs))])
    target = len(order)
    own = np.tile(np.concatenate([[ask.limit_s], runs]), (len(rows), 1))
    starts = rollouts(
        np.concatenate([np.zeros(target + 1, np.int64), later]), np.concatenate([queue.units[order], [mine], units]),
        np.hstack([(rows - since)[:, order], own]), np.concatenate([left[order], [ask.limit_s], limits]), queue.pool.capacity,
        fixed_start_s=np.concatenate([np.where(queue.elapsed_s[order] >= 0, 0, -1), np.full(1 + len(later), -1)]),
        stop_at_job=target, depth=DEPTH,
    )[:, target]  # fmt: skip
    return np.where(starts < 0, math.inf, starts)


def _arrivals(
    queue: LiveQueue, finished: Sequence[FinishedJob], random: Generator
) -> tuple[NDArray[int64], NDArray[int64], NDArray[int64], NDArray[int64]]:
    """Jobs that come later: drawn from what came to these partitions in the last week, at the same rate; none where nobody knows."""
    import numpy as np

    recent = [j for j in finished if j.partition in queue.pool.partitions and 0 <= queue.now_s - j.submit_s <= LOOK_BACK_S]
    recent = [j for j in recent if 0 < units_of(queue.pool, j.nodes, j.gpus) <= queue.pool.capacity]
    if not recent:
        nothing = np.empty(0, dtype=np.int64)
        return nothing, nothing, nothing, nothing
    span_s = max(3600.0, queue.now_s - min(j.submit_s for j in recent))
    horizon_s = min(LOOK_BACK_S, span_s * ARRIVALS_MOST / len(recent))
    count = random.poisson(len(recent) * horizon_s / span_s)
    picked = [recent[k] for k in random.integers(len(recent), size=count)]
    when = np.sort(np.rint(random.random(count) * horizon_s).astype(np.int64)) + 1
    units = np.array([units_of(queue.pool, j.nodes, j.gpus) for j in picked], dtype=np.int64)
    limits = np.array([max(60, round(j.limit_s)) for j in picked], dtype=np.int64)
    runs = np.array([max(1, round(j.end_s - j.start_s)) for j in picked], dtype=np.int64)
    return when, units, limits, np.minimum(runs, limits)


def holes(queue: LiveQueue) -> tuple[Hole, ...]:
    """What a new job could take at once without delaying the first waiting job, were all limits used up (EASY's own promise)."""
    import numpy as np

    free = int(queue.pool.capacity - queue.units[queue.elapsed_s >= 0].sum())
    waiting = queue.units[queue.elapsed_s < 0]
    blocked: int | None = None
    for units in waiting.tolist():
        if units > free:
            blocked = units
            break
        free -= units
    if blocked is None:
        return (Hole(free / _scale(queue.pool), None),) if free > 0 else ()
    left = (queue.limit_s - queue.elapsed_s)[queue.elapsed_s >= 0]
    order = np.argsort(left, kind="stable")
    freed = free + np.cumsum(queue.units[queue.elapsed_s >= 0][order])
    place = int(np.searchsorted(freed, blocked))
    if place >= len(freed):
        return (Hole(free / _scale(queue.pool), None),) if free > 0 else ()
    shadow_s, spare = int(left[order][place]), int(min(free, freed[place] - blocked))
    found = [Hole(spare / _scale(queue.pool), None)] if spare > 0 else []
    if free > spare and shadow_s >= HOLE_LEAST_S:
        found.append(Hole(free / _scale(queue.pool), shadow_s))
    return tuple(found)


def _scale(pool: Pool) -> float:
    return units_of(pool, 1, 1) if pool.unit == "GPU" else units_of(pool, 1, 0)
