"""Who sits where: asks the policy for shares, the round mechanism for types and the placement for nodes. Pure.

The same functions as in the simulator's own pool (:mod:`ischeduler.simulator.pools.engine`): at a round's start everybody's lease is
looked at, in between only what is idle is given out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ischeduler.core.errors import IschedError
from ischeduler.core.pilots import MemberJob, PilotSign
from ischeduler.core.pool import Member, Pool, Seat
from ischeduler.plane.pools.accounts import rules_of
from ischeduler.plane.pools.seen import MemberSeen, Seen
from ischeduler.plane.pools.speeds import goodputs, known_profiles, steps_per_s
from ischeduler.policies.placement import Spot, place
from ischeduler.policies.problem import Accelerators, Allocation, Floats, Ints, Job, Jobs, Throughputs
from ischeduler.policies.registry import ELASTIC, allocate, objective_of
from ischeduler.policies.rounds import NOWHERE, Standing, choose, due
from ischeduler.policies.sia import Configurations

AHEAD_SHOWN = 5
SERVED_FIRST = 2.0
"""What a member that is not served costs an elastic policy: twice the smallest configuration, so that nobody waits for another's growth. With Sia's
own 1.1 one that has two accelerators keeps both from a newcomer for ever."""
HOLDS = 1.01
"""Goodput where a member is, against another's that would be as good there: who comes takes no place from its equal."""
SEAT_KEPT_S = 30.0
"""For a member on its way from one seat to another: the plane queues its next segment at its own pace."""


@dataclass(frozen=True, slots=True, eq=False)
class Floor:
    """What there is to sit on: by column of type, (pilot, node) and accelerators of each unit."""

    accelerators: Accelerators
    units: tuple[tuple[tuple[str, str], ...], ...]
    nodes: Mapping[int, Ints]

    @classmethod
    def of(cls, pool: Pool, signs: Sequence[PilotSign]) -> Floor | None:
        """None where no pilot is there."""
        by_type = [[s for s in signs if s.type == t] for t in pool.types]
        count = {t: float(sum(s.gpus for s in found)) for t, found in zip(pool.types, by_type, strict=True)}
        if not any(count.values()):
            return None
        per_node = {p.type: p.gpus_per_node for p in pool.places}
        accelerators = Accelerators.of(count, per_node=per_node, price_per_h={p.type: p.price_per_h for p in pool.places})
        units = tuple(tuple((s.name, s.node) for s in found) for found in by_type)
        return cls(accelerators, units, {k: np.array([s.gpus for s in found], np.int64) for k, found in enumerate(by_type)})

    def spot(self, seat: Seat | None, types: Sequence[str], gpus: int) -> Spot | None:
        """A seat as the placement knows it; None for one that is gone."""
        if seat is None or seat.type not in types:
            return None
        kind = types.index(seat.type)
        unit = (seat.pilot, seat.node)
        return Spot(kind, ((self.units[kind].index(unit), gpus),)) if unit in self.units[kind] else None


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """The members that may be seated, by row: who, what was seen of them, the segment they have open, speeds by number of accelerators and by
    column of type, the number they have (J,), where they sit, and the nodes on which they crawl."""

    members: tuple[Member, ...]
    seen: tuple[MemberSeen, ...]
    jobs: tuple[MemberJob | None, ...]
    speeds: tuple[Mapping[int, list[float]], ...]
    size: Ints
    before: tuple[Spot | None, ...]
    slow: tuple[frozenset[str], ...]

    @property
    def rate(self) -> Floats:
        return np.array([by_size[int(n)] for by_size, n in zip(self.speeds, self.size, strict=True)], np.float64)

    @property
    def on(self) -> Ints:
        return np.array([NOWHERE if s is None else s.type for s in self.before], np.int64)


def seated(pool: Pool, seen: Seen, signs: Sequence[PilotSign], now: float, *, whole: bool, previous: Allocation | None) -> tuple[Pool, Allocation | None]:
    """The pool with its members' seats, shares and what they were due; the allocation is the policy's memory. Raises IschedError."""
    floor = Floor.of(pool, signs)
    rows = None if floor is None else _rows(pool, seen, floor, now)
    if floor is None or rows is None:
        return replace(pool, members=tuple(replace(m, seat=None, share={}) for m in pool.members)), previous
    pinned = _pinned(pool, rows, now, whole=whole)
    asked = _asked(pool, rows, floor, now, previous, pinned)
    share = asked.share
    owed = _column(rows.members, pool.types)
    if asked.accelerators is not None:  # who sits where in this round, and no shares of time: nobody is owed any
        rows, owed = _resized(rows, asked.accelerators), np.zeros_like(owed)
    standing = Standing(
        share, owed, rows.rate, rows.size, rows.on, pinned,
        np.array([m.joined_at for m in rows.members]),
    )  # fmt: skip
    rules = rules_of(pool)
    chosen = choose(standing, floor.accelerators.count.astype(np.int64), rules)
    spots = _placed(rows, chosen, floor, pinned, gather=whole)
    owing = due(standing, rules)
    return replace(pool, members=_seated(pool, rows, spots, floor, share, owing, now, whole=whole)), asked


def warm_up(policy: str) -> None:
    """Let the policy load what it stands on, with the smallest of questions. What is wrong with it shows when it is asked in earnest."""
    types = ("a", "b")
    accelerators = Accelerators.of(dict.fromkeys(types, 1.0))
    table = Throughputs.of({"x": {"a": 2.0, "b": 1.0}, "y": {"a": 1.0, "b": 1.0}}, types)
    with contextlib.suppress(IschedError, ArithmeticError, ValueError):
        allocate(Jobs.of([Job(n, n, 10.0) for n in ("x", "y")], table, accelerators), table, accelerators, policy, 0.0)


def _rows(pool: Pool, seen: Seen, floor: Floor, now: float) -> _Rows | None:
    """Members that have a segment to run now and a type to run it on; None when there are none."""
    known = known_profiles(pool)
    elastic = pool.mode == "pilots" and objective_of(pool.policy).name in ELASTIC
    found: list[tuple[Member, MemberSeen, MemberJob | None, dict[int, list[float]], int]] = []
    for member in pool.members:
        one = seen.members.get(member.run_id)
        jobs = [j for j in seen.jobs if j.run_id == member.run_id]
        if one is None or not one.going or not _present(member, jobs, pool, now):
            continue
        job = next((j for j in reversed(jobs) if j.ended_at is None), None)
        last = job or (jobs[-1] if jobs else None)
        confined, size = last.confined if last else "", one.gpus
        by_size = {one.gpus: steps_per_s(member, one.gpus, confined, pool, known)}
        if elastic and one.sizes:
            by_size |= goodputs(member, one, confined, pool, known)
            size = member.seat.gpus if member.seat is not None and member.seat.gpus in by_size else one.gpus
        excluded = job.exclude_nodes if job is not None and job.pending else ()
        speeds = {n: [x[t] if _open(floor, k, n, excluded) else 0.0 for k, t in enumerate(pool.types)] for n, x in by_size.items()}
        if any(any(row) for row in speeds.values()):
            found.append((member, one, job, speeds, size))
    if not found:
        return None
    members, sights, open_jobs, speeds_of, sizes = zip(*found, strict=True)
    before = tuple(floor.spot(m.seat, pool.types, n) for m, n in zip(members, sizes, strict=True))
    slow = tuple(frozenset(s.node for s in seen.slow.get(m.run_id, ())) for m in members)
    return _Rows(members, sights, open_jobs, speeds_of, np.array(sizes, np.int64), before, slow)


def _resized(rows: _Rows, number: Ints) -> _Rows:
    """With the numbers of accelerators that the policy chose; who got none keeps what it has where it runs on that, else the least it can."""
    size: list[int] = []
    for i, by_size in enumerate(rows.speeds):
        runs = [n for n, row in sorted(by_size.items()) if any(row)]
        now = int(rows.size[i])
        size.append(int(number[i]) if int(number[i]) in by_size else now if now in runs and rows.before[i] is not None else runs[0])
    return replace(rows, size=np.array(size, np.int64))


def _present(member: Member, jobs: Sequence[MemberJob], pool: Pool, now: float) -> bool:
    """A segment waits or runs; or one has just ended and the plane is about to queue the next: its seat is kept for a moment."""
    if any(j.ended_at is None for j in jobs):
        return True
    last = max((j.ended_at for j in jobs if j.ended_at is not None), default=None)
    return last is not None and now - last <= max(SEAT_KEPT_S, 0.25 * pool.round_s) and jobs[-1].asked


def _open(floor: Floor, kind: int, gpus: int, excluded: Sequence[str]) -> bool:
    nodes = floor.nodes[kind]
    return any(n >= gpus and floor.units[kind][i][1] not in excluded for i, n in enumerate(nodes.tolist()))


def _asked(pool: Pool, rows: _Rows, floor: Floor, now: float, previous: Allocation | None, pinned: np.ndarray) -> Allocation:
    types = pool.types
    objective = objective_of(pool.policy)
    if objective.name in ELASTIC:
        objective = objective_of(pool.policy, options=_choices(pool, rows, floor, pinned))
    table = Throughputs.of({m.run_id: dict(zip(types, r, strict=True)) for m, r in zip(rows.members, rows.rate.tolist(), strict=True)}, types)
    jobs = [
        Job(
            m.run_id, m.run_id, s.steps_left, s.total_steps, int(n), m.weight, s.arrived_s, attained_s=sum(m.received_s.values()),
            time_on_s=m.received_s, deadline_s=s.deadline_s, entity=m.entity, on=types[b.type] if b is not None else "",
            preemptible=m.preemptible, min_accelerators=min(z), max_accelerators=max(z),
        ) for m, s, b, n, z in zip(rows.members, rows.seen, rows.before, rows.size, rows.speeds, strict=True)
    ]  # fmt: skip
    return allocate(Jobs.of(jobs, table, floor.accelerators), table, floor.accelerators, objective, now, previous)


def _choices(pool: Pool, rows: _Rows, floor: Floor, pinned: np.ndarray) -> dict[str, Any]:
    """What an elastic policy is told: every type with every number of accelerators of one node that some member may run on, the goodput of each
    member there (J, C), what it holds, how often it started. Who keeps its place has no choice but that."""
    sizes = sorted({n for by_size in rows.speeds for n in by_size})
    pairs = [(k, n) for k, room in floor.nodes.items() for n in sizes if len(room) and n <= room.max()]
    kind, number = (np.array(column, np.int64) for column in zip(*pairs, strict=True))
    goodput = np.array([[by_size[n][k] if n in by_size else 0.0 for k, n in pairs] for by_size in rows.speeds])
    held = [pairs.index(pair) if b is not None and (pair := (b.type, int(n))) in pairs else -1 for b, n in zip(rows.before, rows.size, strict=True)]
    for i, column in enumerate(held):
        if column >= 0:
            goodput[i, column] *= HOLDS
    for i in np.flatnonzero(pinned):
        goodput[i] = np.where((np.arange(len(pairs)) == held[i]) | (held[i] < 0), goodput[i], 0.0)
    return {
        "configurations": Configurations(kind, np.ones(len(pairs), np.int64), number), "goodput": goodput, "held": held,
        "restarts": [s.restarts for s in rows.seen], "restart_cost_s": pool.restart_s, "unserved": SERVED_FIRST, "decimals": None,
    }  # fmt: skip


def _column(members: Sequence[Member], types: Sequence[str]) -> Floats:
    return np.array([[m.owed_s.get(t, 0.0) for t in types] for m in members])


def _pinned(pool: Pool, rows: _Rows, now: float, *, whole: bool) -> np.ndarray:
    """Who keeps its seat: everybody between rounds; at a round's start who cannot be preempted, or has only just started."""
    if not whole:
        return rows.on >= 0
    young = [j is not None and j.started_at is not None and now - j.started_at < pool.restart_s for j in rows.jobs]
    firm = [not m.preemptible or y for m, y in zip(rows.members, young, strict=True)]
    return np.array(firm, np.bool_) & (rows.on >= 0)


def _placed(rows: _Rows, chosen: Ints, floor: Floor, pinned: np.ndarray, *, gather: bool) -> dict[int, Spot]:
    """Spots on one node each; who would be scattered, or would land on a node it avoids with no other free, waits.

    From a node on which it crawls a member goes to another that is free; where none is, it stays.
    """
    size = rows.size
    wanted = {int(i): (int(chosen[i]), int(size[i])) for i in np.flatnonzero(chosen >= 0)}
    before = {i: s for i, s in enumerate(rows.before) if s is not None}
    spots = place(wanted, before, floor.nodes, frozenset[int]() if gather else frozenset(before))
    spots = {i: s for i, s in spots.items() if len(s.nodes) == 1}
    free = {k: room.copy() for k, room in floor.nodes.items()}
    for spot in spots.values():
        for node, n in spot.nodes:
            free[spot.type][node] -= n
    for i in list(spots):
        _keep_off(rows, spots, i, floor, free, rows.slow[i] if not pinned[i] else frozenset())
    return spots


def _keep_off(rows: _Rows, spots: dict[int, Spot], i: int, floor: Floor, free: Mapping[int, Ints], slow: frozenset[str]) -> None:
    job, spot = rows.jobs[i], spots[i]
    excluded = frozenset(job.exclude_nodes if job is not None and job.pending else ())
    (node, n), names = spot.nodes[0], [unit[1] for unit in floor.units[spot.type]]
    if names[node] not in excluded | slow:
        return
    free[spot.type][node] += n
    rooms = [k for k, room in enumerate(free[spot.type].tolist()) if room >= n and names[k] not in excluded]
    other = min(rooms, key=lambda k: (names[k] in slow, k != node, k), default=None)
    if other is None:
        del spots[i]
        return
    free[spot.type][other] -= n
    spots[i] = Spot(spot.type, ((other, n),))


def _seated(
    pool: Pool, rows: _Rows, spots: Mapping[int, Spot], floor: Floor, share: Floats, owing: Floats, now: float, *, whole: bool,
) -> tuple[Member, ...]:  # fmt: skip
    at = {m.run_id: i for i, m in enumerate(rows.members)}
    served = sorted(spots, key=lambda i: -float(owing[i, spots[i].type]))
    members: list[Member] = []
    for member in pool.members:
        i = at.get(member.run_id)
        if i is None:
            members.append(replace(member, seat=None, share={}))
            continue
        spot = spots.get(i)
        member = replace(member, seat=_seat(member.seat, spot, pool.types, floor, now), share=_by_type(pool.types, share[i]))
        if whole or spot is None:
            before_me = [k for k in served if k != i and owing[k, spots[k].type] >= owing[i].max()] if spot is None else []
            ahead = tuple(rows.members[k].run_id for k in before_me[:AHEAD_SHOWN])
            member = replace(member, due_s=_by_type(pool.types, owing[i]), ahead=ahead)
        members.append(member)
    return tuple(members)


def _seat(old: Seat | None, spot: Spot | None, types: Sequence[str], floor: Floor, now: float) -> Seat | None:
    if spot is None:
        return None
    pilot, node = floor.units[spot.type][spot.nodes[0][0]]
    gpus = spot.nodes[0][1]
    if old is not None and (old.type, old.pilot, old.node) == (types[spot.type], pilot, node) and old.gpus in (0, gpus):
        return replace(old, gpus=gpus)
    return Seat(types[spot.type], pilot, node, now, gpus)


def _by_type(types: Sequence[str], row: Floats) -> dict[str, float]:
    return {t: float(x) for t, x in zip(types, row, strict=True)}
