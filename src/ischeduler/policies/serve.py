"""Serving a queue: jobs in an order, each wholly onto one type. What the policies without an optimisation have in common. O(J K)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from ischeduler.policies.problem import Accelerators, Allocation, Floats, Ints, Jobs, memory_by_name

EPSILON = 1e-9


def held_before(jobs: Jobs, previous: Allocation | None) -> dict[str, int]:
    """Which job holds which type (column): by the policy's own memory, else by where the jobs ran last round."""
    before = memory_by_name(previous)
    return dict(before) if before else {job: int(k) for job, k in zip(jobs.ids, jobs.on, strict=True) if k >= 0}


def serve(
    order: Iterable[int], jobs: Jobs, rate: Floats, accelerators: Accelerators, *, held: Mapping[str, int] | None = None,
    strict: bool = False, blind: bool = False,
) -> tuple[Floats, dict[str, int]]:
    """Shares (J, K) of 0 and 1, and who holds what. Jobs in ``held`` keep their type; the others get, in ``order``, the fastest type with
    room (``blind``: the one with most room). ``strict``: nobody passes a job that must wait; otherwise smaller jobs may. On a slice of a cluster,
    a job may get the fraction of time that is left on a type.
    """
    share, free, holds = np.zeros_like(rate), accelerators.count.copy(), dict[str, int]()
    size = jobs.accelerators
    waiting: list[int] = []
    for j in order:
        k = -1 if held is None else held.get(jobs.ids[j], -1)
        if k >= 0 and rate[j, k] > 0 and free[k] >= size[j] - EPSILON:
            share[j, k] = 1.0
            free[k] -= size[j]
            holds[jobs.ids[j]] = k
        else:
            waiting.append(j)
    for j in waiting:
        fits = (rate[j] > 0) & (free >= size[j] - EPSILON)
        if fits.any():
            k = int(np.argmax(np.where(fits, free if blind else rate[j], -1.0)))
            share[j, k] = 1.0
            free[k] -= size[j]
            holds[jobs.ids[j]] = k
        elif strict:
            break
    if accelerators.whole is not None:
        _leftovers(waiting, share, free, size, rate)
    return share, holds


def _leftovers(waiting: list[int], share: Floats, free: Floats, size: Ints, rate: Floats) -> None:
    """What is left of a slice, as parts of time, to the first who can use it."""
    odd = free.copy()
    for k in np.flatnonzero(odd > EPSILON):
        for j in waiting:
            if odd[k] <= EPSILON:
                break
            if rate[j, k] > 0 and share[j].sum() < 1.0 - EPSILON:
                part = min(odd[k] / size[j], 1.0 - float(share[j].sum()))
                share[j, k] += part
                odd[k] -= part * size[j]
