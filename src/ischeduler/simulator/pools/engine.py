"""This project's own pool on the simulated clock: rounds, arrivals and ends as they come, restarts and scattering charged.

A policy is asked at every round's start and whenever a job comes or goes; between rounds nothing that runs is moved, but what is idle is
given out at once. Two jobs that a policy pairs share their accelerators at the rates measured for the pair. A job loses ``restart_s`` whenever
it starts, moves or resumes, and runs at its scattered throughput when it does not stand on as few nodes as can be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ischeduler.core.errors import BadInput
from ischeduler.policies.placement import Spot, consolidated, nodes_of, place
from ischeduler.policies.problem import Accelerators, Allocation, Floats, Ints, Jobs, Throughputs
from ischeduler.policies.rounds import NOWHERE, Rules, Standing, choose, settle
from ischeduler.policies.together import Pairs, joins, units
from ischeduler.simulator.pools.workload import Workload

Shares = Callable[[Jobs, Throughputs, Accelerators, float], Allocation]
"""Asks a policy: the shares of the active jobs at a moment."""
IDLE_EVENTS = 100_000


@dataclass(slots=True, eq=False)
class Fleet:
    """The active jobs by column, and where each stands (``spot``); ``ready`` is when it goes on. ``mate``: job -> the job it shares them with.

    ``pair`` (P, 2): pairs of jobs that were promised time together, with shares and seconds owed (P, K) and the type they are on (-1: not together).
    """

    job: Ints
    left: Floats
    on: Ints
    owed_s: Floats
    share: Floats
    received_s: Floats
    promised_s: Floats
    ready: Floats
    pace: Floats
    pair: Ints
    pair_share: Floats
    pair_owed_s: Floats
    pair_on: Ints
    spot: dict[int, Spot] = field(default_factory=dict[int, Spot])
    mate: dict[int, int] = field(default_factory=dict[int, int])

    def parts(self) -> Floats:
        """How much of its accelerators counts for each job (J,): half where two share them."""
        return np.array([0.5 if j in self.mate else 1.0 for j in self.job.tolist()]) if self.mate else np.ones(len(self.job))


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
                           np.zeros(0), np.zeros(0), np.zeros((0, 2), np.int64), none.copy(), none.copy(), np.zeros(0, np.int64))  # fmt: skip
        self.kept = self.table.kept() if self.table.knows_pairs else None
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
            parts = f.parts()
            f.owed_s = settle(f.owed_s, f.share, np.where(parts < 1.0, NOWHERE, f.on), span, self.rules)
            self.account.promised_s[f.job] += f.share * span
            if len(f.pair):
                f.pair_owed_s = settle(f.pair_owed_s, f.pair_share, f.pair_on, span, self.rules)
                for side in (0, 1):
                    np.add.at(self.account.promised_s, f.pair[:, side], f.pair_share * span)
            held = np.flatnonzero(f.on >= 0)
            self.account.received_s[f.job[held], f.on[held]] += span
            self.used_s += float((self.workload.accelerators[f.job] * parts)[held].sum()) * span
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
            if job in f.mate:
                other = f.mate.pop(job)
                del f.mate[other]
                f.pace[f.job == other] = self._pace(other, f.spot[other], None)
        stays = ~np.isin(f.pair, f.job[ended]).any(axis=1)
        for name in ("pair", "pair_share", "pair_owed_s", "pair_on"):
            setattr(f, name, getattr(f, name)[stays])
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
            found = self.shares(self._jobs(), self.table, self.accelerators, self.now)
            f.share = found.share
            size = self.workload.accelerators[f.job]
            pinned = np.zeros(len(f.job), np.bool_) if whole else f.on >= 0
            standing = Standing(f.share, f.owed_s, self.table.rate[self.workload.job_class[f.job]], size, f.on, pinned, f.job.astype(np.float64))
            if len(found.pairs) or len(f.pair):
                self._promise(found)
                self._seat_units(standing, size, whole=whole)
            else:
                self._move(choose(standing, self.capacity, self.rules), size, f.spot, {}, gather=whole)
        row = np.zeros(len(self.capacity))
        held = np.flatnonzero(f.on >= 0)
        np.add.at(row, f.on[held], (self.workload.accelerators[f.job] * f.parts())[held])
        self.timeline.append((self.now, float(len(f.job)), *row.tolist()))

    def _promise(self, found: Allocation) -> None:
        """The pairs of a new allocation, with the accounts of those that had one."""
        f, types = self.fleet, len(self.capacity)
        before = {(min(a, b), max(a, b)): p for p, (a, b) in enumerate(f.pair.tolist())}
        names = [(min(a, b), max(a, b)) for a, b in f.job[found.pairs].tolist()]
        fresh = set(names)
        also = [n for n, p in before.items() if n not in fresh and (f.pair_on[p] >= 0 or f.pair_owed_s[p].any())]
        share = np.concatenate([found.pair_share.reshape(-1, types), np.zeros((len(also), types))])
        at = [before.get(n, -1) for n in names + also]
        owed = np.array([f.pair_owed_s[p] if p >= 0 else np.zeros(types) for p in at]).reshape(-1, types)
        on = np.array([f.pair_on[p] if p >= 0 else NOWHERE for p in at], np.int64)
        f.pair, f.pair_share, f.pair_owed_s, f.pair_on = np.array(names + also, np.int64).reshape(-1, 2), share, owed, on

    def _seat_units(self, standing: Standing, size: Ints, *, whole: bool) -> None:
        """Jobs alone and pairs go through the round as one each; a pair stands where its first job does."""
        f = self.fleet
        assert self.kept is not None
        row = {j: i for i, j in enumerate(f.job.tolist())}
        rows = np.array([[row[a], row[b]] for a, b in f.pair.tolist()], np.int64).reshape(-1, 2)
        part = standing.rate / np.maximum(standing.rate.max(axis=1, keepdims=True), 1e-300)
        a, b = (self.workload.job_class[f.pair[:, side]] for side in (0, 1))
        rate = np.where(self.kept[a, b] > 0, part[rows[:, 0]] * self.kept[a, b] + part[rows[:, 1]] * self.kept[b, a], 0.0)
        pairs = Pairs(rows, f.pair_share, f.pair_owed_s, f.pair_on, rate)
        unit = units(standing, pairs, self.rules, parted=whole)
        seat = choose(unit.standing, self.capacity, self.rules)
        chosen, partner = np.full(len(f.job), NOWHERE, np.int64), np.full(len(f.job), -1, np.int64)
        chosen[unit.first] = seat
        two = np.flatnonzero((unit.second >= 0) & (seat >= 0))
        chosen[unit.second[two]] = seat[two]
        guests = dict(zip(unit.second[two].tolist(), unit.first[two].tolist(), strict=True))
        together = unit.pair[two].tolist()
        if not whole:
            partner[unit.first[two]], partner[unit.second[two]] = unit.second[two], unit.first[two]
            for p in joins(chosen, partner, pairs):
                one, other = rows[p].tolist()
                host, guest = (one, other) if chosen[one] >= 0 else (other, one)
                chosen[guest], guests[guest] = chosen[host], host
                together.append(p)
        f.pair_on = np.full(len(f.pair), NOWHERE, np.int64)
        f.pair_on[together] = chosen[rows[together, 0]]
        stood = {int(f.job[i]): f.spot[int(f.job[i])] for i, on in zip(unit.first, unit.standing.on, strict=True) if on >= 0}
        self._move(chosen, size, stood, guests, gather=whole)

    def _move(self, chosen: Ints, size: Ints, before: dict[int, Spot], guests: dict[int, int], *, gather: bool) -> None:
        """To ``chosen`` types; ``before``: places that jobs may keep; ``guests``: row of a job -> row of the one whose accelerators it shares."""
        f = self.fleet
        wanted = {int(f.job[i]): (int(chosen[i]), int(size[i])) for i in np.flatnonzero(chosen >= 0) if i not in guests}
        keep = frozenset[int]() if gather else frozenset(before)
        spots = place(wanted, before, self.nodes, keep)
        mate = dict[int, int]()
        for guest, host in guests.items():
            one, other = int(f.job[guest]), int(f.job[host])
            spots[one], mate[one], mate[other] = spots[other], other, one
        for i, job in enumerate(f.job.tolist()):
            spot = spots.get(job)
            if spot is None:
                f.pace[i] = 0.0
                continue
            moved = spot != f.spot.get(job)
            if moved:
                f.ready[i] = self.now + self.rules.restart_s
                self.account.restarts[job] += 1
                if np.isnan(self.account.started_s[job]):
                    self.account.started_s[job] = self.now
            if moved or mate.get(job) != f.mate.get(job):
                f.pace[i] = self._pace(job, spot, mate.get(job))
        f.on, f.spot, f.mate = chosen, spots, mate

    def _pace(self, job: int, spot: Spot, mate: int | None) -> float:
        """Steps/s of a job where it stands, with the one it shares the accelerators with."""
        w = self.workload
        whole = consolidated(spot, int(self.accelerators.per_node[spot.type]))
        alone = float((self.table.rate if whole else self.table.spread)[w.job_class[job], spot.type])
        return alone if mate is None or self.kept is None else alone * float(self.kept[w.job_class[job], w.job_class[mate], spot.type])

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
