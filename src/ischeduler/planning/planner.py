"""The planner: workload, clusters, snapshots and needs in; every option and every refusal out. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ischeduler.core.blocker import Blocker
from ischeduler.core.cluster import Cluster
from ischeduler.core.durations import human
from ischeduler.core.errors import BadInput
from ischeduler.core.plan import Needs, Plan, PlanSet, Refusal
from ischeduler.core.snapshot import QueueSnapshot
from ischeduler.core.workload import Workload
from ischeduler.planning.build import plans_for
from ischeduler.planning.candidates import Candidate, CandidateKey, candidates
from ischeduler.planning.feasible import MAX_SEGMENTS, blockers
from ischeduler.planning.goals import Goal, misses
from ischeduler.planning.live import Live
from ischeduler.planning.offers import Offers
from ischeduler.planning.rank import tagged
from ischeduler.planning.structure import structural_blockers

STALE_SNAPSHOT_S = 900.0
_ORDINARY = ("gres", "partition_state")
"""Refusals of these kinds say little about the workload, so they come last."""


@dataclass(frozen=True, slots=True)
class Survey:
    """Which candidates are worth an estimate, and which are refused before that."""

    open: tuple[Candidate, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    live: Mapping[str, Live] = field(default_factory=dict[str, Live])


def survey(
    workload: Workload, clusters: Iterable[Cluster], snapshots: Mapping[str, QueueSnapshot], *,
    accounts: Mapping[str, str] | None = None, qos: Mapping[str, str] | None = None,
) -> Survey:
    """The structural check alone, so that nothing is estimated for places that are closed anyway. ``snapshots`` by cluster."""
    live = {name: Live(snapshot) for name, snapshot in snapshots.items()}
    found = candidates(workload, clusters, accounts=accounts, qos=qos)
    nowhere = Offers()
    passed = tuple(c for c in found if not structural_blockers(c, live.get(c.cluster.name), nowhere))
    keys, offers = {c.key for c in passed}, Offers(passed)
    refused = (c for c in found if c.key not in keys)
    refusals = tuple(refusal(c, structural_blockers(c, live.get(c.cluster.name), offers)) for c in refused)
    return Survey(passed, refusals, live)


def plan(
    workload: Workload, clusters: Iterable[Cluster], snapshots: Mapping[str, QueueSnapshot],
    needs: Mapping[CandidateKey, Needs], now: float, *, goal: Goal | str = "soonest",
    accounts: Mapping[str, str] | None = None, qos: Mapping[str, str] | None = None,
    max_segments: int = MAX_SEGMENTS, estimators: Mapping[str, str] | None = None,
) -> PlanSet:
    """Every option, best for the goal first, and every refusal with its fix.

    ``needs`` holds an entry for each candidate of :func:`survey` that could be estimated; one without is refused as such.
    ``now`` is epoch seconds. Equal input gives equal output, whatever the order of clusters, partitions and mappings.
    """
    goal = Goal(goal) if isinstance(goal, str) else goal
    known = tuple(sorted(clusters, key=lambda c: c.name))
    surveyed = survey(workload, known, snapshots, accounts=accounts, qos=qos)
    plans, refusals = _options(surveyed, needs, now, max_segments)
    missed = misses(goal, plans, now)
    refusals += [_refused_plan(p, missed[i]) for i, p in enumerate(plans) if i in missed]
    ranked = tagged([p for i, p in enumerate(plans) if i not in missed], goal, now)
    return PlanSet(
        workload=workload, goal=goal.name, made_at=now, plans=ranked,
        refusals=tuple(sorted((*surveyed.refusals, *refusals), key=_refusal_order)),
        warnings=tuple(_warnings(known, snapshots, plans, now)),
        estimators=dict(estimators) if estimators is not None else _sources(ranked),
    )


def refusal(c: Candidate, found: tuple[Blocker, ...]) -> Refusal:
    """The refusal of a candidate."""
    return Refusal(c.cluster.name, c.partition.name, c.node_type.name, c.workload.batch, found)


def _options(
    surveyed: Survey, needs: Mapping[CandidateKey, Needs], now: float, max_segments: int,
) -> tuple[list[Plan], list[Refusal]]:
    plans: list[Plan] = []
    refusals: list[Refusal] = []
    nowhere = Offers()
    fitting = [c for c in surveyed.open if not blockers(c, needs, nowhere, max_segments)]
    offers, keys = Offers(fitting), {c.key for c in fitting}
    refusals.extend(refusal(c, blockers(c, needs, offers, max_segments)) for c in surveyed.open if c.key not in keys)
    for c in fitting:
        try:
            plans.extend(plans_for(c, needs[c.key], surveyed.live.get(c.cluster.name), now))
        except BadInput as error:
            fix = f"isched clusters edit {c.cluster.name}"
            refusals.append(refusal(c, (Blocker("estimate", f"the cost cannot be computed: {error}", "", fix),)))
    return plans, refusals


def _refused_plan(plan: Plan, blocker: Blocker) -> Refusal:
    return Refusal(plan.cluster, plan.partition, plan.node_type, plan.workload.batch, (blocker,))


def _refusal_order(refused: Refusal) -> tuple[bool, str, str, str, int, str]:
    ordinary = all(b.kind in _ORDINARY for b in refused.blockers)
    return (ordinary, refused.cluster, refused.partition, refused.node_type, refused.batch_size, refused.blockers[0].have)


def _warnings(
    clusters: Iterable[Cluster], snapshots: Mapping[str, QueueSnapshot], plans: Iterable[Plan], now: float,
) -> list[str]:
    found: list[str] = []
    for cluster in clusters:
        snapshot = snapshots.get(cluster.name)
        if snapshot is None:
            found.append(f"{cluster.name}: its queue was not looked at, so waits come from history or priors alone")
        elif now - snapshot.taken_at > STALE_SNAPSHOT_S:
            found.append(f"{cluster.name}: its queue was looked at {human(now - snapshot.taken_at)} ago")
    units = sorted({p.cost.unit for p in plans})
    if len(units) > 1:
        found.append(f"costs in different units ({', '.join(units)}) are not compared; set prices with isched clusters edit")
    return found


def _sources(ranked: tuple[Plan, ...]) -> dict[str, str]:
    """Who answered for the best plan, by quantity."""
    if not ranked:
        return {}
    needs = ranked[0].needs
    memory = needs.gpu_memory if ranked[0].resources.gpus_per_node else needs.host_memory
    answers = {"memory": memory, "run": needs.run, "wait": needs.wait}
    return {what: estimate.source for what, estimate in answers.items() if estimate is not None}
