"""The state of a run in Gavel's mode, as arrays that machine code can work on.

An *entry* is what one accelerator (or ``accelerators`` of them) can be given for a round: a job alone, or a pair of jobs that share.
Entries stand in the order in which Gavel comes to know them: each job, then its pairs with the jobs that were there before.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ischeduler.policies.problem import Accelerators, Throughputs
from ischeduler.simulator.pools.workload import Workload

ORDER = ("v100", "p100", "k80")
"""Gavel hands out types in this order; others come after, by name."""
WAITING, ACTIVE, DONE, FAILED = range(4)
(NOW, LAST_RESET, ROUND_START, ROUND_END, USED_S) = range(5)
(NEXT, NEEDS, LIVE, RUNNING, LEFT, ROUNDS, RESETS, SKIPS, TIMELINE, ACTIVE_ROUNDS) = range(10)
MOST_FAILURES = 5


class Jobs(NamedTuple):
    """n jobs: what was asked, and what became of it (``jct`` NaN until done; ``fate`` one of WAITING, ACTIVE, DONE, FAILED)."""

    arrival: Any
    total: Any
    size: Any
    kind: Any
    run: Any
    failures: Any
    latest: Any
    jct: Any
    fate: Any
    wanted: Any


class Entries(NamedTuple):
    """E entries x K types: the jobs (second -1: none), steps/s of both, time received, deficit, share and whether a share is known."""

    first: Any
    second: Any
    rate: Any
    other: Any
    received: Any
    deficit: Any
    share: Any
    known: Any
    priority: Any


class Running(NamedTuple):
    """What runs in the current round: entry, jobs, type, finish, steps of both."""

    entry: Any
    first: Any
    second: Any
    on: Any
    finish: Any
    steps: Any
    others: Any


class State(NamedTuple):
    """All of it; ``real`` and ``count`` are the scalars, by the names above; ``timeline`` (rounds, 2 + K) the use of the accelerators."""

    jobs: Jobs
    entries: Entries
    running: Running
    type_time: Any
    real: Any
    count: Any
    timeline: Any


class Machine(NamedTuple):
    """What does not change: accelerators by type, steps/s (C, K), shared (C, C, K), round length, least time between two allocations."""

    capacity: Any
    rate: Any
    shared: Any
    round_s: float
    reset_s: float
    sharing: bool
    fifo: bool


def machine(
    accelerators: Accelerators, throughputs: Throughputs, *, round_s: float, reset_s: float, sharing: bool, fifo: bool,
) -> Machine:
    """The constants of a run; ``fifo``: entries without a share get nothing, even where room is left."""
    table = throughputs.on(accelerators)
    classes, types = table.rate.shape
    shared = table.shared if sharing and table.shared is not None else np.zeros((1, 1, types))
    if sharing and shared.shape[0] != classes:
        shared = np.zeros((classes, classes, types))
    return Machine(accelerators.count.astype(np.int64), table.rate.copy(), shared, float(round_s), float(reset_s), sharing, fifo)


def initial(workload: Workload, types: int, wanted: Any, room: int) -> State:
    """Nothing has arrived yet; ``wanted`` (n,) flags the jobs whose end is the end of the run."""
    n = len(workload)
    zero, whole = np.zeros(n), np.zeros(n, np.int64)
    jobs = Jobs(
        workload.arrival_s, workload.total_steps, workload.accelerators, workload.job_class, zero.copy(), whole.copy(), zero.copy(),
        np.full(n, np.nan), whole.copy(), np.asarray(wanted, np.bool_),
    )  # fmt: skip
    count = np.zeros(10, np.int64)
    count[LEFT], count[NEEDS] = int(np.sum(wanted)), 1
    real = np.zeros(5)
    real[ROUND_START], real[ROUND_END] = 0.0, -1.0
    most = room_for(room, types)
    running = Running(*(np.zeros(n, np.int64) for _ in range(4)), *(np.zeros(n) for _ in range(3)))
    return State(jobs, most, running, np.zeros(types), real, count, np.zeros((4096, 2 + types)))


def room_for(room: int, types: int) -> Entries:
    """Empty entries."""
    whole, table = np.zeros(room, np.int64), np.zeros((room, types))
    return Entries(
        whole.copy(), whole.copy(), table.copy(), table.copy(), table.copy(), table.copy(), table.copy(), np.zeros(room, np.bool_), table.copy(),
    )  # fmt: skip


def grown(state: State, entries: int, rounds: int) -> State:
    """The same state with room for so many entries and recorded rounds."""

    def more(array: Any, length: int) -> Any:
        wider = np.zeros((length, *array.shape[1:]), array.dtype)
        wider[: len(array)] = array[: length]
        return wider

    return state._replace(entries=Entries(*(more(a, entries) for a in state.entries)), timeline=more(state.timeline, rounds))
