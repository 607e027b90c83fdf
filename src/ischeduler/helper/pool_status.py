"""How a live pool stands: its members, what each was promised and got, its pilots; and why a member is where it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ischeduler.core.durations import human
from ischeduler.core.pilots import MemberJob, PilotSign
from ischeduler.core.pool import PREFIX, Member, Pool, PoolState
from ischeduler.core.run import Run

if TYPE_CHECKING:
    from ischeduler.helper.session import Session

LEAST_SPAN_S = 1.0


@dataclass(frozen=True, slots=True)
class TypeRow:
    """A type of the pool: pilots asked for at most, there, waiting in the queue; accelerators held and idle."""

    type: str
    where: str
    most: int
    pilots: int
    waiting: int
    held: int
    idle: int


@dataclass(frozen=True, slots=True)
class PilotRow:
    """A pilot: its run, node ('' while it waits), state in a word, seconds it lasts and seconds it has been idle."""

    run_id: str
    type: str
    state: str
    node: str
    remaining_s: float | None
    idle_s: float | None


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A member: its state in the pool, where it runs; by type the share of time it was promised and received since it joined, and steps/s.

    ``gpus``: accelerators that it has now, 0 while it runs nowhere. ``now``: what it is promised at the moment. ``remarks``: corrections of
    the speeds that were given, and other things worth knowing.
    """

    run_id: str
    name: str
    state: str
    type: str
    node: str
    weight: float
    now: Mapping[str, float]
    promised: Mapping[str, float]
    received: Mapping[str, float]
    rates: Mapping[str, float]
    starts: int
    remarks: tuple[str, ...]
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """A pool as people see it. ``next_round_s`` None while there are no rounds."""

    name: str
    state: str
    mode: str
    policy: str
    rule: str
    round: int
    round_s: float
    next_round_s: float | None
    idle_limit_s: float
    types: tuple[TypeRow, ...]
    pilots: tuple[PilotRow, ...]
    members: tuple[MemberRow, ...]
    remarks: tuple[str, ...]


def pool_status(session: Session, name: str) -> PoolStatus:
    """The pool as it is stored, with what its pilots say. NotFound; BatchUnavailable when its directory does not answer."""
    from ischeduler.plane.pools.speeds import known_profiles
    from ischeduler.simulator.pools.why import rule_of

    services, now = session.services, session.clock.now()
    pool = services.pool_store.get(session.owner, name)
    signs, jobs = _floor(session, pool)
    runs = {r.id: r for m in (*pool.members, *pool.pilots) if (r := _run(session, m.run_id)) is not None}
    known = known_profiles(pool)
    members = tuple(_member_row(m, pool, runs.get(m.run_id), jobs, known, now) for m in pool.members)
    pilots = tuple(_pilot_row(p.run_id, p.type, p.idle_since, p.released, runs.get(p.run_id), signs, now) for p in pool.pilots)
    return PoolStatus(
        pool.name, pool.state.value, pool.mode, pool.policy, rule_of(pool.policy), pool.round, pool.round_s,
        None if pool.next_round_at is None else max(0.0, pool.next_round_at - now), pool.idle_s, _types(pool, pilots, signs, jobs), pilots,
        members, _remarks(pool, members, pilots),
    )  # fmt: skip


def _floor(session: Session, pool: Pool) -> tuple[Sequence[PilotSign], Sequence[MemberJob]]:
    if pool.mode != "pilots":
        from ischeduler.plane.pools.steer import scene

        runs = {m.run_id: run for m in pool.members if (run := _run(session, m.run_id)) is not None}
        return (), scene(pool, runs, session.clock.now()).jobs
    floor = session.services.with_pools.floor(pool.name)
    ours = {p.run_id for p in pool.pilots}
    return [s for s in floor.signs() if s.name.rpartition("-")[0] in ours], floor.jobs(session.clock.now())


def _run(session: Session, run_id: str) -> Run | None:
    from ischeduler.core.errors import NotFound

    try:
        return session.services.store.get_run(run_id)
    except NotFound:
        return None


def _types(pool: Pool, pilots: Sequence[PilotRow], signs: Sequence[PilotSign], jobs: Sequence[MemberJob]) -> tuple[TypeRow, ...]:
    rows: list[TypeRow] = []
    for place in pool.places:
        here = [s for s in signs if s.type == place.type]
        held = sum(s.gpus for s in here)
        names = {s.name for s in here}
        busy = sum(j.gpus for j in jobs if j.running and j.pilot in names)
        waiting = sum(1 for p in pilots if p.type == place.type and p.state == "waits")
        rows.append(TypeRow(place.type, f"{place.cluster}/{place.partition}", place.count, len(here), waiting, held, held - busy))
    return tuple(rows)


def _pilot_row(
    run_id: str, kind: str, idle_since: float | None, released: str, run: Run | None, signs: Sequence[PilotSign], now: float
) -> PilotRow:
    sign = next((s for s in reversed(signs) if s.name.rpartition("-")[0] == run_id), None)
    state = "goes back" if released else "waits" if sign is None else "leaves" if sign.leaving else "works"
    left_s = None if sign is None or sign.ends_at is None else max(0.0, sign.ends_at - now)
    node = "" if sign is None else sign.node
    if sign is None and run is not None and run.state.ended:
        state = "ended"
    return PilotRow(run_id, kind, state, node, left_s, None if idle_since is None else now - idle_since)


def _member_row(member: Member, pool: Pool, run: Run | None, jobs: Sequence[MemberJob], known: object, now: float) -> MemberRow:
    from ischeduler.plane.pools.speeds import corrections, steps_per_s

    mine = [j for j in jobs if j.run_id == member.run_id]
    running = next((j for j in mine if j.running), None)
    pending = next((j for j in mine if j.pending), None)
    last = running or pending
    gpus = last.gpus if last is not None else 1 if run is None else max(1, run.plan.resources.gpus_per_node)
    seat = member.seat
    here = running is not None and seat is not None and running.pilot == seat.pilot
    here = here or (running is not None and pool.mode == "steer" and not running.asked)
    state = (
        "runs" if here else "leaves" if running is not None else "starts" if seat is not None and pending is not None
        else "waits" if pending is not None else "between"
    )  # fmt: skip
    span_s = max(LEAST_SPAN_S, (pool.accounted_to or now) - member.joined_at)
    rates = steps_per_s(member, gpus, last.confined if last is not None else "", pool, known)  # pyright: ignore[reportArgumentType]
    remarks = [c.text for c in corrections(member, pool)] + ([member.note] if member.note else [])
    return MemberRow(
        member.run_id, "" if run is None else run.plan.workload.name, state, running.type if running is not None else "",
        running.node if running is not None else "", member.weight, dict(member.share), {t: s / span_s for t, s in member.promised_s.items()},
        {t: s / span_s for t, s in member.received_s.items()}, rates, len([a for a in run.attempts if a.started_at is not None]) if run else 0,
        tuple(remarks), running.gpus if running is not None else 0,
    )  # fmt: skip


def _remarks(pool: Pool, members: Sequence[MemberRow], pilots: Sequence[PilotRow]) -> tuple[str, ...]:
    said: list[str] = []
    if pool.trouble:
        said.append(pool.trouble)
    waiting = [m for m in members if m.state == "waits"]
    if pool.site_factor:
        said.append(f"waiting members whose turn it is get a SiteFactor of {pool.site_factor}")
    if pool.state is PoolState.DRAINED:
        said.append("drained: members wait, and go on here (isched pool resume) or elsewhere (isched move)")
    elif waiting:
        queued = sum(1 for p in pilots if p.state == "waits")
        asked = {p.type: p.count for p in pool.places}
        full = all(sum(1 for p in pilots if p.type == t) >= n for t, n in asked.items())
        why = f"{queued} pilots still wait in the queue" if queued else "all pilots that the pool may have are there" if full else "another is asked for"
        said.append(f"{len(waiting)} members wait for accelerators: {why}")
    return tuple(said)


@dataclass(frozen=True, slots=True)
class MemberWhy:
    """Why a member is where it is."""

    pool: str
    run_id: str
    policy: str
    rule: str
    row: MemberRow
    ahead: tuple[str, ...]
    words: str


def why_member(session: Session, run: Run) -> MemberWhy | None:
    """The explanation; None for a run that is no pool's."""
    name = _pool_of(session, run)
    if not name:
        return None
    pool = session.services.pool_store.get(session.owner, name)
    member, status = pool.member(run.id), pool_status(session, name)
    if member is None:
        return None
    row = next(m for m in status.members if m.run_id == run.id)
    return MemberWhy(name, run.id, pool.policy, status.rule, row, member.ahead, _words(pool, member, row, status, session.clock.now()))


def _pool_of(session: Session, run: Run) -> str:
    """The name of the run's pool, '' for none: by its cluster, or, in a pool that steers, by the list of members."""
    if not run.plan.cluster.startswith(PREFIX) and not session.services.live_pools():
        return ""
    pools = session.services.pool_store.list(session.owner)
    if run.plan.cluster.startswith(PREFIX):
        wanted = run.plan.cluster.removeprefix(PREFIX)
        return wanted if wanted in [p.name for p in pools] else ""
    return next((p.name for p in pools if p.mode == "steer" and p.member(run.id) is not None), "")


def _words(pool: Pool, member: Member, row: MemberRow, status: PoolStatus, now: float) -> str:
    lines = [_standing(pool, row, status), f"Rule of the pool {pool.name} ({pool.policy}): {status.rule}."]
    shares = [
        f"{t}: promised {row.promised.get(t, 0.0):.0%} of its time, got {row.received.get(t, 0.0):.0%}"
        for t in pool.types if row.promised.get(t, 0.0) >= 0.005 or row.received.get(t, 0.0) >= 0.005
    ]  # fmt: skip
    if shares:
        lines.append(f"In {human(max(0.0, now - member.joined_at))} of the pool, {'; '.join(shares)}.")
    if row.state == "waits" and member.ahead:
        lines.append(f"Ahead of it in this round, as more was due to them: {', '.join(member.ahead)}.")
    elif row.state == "waits":
        lines.append("Nobody with less due was served before it; the accelerators it fits on are taken or not there yet.")
    lines += [*status.remarks, *row.remarks]
    return "\n".join([*lines, "Act: nothing needed." if status.state == "active" else f"Act: isched pool resume {pool.name}."])


def _standing(pool: Pool, row: MemberRow, status: PoolStatus) -> str:
    turn = "" if status.next_round_s is None else f"; the next round is in {human(status.next_round_s)}"
    if row.state == "runs":
        return f"RUNNING in the pool {pool.name} on {row.type} ({row.node}){turn}."
    words = {"leaves": "SAVING to leave its place", "starts": "STARTING at its next place", "waits": "WAITING for its turn"}
    return f"{words.get(row.state, 'BETWEEN two places')} in the pool {pool.name}{turn}."
