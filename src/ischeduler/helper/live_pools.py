"""Live pools: what ``isched pool create|add|remove|policy|drain|resume|delete|list`` do."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ischeduler.core.errors import BadInput, IschedError, StoreConflict
from ischeduler.core.estimate import Estimate
from ischeduler.core.event import Event
from ischeduler.core.plan import Needs, Plan
from ischeduler.core.pool import ANY, MODES, PREFIX, Member, Pool, PoolPlace, PoolState, RateFigure, cluster_of
from ischeduler.core.run import Caps, Run
from ischeduler.core.workload import Workload
from ischeduler.helper.pool_places import parse_place, probe_place
from ischeduler.plane.decide import absorb
from ischeduler.plane.inputs import MoveAsked
from ischeduler.ports import Favouring

if TYPE_CHECKING:
    from ischeduler.helper.session import Session

ATTEMPTS_MAX = 10_000
"""Every lease that ends makes another attempt: the usual cap of a run would end a member of a pool within a day."""
FACTOR_MOST = 1_000_000_000
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
_TRIES = 8


@dataclass(frozen=True, slots=True)
class Shape:
    """How a new pool is to be: its policy, rounds and limits in seconds, and what its pilots ask for (``--pilot`` texts)."""

    policy: str
    pilots: Sequence[str]
    mode: str = "pilots"
    round_s: float = 360.0
    restart_s: float = 30.0
    idle_s: float = 600.0
    directory: Path | None = None
    site_factor: int = 0


@dataclass(frozen=True, slots=True)
class Joining:
    """How a run is to be a member: weight, whether it may be interrupted, its speeds by type (steps/s), and a type it is confined to."""

    weight: float = 1.0
    preemptible: bool = True
    rates: Mapping[str, float] | None = None
    confined: str = ANY
    entity: str = ""
    world_sizes: tuple[int, ...] = ()


def create(session: Session, name: str, shape: Shape) -> Pool:
    """Make a pool. BadInput with one sentence for an unknown policy, a place that takes no pilots, times that make no rounds."""
    needs_solvers()
    from ischeduler.plane.pools.decide import check_policy

    _local(session)
    if not _NAME.fullmatch(name):
        raise BadInput(f"'{name}' is no name for a pool; use up to 31 of a-z, 0-9 and '-', a letter or digit first.")
    check_policy(shape.policy)
    _check_times(shape)
    services = session.services
    if name in [p.name for p in services.pool_store.list(session.owner)]:
        raise StoreConflict(f"you have a pool '{name}' already; choose another name, or isched pool delete {name}.")
    places = tuple(parse_place(text, session.cluster, session.live) for text in shape.pilots)
    _check_places(places)
    for place in places:
        reason = probe_place(place, services.batches[place.cluster])
        if reason:
            raise BadInput(f"No pilot of {place.type} can be had on {place.cluster}/{place.partition}: {reason}.")
    _check_factor(session, shape.mode, places, shape.site_factor)
    directory = (shape.directory or services.pools_dir) / name
    pool = Pool(
        name, session.owner, shape.policy, places, str(services.pools_dir / name), session.clock.now(), mode=shape.mode, round_s=shape.round_s,
        restart_s=shape.restart_s, idle_s=shape.idle_s, site_factor=shape.site_factor,
    )  # fmt: skip
    if pool.mode == "steer":
        return services.pool_store.create(_noted_steered(pool))
    from ischeduler.batch.pilots import PilotBatch

    PilotBatch.prepare(replace(pool, directory=str(directory)))
    if directory != services.pools_dir / name:
        _link(services.pools_dir / name, directory)
    return services.pool_store.create(pool)


def _noted_steered(pool: Pool) -> Pool:
    """A steered pool keeps nothing in its folder; that there is one tells the plane's look that pools are in use."""
    try:
        Path(pool.directory).mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise BadInput(f"The pool's folder {pool.directory} cannot be made ({error.strerror}); see paths.data.") from None
    return pool


def _link(name: Path, directory: Path) -> None:
    """Pools are found by their names in the data folder; one that lies elsewhere is linked there."""
    try:
        name.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        name.symlink_to(directory.absolute())
    except OSError as error:
        raise BadInput(f"{name} cannot be made ({error.strerror}); see paths.data.") from None


def _check_times(shape: Shape) -> None:
    if shape.mode not in MODES:
        raise BadInput(f"'{shape.mode}' is no way to keep a pool; expected {' or '.join(MODES)}.")
    if not shape.round_s >= 1:
        raise BadInput(f"A round of {shape.round_s:g} s is too short; give a second or more (six minutes are usual).")
    if not 0 <= shape.restart_s < shape.round_s:
        raise BadInput(f"A restart of {shape.restart_s:g} s does not fit into a round of {shape.round_s:g} s; give --restart below --round.")
    if not shape.idle_s >= 0:
        raise BadInput(f"An idle limit of {shape.idle_s:g} s is none; give zero or more.")


def _check_factor(session: Session, mode: str, places: Sequence[PoolPlace], factor: int) -> None:
    """Once, when it is asked for: whether this user may put jobs before others' on every cluster of the pool."""
    if not factor:
        return
    if mode != "steer":
        raise BadInput("--site-factor is for a pool that steers jobs which wait (--mode steer); pilots' members do not wait in the queue.")
    if not 0 < factor <= FACTOR_MOST:
        raise BadInput(f"A SiteFactor of {factor} puts nobody first; give a whole number from 1 to {FACTOR_MOST}, or 0 for none.")
    for cluster in dict.fromkeys(p.cluster for p in places):
        batch = session.services.batches[cluster]
        reason = batch.favour_refused() if isinstance(batch, Favouring) else "only Slurm's own commands can set a SiteFactor; leave --site-factor out."
        if reason:
            raise BadInput(f"No SiteFactor can be given on {cluster}: {reason}")


def _check_places(places: Sequence[PoolPlace]) -> None:
    if not places:
        raise BadInput("A pool needs at least one type of accelerators; give --pilot TYPE=CLUSTER/PARTITION.")
    types = [p.type for p in places]
    twice = next((t for t in types if types.count(t) > 1), None)
    if twice is not None:
        raise BadInput(f"The type '{twice}' is given twice; give each type once, with count=N for more pilots.")


def add(session: Session, name: str, source: str | None, workload: Mapping[str, Any], joining: Joining, caps: Mapping[str, Any]) -> Run:
    """Let a run of this user, or a new one of a script, be a member. BadInput with one sentence when it cannot be."""
    needs_solvers()
    from ischeduler.plane.pools.speeds import check_figures

    _local(session)
    pool = session.services.pool_store.get(session.owner, name)
    check_figures(joining.rates or {}, pool.types)
    if not (joining.weight > 0 and joining.weight < float("inf")):
        raise BadInput(f"A weight of {joining.weight:g} is none; weights are above zero (leave it out for 1).")
    if joining.confined not in (*pool.types, ANY):
        raise BadInput(f"The pool {name} has no type '{joining.confined}'; its types are {', '.join(pool.types)}.")
    if pool.state is not PoolState.ACTIVE:
        raise BadInput(f"The pool {name} is {pool.state.value}; take it up again with isched pool resume {name}.")
    old = None if workload or source is None else _own_run(session, source)
    if old is not None and (pool.member(old.id) is not None or old.plan.cluster.startswith(PREFIX)):
        raise BadInput(f"Run {old.id} is in a pool already ({old.plan.cluster.removeprefix(PREFIX)}).")
    plan = member_plan(pool, old.plan.workload if old is not None else session.workload(source, workload), joining.confined)
    return join(session, name, plan, joining, caps, old)


def join(session: Session, name: str, plan: Plan, joining: Joining, caps: Mapping[str, Any] | None = None, old: Run | None = None) -> Run:
    """Delegate a plan of :func:`member_plan`, or let ``old`` go on with it, and make the run a member."""
    pool = session.services.pool_store.get(session.owner, name)
    given = {"max_attempts": ATTEMPTS_MAX, "allow_move": False, **(caps or {})}
    if old is not None and pool.mode == "steer" and any((p.cluster, p.partition) == (old.plan.cluster, old.plan.partition) for p in pool.places):
        run = old  # at one of the pool's places already: it is steered from where it is
    else:
        run = _moved_in(session, old, plan, given) if old is not None else session.delegate(plan, session.caps(given))
    member = _member(session, pool, run, joining)
    try:
        session.services.pools.change(name, lambda p: replace(p, members=(*p.members, member)))
    except IschedError:
        session.services.plane.cancel(run.id)
        raise
    return run


def _own_run(session: Session, source: str) -> Run | None:
    """The run meant, None where the source is a script or a model. BadInput for a run that has ended."""
    if not re.fullmatch(r"(r-)?[0-9a-f]{2,}", source) or Path(source).exists():
        return None
    run = session.owned_run(source)
    if run.state.ended or run.verdict is not None:
        raise BadInput(f"Run {run.id} has ended ({run.state.value}); add its script instead.")
    return run


def _member(session: Session, pool: Pool, run: Run, joining: Joining) -> Member:
    said = [RateFigure(t, Estimate.exact(x, "steps/s", "given")) for t, x in (joining.rates or {}).items()]
    figures = (*said, *_estimated(session, pool, run.plan.workload, {f.type for f in said}))
    return Member(
        run.id, joining.weight, joining.preemptible, joining.world_sizes, entity=joining.entity, joined_at=session.clock.now(), figures=figures,
        service=run.plan.workload.service is not None,
    )  # fmt: skip


def _estimated(session: Session, pool: Pool, workload: Workload, said: set[str]) -> tuple[RateFigure, ...]:
    """What the step-time estimators say of the types nobody gave a speed for; nothing where they know nothing of the model."""
    found: list[RateFigure] = []
    if not workload.model:
        return ()
    for place in pool.places:
        if place.type in said:
            continue
        try:
            cluster = session.cluster(place.cluster)
            node = cluster.node_type(place.node_type)
            asked = member_resources(pool, workload, place.type)
            partition, now = cluster.partition(place.partition), session.clock.now()
            estimate, _ = session.services.estimators().answer("step_time", workload, cluster, partition, node, asked, None, now)
        except (IschedError, KeyError):
            continue
        if estimate.p10 > 0:
            rate = replace(estimate, p10=1 / estimate.p90, p50=1 / estimate.p50, p90=1 / estimate.p10, unit="steps/s")
            found.append(RateFigure(place.type, rate))
    return tuple(found)


def member_resources(pool: Pool, workload: Workload, confined: str = ANY) -> Any:
    """What a segment asks of a pilot: the workload's accelerators, and cores and memory as it says or its share of the smallest node."""
    from ischeduler.core.jobs import Resources

    places = [p for p in pool.places if confined in (ANY, p.type)]
    gpus = max(1, workload.gpus or 1)
    fits = [p for p in places if p.gpus_per_node >= gpus]
    if not fits or workload.nodes > 1:
        most = max(p.gpus_per_node for p in places)
        asked = f"{workload.nodes} nodes" if workload.nodes > 1 else f"{gpus} accelerators"
        raise BadInput(f"This training asks for {asked} and the largest pilot of {pool.name} has {most} on one node; make it smaller, or the pilots larger.")
    cores = workload.cpus or min(max(1, p.cpus_per_node * gpus // p.gpus_per_node) for p in fits)
    if all(cores > p.cpus_per_node for p in fits):
        raise BadInput(f"This training asks for {cores} cores and no pilot of {pool.name} has as many; ask for fewer, or for larger pilots.")
    return Resources(1, cores, workload.memory_bytes, gpus_per_node=gpus, walltime_s=max(p.walltime_s for p in fits))


def member_plan(pool: Pool, workload: Workload, confined: str = ANY) -> Plan:
    """The plan of a member: segments in the pool, as long as its pilots last. BadInput when it fits no pilot."""
    if pool.mode == "steer":
        return _steered_plan(pool, workload, confined)
    if not workload.command:
        raise BadInput("this workload has no command to run; give a training script (isched pool add NAME train.py).")
    unknown = Estimate(0.0, 0.0, float("inf"), "s", "pool", reason="the pool's policy decides")
    return Plan(
        number=1, cluster=cluster_of(pool.name), partition=confined, node_type="", workload=workload,
        resources=member_resources(pool, workload, confined), segments=(), needs=Needs(), run=unknown, wait=unknown, finish=unknown,
        cost=Estimate.exact(0.0, "usd", "pool"),
    )  # fmt: skip


def _steered_plan(pool: Pool, workload: Workload, confined: str) -> Plan:
    """The plan of a member that is a batch job of its own: at the first of the pool's places that it may use; the pool steers it from there."""
    if not workload.command:
        raise BadInput("this workload has no command to run; give a training script (isched pool add NAME train.py).")
    place = next(p for p in pool.places if confined in (ANY, p.type))
    resources = member_resources(pool, workload, place.type)
    gres = place.gres if place.gres is not None else place.type
    resources = replace(resources, gpus_per_node=0 if gres == "" else resources.gpus_per_node, gres=gres or None, features=place.features)
    unknown = Estimate(0.0, 0.0, float("inf"), "s", "pool", reason="the pool's policy decides")
    return Plan(
        number=1, cluster=place.cluster, partition=place.partition, node_type=place.node_type or place.type, workload=workload, resources=resources,
        segments=(), needs=Needs(), run=unknown, wait=unknown, finish=unknown, cost=Estimate.exact(0.0, "usd", "pool"), account=place.account,
        qos=place.qos, max_walltime_s=place.walltime_s,
    )  # fmt: skip


def _moved_in(session: Session, run: Run, plan: Plan, caps: Mapping[str, Any]) -> Run:
    """Note that the run goes on in the pool, and that nobody moves it out unasked."""
    now = session.clock.now()
    event = Event(run.id, "move_asked", now, source="user", data={"to": plan.where})
    for _ in range(_TRIES):
        wished, _ = absorb(session.services.store.get_run(run.id), MoveAsked(plan), now)
        changed: Caps = replace(wished.caps, **caps)
        try:
            return session.services.store.save_run(replace(wished, caps=changed), (event,))
        except StoreConflict:
            continue
    raise StoreConflict(f"Run {run.id} is being changed all the time; try again in a moment.")


def set_policy(
    session: Session, name: str, policy: str, *, round_s: float | None = None, idle_s: float | None = None, site_factor: int | None = None,
) -> Pool:  # fmt: skip
    """Another policy: a new round begins at the next look, and the accounts begin anew, as no other policy's promises count."""
    needs_solvers()
    from ischeduler.plane.pools.decide import check_policy

    check_policy(policy)
    changes: dict[str, Any] = {k: v for k, v in (("round_s", round_s), ("idle_s", idle_s), ("site_factor", site_factor)) if v is not None}
    if site_factor:
        _local(session)
        pool = session.services.pool_store.get(session.owner, name)
        _check_factor(session, pool.mode, pool.places, site_factor)

    def how(pool: Pool) -> Pool:
        members = tuple(replace(m, owed_s={}) for m in pool.members)
        started = None if pool.next_round_at is None else min(pool.next_round_at, session.clock.now())
        changed = replace(pool, policy=policy, members=members, next_round_at=started, trouble="", **changes)
        _check_times(Shape(policy, (), round_s=changed.round_s, restart_s=changed.restart_s, idle_s=changed.idle_s))
        return changed

    return _changed(session, name, how)


def drain(session: Session, name: str) -> Pool:
    """No more rounds: members save and leave, pilots go back. The runs wait, and can go on here (resume) or elsewhere (move)."""
    return _changed(session, name, lambda p: p if p.state is PoolState.DRAINED else replace(p, state=PoolState.DRAINING))


def resume(session: Session, name: str) -> Pool:
    """Take up a pool that was drained."""
    return _changed(session, name, lambda p: replace(p, state=PoolState.ACTIVE, next_round_at=None, accounted_to=None, trouble=""))


def remove(session: Session, name: str, run_id: str) -> Pool:
    """Let a run leave: it saves, and waits until it is moved (isched move) or cancelled."""
    run = session.owned_run(run_id)

    def how(pool: Pool) -> Pool:
        if pool.member(run.id) is None:
            raise BadInput(f"Run {run.id} is no member of the pool {name}.")
        return replace(pool, members=tuple(m for m in pool.members if m.run_id != run.id))

    return _changed(session, name, how)


def delete(session: Session, name: str) -> None:
    """Forget a pool that holds nothing. BadInput while it does."""
    pool = session.services.pool_store.get(session.owner, name)
    if pool.pilots or pool.state is PoolState.DRAINING:
        raise BadInput(f"The pool {name} still holds pilots; isched pool drain {name} first.")
    from ischeduler.plane.transitions import LIVE

    waiting = [r.id for r in session.services.store.list_runs(owner=session.owner, states=LIVE) if r.plan.cluster == cluster_of(name)]
    if waiting:
        raise BadInput(f"{len(waiting)} runs wait in the pool {name} ({', '.join(waiting[:3])}); move or cancel them first.")
    # What was is kept, as the numbers of its segments go on when a pool of that name is made again.
    (Path(pool.directory) / "pool.json").unlink(missing_ok=True)
    session.services.pool_store.delete(session.owner, name)


def pools_of(session: Session) -> Sequence[Pool]:
    """This user's pools."""
    _local(session)
    return session.services.pool_store.list(session.owner)


def _changed(session: Session, name: str, how: Callable[[Pool], Pool]) -> Pool:
    _local(session)
    session.services.pool_store.get(session.owner, name)
    return session.services.pools.change(name, how)


def _local(session: Session) -> None:
    if session.config["service.url"]:
        raise BadInput("A live pool is kept where its user's own plane runs, not by a service; unset service.url for isched pool.")


def needs_solvers() -> None:
    """BadInput where what the policies stand on is not installed."""
    from ischeduler.helper.pools import needs_numpy

    needs_numpy()
