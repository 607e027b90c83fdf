"""``decide(pool, seen, now) -> decision``: one tick of a pool with pilots. Pure, total and idempotent.

What a crash swallows is asked for again: seats and pilots stand in the pool, which is saved before anything is done, and every action says
what shall be, not what shall change.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ischeduler.core.errors import BadInput, IschedError
from ischeduler.core.pilots import MemberJob, PilotSign
from ischeduler.core.pool import Member, Pool, PoolState
from ischeduler.plane.pools.accounts import booked
from ischeduler.plane.pools.pilots import all_back, kept, sized
from ischeduler.plane.pools.seats import seated
from ischeduler.plane.pools.seen import ClosePilot, PoolAction, Resize, Seen, Steps, run_of_pilot
from ischeduler.plane.pools.speeds import known_profiles, learned, steps_per_s
from ischeduler.policies.problem import Allocation
from ischeduler.policies.registry import objective_of

QUIET_S = 30.0
"""A pilot that has not given a sign for so long gets nobody new, nor keeps anybody's seat."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The pool to be saved, what is to be done then, and the policy's memory for the next time."""

    pool: Pool
    actions: tuple[PoolAction, ...]
    memory: Allocation | None = None


def decide(pool: Pool, seen: Seen, now: float, memory: Allocation | None = None) -> Decision:
    """One tick. A policy that cannot answer leaves everybody where they are, and its sentence in ``trouble``."""
    pool = learned(booked(pool, seen.jobs, now), seen.jobs, seen.members)
    closing = [ClosePilot(s.name) for s in seen.signs if _over(s, seen)]
    gone = {c.name for c in closing}
    signs = tuple(s for s in seen.signs if s.name not in gone)
    pool = kept(_without_ended(pool, seen), seen, now)
    if pool.state is not PoolState.ACTIVE:
        pool, actions = _drained(pool, seen)
        return Decision(pool, (*closing, *actions, *_orders(pool, seen, signs, now)), memory)
    usable = [s for s in signs if _usable(s, pool, now)]
    whole = pool.next_round_at is None or now >= pool.next_round_at
    try:
        pool, memory = seated(pool, seen, usable, now, whole=whole, previous=memory)
        pool = replace(pool, trouble="" if pool.trouble.startswith("policy") else pool.trouble)
    except (IschedError, ArithmeticError, ValueError) as error:
        pool = replace(pool, trouble=f"policy {pool.policy}: {error if isinstance(error, IschedError) else 'it has no answer to this'}")
    pool = _noted(counted(pool, now, whole=whole and bool(usable)), seen)
    pool, actions = sized(pool, seen, _speeds(pool, seen), now)
    return Decision(pool, (*closing, *actions, *_resizes(pool, seen), *_orders(pool, seen, signs, now)), memory)


def _over(sign: PilotSign, seen: Seen) -> bool:
    """Whether the batch job behind a report is known to have ended."""
    run = seen.pilots.get(run_of_pilot(sign.name))
    return run is not None and (sign.name in run.over or not run.going)


def _usable(sign: PilotSign, pool: Pool, now: float) -> bool:
    """It is the pool's, speaks, takes steps, and lasts long enough for one to be worth its start."""
    lasts = sign.ends_at is None or sign.ends_at - now > 2 * pool.restart_s
    ours = any(p.run_id == run_of_pilot(sign.name) and not p.released for p in pool.pilots)
    return ours and not sign.leaving and now - sign.beat_at < QUIET_S and lasts


def _without_ended(pool: Pool, seen: Seen) -> Pool:
    """Members whose runs are over have left."""
    still = tuple(m for m in pool.members if m.run_id not in seen.members or seen.members[m.run_id].going)
    return replace(pool, members=still)


def _noted(pool: Pool, seen: Seen) -> Pool:
    """Members say on which nodes they crawl."""
    words = {i: "; ".join(f"{s.words}: another is taken where one is free" for s in slow) for i, slow in seen.slow.items()}
    return replace(pool, members=tuple(replace(m, note=words.get(m.run_id, "")) for m in pool.members))


def counted(pool: Pool, now: float, *, whole: bool) -> Pool:
    """The round's number, and when the next one begins: on a grid, so that a late tick shifts nothing."""
    if not whole:
        return pool
    if pool.next_round_at is None:
        return replace(pool, round=pool.round + 1, round_since=now, next_round_at=now + pool.round_s)
    passed = math.floor((now - pool.next_round_at) / pool.round_s) + 1
    return replace(pool, round=pool.round + 1, round_since=now, next_round_at=pool.next_round_at + passed * pool.round_s)


def _drained(pool: Pool, seen: Seen) -> tuple[Pool, tuple[PoolAction, ...]]:
    """Members save and leave; then the pilots go back."""
    pool = replace(pool, members=tuple(replace(m, seat=None, share={}) for m in pool.members), next_round_at=None)
    if any(j.running for j in seen.jobs):
        return pool, ()
    pool, actions = all_back(pool, "the pool is drained")
    return (pool, actions) if pool.pilots else (replace(pool, state=PoolState.DRAINED), ())


def _speeds(pool: Pool, seen: Seen) -> dict[str, Mapping[str, float]]:
    """Of members that have a segment waiting or running."""
    known = known_profiles(pool)
    last = {j.run_id: j for j in seen.jobs if j.ended_at is None}
    return {
        m.run_id: steps_per_s(m, seen.members[m.run_id].gpus, last[m.run_id].confined, pool, known)
        for m in pool.members if m.run_id in last and m.run_id in seen.members
    }  # fmt: skip


def _resizes(pool: Pool, seen: Seen) -> list[PoolAction]:
    """Elastic members whose plan is not for as many accelerators as their seat has."""
    seats = {m.run_id: m.seat.gpus for m in pool.members if m.seat is not None and m.seat.gpus}
    return [Resize(i, n) for i, n in seats.items() if i in seen.members and n in seen.members[i].sizes and n != seen.members[i].gpus]


def _orders(pool: Pool, seen: Seen, signs: Sequence[PilotSign], now: float) -> list[PoolAction]:
    """What each pilot shall run: segments of members whose seat is there, those that run there and those that wait."""
    members = {m.run_id: m for m in pool.members}
    orders: list[PoolAction] = []
    for sign in signs:
        left_s = pool.place(sign.type).walltime_s if sign.ends_at is None else max(0.0, sign.ends_at - now)
        orders.append(Steps(sign.name, {j.job_id: left_s for j in seen.jobs if _belongs(j, members.get(j.run_id), sign)}))
    return orders


def _belongs(job: MemberJob, member: Member | None, sign: PilotSign) -> bool:
    if member is None or member.seat is None or (member.seat.pilot, member.seat.node) != (sign.name, sign.node):
        return False
    if member.seat.gpus not in (0, job.gpus):
        return False  # a segment of its former size: it leaves, or is queued anew
    return job.pending or (job.running and job.pilot == sign.name)


def next_tick_s(pool: Pool, seen: Seen, now: float, fast_s: float) -> float:
    """When the next look is worth it: soon while somebody is on the way to or from a seat, else by the round's end."""
    running = {j.run_id: (j.pilot, j.gpus) for j in seen.jobs if j.running}
    seats = {m.run_id: m.seat for m in pool.members}
    moving = any((s.pilot, s.gpus or running.get(i, ("", 0))[1]) != running.get(i) if s else i in running for i, s in seats.items())
    if moving or pool.state is PoolState.DRAINING:
        return fast_s
    until = pool.round_s if pool.next_round_at is None else pool.next_round_at - now
    return max(fast_s, min(until, pool.round_s / 20))


def check_policy(name: str) -> None:
    """BadInput with the nearest names for a policy there is not, and for those that put two members on the same accelerators."""
    if objective_of(name).sharing:
        raise BadInput(f"The policy {name} puts two members on the same accelerators, which a live pool does not do; choose it without _packed.")
