"""Rounds without pilots: members are batch jobs of their own; what to change in the queue so that each gets the type it is due. Pure.

The shares, the accounts and the choice of a type are those of a pool with pilots (:mod:`ischeduler.plane.pools.seats`), on the nodes that the
pool may count on. What comes of it is a list of changes: a job that waits is steered in place and keeps its age in the queue (partition,
features, GRES, nice; SiteFactor where the pool's owner is an operator); one that runs moves, or makes room, at a checkpoint. Nothing is
changed between rounds for who runs; a lease is kept while nobody is due clearly more (:attr:`ischeduler.policies.rounds.Rules.hysteresis`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from ischeduler.core.errors import IschedError
from ischeduler.core.jobs import JobChange, JobState, Resources
from ischeduler.core.pilots import MemberJob, PilotSign
from ischeduler.core.plan import Plan
from ischeduler.core.pool import Member, Pool, PoolPlace, PoolState, Seat
from ischeduler.core.run import Attempt, Run, RunState
from ischeduler.plane.attempts import alive, alive_attempts
from ischeduler.plane.pools.accounts import booked
from ischeduler.plane.pools.decide import counted
from ischeduler.plane.pools.seats import seated
from ischeduler.plane.pools.seen import Seen, member_seen
from ischeduler.plane.pools.speeds import learned
from ischeduler.policies.problem import Allocation
from ischeduler.policies.stragglers import Straggler

NICE_STEP = 1000
"""Between one waiting member and the next that is due less: more than age makes good in a round, less than other users' priorities differ by."""
_FAR_S = 1e9


@dataclass(frozen=True, slots=True)
class QueueChange:
    """One thing to do: ``kind`` is 'amend' (a waiting job, in place), 'move' (saves and goes on at ``to``) or 'yield' (saves and queues anew).

    ``plan`` is what the run goes on with; ``change`` what an amended job gets, ``job_id`` which. ``avoid``: nodes that its next jobs shall
    keep off. ``why`` in words.
    """

    kind: str
    run_id: str
    job_id: str
    cluster: str
    here: str
    to: str
    why: str
    plan: Plan | None = None
    change: JobChange | None = None
    avoid: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Steering:
    """The pool to be saved, what is to be changed then, and the policy's memory."""

    pool: Pool
    changes: tuple[QueueChange, ...]
    memory: Allocation | None = None


def steer(
    pool: Pool, runs: Mapping[str, Run], now: float, memory: Allocation | None = None, *, whole: bool | None = None,
    slow: Mapping[str, tuple[Straggler, ...]] | None = None,
) -> Steering:  # fmt: skip
    """One tick. ``whole``: a round begins (by default when it is due). ``slow``: nodes on which a member's run is slower than elsewhere.

    A policy without an answer changes nothing and says so.
    """
    seen = scene(pool, runs, now)
    pool = learned(booked(pool, seen.jobs, now), seen.jobs, seen.members)
    pool = replace(pool, members=tuple(_as_it_is(m, pool, runs[m.run_id]) for m in pool.members if m.run_id in runs and _going(runs[m.run_id])))
    if pool.state is not PoolState.ACTIVE:
        return Steering(replace(pool, state=PoolState.DRAINED, next_round_at=None), (), memory)
    begins = (pool.next_round_at is None or now >= pool.next_round_at) if whole is None else whole
    try:
        pool, memory = seated(pool, seen, seen.signs, now, whole=begins, previous=memory)
        pool = replace(pool, trouble="")
    except (IschedError, ArithmeticError, ValueError) as error:
        trouble = f"policy {pool.policy}: {error if isinstance(error, IschedError) else 'it has no answer to this'}"
        return Steering(replace(pool, trouble=trouble), (), memory)
    pool = counted(pool, now, whole=begins)
    changes = _changes(pool, runs, slow or {}, round_begins=begins)
    return Steering(_noted(pool, changes), changes, memory)


def _going(run: Run) -> bool:
    return not run.state.ended and run.verdict is None and not run.cancel_requested


def type_of(pool: Pool, attempt: Attempt) -> str:
    """The pool's type that an attempt asks for: by its node type where places share a partition, else by the partition; '' outside."""
    here = [p for p in pool.places if (p.cluster, p.partition) == (attempt.cluster, attempt.partition)]
    exact = [p for p in here if attempt.node_type in (p.node_type, p.type)]
    return (exact or here)[0].type if here and (exact or len(here) == 1) else ""


def scene(pool: Pool, runs: Mapping[str, Run], now: float) -> Seen:
    """The nodes that the pool may count on as if they were pilots, and members' jobs as if they were their segments."""
    signs = tuple(
        PilotSign(f"{p.type}-{i}.0", p.type, f"{p.type}-{i}", p.gpus_per_node, now, pool.created_at, now + _FAR_S)
        for p in pool.places for i in range(p.count)
    )  # fmt: skip
    ours = {m.run_id: runs[m.run_id] for m in pool.members if m.run_id in runs}
    jobs = tuple(_job(pool, run, a) for run in ours.values() for a in run.attempts[-4:])
    return Seen(signs, jobs, {i: member_seen(run) for i, run in ours.items()})


def _job(pool: Pool, run: Run, a: Attempt) -> MemberJob:
    ended = None if alive(a) else a.ended_at or a.ended_seen_at
    return MemberJob(
        a.job_id or a.key, a.key, max(1, a.resources.gpus_per_node), a.resources.cpus_per_node, type=type_of(pool, a), limit_s=a.resources.walltime_s,
        submitted_at=a.submitted_at or a.created_at, started_at=a.started_at, ended_at=ended,
        asked=bool(a.ending) or ended is not None, node=a.nodes[0] if a.nodes else "",
    )  # fmt: skip


def _as_it_is(member: Member, pool: Pool, run: Run) -> Member:
    """The member with the seat it really has: a job that runs on another type than was planned has been started there by the queue."""
    newest = (alive_attempts(run) or (None,))[-1]
    if newest is None or newest.state is not JobState.RUNNING or newest.ending or run.move_to is not None:
        return member  # waits, or is on its way to the seat it was given
    kind = type_of(pool, newest)
    if not kind:
        return replace(member, seat=None)
    if member.seat is not None and member.seat.type == kind:
        return member
    taken = {m.seat.node for m in pool.members if m.seat is not None}
    free = next((f"{kind}-{i}" for i in range(pool.place(kind).count) if f"{kind}-{i}" not in taken), f"{kind}-0")
    return replace(member, seat=Seat(kind, f"{free}.0", free, newest.started_at or 0.0))


def _changes(pool: Pool, runs: Mapping[str, Run], slow: Mapping[str, tuple[Straggler, ...]], *, round_begins: bool) -> tuple[QueueChange, ...]:
    found: list[QueueChange] = []
    waiting = [m for m in sorted(pool.members, key=lambda m: -sum(m.due_s.values())) if m.seat is None]
    rank = {m.run_id: i + 1 for i, m in enumerate(waiting)}
    for member in pool.members:
        run = runs[member.run_id]
        newest = (alive_attempts(run) or (None,))[-1]
        if newest is None or newest.job_id is None or newest.ending or run.move_to is not None or run.query_failures:
            continue  # on its way already, or not known where
        if newest.state is JobState.PENDING:
            found += _of_waiting(pool, member, run, newest, rank.get(member.run_id, 0))
        elif newest.state is JobState.RUNNING and round_begins and run.state in (RunState.RUNNING, RunState.CHECKPOINTING):
            crawls = next((s for s in slow.get(run.id, ()) if s.node in newest.nodes and s.node not in run.excluded_nodes), None)
            if crawls is not None and member.preemptible:
                found.append(_off(pool, run, newest, crawls))
                continue
            found += _of_running(pool, member, run, newest, others_wait=any(_waits(runs[m.run_id]) for m in pool.members))
    return tuple(found)


def _off(pool: Pool, run: Run, job: Attempt, crawls: Straggler) -> QueueChange:
    """Leaves a node on which it is slow, and keeps off it."""
    here = type_of(pool, job)
    return QueueChange("yield", run.id, job.job_id or "", job.cluster, here, here, crawls.words, _anew(pool, run), avoid=(crawls.node,))


def _anew(pool: Pool, run: Run) -> Plan:
    """The plan it has, told apart by a note: a move to where a run is would be refused."""
    return replace(run.plan, notes=(*(n for n in run.plan.notes if not n.startswith("pool ")), f"pool {pool.name}: round {pool.round}"))


def _waits(run: Run) -> bool:
    living = alive_attempts(run)
    return bool(living) and living[-1].state is JobState.PENDING


def _of_waiting(pool: Pool, member: Member, run: Run, job: Attempt, rank: int) -> list[QueueChange]:
    """Steered in place; to another cluster or another kind of GRES it has to be queued anew."""
    here, nice = type_of(pool, job), NICE_STEP * rank
    factor = 0 if member.seat is None else pool.site_factor
    had_nice, had_factor = (member.nice, member.site_factor) if member.nice_of == job.job_id else (0, 0)
    rank_change = JobChange(nice=nice if nice != had_nice else None, site_factor=factor if factor != had_factor else None)
    assert job.job_id is not None
    if member.seat is None or member.seat.type == here:
        if rank_change == JobChange():
            return []
        why = f"{rank - 1} waiting members are due more" if rank else "it is its turn now"
        return [QueueChange("amend", run.id, job.job_id, job.cluster, here, here, why, None, rank_change)]
    place = pool.place(member.seat.type)
    why = _due_words(member, pool)
    plan = plan_at(run, place)
    if place.cluster != job.cluster or not amendable(job.resources, plan.resources):
        return [QueueChange("move", run.id, job.job_id, job.cluster, here, place.type, why, plan)]
    change = replace(change_to(plan, job, place), nice=rank_change.nice, site_factor=rank_change.site_factor)
    return [QueueChange("amend", run.id, job.job_id, job.cluster, here, place.type, why, plan, change)]


def _of_running(pool: Pool, member: Member, run: Run, job: Attempt, *, others_wait: bool) -> list[QueueChange]:
    """Moves at a checkpoint when another type is its due; makes room when it is due none and somebody waits."""
    here = type_of(pool, job)
    assert job.job_id is not None
    if member.seat is None:
        if not member.preemptible or not others_wait:
            return []
        return [QueueChange("yield", run.id, job.job_id, job.cluster, here, here, "others that wait are due more", _anew(pool, run))]
    if member.seat.type == here or not member.preemptible:
        return []
    place = pool.place(member.seat.type)
    return [QueueChange("move", run.id, job.job_id, job.cluster, here, place.type, _due_words(member, pool), plan_at(run, place))]


def _due_words(member: Member, pool: Pool) -> str:
    shares = ", ".join(f"{t} {member.share.get(t, 0.0):.0%}" for t in pool.types if member.share.get(t, 0.0) >= 0.005)
    return f"promised {shares or 'nothing'} by {pool.policy}"


def plan_at(run: Run, place: PoolPlace) -> Plan:
    """The run's plan at a place of the pool: its cluster, partition and type of accelerators, within its limit."""
    had = run.plan
    gpus = had.resources.gpus_per_node if place.gres != "" else 0
    resources = replace(
        had.resources, gres=place.gres if place.gres is not None else place.type, gpus_per_node=gpus, features=place.features,
        walltime_s=min(had.resources.walltime_s, place.walltime_s),
    )  # fmt: skip
    segments = tuple(replace(s, walltime_s=min(s.walltime_s, place.walltime_s), useful_s=min(s.useful_s, place.walltime_s)) for s in had.segments)
    return replace(
        had, cluster=place.cluster, partition=place.partition, node_type=place.node_type or place.type, resources=resources, segments=segments,
        account=place.account or had.account, qos=place.qos or had.qos, max_walltime_s=place.walltime_s,
    )  # fmt: skip


def amendable(had: Resources, want: Resources) -> bool:
    """Whether a waiting job's GRES may become that in place. Slurm takes a change of kind (``gpu:v100`` to ``gpu:a100``, or to none), shows it,
    and goes on asking for the old kind too: the job would wait for ever (BadConstraints; seen with 22.05.8). Another number is well."""
    return not had.gpus_per_node or (want.gpus_per_node > 0 and (had.gres or "gpu") == (want.gres or "gpu"))


def change_to(plan: Plan, job: Attempt, place: PoolPlace) -> JobChange:
    """What a waiting job must be given to be one of that plan: only what differs."""
    had, want = job.resources, plan.resources
    accelerators = (want.gres, want.gpus_per_node) != (had.gres, had.gpus_per_node)
    return JobChange(
        partition=plan.partition if plan.partition != job.partition else None,
        features=want.features if want.features != had.features else None,
        gres=(want.gres or "", want.gpus_per_node) if accelerators else None,
        walltime_s=place.walltime_s if place.walltime_s < had.walltime_s else None,
    )


def _noted(pool: Pool, changes: tuple[QueueChange, ...]) -> Pool:
    """Which nice value and SiteFactor each waiting job was given last, so that they are not given again."""
    given = {c.run_id: (c.job_id, c.change) for c in changes if c.change is not None and (c.change.nice, c.change.site_factor) != (None, None)}
    return replace(pool, members=tuple(_given(m, *given[m.run_id]) if m.run_id in given else m for m in pool.members))


def _given(member: Member, job_id: str, change: JobChange) -> Member:
    nice, factor = (member.nice, member.site_factor) if member.nice_of == job_id else (0, 0)
    return replace(
        member, nice_of=job_id, nice=nice if change.nice is None else change.nice,
        site_factor=factor if change.site_factor is None else change.site_factor,
    )  # fmt: skip


def not_given(pool: Pool, before: Pool, runs: Collection[str]) -> Pool:
    """The pool without what was refused to these runs' waiting jobs: it is asked for again."""
    old = {m.run_id: m for m in before.members if m.run_id in runs}
    return replace(pool, members=tuple(
        replace(m, nice=o.nice, nice_of=o.nice_of, site_factor=o.site_factor) if (o := old.get(m.run_id)) else m for m in pool.members
    ))  # fmt: skip
