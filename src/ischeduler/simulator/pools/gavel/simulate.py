"""A run in Gavel's mode: jobs, throughputs, a cluster and an allocator give the jobs' completion times."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ischeduler.core.errors import BadInput
from ischeduler.policies.problem import Accelerators, Floats, Ints, Throughputs
from ischeduler.simulator.pools.gavel.allocators import Allocator, Scene
from ischeduler.simulator.pools.gavel.state import (
    ACTIVE_ROUNDS,
    LIVE,
    NOW,
    ORDER,
    RESETS,
    ROUNDS,
    TIMELINE,
    USED_S,
    Jobs,
    State,
    grown,
    initial,
    machine,
)  # fmt: skip
from ischeduler.simulator.pools.workload import Workload

ROUND_S, RESET_S = 360.0, 1920.0
BLOCK = 4096


@dataclass(frozen=True, slots=True)
class Options:
    """How Gavel runs: seconds a round, least seconds between two allocations, seed of its lots; jobs whose end ends the run (None: all).

    ``window``: (first, last + 1) in order of arrival. ``types_by_lot``: the types' order is drawn each round, as Gavel does for the
    policies that do not know throughputs. ``sharing``: pairs of jobs may share. ``fifo``: nothing runs without a share.
    """

    round_s: float = ROUND_S
    reset_s: float = RESET_S
    seed: int = 0
    window: tuple[int, int] | None = None
    types_by_lot: bool = False
    sharing: bool = False
    fifo: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What became of the jobs: completion times (n,) in seconds, NaN where none; the end, rounds, allocations; use of each type.

    ``timeline`` (rounds, 2 + K): second, active jobs, accelerators of each type at work. ``wanted`` (n,): the jobs that are judged.
    ``utilisation`` counts accelerator-seconds at work over all of them.
    """

    jct_s: Floats
    wanted: Any
    makespan_s: float
    rounds: int
    allocations: int
    utilisation: float
    timeline: Floats
    mean_active_jobs: float

    @property
    def mean_jct_s(self) -> float:
        """Mean completion time of the judged jobs that completed."""
        return float(np.nanmean(self.jct_s[self.wanted]))


def simulate(workload: Workload, throughputs: Throughputs, accelerators: Accelerators, allocator: Allocator, options: Options) -> Outcome:
    """Run Gavel's rounds until the judged jobs are done. BadInput when they cannot be."""
    from ischeduler.simulator.pools.gavel.kernel import advance

    return drive(workload, throughputs, accelerators, allocator, options, advance)


def drive(
    workload: Workload, throughputs: Throughputs, accelerators: Accelerators, allocator: Allocator, options: Options,
    advance: Callable[..., int],
) -> Outcome:  # fmt: skip
    """The same with a given engine (the kernel, or the reference)."""
    fixed = machine(
        accelerators, throughputs, round_s=options.round_s, reset_s=options.reset_s, sharing=options.sharing, fifo=options.fifo,
    )  # fmt: skip
    wanted = _judged(len(workload), options.window)
    room = 4 * BLOCK if options.sharing else len(workload) + 1
    state = initial(workload, len(accelerators.types), wanted, room)
    lots = _orders(accelerators, options)
    orders, at = lots(), np.zeros(2, np.int64)
    work = _work(len(workload), room)
    while True:
        said = advance(state, fixed, False, orders, at, work)
        if said == 0:
            break
        if said == 1:
            _allocate(state, fixed, allocator, accelerators)
        elif said == 2:
            room *= 2
            state, work = grown(state, room, len(state.timeline)), _work(len(workload), room)
        elif said == 3:
            state = grown(state, room, len(state.timeline) + BLOCK)
            orders, at[0] = lots(), 0
        else:
            raise BadInput("Some jobs never run under this policy: no accelerator that they may have is ever free for them.")
    return _outcome(state, wanted, float(accelerators.count.sum()))


def _judged(jobs: int, window: tuple[int, int] | None) -> Any:
    wanted = np.zeros(jobs, np.bool_)
    first, last = window or (0, jobs)
    if not 0 <= first < last:
        raise BadInput(f"The window {first} to {last} holds no job; give the number of the first and, larger, of the last plus one.")
    if last > jobs:
        raise BadInput(f"The window ends with job {last - 1} but there are only {jobs} jobs; give more jobs or a smaller window.")
    wanted[first:last] = True
    return wanted


def _orders(accelerators: Accelerators, options: Options) -> Callable[[], Ints]:
    """The types' order in the next rounds, :data:`BLOCK` at a time."""
    names = accelerators.types
    usual = [names.index(t) for t in ORDER if t in names] + sorted(k for k, t in enumerate(names) if t not in ORDER)
    lot = random.Random(options.seed + 5)

    def block() -> Ints:
        if not options.types_by_lot:
            return np.tile(np.array(usual, np.int64), (BLOCK, 1))
        rows: list[list[int]] = []
        for _ in range(BLOCK):
            drawn = list(usual)
            lot.shuffle(drawn)
            rows.append(drawn)
        return np.array(rows, np.int64)

    return block


def _work(jobs: int, room: int) -> tuple[Any, ...]:
    return np.zeros(jobs, np.bool_), np.zeros((room, 3)), np.zeros(room, np.int64), np.zeros(room, np.int64)


def _allocate(state: State, fixed: Any, allocator: Allocator, accelerators: Accelerators) -> None:
    scene = scene_of(state, fixed.sharing)
    entries, live = state.entries, int(state.count[LIVE])
    entries.share[:live] = 0.0
    if len(scene.job):
        alone, together = allocator.shares(scene)
        entries.share[scene.alone] = alone
        if len(scene.together):
            entries.share[scene.together] = together
    entries.known[:live] = True


def scene_of(state: State, sharing: bool) -> Scene:
    """What an allocator may see."""
    entries, jobs, live = state.entries, state.jobs, int(state.count[LIVE])
    single = entries.second[:live] < 0
    alone = np.flatnonzero(single)
    job = entries.first[alone]
    together = np.flatnonzero(~single) if sharing else np.zeros(0, np.int64)
    row = np.zeros(len(jobs.arrival), np.int64) if len(together) else job
    pair = np.zeros((0, 2), np.int64)
    if len(together):
        row[job] = np.arange(len(job))
        pair = np.stack([row[entries.first[together]], row[entries.second[together]]], axis=1)
    now = float(state.real[NOW])
    return Scene(
        now, job, entries.rate[alone], jobs.size[job], jobs.total[job] - jobs.run[job], now - jobs.arrival[job], np.ones(len(job)),
        jobs.kind[job], pair, np.stack([entries.rate[together], entries.other[together]], axis=1), alone, together,
    )  # fmt: skip


def _outcome(state: State, wanted: Any, accelerators: float) -> Outcome:
    jobs: Jobs = state.jobs
    count, now = state.count, float(state.real[NOW])
    rounds = int(count[ROUNDS])
    return Outcome(
        jobs.jct, wanted, now, rounds, int(count[RESETS]), float(state.real[USED_S]) / (accelerators * now) if now > 0 else 0.0,
        state.timeline[: int(count[TIMELINE])], float(count[ACTIVE_ROUNDS]) / max(rounds, 1),
    )  # fmt: skip
