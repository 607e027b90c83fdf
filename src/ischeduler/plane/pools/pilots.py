"""How many pilots the pool asks for, and which it gives back. Pure.

Fair to people outside: accelerators that nobody of the pool uses for longer than its limit go back, and are asked for again only when
members wait for them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from ischeduler.core.durations import human
from ischeduler.core.pool import Member, Pilot, Pool
from ischeduler.plane.pools.seen import AskPilot, PoolAction, ReleasePilot, Seen, run_of_pilot

AGAIN_S = 300.0
"""After a pilot's run failed, before another of its type is asked for."""


def kept(pool: Pool, seen: Seen, now: float) -> Pool:
    """The pool without pilots whose runs have ended and whose reports are closed; a type whose pilot failed rests for a while, and the reason
    is told."""
    pilots, rest, trouble = list[Pilot](), dict(pool.not_before), pool.trouble
    speaking = {run_of_pilot(s.name) for s in seen.signs}
    for pilot in pool.pilots:
        run = seen.pilots.get(pilot.run_id)
        if pilot.run_id in speaking or (run is None and not pilot.released) or (run is not None and run.going):
            pilots.append(pilot)
        elif run is not None and not pilot.released:
            rest[pilot.type] = now + AGAIN_S
            trouble = f"a pilot of {pilot.type} ended ({run.message}); the next one is asked for in {human(AGAIN_S)}"
    return replace(pool, pilots=tuple(pilots), not_before=rest, trouble=trouble)


def sized(pool: Pool, seen: Seen, speeds: Mapping[str, Mapping[str, float]], now: float) -> tuple[Pool, tuple[PoolAction, ...]]:
    """Release what is idle for too long, ask for what members wait for. ``speeds``: of members that want to run now, by type."""
    waiting = [m for m in pool.members if m.run_id in speeds and m.seat is None]
    pool, released = _released(pool, seen, waiting, speeds, now)
    pool = _asked(pool, seen, waiting, speeds, now)
    unknown = (p for p in pool.pilots if p.run_id not in seen.pilots and not p.released)
    return pool, (*released, *(AskPilot(p.run_id, p.type) for p in unknown))


def _released(
    pool: Pool, seen: Seen, waiting: list[Member], speeds: Mapping[str, Mapping[str, float]], now: float
) -> tuple[Pool, tuple[PoolAction, ...]]:
    used = {run_of_pilot(j.pilot) for j in seen.jobs if j.running} | {run_of_pilot(m.seat.pilot) for m in pool.members if m.seat is not None}
    pilots, actions = list[Pilot](), list[PoolAction]()
    for pilot in pool.pilots:
        run = seen.pilots.get(pilot.run_id)
        hoped_for = (run is None or run.waiting) and any(speeds[m.run_id].get(pilot.type, 0.0) > 0 for m in waiting)
        if pilot.run_id in used or hoped_for:
            pilot = replace(pilot, idle_since=None)
        elif pilot.idle_since is None:
            pilot = replace(pilot, idle_since=now)
        elif now - pilot.idle_since >= pool.idle_s and not pilot.released:
            pilot = replace(pilot, released=f"nobody of the pool used it for {human(now - pilot.idle_since)}")
        if pilot.released:
            actions.append(ReleasePilot(pilot.run_id, pilot.released))
        pilots.append(pilot)
    return replace(pool, pilots=tuple(pilots)), tuple(actions)


def _asked(pool: Pool, seen: Seen, waiting: list[Member], speeds: Mapping[str, Mapping[str, float]], now: float) -> Pool:
    for place in pool.places:
        alive = [p for p in pool.pilots if p.type == place.type and not p.released]
        coming = sum(1 for p in alive if p.run_id not in seen.pilots or seen.pilots[p.run_id].waiting)
        wanting = [m for m in waiting if speeds[m.run_id].get(place.type, 0.0) > 0]
        gpus = sum(seen.members[m.run_id].gpus for m in wanting)
        more = min(place.count - len(alive), math.ceil(gpus / place.gpus_per_node) - coming)
        if more <= 0 or now < pool.not_before.get(place.type, 0.0):
            continue
        for _ in range(more):
            pool = replace(pool, asked=pool.asked + 1, trouble="")
            pilot = Pilot(f"p-{pool.name}-{place.type}-{int(pool.created_at) % 0x100000:x}-{pool.asked}", place.type, now)
            pool = replace(pool, pilots=(*pool.pilots, pilot))
    return pool


def all_back(pool: Pool, why: str) -> tuple[Pool, tuple[PoolAction, ...]]:
    """Every pilot given back."""
    pilots = tuple(replace(p, released=p.released or why) for p in pool.pilots)
    return replace(pool, pilots=pilots), tuple(ReleasePilot(p.run_id, p.released) for p in pilots)
