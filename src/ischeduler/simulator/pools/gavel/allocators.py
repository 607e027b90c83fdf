"""Gavel's allocators that need no solver, with the quirks its figures rest on: FIFO, isolated, AlloX, Gandiva.

An allocator sees the active jobs and their pairs (:class:`Scene`) and fills in the shares of every entry.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ischeduler.core.errors import BadInput
from ischeduler.policies.problem import Accelerators, Floats, Ints


@dataclass(frozen=True, slots=True)
class Scene:
    """What is known at an allocation: J active jobs in order of arrival, and, with sharing, P pairs of them.

    ``job`` (J,) numbers; ``rate`` (J, K) steps/s; ``size``, ``steps_left``, ``since_s`` (time since arrival), ``weight``, ``kind`` (J,).
    ``pair`` (P, 2) rows of jobs, ``pair_rate`` (P, 2, K). ``alone``, ``together``: where the jobs and the pairs stand among the entries.
    """

    now: float
    job: Ints
    rate: Floats
    size: Ints
    steps_left: Floats
    since_s: Floats
    weight: Floats
    kind: Ints
    pair: Ints
    pair_rate: Floats
    alone: Ints
    together: Ints


class Allocator(Protocol):
    """Gives shares: (J, K) of the jobs alone and (P, K) of the pairs."""

    def shares(self, scene: Scene) -> tuple[Floats, Floats]:
        """The shares at this moment; an allocator remembers what it must."""
        ...


def columns(accelerators: Accelerators) -> list[int]:
    """Gavel's order of the types in its allocators: by name."""
    return sorted(range(len(accelerators.types)), key=lambda k: accelerators.types[k])


@dataclass
class Fifo:
    """First come, first served; a job keeps its type. ``aware``: the fastest type that is free, chosen anew each time.

    Not aware, the type is meant to be drawn by lot. In fact the job gets the last type of those that had accelerators left when the
    queue was last looked through (by name), whether it fits there or not, and it is the lot's type that is then taken off the list.
    So a type can be promised many times over, and others stand idle.
    """

    accelerators: Accelerators
    seed: int = 0
    aware: bool = False
    held: dict[int, int] = field(default_factory=dict[int, int])
    sizes: dict[int, int] = field(default_factory=dict[int, int])

    def __post_init__(self) -> None:
        self.lot = random.Random(self.seed)
        self.types = columns(self.accelerators)

    def shares(self, scene: Scene) -> tuple[Floats, Floats]:
        """One type for each job that has a place."""
        if self.aware:
            self.held = {}
        rows = {int(j): i for i, j in enumerate(scene.job)}
        rate, size = scene.rate.tolist(), scene.size.tolist()
        free = {k: int(self.accelerators.count[k]) for k in self.types}
        queue = [j for j in rows if j not in self.held]
        self._release(rows, rate, size, free, queue)
        self._hand_out(rows, rate, size, free, queue)
        share = np.zeros(scene.rate.shape)
        for job, kind in self.held.items():
            share[rows[job], kind] = 1.0
        return share, np.zeros((len(scene.pair), len(self.accelerators.types)))

    def _release(self, rows: dict[int, int], rate: Any, size: Any, free: dict[int, int], queue: list[int]) -> None:
        """The queue's head takes the place of each job that has gone, where it fits."""
        for job in sorted(self.held):
            kind = self.held[job]
            if job in rows:
                free[kind] -= self.sizes[job]
                continue
            if queue:
                head = rows[queue[0]]
                if size[head] <= free[kind] and rate[head][kind] > 0.0:
                    following = queue.pop(0)
                    self.held[following], self.sizes[following] = kind, size[head]
                    free[kind] -= size[head]
            del self.held[job]

    def _hand_out(self, rows: dict[int, int], rate: Any, size: Any, free: dict[int, int], queue: list[int]) -> None:
        offered = sorted((k for k in free if free[k] > 0), key=lambda k: self.accelerators.types[k])
        position = 0
        while position < len(queue) and offered:
            job = queue[position]
            position += 1
            row = rows[job]
            fits = [i for i, k in enumerate(offered) if free[k] >= size[row]]
            last = offered[-1]
            if not fits:
                break
            if self.aware:
                at = max(range(len(fits)), key=lambda i: (rate[row][offered[fits[i]]], -i))
                last = offered[fits[at]]
            else:
                at = self.lot.randrange(len(fits))
            if rate[row][last] > 0.0:
                self.held[job], self.sizes[job] = last, size[row]
                free[last] -= size[row]
                if free[last] == 0:
                    offered.pop(fits[at])


@dataclass
class Isolated:
    """Every job the same slice of every type, over its accelerators, and no more than all of its time."""

    accelerators: Accelerators

    def shares(self, scene: Scene) -> tuple[Floats, Floats]:
        """The slices."""
        return slices(self.accelerators.count, scene.size), np.zeros((len(scene.pair), len(self.accelerators.types)))


def slices(count: Floats, size: Ints) -> Floats:
    """(J, K): ``count`` over J and over each job's accelerators, rows scaled down to sum to at most 1."""
    share = np.tile(count / len(size), (len(size), 1)) / size[:, None]
    return share / np.maximum(share.sum(axis=1), 1.0)[:, None]


@dataclass
class Allox:
    """AlloX: jobs to places in the accelerators' queues so that the sum of completion times is least; a job that has begun stays.

    Which of several equally good assignments is found decides who begins, so the matrix is built as Gavel builds it.
    Source: Le et al., EuroSys 2020; Hungarian method by scipy.
    """

    accelerators: Accelerators
    held: dict[int, int] = field(default_factory=dict[int, int])

    def shares(self, scene: Scene) -> tuple[Floats, Floats]:
        """One type for each job that has an accelerator."""
        if (scene.size != 1).any():
            raise BadInput("AlloX schedules jobs on one accelerator only; leave out the larger ones or choose another policy.")
        here = {int(j) for j in scene.job}
        self.held = {job: k for job, k in self.held.items() if job in here}
        waiting = np.array([i for i, j in enumerate(scene.job) if int(j) not in self.held], np.int64)
        free = self.accelerators.count.astype(np.int64).copy()
        for k in self.held.values():
            free[k] -= 1
        worker = np.repeat(columns(self.accelerators), [max(0, int(free[k])) for k in columns(self.accelerators)])
        for row, k in self._first(scene, waiting, worker):
            self.held[int(scene.job[row])] = int(k)
        share = np.zeros(scene.rate.shape)
        for row, job in enumerate(scene.job):
            if int(job) in self.held:
                share[row, self.held[int(job)]] = 1.0
        return share, np.zeros((len(scene.pair), len(self.accelerators.types)))

    def _first(self, scene: Scene, waiting: Ints, worker: Ints) -> list[tuple[int, int]]:
        """(row, type) of the job that each free accelerator begins with."""
        from scipy.optimize import linear_sum_assignment

        waiting = waiting[np.argsort(-scene.since_s[waiting], kind="stable")]
        jobs, workers = len(waiting), len(worker)
        if not jobs or not workers:
            return []
        rate = np.where(scene.rate[waiting] == 0.0, 1e-10, scene.rate[waiting])
        once = (scene.steps_left[waiting][:, None] / rate)[:, worker]
        cost = (np.arange(1, jobs + 1)[None, :, None] * once[:, None, :]).reshape(jobs, jobs * workers) + scene.since_s[waiting][:, None]
        rows, places = linear_sum_assignment(cost)
        last: dict[int, tuple[int, int]] = {}
        for row, place in zip(rows.tolist(), places.tolist(), strict=True):
            turn, at = divmod(place, workers)
            if at not in last or turn > last[at][0]:
                last[at] = (turn, int(waiting[row]))
        return [(row, int(worker[at])) for at, (_, row) in sorted(last.items())]


@dataclass
class Gandiva:
    """Gandiva as Gavel has it: equal slices, and pairs drawn by lot when jobs ask for more accelerators than there are."""

    accelerators: Accelerators
    seed: int = 0
    partner: dict[int, int | None] = field(default_factory=dict[int, "int | None"])

    def __post_init__(self) -> None:
        self.lot = random.Random(self.seed)

    def shares(self, scene: Scene) -> tuple[Floats, Floats]:
        """Slices for jobs, or for the drawn pairs."""
        jobs = [int(j) for j in scene.job]
        pairs = {(jobs[a], jobs[b]): p for p, (a, b) in enumerate(scene.pair.tolist())}
        self._forget(scene, set(jobs), pairs)
        alone, together = np.zeros(scene.rate.shape), np.zeros((len(scene.pair), scene.rate.shape[1]))
        if scene.size.sum() <= self.accelerators.count.sum():
            return slices(self.accelerators.count, scene.size), together
        self._draw(scene, jobs)
        row = {job: i for i, job in enumerate(jobs)}
        groups = {(min(a, b), max(a, b)) if b is not None else (a, None) for a, b in self.partner.items()}
        part = self.accelerators.count / len(groups)
        for a, b in groups:
            share = part / scene.size[row[a]]
            share = share / max(share.sum(), 1.0)
            if b is None:
                alone[row[a]] = share
            else:
                together[pairs[(a, b)]] = share
        return alone, together

    def _forget(self, scene: Scene, here: set[int], pairs: dict[tuple[int, int], int]) -> None:
        row = {int(j): i for i, j in enumerate(scene.job)}
        gone: list[int] = []
        for a, b in self.partner.items():
            if a not in here or (b is not None and b not in here) or b is None or self._gain(scene, row, pairs, min(a, b), max(a, b)) < 1.0:
                gone += [a] if b is None else [a, b]
        for job in gone:
            self.partner.pop(job, None)

    @staticmethod
    def _gain(scene: Scene, row: dict[int, int], pairs: dict[tuple[int, int], int], a: int, b: int) -> float:
        """Throughput together over throughput alone, summed over types; 0 where they do not run together somewhere."""
        rate = scene.pair_rate[pairs[(a, b)]]
        if (rate <= 0).any():
            return 0.0
        return float((rate[0] / scene.rate[row[a]] + rate[1] / scene.rate[row[b]]).sum())

    def _draw(self, scene: Scene, jobs: list[int]) -> None:
        size = {job: int(s) for job, s in zip(jobs, scene.size, strict=True)}
        single = [job for job in jobs if job not in self.partner]
        for _ in range(len(single)):
            if len(single) < 2:
                break
            a, b = self.lot.sample(single, 2)
            if size[a] != size[b]:
                continue
            single.remove(a)
            single.remove(b)
            self.partner[a], self.partner[b] = b, a
        for job in single:
            self.partner[job] = None
