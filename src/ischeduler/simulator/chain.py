"""Chain episodes: segments of a long run set among the jobs of a trace, and what each moment of queueing the successor leads to.

An episode is a world of other people's jobs, a predecessor segment that runs its whole limit, and looks at regular moments of its
run: at each look the successor may be queued. The signed gap is the successor's start less the predecessor's end: an interruption
when positive, an overlap (two allocations held) when negative. Protocols as in Mirage (SC'23).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ischeduler.core.errors import BadInput
from ischeduler.simulator.kernel import starts

Times = NDArray[np.int64]
OWN = -1
"""``row`` of a job that is a segment of ours."""


@dataclass(frozen=True)
class World:
    """Jobs by submission on one machine. ``fixed_start_s`` is -1 where the scheduler decides; ``row`` numbers the source's job."""

    capacity: int
    submit_s: Times
    units: Times
    run_s: Times
    limit_s: Times
    fixed_start_s: Times
    row: Times

    def __len__(self) -> int:
        return len(self.submit_s)

    @cached_property
    def start_s(self) -> Times:
        """When each job starts (EASY backfill); -1 never."""
        return starts(
            self.submit_s, self.units, self.run_s, self.limit_s, self.capacity, fixed_start_s=self.fixed_start_s
        )

    @cached_property
    def end_s(self) -> Times:
        """When each job ends; the far future for those that never start."""
        return np.where(self.start_s < 0, np.iinfo(np.int64).max, self.start_s + np.minimum(self.run_s, self.limit_s))

    def with_job(self, submit_s: int, units: int, limit_s: int, run_s: int | None = None) -> tuple[World, int]:
        """The world with one more segment, which runs to its limit or for ``run_s``, behind those submitted that second; and its place."""
        if units > self.capacity:
            raise BadInput(f"a segment of {units} units never starts on a machine of {self.capacity}: ask for fewer --nodes")
        at = int(np.searchsorted(self.submit_s, submit_s, "right"))
        run = limit_s if run_s is None else run_s
        added = {"submit_s": submit_s, "units": units, "run_s": run, "limit_s": limit_s, "fixed_start_s": -1, "row": OWN}
        return World(self.capacity, **{k: np.insert(getattr(self, k), at, v) for k, v in added.items()}), at

    def released(self, job: int, end_s: int) -> World:
        """The world in which a job gives its units back earlier."""
        run = self.run_s.copy()
        run[job] = max(0, end_s - int(self.start_s[job]))
        return replace(self, run_s=run)


@dataclass(frozen=True)
class QueueAt:
    """The queue at an instant: indices of the world's jobs that run (by start) and wait (in the queue's order)."""

    now_s: int
    running: Times
    waiting: Times

    @property
    def alive(self) -> Times:
        """Running, then waiting."""
        return np.concatenate([self.running, self.waiting])


@dataclass(frozen=True)
class Episode:
    """One predecessor in its world and the looks at which its successor may be queued; the last look is the predecessor's end."""

    world: World
    predecessor: int
    units: int
    looks_s: Times

    @property
    def start_s(self) -> int:
        """The predecessor's start."""
        return int(self.world.start_s[self.predecessor])

    @property
    def end_s(self) -> int:
        """The predecessor's end at its limit."""
        return int(self.looks_s[-1])

    @property
    def segment_s(self) -> int:
        """The segment's limit."""
        return self.end_s - self.start_s


def cold_world(trace: World, start_s: int, span_s: int) -> World:
    """Mirage's world: an empty machine on which the trace's jobs of [start, start + span] arrive, and none after."""
    chosen = (trace.submit_s >= start_s) & (trace.submit_s <= start_s + span_s) & (trace.units <= trace.capacity)
    return _of(trace, np.flatnonzero(chosen), trace.submit_s, np.full(len(trace), -1, np.int64))


def warm_world(trace: World, real_start_s: Times, start_s: int, span_s: int) -> World:
    """The true running and waiting jobs of an instant, and everything that arrives within ``span_s`` after it.

    ``real_start_s``: when the trace's jobs started in truth. Running jobs keep their start; waiting ones queue in their order.
    """
    run = np.minimum(trace.run_s, trace.limit_s)
    fits = trace.units <= trace.capacity
    running = fits & (real_start_s <= start_s) & (real_start_s + run > start_s) & (trace.submit_s <= start_s)
    waiting = fits & (trace.submit_s <= start_s) & (real_start_s > start_s)
    later = fits & (trace.submit_s > start_s) & (trace.submit_s <= start_s + span_s)
    by_start = np.flatnonzero(running)
    by_start = by_start[np.argsort(real_start_s[by_start], kind="stable")]
    by_start = by_start[np.cumsum(trace.units[by_start]) <= trace.capacity]
    chosen = np.concatenate([by_start, np.flatnonzero(waiting), np.flatnonzero(later)])
    submit = np.where(running, real_start_s, np.maximum(trace.submit_s, start_s))
    return _of(trace, chosen, submit, np.where(running, real_start_s, -1))


def _of(trace: World, chosen: Times, submit_s: Times, fixed_s: Times) -> World:
    return World(
        trace.capacity, submit_s[chosen], trace.units[chosen], trace.run_s[chosen], trace.limit_s[chosen], fixed_s[chosen],
        trace.row[chosen],
    )


def episode(world: World, submit_s: int, units: int, segment_s: int, look_s: int) -> Episode | None:
    """An episode whose predecessor is submitted at ``submit_s``; None when it never starts in this world."""
    full, place = world.with_job(submit_s, units, segment_s)
    start = int(full.start_s[place])
    return None if start < 0 else following(full, place, look_s)


def following(world: World, predecessor: int, look_s: int) -> Episode:
    """The episode of a segment that is in the world already."""
    start, run = int(world.start_s[predecessor]), int(world.run_s[predecessor])
    looks = np.append(np.arange(start, start + run, look_s), start + run).astype(np.int64)
    return Episode(world, predecessor, int(world.units[predecessor]), looks)


def queue_at(world: World, now_s: int) -> QueueAt:
    """Who runs and who waits at an instant."""
    submitted = world.submit_s <= now_s
    begun = (world.start_s >= 0) & (world.start_s <= now_s)
    running = np.flatnonzero(begun & (world.end_s > now_s))
    return QueueAt(now_s, running[np.argsort(world.start_s[running], kind="stable")], np.flatnonzero(submitted & ~begun))


def successor_start_s(world: World, now_s: int, units: int, segment_s: int) -> int:
    """When a segment queued at ``now_s`` starts, all other jobs running as long as they truly do; -1 never."""
    queue = queue_at(world, now_s)
    later = np.arange(np.searchsorted(world.submit_s, now_s, "right"), len(world))
    before, place = queue.alive, len(queue.alive)

    def column(values: Times, own: int) -> Times:
        return np.concatenate([values[before], [own], values[later]])

    none = np.full(len(queue.waiting) + 1 + len(later), -1)
    submit = np.concatenate([world.start_s[queue.running], np.full(len(queue.waiting) + 1, now_s), world.submit_s[later]])
    found = starts(
        submit, column(world.units, units), column(world.run_s, segment_s), column(world.limit_s, segment_s), world.capacity,
        fixed_start_s=np.concatenate([world.start_s[queue.running], none]), stop_at_job=place,
    )
    return int(found[place])


def gaps_s(of: Episode, looks: Times | None = None) -> Times:
    """Signed gap in seconds for each look (all by default). A successor that never starts in this world has the largest gap."""
    chosen = np.arange(len(of.looks_s)) if looks is None else looks
    never = np.iinfo(np.int64).max // 4
    found = [successor_start_s(of.world, int(of.looks_s[k]), of.units, of.segment_s) for k in chosen]
    return np.array([s - of.end_s if s >= 0 else never for s in found], np.int64)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one transition cost, in seconds; ``segment_s`` is how long the predecessor ran."""

    interruption_s: float
    overlap_s: float
    segment_s: float


def outcome(gap_s: int, segment_s: int, checkpoint_s: int | None = None) -> Outcome:
    """The cost of a gap. With hand-over (``checkpoint_s``) the predecessor checkpoints when the successor starts, and ends."""
    overlap = max(0, -gap_s)
    if checkpoint_s is None or overlap <= checkpoint_s:
        return Outcome(max(0, gap_s), overlap, segment_s)
    return Outcome(0, checkpoint_s, segment_s - overlap + checkpoint_s)


def given_back(of: Episode, submit_s: int, held_s: int) -> Episode:
    """The episode after a successor was queued at ``submit_s`` and, started too early, gave its units back ``held_s`` later."""
    world, place = of.world.with_job(submit_s, of.units, of.segment_s, held_s)
    return replace(of, world=world, predecessor=of.predecessor + (place <= of.predecessor))


def succeed(of: Episode, submit_s: int, look_s: int, checkpoint_s: int | None = None) -> tuple[Outcome, Episode] | None:
    """The transition when the successor is queued at ``submit_s``, and the successor's own episode; None if it never starts.

    With hand-over the predecessor's units are free again one checkpoint after the successor's start.
    """
    full, place = of.world.with_job(submit_s, of.units, of.segment_s)
    start = int(full.start_s[place])
    if start < 0:
        return None
    predecessor = of.predecessor + (place <= of.predecessor)
    cost = outcome(start - of.end_s, of.segment_s, checkpoint_s)
    if cost.segment_s < of.segment_s:
        full = full.released(predecessor, int(of.start_s + cost.segment_s))
    return cost, following(full, place, look_s)
