"""Gavel's rounds in plain Python, for readers and for the tests that hold the kernel to it. Slow: a second for a hundred jobs.

A round: what ran is booked, newcomers become known, an allocation is made when one is due, and the types hand out their accelerators, each
in the order of priority = share / (time received on the type / all time on the type).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from ischeduler.policies.problem import Accelerators, Throughputs
from ischeduler.simulator.pools.gavel.allocators import Allocator, Scene
from ischeduler.simulator.pools.gavel.simulate import Options, _judged, _orders  # pyright: ignore[reportPrivateUsage]
from ischeduler.simulator.pools.gavel.state import MOST_FAILURES
from ischeduler.simulator.pools.workload import Workload

UNSEEN = 1e9
Key = tuple[int, int]
"""The jobs of an entry; the second is -1 where a job is alone."""


@dataclass
class Entry:
    """What an entry has by type: steps/s of both jobs, time received, deficit, share (None: the last allocation does not know it)."""

    rate: list[float]
    other: list[float]
    received: list[float]
    deficit: list[float]
    share: list[float] | None = None

    def runs_on(self, pair: bool, k: int) -> bool:
        """Whether all of its jobs make progress there."""
        return self.rate[k] > 0 and (not pair or self.other[k] > 0)


@dataclass
class Plain:
    """One run."""

    workload: Workload
    throughputs: Throughputs
    accelerators: Accelerators
    allocator: Allocator
    options: Options
    now: float = 0.0
    last_reset: float = 0.0
    round_start: float = 0.0
    round_end: float | None = None
    needs: bool = True
    rounds: int = 0
    allocations: int = 0
    entries: dict[Key, Entry] = field(default_factory=dict[Key, Entry])
    running: list[tuple[float, Key, int, list[float]]] = field(default_factory=list[tuple[float, Key, int, list[float]]])

    def __post_init__(self) -> None:
        n = len(self.workload)
        self.types = range(len(self.accelerators.types))
        self.type_time = [0.0 for _ in self.types]
        self.run_steps, self.failures, self.latest = [0.0] * n, [0] * n, [0.0] * n
        self.jct, self.next = [math.nan] * n, 0
        self.left = {int(i) for i in np.flatnonzero(_judged(n, self.options.window))}
        self.orders = self._each_order()

    def _each_order(self) -> Iterator[list[int]]:
        block = _orders(self.accelerators, self.options)
        while True:
            yield from block().tolist()

    def run(self) -> None:
        """Until the judged jobs are done."""
        while self.left:
            self._to_next_event()
            # The latest to finish is booked first, equal ones by job, jobs alone before pairs.
            for finish, key, k, steps in sorted(self.running, key=lambda r: (-r[0], r[1][1] >= 0, r[1])):
                self._book(finish, key, k, steps)
            self.running = []
            while self.next < len(self.workload) and self.workload.arrival_s[self.next] <= self.now:
                self._arrive(self.next)
                self.next += 1
            due = self.now - self.last_reset >= self.options.reset_s or self.last_reset == 0.0
            if self.needs and due:
                self._allocate()
            self._hand_out(next(self.orders))
            self.rounds += 1

    def _to_next_event(self) -> None:
        finish = max((r[0] for r in self.running), default=0.0)
        if not self.running and self.next >= len(self.workload):
            self.last_reset = 0.0
        if finish > 0:
            if self.round_end is not None:
                self.round_start = self.round_end
            self.round_end = self.now = finish
        elif self.next < len(self.workload):
            self.now = float(self.workload.arrival_s[self.next])

    def _book(self, finish: float, key: Key, k: int, steps: list[float]) -> None:
        jobs = [j for j in key if j >= 0]
        size = int(self.workload.accelerators[jobs[0]])
        spent = finish - self.round_start
        for job in jobs:
            self.latest[job] = finish
        whole = all(s // size > 0 or (size == 1 and s > 0) for s in steps)
        if spent <= 0 or not whole:
            # A worker without a step to make is a failure; five in a row end a job without a completion time.
            self.needs = True
            if len(jobs) == 1:
                self.failures[jobs[0]] += 1
                if self.failures[jobs[0]] >= MOST_FAILURES:
                    self._remove(jobs[0])
            return
        for job, made in zip(jobs, steps, strict=True):
            self.failures[job] = 0
            self.run_steps[job] += made
        self.entries[key].received[k] += spent
        self.type_time[k] += spent
        for job in jobs:
            if self.workload.total_steps[job] - self.run_steps[job] <= 0:
                self.jct[job] = self.latest[job] - float(self.workload.arrival_s[job])
                self._remove(job)

    def _remove(self, job: int) -> None:
        self.entries = {key: e for key, e in self.entries.items() if job not in key}
        self.left.discard(job)
        self.needs = True

    def _arrive(self, job: int) -> None:
        kind, half = int(self.workload.job_class[job]), self.options.round_s / 2.0
        rate, zero = self.throughputs.rate[kind].tolist(), [0.0 for _ in self.types]
        others = [a for a, b in self.entries if b < 0 and self.workload.accelerators[a] == self.workload.accelerators[job]]
        self.entries[(job, -1)] = Entry(rate, list(zero), [half for _ in self.types], list(zero))
        shared = self.throughputs.shared
        if self.options.sharing and shared is not None:
            for other in others:
                mate = int(self.workload.job_class[other])
                self.entries[(other, job)] = Entry(shared[mate, kind].tolist(), shared[kind, mate].tolist(), list(zero), list(zero))
        self.needs = True

    def _allocate(self) -> None:
        half, elapsed = self.options.round_s / 2.0, self.now - self.last_reset
        for k in self.types:
            self.type_time[k] = 0.0
            for e in self.entries.values():
                owed = 0.0 if e.share is None else e.share[k] * elapsed
                e.deficit[k] += owed - (e.received[k] - half)
                e.received[k] = half
                self.type_time[k] += half
        self.last_reset, self.needs = self.now, False
        self.allocations += 1
        for e in self.entries.values():
            e.share = [0.0 for _ in self.types]
        scene = self._scene()
        if len(scene.job):
            keys = list(self.entries)
            alone, together = self.allocator.shares(scene)
            for at, share in zip([*scene.alone.tolist(), *scene.together.tolist()], [*alone.tolist(), *together.tolist()], strict=True):
                self.entries[keys[at]].share = share

    def _scene(self) -> Scene:
        keys = list(self.entries)
        alone = np.array([i for i, k in enumerate(keys) if k[1] < 0], np.int64)
        together = np.array([i for i, k in enumerate(keys) if k[1] >= 0], np.int64)
        job = np.array([keys[i][0] for i in alone], np.int64)
        row = {int(j): i for i, j in enumerate(job)}
        w, types = self.workload, len(self.types)
        pair = np.array([[row[a], row[b]] for a, b in (keys[i] for i in together)], np.int64).reshape(-1, 2)
        rates = np.array([[self.entries[keys[i]].rate, self.entries[keys[i]].other] for i in together]).reshape(-1, 2, types)
        left = np.array([w.total_steps[j] - self.run_steps[j] for j in job])
        return Scene(
            self.now, job, np.array([self.entries[(int(j), -1)].rate for j in job]).reshape(-1, types), w.accelerators[job], left,
            self.now - w.arrival_s[job], np.ones(len(job)), w.job_class[job], pair, rates, alone, together,
        )  # fmt: skip

    def _priority(self, key: Key, e: Entry, k: int) -> float:
        share = 0.0 if e.share is None else e.share[k]
        if share == 0.0 or not e.runs_on(key[1] >= 0, k):
            return 0.0
        fraction = e.received[k] / self.type_time[k] if self.type_time[k] else 0.0
        return share / fraction if fraction > 0 else share * UNSEEN

    def _hand_out(self, order: list[int]) -> None:
        taken: set[int] = set()
        for k in order:
            left = int(self.accelerators.count[k])
            ranked = sorted(
                ((self._priority(key, e, k), e.deficit[k], 0.0 if e.share is None else e.share[k], key) for key, e in self.entries.items()),
                key=lambda r: r[:3], reverse=True,
            )  # fmt: skip
            for priority, _, _, key in ranked:
                jobs = [j for j in key if j >= 0]
                e, size = self.entries[key], int(self.workload.accelerators[jobs[0]])
                barred = taken.intersection(jobs) or not e.runs_on(len(jobs) == 2, k) or (self.options.fifo and priority <= 0.0)
                if left == 0 or barred or size > left:
                    continue
                left -= size
                taken.update(jobs)
                if e.share is not None:
                    self._start(key, jobs, e, k)

    def _start(self, key: Key, jobs: list[int], e: Entry, k: int) -> None:
        steps, finish = [], self.now
        for job, rate in zip(jobs, (e.rate[k], e.other[k]), strict=False):
            made = min(float(int(rate * self.options.round_s)), self.workload.total_steps[job] - self.run_steps[job])
            steps.append(float(made))
            finish = max(finish, self.now + float(made) / rate)
        self.running.append((finish, key, k, steps))
