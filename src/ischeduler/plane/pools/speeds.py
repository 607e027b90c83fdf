"""How fast each member is on each type: what its owner or an estimator said, corrected by what was seen. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from ischeduler.core.errors import BadInput
from ischeduler.core.estimate import Estimate
from ischeduler.core.pilots import MemberJob
from ischeduler.core.pool import Member, Pool
from ischeduler.plane.pools.seen import MemberSeen
from ischeduler.plane.pools.sizes import scaled_key, steps_at
from ischeduler.policies.estimates import Correction, Figure, Profiles, Rates, combine, profiles
from ischeduler.policies.problem import Throughputs

WARM_UP_S = 0.5
"""A step time that is older than the segment, or as old, is of another type."""
SEEN_SPREAD = 0.05
NEWS = 0.15
"""A speed that differs by less from what was seen before is no news: a policy's shares may jump with the smallest change of a speed."""


def learned(pool: Pool, jobs: Sequence[MemberJob], seen: Mapping[str, MemberSeen]) -> Pool:
    """The pool with each running member's step time noted for the type it runs on."""
    running = {j.run_id: j for j in jobs if j.running}
    return replace(pool, members=tuple(_learned(m, running.get(m.run_id), seen.get(m.run_id)) for m in pool.members))


def _learned(member: Member, job: MemberJob | None, seen: MemberSeen | None) -> Member:
    if job is None or seen is None or not seen.step_time_s or seen.measured_at is None or job.started_at is None:
        return member
    if seen.measured_at <= job.started_at + WARM_UP_S:
        return member
    at_size = job.gpus != (seen.declared or job.gpus)
    known, key = (member.scaled, scaled_key(job.type, job.gpus)) if at_size else (member.observed, job.type)
    old = known.get(key)
    if old is not None and abs(old.p50 * seen.step_time_s - 1.0) < NEWS:
        return member
    estimate = Estimate.spread(1.0 / seen.step_time_s, SEEN_SPREAD, "steps/s", "observed", basis="live", as_of=seen.measured_at)
    return replace(member, scaled={**known, key: estimate}) if at_size else replace(member, observed={**known, key: estimate})


def figures_of(member: Member) -> list[Figure]:
    """All that is known of the declared number of accelerators: what was said and what was seen. A figure of zero says that the member does not
    run there, and is no speed."""
    said = [Figure(f.type, f.estimate) for f in member.figures if f.estimate.p50 > 0]
    return said + [Figure(t, e) for t, e in member.observed.items()]


def known_profiles(pool: Pool) -> Profiles:
    """How speeds vary over the pool's types from member to member."""
    rows = {m.run_id: {f.type: f.estimate.p50 for f in figures_of(m)} for m in pool.members}
    return profiles(Throughputs.of(rows, pool.types)) if rows else profiles(Throughputs.of({"none": {}}, pool.types))


def rates_of(member: Member, pool: Pool, known: Profiles) -> Rates | None:
    """Steps/s on every type; None where nothing is known at all."""
    figures = figures_of(member)
    return combine(figures, known) if figures else None


def steps_per_s(member: Member, gpus: int, confined: str, pool: Pool, known: Profiles) -> dict[str, float]:
    """What the policy is told: by type, 0 where the member does not fit or does not run. Types count the same while nothing is known."""
    rates = rates_of(member, pool, known)
    barred = {f.type for f in member.figures if f.estimate.p50 <= 0}
    fits = {p.type for p in pool.places if gpus <= p.gpus_per_node and p.type not in barred and confined in ("", p.type)}
    return {t: (1.0 if rates is None else rates.by_type[t].p50) if t in fits else 0.0 for t in pool.types}


def goodputs(member: Member, seen: MemberSeen, confined: str, pool: Pool, known: Profiles) -> dict[int, dict[str, float]]:
    """What an elastic policy chooses from: by number of accelerators and type, goodput in steps of the declared number a second."""
    base = steps_per_s(member, 1, confined, pool, known)
    if not figures_of(member) and member.scaled:
        back = _back(member, seen.declared)
        base = {t: back.get(t, fmean(back.values())) if x > 0 else 0.0 for t, x in base.items()}
    room = {p.type: p.gpus_per_node for p in pool.places}
    return {
        n: {t: x * worth if n <= room[t] else 0.0 for t, x in steps_at(member, base, seen.declared, n).items()} for n, worth in seen.sizes.items()
    }  # fmt: skip


def _back(member: Member, declared: int) -> dict[str, float]:
    """The speed on the declared number where only others were seen: in proportion."""
    pairs = ((key.rpartition("|"), e.p50) for key, e in member.scaled.items())
    return {kind: rate * declared / int(number) for (kind, _, number), rate in pairs}


def corrections(member: Member, pool: Pool) -> tuple[Correction, ...]:
    """What became of the figures that were given, for people."""
    rates = rates_of(member, pool, known_profiles(pool))
    return () if rates is None else tuple(c for c in rates.corrections if c.source != "observed")


def check_figures(figures: Mapping[str, float], types: Sequence[str]) -> None:
    """BadInput, one sentence, for a type the pool lacks, a number that is none, or a member that runs nowhere."""
    for name, value in figures.items():
        if name not in types:
            raise BadInput(f"The pool has no type '{name}'; its types are {', '.join(types)}.")
        if not 0 <= value < float("inf"):
            raise BadInput(f"A speed of {value:g} steps/s on {name} is none; give a number of zero (does not run there) or more.")
    if figures and not any(v > 0 for v in figures.values()) and set(figures) >= set(types):
        raise BadInput(f"The member makes no progress on any type of the pool ({', '.join(types)}); give a speed above zero for one.")
