"""One user's view of everything: what the Python API and the command line both stand on."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ischeduler.core.cluster import Cluster
from ischeduler.core.errors import BadInput, ConfigError, IschedError, NotFound, StoreConflict
from ischeduler.core.event import Event
from ischeduler.core.plan import Plan
from ischeduler.core.run import Caps, Run, RunState
from ischeduler.core.snapshot import QueueSnapshot
from ischeduler.core.workload import Workload
from ischeduler.helper import daemon
from ischeduler.helper.config import Config, load_config
from ischeduler.helper.goals import parse_goal
from ischeduler.helper.handle import RunHandle
from ischeduler.helper.options import EstimateRow, Planning
from ischeduler.helper.plan_cache import CachedPlans, PlanRequest, recall, remember
from ischeduler.helper.plans import Option, Plans
from ischeduler.helper.report import Report, report_of
from ischeduler.helper.suggest import did_you_mean
from ischeduler.helper.workloads import read_workload
from ischeduler.ports import Clock
from ischeduler.wiring import Services, wire

if TYPE_CHECKING:
    from ischeduler.helper.forecast import PartitionForecast, Question
    from ischeduler.helper.memory_details import MemoryDetail

ID_BYTES = 3


def open_session(config: Config | None = None) -> Session:
    """A session over this machine's own batch system and database, or over the service that the configuration names."""
    config = config or load_config()
    if not config["service.url"]:
        return Session(config)
    from ischeduler.helper.remote_session import RemoteSession

    return RemoteSession(config)


class Session:
    """Holds the configuration and, once needed, the services. Cheap to make; nothing is opened before it is used."""

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or load_config()

    @cached_property
    def services(self) -> Services:
        """The adapters this configuration picks."""
        services = wire(self.config)
        services.replanner = self.planning_with(services)
        self._tell_people(services)
        if self.config["plane.provisioner"] != "reactive":
            from ischeduler.helper.foresight import LiveForesight

            services.foresight = LiveForesight(services, self.config)
        return services

    def _tell_people(self, services: Services) -> None:
        """Messages beside the log of notices; addresses that cannot be read are told of and stop nothing."""
        from ischeduler.helper.notify import with_messages

        try:
            services.notifier = with_messages(services.notifier, self.config["notify.urls_file"])
        except ConfigError as error:
            services.troubles.append(str(error))

    def planning_with(self, services: Services) -> Planning:
        """The asking of planner and estimators over these services."""
        return Planning(services, self.config)

    @cached_property
    def planning(self) -> Planning:
        """The asking of planner and estimators."""
        return self.planning_with(self.services)

    @property
    def clock(self) -> Clock:
        """Time."""
        return self.services.clock

    @property
    def owner(self) -> str:
        """Whose runs are seen: the operating system's user."""
        return self.services.owner

    def workload(self, source: Any = None, given: Mapping[str, Any] | None = None) -> Workload:
        """The workload of a script, model, object or fields."""
        return read_workload(source, given, self.config)

    def request(self, workload: Workload, **given: Any) -> PlanRequest:
        """What to plan for, with the configuration where nothing is said."""
        request = PlanRequest(
            workload,
            goal=given.get("goal") or self.config["plan.goal"],
            clusters=tuple(given.get("clusters") or self.config["plan.clusters"]),
            account=given.get("account") or self.config["plan.account"] or None,
            qos=given.get("qos") or self.config["plan.qos"] or None,
            assume=str(given.get("assume") or ""),
            partitions=tuple(given.get("partitions") or ()),
        )
        parse_goal(request.goal, 0.0)
        return request

    def plan(self, request: PlanRequest, *, keep: bool = True) -> Plans:
        """Options and refusals. With ``keep``, ``isched submit 2`` in this folder knows them."""
        planset = self.planning.plan(request, self.clock.now())
        if keep:
            remember(self.config.state_dir, self.config.directory, CachedPlans(request, planset))
        return Plans(planset, request, self)

    def last_plans(self) -> tuple[Plans, float]:
        """The plans last shown in this folder and their age in seconds."""
        cached = recall(self.config.state_dir, self.config.directory)
        return Plans(cached.plans, cached.request, self), self.clock.now() - cached.plans.made_at

    def script(self, plan: Plan, *, wrapped: bool = True) -> str:
        """A plan's first segment as a plain batch script, with or without ``isched exec`` around the command."""
        from ischeduler.helper.scripts import plain_script

        return plain_script(plan, wrapped=wrapped, runs_dir=str(self.services.runs_dir))

    def submit(self, plan: Plan, *, caps: Mapping[str, Any] | None = None) -> RunHandle:
        """Delegate a plan: store the run, take a first look, and see that a plane carries it on."""
        self.check_submittable(plan)
        run = self.delegate(plan, self.caps(caps or {}))
        self.tick_if_free()
        self.ensure_plane()
        return RunHandle(run.id, self)

    def check_submittable(self, plan: Plan) -> None:
        """BadInput when a plan can only be read: no command, or a cluster that is not live here."""
        if not plan.workload.command:
            raise BadInput(
                "this workload has no command to run; plan a training script (isched plan train.py) or give command=[...]."
            )
        live = self.live
        if plan.cluster not in live:
            reached = ", ".join(live) or "no cluster"
            raise BadInput(f"{plan.cluster} cannot be reached from here (only {reached}); this plan can only be read.")

    def delegate(self, plan: Plan, caps: Caps) -> Run:
        """Store a new run under an id of its own; the next look starts it."""
        now = self.clock.now()
        for _ in range(8):
            run_id = f"r-{secrets.token_hex(ID_BYTES)}"
            directory = str(self.services.runs_dir / run_id)
            run = Run(run_id, self.owner, plan, RunState.PLANNED, directory, now, caps=caps, state_since=now)
            try:
                return self.services.plane.delegate(run)
            except StoreConflict:
                continue  # that id exists: draw another
        raise StoreConflict("no free run id was found in eight draws; try again.")

    def caps(self, given: Mapping[str, Any]) -> Caps:
        """Limits on what the plane may do unasked: the configuration's, changed by ``given``."""
        names = [f.name for f in fields(Caps)]
        for name in given:
            if name not in names:
                raise BadInput(f"'{name}' is not a limit of a run{did_you_mean(name, names)}.")
        configured = Caps(
            max_attempts=self.config["caps.max_attempts"],
            max_failures=self.config["caps.max_failures"],
            max_cost=self.config["caps.max_cost"],
            allow_smaller_batch=self.config["caps.allow_smaller_batch"],
            allow_move=self.config["caps.allow_move"],
            stall_after_s=self.config["caps.stall_after"],
        )
        return replace(configured, **given)

    def tick_if_free(self) -> None:
        """One look of the plane where nobody holds the lease. Its troubles are its own: a status must still be shown."""
        try:
            self.services.tick()
        except IschedError as error:
            self.services.troubles.append(str(error))

    def ensure_plane(self) -> None:
        """Start a plane in the background where none is alive and the configuration allows it."""
        if not self.config["plane.autostart"] or daemon.alive(self.config.state_dir):
            return
        environment = {**os.environ, **self.config.as_environment()}
        daemon.start_detached(self.config.state_dir, ["plane", "run", "--until-idle"], environment)

    def owned_run(self, run_id: str) -> Run:
        """A run of this user. NotFound, with the nearest id, for any other."""
        try:
            run = self.services.store.get_run(run_id)
        except NotFound:
            run = None
        if run is not None and run.owner == self.owner:
            return run
        return self.services.store.get_run(self._by_beginning(run_id, [r.id for r in self.all_runs()]))

    def _by_beginning(self, run_id: str, mine: Sequence[str]) -> str:
        """The one id that begins so. NotFound, with the nearest, otherwise."""
        matches = [i for i in mine if i.startswith(run_id) or i.startswith(f"r-{run_id}")]
        if len(matches) == 1:
            return matches[0]
        ending = did_you_mean(run_id, mine) if len(mine) <= 12 else "; isched runs lists yours"
        raise NotFound(f"you have no run '{run_id}'{ending if mine else ' (you have none at all yet)'}.")

    def run(self, run_id: str | None) -> RunHandle:
        """The handle of one of this user's runs (None: the newest); an unambiguous beginning of its id is enough."""
        return RunHandle(self.owned_run(run_id).id, self) if run_id else self.newest()

    def newest(self) -> RunHandle:
        """The run made last. NotFound when there is none."""
        found = self.all_runs()
        if not found:
            raise NotFound("you have no runs yet; make one: isched plan train.py, then isched submit 1.")
        return RunHandle(found[0].id, self)

    def same_option(self, fresh: Plans, old: Option) -> Option:
        """The option of new plans that is what an old one was. NoFeasiblePlan, with the reason, when it is refused now."""
        for option in fresh:
            same = (option.plan.where, option.plan.node_type, option.plan.workload.batch, len(option.plan.segments) > 1)
            if same == (old.plan.where, old.plan.node_type, old.plan.workload.batch, len(old.plan.segments) > 1):
                return option
        return fresh[old.plan.where]

    def all_runs(self) -> Sequence[Run]:
        """This user's runs as they are stored, newest first."""
        return self.services.store.list_runs(owner=self.owner)

    def runs(self) -> Sequence[RunHandle]:
        """This user's runs, newest first."""
        return [RunHandle(r.id, self) for r in self.all_runs()]

    def estimates(self, request: PlanRequest) -> list[EstimateRow]:
        """What a training will need, place by place."""
        return self.planning.estimates(request, self.clock.now())

    def memory_details(self, request: PlanRequest) -> tuple[list[MemoryDetail], list[str]]:
        """Card memory part by part, and why it is not known where it is not."""
        return self.planning.memory_details(request, self.clock.now())

    def forecasts(self, cluster: str, partitions: Sequence[str], question: Question) -> list[PartitionForecast]:
        """When a job would start on each partition of a live cluster ('': the first there is), soonest first."""
        from ischeduler.helper.forecast import forecast

        return forecast(self, cluster, partitions, question)

    def clusters(self) -> Sequence[Cluster]:
        """Every known cluster."""
        return self.services.clusters()

    def cluster(self, name: str) -> Cluster:
        """A known cluster; NotFound with the names there are otherwise."""
        return self.services.cluster(name)

    def queue(self, cluster: str) -> QueueSnapshot:
        """A live cluster's queue as it is now. NotFound, BatchUnavailable with a sentence."""
        if cluster not in self.services.batches:
            raise NotFound(f"the queue of '{cluster}' cannot be seen from here; live is {', '.join(self.live) or 'none'}.")
        return self.services.batches[cluster].snapshot()

    def stale_words(self, cluster: Cluster) -> list[str]:
        """A sentence for each source of a cluster's facts that is too old to be trusted without a word."""
        return self.services.stale_words(cluster, self.clock.now())

    @property
    def live(self) -> Sequence[str]:
        """Clusters whose batch system can be reached."""
        return tuple(self.services.batches)

    @property
    def troubles(self) -> Sequence[str]:
        """What went wrong without stopping anything."""
        return self.services.troubles

    def cancel_run(self, run_id: str) -> None:
        """Note that the owner wants the run to end."""
        self.services.plane.cancel(run_id)

    def move_run(self, run: Run, where: str) -> None:
        """Note that the owner wants the run to go on at ``CLUSTER/PARTITION``. NoFeasiblePlan when it does not fit there."""
        self.services.plane.move(run.id, self.planning.elsewhere(run, where, self.clock.now()))

    def resize_run(self, run: Run, world_size: int) -> None:
        """Note that the owner wants the run to go on with that many accelerators. BadInput where that is not allowed, or what it has."""
        from ischeduler.plane.reschedule import resized_plan

        plan = resized_plan(run.plan, world_size)
        if plan == run.plan:
            raise BadInput(f"run {run.id} has {world_size} accelerators already.")
        self.services.plane.move(run.id, plan)

    def events_of(self, run_id: str) -> tuple[Event, ...]:
        """Everything that happened to a run, in order of arrival."""
        return tuple(event for _, event in self.services.store.events(run_id))

    def events_since(self, run_id: str, row: int) -> tuple[Sequence[Event], int]:
        """What happened to a run beyond a row of its log, and the row to go on from."""
        found = self.services.store.events(run_id, after=row)
        return [event for _, event in found], found[-1][0] if found else row

    def read_log(self, run_id: str, path: Path, offset: int) -> tuple[str, int]:
        """What an attempt's output holds beyond byte ``offset``, and where it ends now; '' while there is none."""
        try:
            with path.open("rb") as file:
                file.seek(offset)
                data = file.read()
        except FileNotFoundError:
            return "", offset
        return data.decode("utf-8", "replace"), offset + len(data)

    def report_of(self, run: Run) -> Report:
        """Predicted against actual, with how many similar runs the history holds."""
        history = self.services.store.history(family=run.plan.workload.family, kind="run", owner=self.owner)
        events = self.events_of(run.id) if run.plan.workload.service is not None else ()
        return report_of(run, history, self.clock.now(), events)

    def explain(self, run: Run) -> str:
        """Why a run is where it is, and what to do."""
        own = run.plan.cluster.startswith("pool-")
        found = None
        if not run.state.ended and (own or self.services.live_pools()):
            from ischeduler.helper.pool_status import why_member

            found = why_member(self, run)
            if found is not None and own:
                return found.words
        words = self.planning.explain(run, self.clock.now(), plane_alive=self._carried())
        return words if found is None else f"{words}\n{found.words}"

    def _carried(self) -> bool:
        """Whether a plane is alive here; one elsewhere (cron, another host) shows by its lease."""
        if daemon.alive(self.config.state_dir) is not None:
            return True
        store, name = self.services.store, self.services.plane.lease_name
        lease = store.acquire_lease(name, f"question:{os.getpid()}", 1.0, self.clock.now())
        if lease is not None:
            store.release_lease(lease)
        return lease is None

    def explain_refusal(self, where: str) -> str:
        """Why a place of the last plan is refused (or that it is not)."""
        return self.planning.explain_place(self.last_plans()[0].planset, where)

    @property
    def state_dir(self) -> Path:
        """This user's state folder."""
        return self.config.state_dir
