"""Who got what: seconds promised and received by type, from when segments really held accelerators. Pure.

The account is the round mechanism's (:func:`ischeduler.policies.rounds.settle`), but for when a member held a type: a segment's start and end
are known to the instant here, and are not rounded to ticks. The bounds are kept after both, however long nobody looked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from ischeduler.core.pilots import MemberJob
from ischeduler.core.pool import Member, Pool
from ischeduler.policies.rounds import Rules


def rules_of(pool: Pool) -> Rules:
    """The pool's rounds."""
    return Rules(pool.round_s, pool.restart_s)


def booked(pool: Pool, jobs: Iterable[MemberJob], now: float) -> Pool:
    """The pool with its accounts kept until ``now``."""
    since = now if pool.accounted_to is None else pool.accounted_to
    elapsed_s = max(0.0, now - since)
    by_run: dict[str, list[MemberJob]] = {}
    for job in jobs:
        by_run.setdefault(job.run_id, []).append(job)
    members = [_booked(m, held_s(by_run.get(m.run_id, ()), since, now), elapsed_s, pool) for m in pool.members]
    return replace(pool, members=tuple(members), accounted_to=max(since, now))


def held_s(jobs: Iterable[MemberJob], since: float, until: float) -> dict[str, float]:
    """Seconds between two instants in which a member held each type."""
    held: dict[str, float] = {}
    for job in jobs:
        if job.started_at is None:
            continue
        seconds = min(until, until if job.ended_at is None else job.ended_at) - max(since, job.started_at)
        if seconds > 0:
            held[job.type] = held.get(job.type, 0.0) + seconds
    return held


def _booked(member: Member, held: Mapping[str, float], elapsed_s: float, pool: Pool) -> Member:
    if elapsed_s <= 0:
        return member
    types, rules = pool.types, rules_of(pool)
    share = np.array([[member.share.get(t, 0.0) for t in types]])
    owed = np.array([[member.owed_s.get(t, 0.0) for t in types]])
    bound = rules.memory_rounds * rules.round_s
    after = owed + share * elapsed_s - np.array([[held.get(t, 0.0) for t in types]])
    return replace(
        member, owed_s={t: float(x) for t, x in zip(types, np.clip(after[0], -bound, bound), strict=True)},
        promised_s={t: member.promised_s.get(t, 0.0) + member.share.get(t, 0.0) * elapsed_s for t in types},
        received_s={t: member.received_s.get(t, 0.0) + held.get(t, 0.0) for t in types},
    )  # fmt: skip
