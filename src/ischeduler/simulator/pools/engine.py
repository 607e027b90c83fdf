"""This project's own pool on the simulated clock: rounds, arrivals and ends as they come, restarts and scattering charged.

A policy is asked at every round's start and whenever a job comes or goes; between rounds nothing that runs is moved, but what is idle is
given out at once. A job loses ``restart_s`` whenever it starts, moves or resumes, and runs at its scattered throughput when it does not
stand on as few nodes as can be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ischeduler.core.errors import BadInput
from ischeduler.policies.placement import Spot, consolidated, nodes_of, place
from ischeduler.policies.problem import Accelerators, Floats, Ints, Jobs, Throughputs
from ischeduler.policies.rounds import NOWHERE, Rules, Standing, choose, settle
from ischeduler.simulator.pools.workload import Workload

Shares = Callable[[Jobs, Throughputs, Accelerators, float], Floats]
"""Asks a policy: shares (J, K) of the active jobs at a moment."""
IDLE_EVENTS = 100_000


@dataclass(slots=True, eq=False)
class Fleet:
    """The active jobs by column, and where each stands (``spot``); ``since`` is when progress was last booked, ``ready`` when it goes on."""

    job: Ints
    left: Floats
    on: Ints
    owed_s: Floats
    share: Floats
    received_s: Floats
    promised_s: Floats
    ready: Floats
    pace: Floats
    spot: dict[int, Spot] = field(default_factory=dict[int, Spot])


@dataclass(frozen=True, slots=True, eq=False)
class Account:
    """A job's promised and received seconds by type (n, K), restarts (n,), and first start (n,)."""

    promised_s: Floats
    received_s: Floats
    restarts: Ints
    started_s: Floats


@dataclass(eq=False)
class Pool:
    """One run of the engine."""

    workload: Workload
    throughputs: Throughputs
    accelerators: Accelerators
    shares: Shares
    rules: Rules
    wanted: Any
    now: float = 0.0
    timeline: list[tuple[float, ...]] = field(default_factory=list[Any])
    decisions: int = 0
    used_s: float = 0.0
    weighted_active_s: float = 0.0

    def __post_init__(self) -> None:
        n, types = len(self.workload), len(self.accelerators.types)
        self.table = self.throughputs.on(self.accelerators)
        self.jct = np.full(n, np.nan)
        self.account = Account(np.zeros((n, types)), np.zeros((n, types)), np.zeros(n, np.int64), np.full(n, np.nan))
        none = np.zeros((0, types))
        self.fleet = Fleet(np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64), none, none.copy(), none.copy(), none.copy(),
                           np.zeros(0), np.zeros(0))  # fmt: skip
        self.nodes = {k: nodes_of(int(c), int(p)) for k, (c, p) in enumerate(zip(self.accelerators.count, self.accelerators.per_node, strict=True))}
        self.capacity = self.accelerators.count.astype(np.int64)
        self.next_arrival = 0
        self.next_round = 0.0

    def run(self) -> None:
        """Until the judged jobs are done. BadInput when jobs never run."""
        left, idle = int(self.wanted.sum()), 0
        while left:
            at, what = self._next_event()
            if not np.isfinite(at):
                raise BadInput("Some jobs never run: no type of this cluster that they run on is ever free for them.")
            idle = 0 if at > self.now else idle + 1
            if idle > IDLE_EVENTS:
                raise BadInput("The pool makes no progress; please report this with the files.")
            self._book(at)
            done = self._leave()
            left -= done
            come = self._arrive()
            if what == "round" or at >= self.next_round:
                self._decide(whole=True)
                self.next_round = (np.floor(self.now / self.rules.round_s + 1e-9) + 1) * self.rules.round_s
            elif done or come or what == "end":
                self._decide(whole=False)

    def _next_event(self) -> tuple[float, str]:
        f = self.fleet
        ends = np.where((f.on >= 0) & (f.pace > 0), np.maximum(self.now, f.ready) + f.left / np.maximum(f.pace, 1e-300), np.inf)
        end = float(ends.min()) if len(ends) else np.inf
        arrival = float(self.workload.arrival_s[self.next_arrival]) if self.next_arrival < len(self.workload) else np.inf
        boundary = self.next_round if len(f.job) else np.inf
        at = min(end, arrival, boundary)
        return at, "round" if at == boundary else "arrival" if at == arrival else "end"

    def _book(self, at: float) -> None:
        """Progress, accounts and use from ``now`` to ``at``."""
        f, span = self.fleet, at - self.now
        if span > 0 and len(f.job):
            worked = np.maximum(0.0, at - np.maximum(self.now, f.ready))
            f.left = np.where(f.on >= 0, f.left - worked * f.pace, f.left)
            f.owed_s = settle(f.owed_s, f.share, f.on, span, self.rules)
            self.account.promised_s[f.job] += f.share * span
            held = np.flatnonzero(f.on >= 0)
            self.account.received_s[f.job[held], f.on[held]] += span
            self.used_s += float(self.workload.accelerators[f.job[held]].sum()) * span
            self.weighted_active_s += len(f.job) * span
        self.now = at

    def _leave(self) -> int:
        f = self.fleet
        ended = np.flatnonzero((f.on >= 0) & (f.left <= 1e-9 * self.workload.total_steps[f.job]))
        if not len(ended):
            return 0
        for row in ended.tolist():
            job = int(f.job[row])
            self.jct[job] = self.now - self.workload.arrival_s[job]
            f.spot.pop(job, None)
        judged = int(self.wanted[f.job[ended]].sum())
        self._keep(np.setdiff1d(np.arange(len(f.job)), ended))
        return judged

    def _keep(self, rows: Ints) -> None:
        f = self.fleet
        for name in ("job", "left", "on", "owed_s", "share", "received_s", "promised_s", "ready", "pace"):
            setattr(f, name, getattr(f, name)[rows])

    def _arrive(self) -> int:
        first = self.next_arrival
        while self.next_arrival < len(self.workload) and self.workload.arrival_s[self.next_arrival] <= self.now:
            self.next_arrival += 1
        new = np.arange(first, self.next_arrival)
        if len(new):
            f, types = self.fleet, len(self.capacity)
            f.job = np.concatenate([f.job, new])
            f.left = np.concatenate([f.left, self.workload.total_steps[new]])
            f.on = np.concatenate([f.on, np.full(len(new), NOWHERE, np.int64)])
            f.ready, f.pace = np.concatenate([f.ready, np.zeros(len(new))]), np.concatenate([f.pace, np.zeros(len(new))])
            for name in ("owed_s", "share", "received_s", "promised_s"):
                setattr(f, name, np.concatenate([getattr(f, name), np.zeros((len(new), types))]))
        return len(new)

    def _decide(self, *, whole: bool) -> None:
        """Ask the policy and give out accelerators: all of them at a round's start, what is idle in between."""
        f = self.fleet
        self.decisions += 1
        if len(f.job):
            f.share = self.shares(self._jobs(), self.table, self.accelerators, self.now)
            size = self.workload.accelerators[f.job]
            pinned = np.zeros(len(f.job), np.bool_) if whole else f.on >= 0
            standing = Standing(f.share, f.owed_s, self.table.rate[self.workload.job_class[f.job]], size, f.on, pinned, f.job.astype(np.float64))
            self._move(choose(standing, self.capacity, self.rules), size, gather=whole)
        row = np.zeros(len(self.capacity))
        held = np.flatnonzero(f.on >= 0)
        np.add.at(row, f.on[held], self.workload.accelerators[f.job[held]])
        self.timeline.append((self.now, float(len(f.job)), *row.tolist()))

    def _move(self, chosen: Ints, size: Ints, *, gather: bool) -> None:
        f = self.fleet
        wanted = {int(f.job[i]): (int(chosen[i]), int(size[i])) for i in np.flatnonzero(chosen >= 0)}
        keep = frozenset[int]() if gather else frozenset(f.spot)
        spots = place(wanted, f.spot, self.nodes, keep)
        for i, job in enumerate(f.job.tolist()):
            spot = spots.get(job)
            if spot is None:
                f.pace[i] = 0.0
            elif spot != f.spot.get(job):
                f.ready[i] = self.now + self.rules.restart_s
                self.account.restarts[job] += 1
                if np.isnan(self.account.started_s[job]):
                    self.account.started_s[job] = self.now
                whole = consolidated(spot, int(self.accelerators.per_node[spot.type]))
                table = self.table.rate if whole else self.table.spread
                f.pace[i] = table[self.workload.job_class[job], spot.type]
        f.on, f.spot = chosen, spots

    def _jobs(self) -> Jobs:
        f, w = self.fleet, self.workload
        n, job = len(f.job), f.job
        entities = tuple(dict.fromkeys(w.entity)) or ("",)
        entity = np.array([entities.index(w.entity[j]) for j in job.tolist()], np.int64) if len(entities) > 1 else np.zeros(n, np.int64)
        return Jobs(
            ids=tuple(w.names[j] for j in job.tolist()), job_class=w.job_class[job], accelerators=w.accelerators[job], weight=w.weight[job],
            steps_left=np.maximum(f.left, 0.0), total_steps=w.total_steps[job], arrived_s=w.arrival_s[job],
            attained_s=self.account.received_s[job].sum(axis=1), time_on_s=self.account.received_s[job], isolated_s=np.zeros(n),
            deadline_s=w.arrival_s[job] + w.deadline_s[job], budget=np.full(n, np.inf), on=f.on, preemptible=np.ones(n, np.bool_),
            min_accelerators=w.accelerators[job], max_accelerators=w.accelerators[job], entity=entity, entities=entities,
            entity_weight=np.ones(len(entities)),
        )  # fmt: skip
