"""Who sits where: asks the policy for shares, the round mechanism for types and the placement for nodes. Pure.

The same functions as in the simulator's own pool (:mod:`ischeduler.simulator.pools.engine`): at a round's start everybody's lease is
looked at, in between only what is idle is given out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ischeduler.core.errors import IschedError
from ischeduler.core.pilots import MemberJob, PilotSign
from ischeduler.core.pool import Member, Pool, Seat
from ischeduler.plane.pools.accounts import rules_of
from ischeduler.plane.pools.seen import MemberSeen, Seen
from ischeduler.plane.pools.speeds import known_profiles, steps_per_s
from ischeduler.policies.placement import Spot, place
from ischeduler.policies.problem import Accelerators, Allocation, Floats, Ints, Job, Jobs, Throughputs
from ischeduler.policies.registry import allocate
from ischeduler.policies.rounds import NOWHERE, Standing, choose, due

AHEAD_SHOWN = 5
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
    """The members that may be seated, by row: who, what was seen of them, the segment they have open, speeds (J, K), where they sit, and the
    nodes on which they crawl."""

    members: tuple[Member, ...]
    seen: tuple[MemberSeen, ...]
    jobs: tuple[MemberJob | None, ...]
    rate: Floats
    before: tuple[Spot | None, ...]
    slow: tuple[frozenset[str], ...]

    @property
    def size(self) -> Ints:
        return np.array([s.gpus for s in self.seen], np.int64)

    @property
    def on(self) -> Ints:
        return np.array([NOWHERE if s is None else s.type for s in self.before], np.int64)


def seated(pool: Pool, seen: Seen, signs: Sequence[PilotSign], now: float, *, whole: bool, previous: Allocation | None) -> tuple[Pool, Allocation | None]:
    """The pool with its members' seats, shares and what they were due; the allocation is the policy's memory. Raises IschedError."""
    floor = Floor.of(pool, signs)
    rows = None if floor is None else _rows(pool, seen, floor, now)
    if floor is None or rows is None:
        return replace(pool, members=tuple(replace(m, seat=None, share={}) for m in pool.members)), previous
    asked = _asked(pool, rows, floor, now, previous)
    share = asked.share
    pinned = _pinned(pool, rows, now, whole=whole)
    standing = Standing(
        share, _column(rows.members, pool.types), rows.rate, rows.size, rows.on, pinned,
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
    found: list[tuple[Member, MemberSeen, MemberJob | None, list[float]]] = []
    for member in pool.members:
        one = seen.members.get(member.run_id)
        jobs = [j for j in seen.jobs if j.run_id == member.run_id]
        if one is None or not one.going or not _present(member, jobs, pool, now):
            continue
        job = next((j for j in reversed(jobs) if j.ended_at is None), None)
        last = job or (jobs[-1] if jobs else None)
        speed = steps_per_s(member, one.gpus, last.confined if last else "", pool, known)
        excluded = job.exclude_nodes if job is not None and job.pending else ()
        rate = [speed[t] if _open(floor, k, one.gpus, excluded) else 0.0 for k, t in enumerate(pool.types)]
        if any(rate):
            found.append((member, one, job, rate))
    if not found:
        return None
    members, sights, open_jobs, rates = zip(*found, strict=True)
    before = tuple(floor.spot(m.seat, pool.types, s.gpus) for m, s in zip(members, sights, strict=True))
    slow = tuple(frozenset(s.node for s in seen.slow.get(m.run_id, ())) for m in members)
    return _Rows(members, sights, open_jobs, np.array(rates, np.float64), before, slow)


def _present(member: Member, jobs: Sequence[MemberJob], pool: Pool, now: float) -> bool:
    """A segment waits or runs; or one has just ended and the plane is about to queue the next: its seat is kept for a moment."""
    if any(j.ended_at is None for j in jobs):
        return True
    last = max((j.ended_at for j in jobs if j.ended_at is not None), default=None)
    return last is not None and now - last <= max(SEAT_KEPT_S, 0.25 * pool.round_s) and jobs[-1].asked


def _open(floor: Floor, kind: int, gpus: int, excluded: Sequence[str]) -> bool:
    nodes = floor.nodes[kind]
    return any(n >= gpus and floor.units[kind][i][1] not in excluded for i, n in enumerate(nodes.tolist()))


def _asked(pool: Pool, rows: _Rows, floor: Floor, now: float, previous: Allocation | None) -> Allocation:
    types = pool.types
    table = Throughputs.of({m.run_id: dict(zip(types, r, strict=True)) for m, r in zip(rows.members, rows.rate.tolist(), strict=True)}, types)
    jobs = [
        Job(
            m.run_id, m.run_id, s.steps_left, s.total_steps, s.gpus, m.weight, s.arrived_s, attained_s=sum(m.received_s.values()),
            time_on_s=m.received_s, deadline_s=s.deadline_s, entity=m.entity, on=types[b.type] if b is not None else "",
            preemptible=m.preemptible,
        ) for m, s, b in zip(rows.members, rows.seen, rows.before, strict=True)
    ]  # fmt: skip
    return allocate(Jobs.of(jobs, table, floor.accelerators), table, floor.accelerators, pool.policy, now, previous)


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
    if old is not None and (old.type, old.pilot, old.node) == (types[spot.type], pilot, node):
        return old
    return Seat(types[spot.type], pilot, node, now)


def _by_type(types: Sequence[str], row: Floats) -> dict[str, float]:
    return {t: float(x) for t, x in zip(types, row, strict=True)}
