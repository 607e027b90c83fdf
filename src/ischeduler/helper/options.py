"""Asking estimators and planner: for a new training, for what is left of a run, and for the reason of what is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ischeduler.core.cluster import Cluster
from ischeduler.core.errors import BadInput, BatchUnavailable, IschedError, NotFound
from ischeduler.core.estimate import Estimate
from ischeduler.core.jobs import JobState
from ischeduler.core.plan import Needs, Plan, PlanSet
from ischeduler.core.run import Run
from ischeduler.core.snapshot import QueueSnapshot
from ischeduler.helper.goals import parse_goal
from ischeduler.helper.plan_cache import PlanRequest
from ischeduler.helper.suggest import did_you_mean
from ischeduler.planning.candidates import Candidate, CandidateKey, candidates
from ischeduler.planning.planner import plan as make_plan
from ischeduler.planning.planner import survey
from ischeduler.planning.services import service_needs
from ischeduler.wiring import Services, Settings

if TYPE_CHECKING:
    from ischeduler.estimators.facade import Estimators
    from ischeduler.helper.memory_details import MemoryDetail

STALE_CLUSTER_S = 30 * 86400.0


@dataclass(frozen=True, slots=True)
class EstimateRow:
    """What one batch size will need at one place."""

    cluster: str
    partition: str
    node_type: str
    batch_size: int
    needs: Needs


@dataclass(frozen=True)
class Scene:
    """What is looked at: clusters with their queues, and what went wrong while looking."""

    clusters: tuple[Cluster, ...]
    snapshots: Mapping[str, QueueSnapshot] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


class Planning:
    """One user's planner. Also the plane's Replanner."""

    def __init__(self, services: Services, settings: Settings) -> None:
        self._services, self._settings = services, settings

    def plan(self, request: PlanRequest, now: float) -> PlanSet:
        """Options and refusals, best for the goal first."""
        scene = self._look(request, now)
        return self._plan(request, scene, now)

    def estimates(self, request: PlanRequest, now: float) -> list[EstimateRow]:
        """What is needed at every place, feasible or not."""
        scene = self._look(request, now)
        accounts, qos = _asked(request, scene)
        places = candidates(request.workload, scene.clusters, accounts=accounts, qos=qos)
        needs = self._ask(places, scene, request, now)
        return [EstimateRow(k.cluster, k.partition, k.node_type, k.batch_size, n) for k, n in needs.items()]

    def memory_details(self, request: PlanRequest, now: float) -> tuple[list[MemoryDetail], list[str]]:
        """Card memory part by part on every kind of card there is, and what could not be said."""
        from ischeduler.helper.memory_details import memory_details

        scene = self._look(request, now)
        sizes = request.workload.batch_size
        batches = sizes if isinstance(sizes, tuple) else (sizes,)
        return memory_details(self._services.estimators(request.assume), request.workload, batches, scene.clusters)

    def replan(self, run: Run, reason: str, now: float) -> Sequence[Plan]:
        """Options for what is left of a run, best first (the plane's question; see the port)."""
        request = self._request_of(run)
        scene = self._look(request, now)
        if reason == "gpu_memory":
            scene = replace_clusters(scene, [_with_bigger_cards(c, _card_bytes(run, scene)) for c in scene.clusters])
        planset = self._plan(request, scene, now, run)
        return _bigger(planset.plans, run) if reason == "host_memory" else planset.plans

    def elsewhere(self, run: Run, where: str, now: float) -> Plan:
        """A plan for what is left of a run at another place. NoFeasiblePlan with the blockers when it does not fit there."""
        from ischeduler.helper.plans import find_plan

        request = self._request_of(run)
        planset = self._plan(request, self._look(request, now), now, run)
        plan = find_plan(planset, where)
        if (plan.cluster, plan.partition, plan.node_type) == (run.plan.cluster, run.plan.partition, run.plan.node_type):
            raise BadInput(f"run {run.id} is at {where} already.")
        return plan

    def _request_of(self, run: Run) -> PlanRequest:
        live = tuple(self._services.batches)
        account = run.plan.account if run.plan.cluster in live else None
        return PlanRequest(run.plan.workload, goal="soonest", clusters=live, account=account, qos=None)

    def _look(self, request: PlanRequest, now: float) -> Scene:
        names = self._cluster_names(request.clusters)
        clusters = [self._services.cluster(name) for name in names]
        if request.partitions:
            _check_partitions(clusters, request.partitions)
            clusters = [_only(c, request.partitions) for c in clusters]
        snapshots: dict[str, QueueSnapshot] = {}
        warnings: list[str] = []
        for cluster in clusters:
            batch = self._services.batches.get(cluster.name)
            if batch is None:
                continue
            try:
                snapshots[cluster.name] = batch.snapshot()
            except BatchUnavailable as error:
                warnings.append(f"the queue of {cluster.name} could not be read ({error}); waits are from history alone")
        warnings += [w for c in clusters for w in self._services.stale_words(c, now)]
        return Scene(tuple(clusters), snapshots, tuple(warnings))

    def _cluster_names(self, wanted: tuple[str, ...]) -> tuple[str, ...]:
        if wanted == ("all",):
            return tuple(dict.fromkeys([*self._services.batches, *(c.name for c in self._services.clusters())]))
        if wanted:
            return wanted
        live = tuple(self._services.batches)
        if not live:
            troubles = f" ({'; '.join(self._services.troubles)})" if self._services.troubles else ""
            raise BatchUnavailable(
                f"no batch system answers here{troubles}; name clusters of the catalog, e.g. --clusters pitzer."
            )
        return live

    def _needs(self, request: PlanRequest, scene: Scene, now: float) -> dict[CandidateKey, Needs]:
        """Estimates for every place that is open to this workload."""
        accounts, qos = _asked(request, scene)
        open_places = survey(request.workload, scene.clusters, scene.snapshots, accounts=accounts, qos=qos).open
        return self._ask(open_places, scene, request, now)

    def _ask(self, places: Sequence[Candidate], scene: Scene, request: PlanRequest, now: float) -> dict[CandidateKey, Needs]:
        estimators, deadline = self._services.estimators(request.assume), parse_goal(request.goal, now).deadline
        if places and places[0].workload.service is not None:
            return {c.key: service_needs(c, self._wait(estimators, c, scene, now)) for c in places}
        return {
            c.key: estimators.needs(
                c.workload, c.cluster, c.partition, c.node_type, c.resources, scene.snapshots.get(c.cluster.name), now,
                deadline=deadline,
            )
            for c in places
        }

    def _wait(self, estimators: Estimators, c: Candidate, scene: Scene, now: float) -> Estimate | None:
        try:
            return estimators.answer(
                "queue_wait", c.workload, c.cluster, c.partition, c.node_type, c.resources, scene.snapshots.get(c.cluster.name), now
            )[0]
        except IschedError:
            return None

    def _plan(self, request: PlanRequest, scene: Scene, now: float, run: Run | None = None) -> PlanSet:
        """``run``: only what is left of it."""
        accounts, qos = _asked(request, scene)
        needs = self._needs(request, scene, now)
        if run is not None:
            needs = {key: left_of(found, run) for key, found in needs.items()}
        planset = make_plan(
            request.workload,
            scene.clusters,
            scene.snapshots,
            needs,
            now,
            goal=parse_goal(request.goal, now),
            accounts=accounts,
            qos=qos,
            max_segments=self._settings["caps.max_attempts"],
        )
        notes = dict.fromkeys(n for found in needs.values() for n in found.notes if " is unknown: " not in n)
        return replace(planset, warnings=(*scene.warnings, *planset.warnings, *notes))

    def explain(self, run: Run, now: float, *, plane_alive: bool = True) -> str:
        """Why a run is where it is, and what to do. A queue or planner that does not answer leaves that part out."""
        from ischeduler.helper.why import explain_run

        snapshot, better = None, None
        batch = self._services.batches.get(run.plan.cluster)
        if batch is not None and run.attempt is not None and run.attempt.state is JobState.PENDING:
            try:
                snapshot, better = batch.snapshot(), self._better(run, now)
            except IschedError as error:
                self._services.troubles.append(str(error))
        return explain_run(run, now, snapshot=snapshot, better=better, plane_alive=plane_alive)

    def _better(self, run: Run, now: float) -> Plan | None:
        """The soonest other place, where it is clearly better than waiting on."""
        from ischeduler.plane.reschedule import clearly_better, elsewhere, expected_finish, move_cost_s

        here = expected_finish(run, now)
        others = elsewhere(run, self.replan(run, "reschedule", now))
        if here is None or not others:
            return None
        best = min(others, key=lambda p: (p.finish.p50, p.finish.p90))
        return best if clearly_better(here, best.finish, move_cost_s(run)) else None

    def explain_place(self, planset: PlanSet, where: str) -> str:
        """What is known of a place of a plan. NotFound when it was not considered."""
        from ischeduler.planning.explain import explain_place

        lines = explain_place(planset, where)
        if not lines:
            known = dict.fromkeys([*(p.where for p in planset.plans), *(r.where for r in planset.refusals)])
            raise NotFound(f"the last plan did not consider '{where}'{did_you_mean(where, known)}.")
        return "\n".join(lines)


def _asked(request: PlanRequest, scene: Scene) -> tuple[dict[str, str], dict[str, str]]:
    """Account and QOS by cluster, as the user named them."""
    names = [c.name for c in scene.clusters]
    account = {n: request.account for n in names if request.account}
    return account, {n: request.qos for n in names if request.qos}


def left_of(needs: Needs, run: Run) -> Needs:
    """Needs of what is left of a run: the training's share that no checkpoint holds yet; one start-up comes on top."""
    from ischeduler.plane.reestimate import durable_epochs_left

    if needs.run is None or run.plan.workload.service is not None:
        return needs
    share = durable_epochs_left(run) / max(1, run.plan.workload.epochs)
    startup = needs.startup.p50 if needs.startup else 0.0
    low, middle, high = (startup + max(0.0, q - startup) * share for q in (needs.run.p10, needs.run.p50, needs.run.p90))
    return replace(needs, run=replace(needs.run, p10=low, p50=middle, p90=high, reason=f"{share:.0%} of the training is left"))


def replace_clusters(scene: Scene, clusters: Sequence[Cluster]) -> Scene:
    """The same scene with other clusters."""
    return Scene(tuple(clusters), scene.snapshots, scene.warnings)


def _only(cluster: Cluster, partitions: tuple[str, ...]) -> Cluster:
    return replace(cluster, partitions=tuple(p for p in cluster.partitions if p.name in partitions))


def _check_partitions(clusters: Sequence[Cluster], wanted: tuple[str, ...]) -> None:
    known = {p.name for c in clusters for p in c.partitions}
    for name in wanted:
        if name not in known:
            raise NotFound(f"none of {', '.join(c.name for c in clusters)} has a partition '{name}'{did_you_mean(name, known)}.")


def _card_bytes(run: Run, scene: Scene) -> int:
    """Memory of the card that was not enough."""
    for cluster in scene.clusters:
        for node in cluster.node_types:
            if cluster.name == run.plan.cluster and node.name == run.plan.node_type and node.accelerator:
                return node.accelerator.memory_bytes
    return 0


def _with_bigger_cards(cluster: Cluster, than_bytes: int) -> Cluster:
    small = {n.name for n in cluster.node_types if n.accelerator and n.accelerator.memory_bytes <= than_bytes}
    kept = tuple(replace(p, node_types=tuple(n for n in p.node_types if n not in small)) for p in cluster.partitions)
    return replace(cluster, partitions=tuple(p for p in kept if p.node_types))


def _bigger(plans: Sequence[Plan], run: Run) -> tuple[Plan, ...]:
    """Places whose nodes have more memory than the one that was not enough."""
    had = run.plan.node_memory_bytes or 0
    return tuple(p for p in plans if (p.node_memory_bytes or 0) > had)
