"""Start times of a whole trace under a scheduler, a million jobs a second on one core.

The work is done by machine code (:mod:`ischeduler.simulator.compiled`, numba); where numba is not installed the readable twin
(:mod:`ischeduler.simulator.reference`) gives the same answers, slowly. Pure and safe to call from several threads.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache, partial
from threading import Thread
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ischeduler.core.errors import BadInput
from ischeduler.simulator import reference

SCHEDULERS = ("fcfs", "easy", "conservative")
FOREVER = (1 << 60) - 1
SLOW = "numba is not installed: the simulator runs its plain Python twin, same answers but slowly; pip install 'ischeduler[simulator]'."
WATCH_EVERY_S = 0.2
Times = NDArray[np.int64]
Watch = Callable[[float], None]


def starts(
    submit_s: ArrayLike, units: ArrayLike, run_s: ArrayLike, limit_s: ArrayLike, capacity: int, *,
    scheduler: str = "easy", fixed_start_s: ArrayLike | None = None, until_s: int | None = None, priority: ArrayLike | None = None,
    stop_at_job: int | None = None, depth: int | None = None, watch: Watch | None = None,
) -> Times:  # fmt: skip
    """When each job starts, in whole seconds; -1 where it does not (wider than the machine, or not by ``until_s``).

    All arrays have one entry a job and are sorted by ``submit_s``; equal seconds keep the order of the arrays. ``units`` are nodes
    or processors of the ``capacity``; a job ends after min(``run_s``, ``limit_s``); schedulers know the limit alone, at least 1 s.
    ``fixed_start_s[i] >= 0``: the job started, or will start, at that time whatever the scheduler would say (a warm start);
    other jobs are scheduled. ``until_s``: the last second that is simulated. ``priority``: higher goes first in the queue, equal ones
    in the order of the arrays; default: all equal. ``stop_at_job``: nothing is simulated after this job's start; jobs that start
    later have -1. ``depth``: how many jobs behind the head EASY looks at in one pass (Slurm: bf_max_job_test); default: all.
    ``watch`` is told the share of the jobs that have started, a few times a second while another thread works. BadInput when the arrays do not fit together.

    The order of events within a second is written down in :mod:`ischeduler.simulator.reference`.
    """
    columns = [_row(x, name) for x, name in ((submit_s, "submit_s"), (units, "units"), (run_s, "run_s"), (limit_s, "limit_s"))]
    answer = _solve(columns, capacity, scheduler, fixed_start_s, until_s, priority, stop_at_job, depth, rollouts=1, watch=watch)
    return answer[0]


def rollouts(
    submit_s: ArrayLike, units: ArrayLike, run_s: ArrayLike, limit_s: ArrayLike, capacity: int, *,
    scheduler: str = "easy", fixed_start_s: ArrayLike | None = None, until_s: int | None = None, priority: ArrayLike | None = None,
    stop_at_job: int | None = None, depth: int | None = None,
) -> Times:  # fmt: skip
    """:func:`starts` for many possible futures in one compiled call; shape (roll-outs, jobs).

    Any array may have the shape (jobs,), the same in every roll-out, or (roll-outs, jobs). Arrivals that differ from roll-out to
    roll-out are rows of ``submit_s``, each sorted; fill shorter ones with jobs submitted after ``until_s``.
    """
    named = ((submit_s, "submit_s"), (units, "units"), (run_s, "run_s"), (limit_s, "limit_s"))
    columns = [_rows(x, name) for x, name in named]
    extra = [np.atleast_2d(np.asarray(x)).shape[0] for x in (fixed_start_s, priority) if x is not None]
    count = max([c.shape[0] for c in columns] + extra)
    return _solve(columns, capacity, scheduler, fixed_start_s, until_s, priority, stop_at_job, depth, rollouts=count)


@cache
def machine_code() -> ModuleType | None:
    """The compiled kernel, or None (said once) without numba."""
    try:
        from ischeduler.simulator import compiled
    except ImportError:
        warnings.warn(SLOW, RuntimeWarning, stacklevel=2)
        return None
    return compiled


def _row(values: ArrayLike, name: str) -> Times:
    array = np.asarray(values)
    if array.ndim != 1:
        raise BadInput(f"{name} has {array.ndim} dimensions; expected one value a job.")
    return _whole(array, name)[None, :]


def _rows(values: ArrayLike, name: str) -> Times:
    array = np.asarray(values)
    if array.ndim not in (1, 2):
        raise BadInput(f"{name} has {array.ndim} dimensions; expected (jobs,) or (roll-outs, jobs).")
    return np.atleast_2d(_whole(array, name))


def _whole(array: Any, name: str) -> Times:
    if array.dtype.kind not in "iuf":
        raise BadInput(f"{name} holds {array.dtype}; expected whole numbers.")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise BadInput(f"{name} has missing values; give every job one, or leave those jobs out.")
    return np.ascontiguousarray(array, dtype=np.int64)


def _solve(
    columns: list[Times], capacity: int, scheduler: str, fixed: ArrayLike | None, until_s: int | None,
    priority: ArrayLike | None, target: int | None, depth: int | None, *, rollouts: int, watch: Watch | None = None,
) -> Times:  # fmt: skip
    submit, units, run, limit = columns
    jobs = submit.shape[1]
    given = np.full((1, jobs), -1, np.int64) if fixed is None else _rows(fixed, "fixed_start_s")
    rank = _ranks(priority, jobs)
    named = {"units": units, "run_s": run, "limit_s": limit, "fixed_start_s": given, "priority": rank, "submit_s": submit}
    _check(named, jobs, rollouts, capacity, scheduler, target, depth)
    limit = np.maximum(limit, 1)
    run = np.minimum(run, limit)
    until = FOREVER if until_s is None else min(int(until_s), FOREVER)
    start = np.full((rollouts, jobs), -1, np.int64)
    whom, how_far = -1 if target is None else int(target), FOREVER if depth is None else int(depth)
    work = partial(_run, scheduler, submit, units, run, limit, given, rank, int(capacity), until, whom, how_far, start)
    if watch is None:
        work()
    else:
        _watched(work, start, watch)
    return start


def _watched(work: Callable[[], None], start: Times, watch: Watch) -> None:
    """Work in another thread (machine code lets this one run) and tell how far it is. A daemon: an interrupt does not wait for it."""
    failures: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    worker = Thread(target=guarded, daemon=True)
    worker.start()
    while worker.is_alive():
        worker.join(WATCH_EVERY_S)
        watch(float((start >= 0).mean()) if start.size else 1.0)
    if failures:
        raise failures[0]
    watch(1.0)


def _ranks(priority: ArrayLike | None, jobs: int) -> Times:
    """Place of each job in the queue's order: 0 first."""
    if priority is None:
        return np.arange(jobs, dtype=np.int64)[None, :]
    order = np.argsort(-np.atleast_2d(np.asarray(priority, dtype=np.float64)), axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.broadcast_to(np.arange(order.shape[1]), order.shape), axis=1)
    return np.ascontiguousarray(rank, dtype=np.int64)


def _check(named: dict[str, Times], jobs: int, rollouts: int, capacity: int, scheduler: str, target: int | None, depth: int | None) -> None:
    if scheduler not in SCHEDULERS:
        raise BadInput(f"There is no scheduler '{scheduler}'; choose {', '.join(SCHEDULERS)}.")
    if capacity < 1:
        raise BadInput(f"A machine of {capacity} units runs nothing; give at least 1.")
    for name, array in named.items():
        if array.shape[1] != jobs:
            raise BadInput(f"{name} has {array.shape[1]} entries, submit_s {jobs}; give one a job.")
        if array.shape[0] not in (1, rollouts):
            raise BadInput(f"{name} has {array.shape[0]} rows for {rollouts} roll-outs; give 1 or {rollouts}.")
    if depth is not None and depth < 0:
        raise BadInput(f"depth is {depth}; expected 0 or more jobs.")
    if target is not None and not 0 <= target < jobs:
        raise BadInput(f"stop_at_job is {target}; expected a job's number from 0 to {jobs - 1}.")
    if jobs and (np.diff(named["submit_s"], axis=1) < 0).any():
        raise BadInput("submit_s is not sorted; sort the jobs by their submission.")
    if jobs and named["units"].min() < 1:
        raise BadInput("A job with fewer than 1 unit cannot be scheduled; leave it out.")
    if jobs and (named["run_s"].min() < 0 or named["limit_s"].min() < 0):
        raise BadInput("A job's run_s or limit_s is negative; leave it out.")


def _run(scheduler: str, *arguments: Any) -> None:
    code = machine_code()
    if code is None:
        _plain(scheduler, *arguments)
    elif scheduler == "conservative":
        from ischeduler.simulator import compiled_conservative

        *inputs, _, start = arguments
        reserve: Any = compiled_conservative.reserved_rollouts
        reserve(*inputs, start)
    else:
        *inputs, start = arguments
        code.queue_rollouts(*inputs[:-1], scheduler == "easy", inputs[-1], start)


def _plain(scheduler: str, *arguments: Any) -> None:
    submit, units, run, limit, given, rank, capacity, until, target, depth, start = arguments
    for row in range(start.shape[0]):
        s, u, r, m, f, o = (x[row % x.shape[0]].tolist() for x in (submit, units, run, limit, given, rank))
        start[row] = reference.starts(
            s, u, r, m, capacity, scheduler=scheduler, fixed_start_s=f, until_s=until, rank=o, target=target, depth=depth,
        )  # fmt: skip
