"""A session whose runs, plans and clusters are a service's: the same objects and documents, asked for over HTTP."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ischeduler.core.cluster import Cluster
from ischeduler.core.codec import from_plain, to_plain
from ischeduler.core.errors import BadInput, NotFound
from ischeduler.core.event import Event
from ischeduler.core.plan import Plan, PlanSet
from ischeduler.core.run import Run
from ischeduler.core.snapshot import QueueSnapshot
from ischeduler.core.workload import Workload
from ischeduler.helper.config import Config
from ischeduler.helper.handle import RunHandle
from ischeduler.helper.options import EstimateRow
from ischeduler.helper.plan_cache import CachedPlans, PlanRequest, recall, remember
from ischeduler.helper.plans import Plans
from ischeduler.helper.remote import Line, read_token
from ischeduler.helper.report import Report
from ischeduler.helper.session import Session

if TYPE_CHECKING:
    from ischeduler.helper.forecast import PartitionForecast, Question
    from ischeduler.helper.memory_details import MemoryDetail

PAGE = 200
LOG_LINES = 10_000
_DEFAULT = Workload(command=("true",))


class RemoteSession(Session):
    """What :class:`Session` offers, by a service. Nothing of this machine's batch system or database is opened."""

    def __init__(self, config: Config, line: Line | None = None) -> None:
        super().__init__(config)
        self.line = line or Line(str(config["service.url"]), read_token(str(config["service.token_file"])))
        self._plans: dict[str, PlanSet] = {}

    @cached_property
    def _me(self) -> Mapping[str, Any]:
        return self.line.get("/me")["me"]

    @property
    def owner(self) -> str:
        """Whose runs are seen: the token's user."""
        return str(self._me["user"])

    @cached_property
    def _known(self) -> dict[str, Any]:
        return self.line.get("/clusters")

    @cached_property
    def _clusters(self) -> tuple[Cluster, ...]:
        return tuple(from_plain(Cluster, c) for c in self._known["clusters"])

    def clusters(self) -> Sequence[Cluster]:
        """Every cluster that the service knows."""
        return self._clusters

    def cluster(self, name: str) -> Cluster:
        """One of them; NotFound with the names there are otherwise."""
        found = next((c for c in self._clusters if name.lower() in (c.name.lower(), f"{c.centre}-{c.name}".lower())), None)
        if found is None:
            raise NotFound(f"the service knows no cluster '{name}'; known: {', '.join(c.name for c in self._clusters) or 'none'}.")
        return found

    def queue(self, cluster: str) -> QueueSnapshot:
        """The cluster's queue as the service saw it some seconds ago."""
        return from_plain(QueueSnapshot, self.line.get(f"/clusters/{quote(cluster, safe='')}/queue")["queue"])

    def stale_words(self, cluster: Cluster) -> list[str]:
        """A sentence for each source of facts that is too old to be trusted without a word."""
        from ischeduler.cidb.provenance import stale_warnings

        return [str(warning) for warning in stale_warnings(cluster, self.clock.now())]

    @property
    def live(self) -> Sequence[str]:
        """Clusters that the service may submit your runs to."""
        return tuple(self._known["live"])

    @property
    def troubles(self) -> Sequence[str]:
        """None: the service's troubles come as errors."""
        return ()

    def plan(self, request: PlanRequest, *, keep: bool = True) -> Plans:
        """Options and refusals by the service, which keeps them for a week."""
        found = self.line.post("/plans", _asked(request), key=secrets.token_hex(16))
        planset, request = from_plain(PlanSet, found), replace(request, kept=str(found["id"]))
        self._plans[request.kept] = planset
        if keep:
            remember(self.config.state_dir, self.config.directory, CachedPlans(request, planset))
        return Plans(planset, request, self)

    def _kept(self, plan: Plan) -> tuple[str, str]:
        """Under which id the service keeps the plan's options, and its number there."""
        made = dict(self._plans)
        try:
            last = recall(self.config.state_dir, self.config.directory)
            made.setdefault(last.request.kept, last.plans)
        except NotFound:
            pass
        for kept, planset in made.items():
            if kept and any(plan == p for p in planset.plans):
                return kept, str(plan.number)
        raise BadInput("this plan was not made by the service; plan again: isched plan.")

    def estimates(self, request: PlanRequest) -> list[EstimateRow]:
        """What a training will need, place by place."""
        found = self.line.post("/estimates", _asked(request), key=secrets.token_hex(16))
        return [from_plain(EstimateRow, row) for row in found["estimates"]]

    def memory_details(self, request: PlanRequest) -> tuple[list[MemoryDetail], list[str]]:
        """Card memory part by part."""
        from ischeduler.helper.memory_details import MemoryDetail

        found = self.line.post("/estimates", {**_asked(request), "memory": True}, key=secrets.token_hex(16))
        return [from_plain(MemoryDetail, one) for one in found["memory"]], []

    def forecasts(self, cluster: str, partitions: Sequence[str], question: Question) -> list[PartitionForecast]:
        """When a job would start on each partition ('': the first cluster there is), soonest first."""
        from ischeduler.helper.forecast import PartitionForecast

        name = cluster or next(iter(self.live), "")
        if not name:
            raise NotFound("the service can reach no cluster for you.")
        asked = {k: v for k, v in to_plain(question).items() if v is not None}
        found = self.line.get(f"/clusters/{quote(name, safe='')}/forecasts", partition=list(partitions) or None, **asked)
        return [from_plain(PartitionForecast, one) for one in found["forecasts"]]

    def script(self, plan: Plan, *, wrapped: bool = True) -> str:
        """A plan's first segment as a plain batch script."""
        kept, number = self._kept(plan)
        return str(self.line.get(f"/plans/{kept}/script", choice=number)["script"])

    def submit(self, plan: Plan, *, caps: Mapping[str, Any] | None = None) -> RunHandle:
        """Delegate a plan to the service's plane."""
        self.check_submittable(plan)
        kept, number = self._kept(plan)
        body = {"plan": kept, "choice": number, "caps": dict(caps or {})}
        return RunHandle(str(self.line.post("/runs", body, key=secrets.token_hex(16))["run"]["id"]), self)

    def tick_if_free(self) -> None:
        """The service's workers look."""

    def ensure_plane(self) -> None:
        """The service's workers are there."""

    def all_runs(self) -> Sequence[Run]:
        """Your runs, newest first."""
        return [from_plain(Run, r) for r in self.line.pages("/runs", "runs", limit=PAGE)]

    def owned_run(self, run_id: str) -> Run:
        """A run of yours. NotFound, with the nearest id, for any other."""
        try:
            return from_plain(Run, self.line.get(_run(run_id))["run"])
        except (NotFound, BadInput):
            found = self._by_beginning(run_id, [r.id for r in self.all_runs()])
            return from_plain(Run, self.line.get(_run(found))["run"])

    def cancel_run(self, run_id: str) -> None:
        """Note that you want the run to end."""
        self.line.post(_run(run_id, "cancel"), key=secrets.token_hex(16))

    def move_run(self, run: Run, where: str) -> None:
        """Note that you want the run to go on elsewhere."""
        self.line.post(_run(run.id, "move"), {"where": where}, key=secrets.token_hex(16))

    def resize_run(self, run: Run, world_size: int) -> None:
        """The service's API has no such wish yet."""
        raise BadInput("a run of a service cannot change its number of accelerators yet; cancel it and submit another.")

    def events_of(self, run_id: str) -> tuple[Event, ...]:
        """Everything that happened to a run, in order of arrival."""
        found, after = list[Event](), 0
        while True:
            page = self.line.get(_run(run_id, "events"), after=after)
            found += [from_plain(Event, e) for e in page["events"]]
            if not page.get("next"):
                return tuple(found)
            after = page["next"]

    def events_since(self, run_id: str, row: int) -> tuple[Sequence[Event], int]:
        """What happened to a run beyond a row of its log, and the row to go on from."""
        found, after = list[Event](), row
        while True:
            page = self.line.get(_run(run_id, "events"), after=after)
            found += [from_plain(Event, e) for e in page["events"]]
            after = page["rows"][-1] if page["rows"] else after
            if not page.get("next"):
                return found, after

    def read_log(self, run_id: str, path: Path, offset: int) -> tuple[str, int]:
        """What an attempt's output holds beyond byte ``offset`` of its last lines."""
        try:
            text = str(self.line.get(_run(run_id, "logs"), attempt=int(path.stem), lines=LOG_LINES)["text"]).encode()
        except NotFound:
            return "", offset
        return text[offset:].decode("utf-8", "replace"), max(offset, len(text))

    def report_of(self, run: Run) -> Report:
        """Predicted against actual."""
        return from_plain(Report, self.line.get(_run(run.id, "report"))["report"])

    def explain(self, run: Run) -> str:
        """Why a run is where it is, and what to do."""
        return str(self.line.get(_run(run.id, "why"))["words"])

    def explain_refusal(self, where: str) -> str:
        """Why a place of the last plan is refused (or that it is not)."""
        from ischeduler.planning.explain import explain_place

        planset = recall(self.config.state_dir, self.config.directory).plans
        lines = explain_place(planset, where)
        if not lines:
            known = ", ".join(dict.fromkeys([*(p.where for p in planset.plans), *(r.where for r in planset.refusals)]))
            raise NotFound(f"the last plan did not consider '{where}'; it did consider {known}.")
        return "\n".join(lines)


def _run(run_id: str, what: str = "") -> str:
    """The path of a run; what a person typed as its id stays one word of it."""
    return f"/runs/{quote(run_id, safe='')}{f'/{what}' if what else ''}"


def _asked(request: PlanRequest) -> dict[str, Any]:
    """The body of a question for plans or estimates; declared figures travel as text."""
    body: dict[str, Any] = {
        "workload": _fields(request.workload), "goal": request.goal, "clusters": list(request.clusters),
        "partitions": list(request.partitions), "account": request.account, "qos": request.qos,
    }  # fmt: skip
    if request.assume:
        try:
            body["assume"] = Path(request.assume).read_text(encoding="utf-8")
        except OSError as error:
            raise BadInput(f"the declared figures in {request.assume} cannot be read ({error.strerror}).") from None
    return {k: v for k, v in body.items() if v is not None}


def _fields(workload: Workload) -> dict[str, Any]:
    """Those of the workload's fields that are not their defaults."""
    plain, usual = to_plain(workload), to_plain(_DEFAULT)
    return {k: v for k, v in plain.items() if v is not None and (v != usual[k] or k == "command")}
