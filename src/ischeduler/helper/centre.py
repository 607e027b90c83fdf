"""The service's backend: planner, estimators, forecasts and explanations for many users over one configuration."""

from __future__ import annotations

import secrets
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ischeduler.core.cluster import Cluster
from ischeduler.core.codec import from_plain, to_plain
from ischeduler.core.errors import BadInput, BatchUnavailable, IschedError, NotFound, StoreConflict
from ischeduler.core.plan import PlanSet
from ischeduler.core.run import Run, RunState
from ischeduler.core.snapshot import QueueSnapshot
from ischeduler.core.workload import Workload
from ischeduler.helper.centre_logs import read_tail
from ischeduler.helper.centre_services import CentreSession, Queues, SharedQueue, UserServices
from ischeduler.helper.goals import parse_goal
from ischeduler.helper.plan_cache import CachedPlans, PlanRequest
from ischeduler.helper.plans import Plans
from ischeduler.helper.report import Report
from ischeduler.helper.workload_fields import ARGUMENTS, read_fields
from ischeduler.helper.workloads import check_placeholders
from ischeduler.ports import BatchDirectory, BatchSystem, Clock, Store
from ischeduler.store.requests import KeptPlans
from ischeduler.wiring import Services

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from ischeduler.helper.forecast import PartitionForecast

MOST_SESSIONS = 256
HISTORY_RUNS = 5000


class Centre:
    """Implements :class:`ischeduler.service.backend.Backend`. Sessions of users are kept while they are in use."""

    def __init__(self, services: Services, directory: BatchDirectory) -> None:
        self.services, self.directory = services, directory
        self._sessions: OrderedDict[str, CentreSession] = OrderedDict()
        self._lock = threading.Lock()
        self.queues = Queues(services.clock)

    @property
    def store(self) -> Store:
        """Runs, events, leases, history."""
        return self.services.store

    @property
    def engine(self) -> Engine:
        """The database."""
        return self.services.engine

    @property
    def clock(self) -> Clock:
        """Time."""
        return self.services.clock

    @cached_property
    def plans(self) -> KeptPlans:
        """Plans by id."""
        return KeptPlans(self.engine, clock=self.clock.now)

    def schema(self, document: str) -> Mapping[str, Any]:
        """The JSON Schema of a document of the command line."""
        return _schema(document)

    def problems(self) -> Sequence[str]:
        """Why the service cannot do its work now: the database is away or not up to date."""
        from ischeduler.store.migrate import prepare

        try:
            prepare(self.engine)
        except IschedError as error:
            return [str(error)]
        return []

    def session(self, user: str) -> CentreSession:
        """A user's session; kept, the least used forgotten."""
        with self._lock:
            found = self._sessions.pop(user, None)
            if found is None:
                found = CentreSession(UserServices(self.services, user, self._batches(user), self.folder_of(user)))
            self._sessions[user] = found
            if len(self._sessions) > MOST_SESSIONS:
                self._sessions.popitem(last=False)
        return found

    def forget(self, user: str) -> None:
        """Make this user's session anew next time: their credentials or clusters have changed."""
        with self._lock:
            self._sessions.pop(user, None)

    def folder_of(self, user: str) -> Path:
        """The user's folder on the cluster's shared file system; run directories are in ``runs`` of it."""
        template = str(self.services.settings["serve.data"] or self.services.settings.data_dir / "users" / "{user}")
        return Path(template.replace("{user}", user).replace("{account}", self.account_of(user)))

    def _batches(self, user: str) -> Mapping[str, BatchSystem]:
        return {
            name: cast("BatchSystem", SharedQueue(batch, self.directory.observer(name) or batch, self.queues, self.account_of(user)))
            for name, batch in self.directory.of(user).items()
        }

    def workload(self, user: str, fields: Mapping[str, Any]) -> Workload:
        """A workload of its fields as people write them. BadInput with one sentence."""
        read = read_fields({k: v for k, v in fields.items() if v is not None}, "the request")
        workload = Workload(**{ARGUMENTS.get(name, name): value for name, value in read.items()})
        if not workload.model and not workload.command:
            raise BadInput("nothing says what to train; give a command, or a model such as timm:resnet50.")
        if workload.command and not workload.directory.startswith("/"):
            raise BadInput("the training's directory must be the whole path as the cluster's nodes see it; give one that begins with /.")
        check_placeholders(workload)
        return workload if workload.name else replace(workload, name=_name(workload))

    def plan(
        self, user: str, fields: Mapping[str, Any], *, goal: str | None = None, clusters: Sequence[str] = (),
        partitions: Sequence[str] = (), account: str | None = None, qos: str | None = None, assume: str = "",
    ) -> tuple[str, PlanSet]:
        """Options for a training, and the id under which they are kept."""
        request = self._request(user, fields, goal, clusters, partitions, account, qos)
        with self._declared(assume) as path:
            cached = self.session(user).ask_planner(replace(request, assume=path))
        plan_id = f"p-{secrets.token_hex(8)}"
        self.plans.keep(plan_id, user, to_plain({"cached": cached, "assume": assume}))
        return plan_id, cached.plans

    def _request(
        self, user: str, fields: Mapping[str, Any], goal: str | None, clusters: Sequence[str], partitions: Sequence[str],
        account: str | None, qos: str | None,
    ) -> PlanRequest:
        settings = self.services.settings
        workload = self.workload(user, fields)
        request = PlanRequest(
            workload, goal=goal or settings["plan.goal"], clusters=tuple(clusters) or tuple(settings["plan.clusters"]), account=account,
            qos=qos, partitions=tuple(partitions),
        )  # fmt: skip
        parse_goal(request.goal, 0.0)
        return request

    @contextmanager
    def _declared(self, text: str) -> Iterator[str]:
        """A file with the declared figures for as long as they are read; '' where there are none."""
        if not text:
            yield ""
            return
        with tempfile.NamedTemporaryFile("w", prefix="isched-assumed-", suffix=_suffix(text), encoding="utf-8") as file:
            file.write(text)
            file.flush()
            try:
                yield file.name
            except IschedError as error:
                raise type(error)(str(error).replace(file.name, "the declared figures")) from None

    def planset(self, user: str, plan_id: str) -> PlanSet:
        """Kept options of this user."""
        return self._kept(user, plan_id)[0].plans

    def _kept(self, user: str, plan_id: str) -> tuple[CachedPlans, str, float]:
        doc, made_at = self.plans.get(plan_id, user)
        return from_plain(CachedPlans, doc["cached"]), str(doc.get("assume", "")), made_at

    def script(self, user: str, plan_id: str, choice: str) -> tuple[str, str]:
        """Where, and the batch script of an option's first job."""
        session = self.session(user)
        cached, _, _ = self._kept(user, plan_id)
        plan = Plans(cached.plans, cached.request, session)[choice].plan
        return plan.where, session.script(plan)

    def estimates(self, user: str, fields: Mapping[str, Any], **asked: Any) -> Mapping[str, Any]:
        """The body of an ``isched.estimate/1`` document."""
        memory, assume = asked.get("memory", False), asked.get("assume", "")
        request = self._request(
            user, fields, asked.get("goal"), asked.get("clusters", ()), asked.get("partitions", ()), asked.get("account"), asked.get("qos")
        )
        session = self.session(user)
        with self._declared(assume) as path:
            rows = session.ask_estimators(replace(request, assume=path))
            details = session.memory_details(replace(request, assume=path))[0] if memory else []
        return {"workload": request.workload, "estimates": rows, "memory": details}

    def submit(
        self, user: str, plan_id: str, choice: str, caps: Mapping[str, Any], project: str = "", key: str = ""
    ) -> Run:
        """Delegate an option of kept plans; the same key is the same run."""
        run_id = f"r-{key}" if key else f"r-{secrets.token_hex(6)}"
        if key and (already := self._already(user, run_id)) is not None:
            return already
        session = self.session(user)
        cached, assume, made_at = self._kept(user, plan_id)
        option = Plans(cached.plans, cached.request, session)[choice]
        if self.clock.now() - made_at > self.services.settings["plan.max_age"]:
            with self._declared(assume) as path:
                fresh = session.ask_planner(replace(cached.request, assume=path))
            option = session.same_option(Plans(fresh.plans, fresh.request, session), option)
        session.check_submittable(option.plan)
        now, directory = self.clock.now(), str(self.folder_of(user) / "runs" / run_id)
        run = Run(
            run_id, user, option.plan, RunState.PLANNED, directory, now, caps=session.caps(caps), state_since=now, project=project
        )
        try:
            return self.store.create_run(run)
        except StoreConflict:
            already = self._already(user, run_id)
            if already is None:
                raise
            return already

    def _already(self, user: str, run_id: str) -> Run | None:
        try:
            run = self.store.get_run(run_id)
        except NotFound:
            return None
        return run if run.owner == user else None

    def cancel(self, user: str, run_id: str) -> Run:
        """Note that the run shall end."""
        run = self.store.get_run(run_id)
        if run.state.ended:
            raise StoreConflict(f"run {run_id} has {run.state.value} already; there is nothing to cancel.")
        return self.session(user).services.plane.cancel(run_id)

    def move(self, user: str, run_id: str, where: str) -> Run:
        """Note that the run shall go on elsewhere."""
        run = self.store.get_run(run_id)
        if run.state.ended:
            raise StoreConflict(f"run {run_id} has {run.state.value} already; submit a new one.")
        session = self.session(user)
        return session.services.plane.move(run_id, session.planning.elsewhere(run, where, self.clock.now()))

    def explain(self, user: str, run: Run) -> str:
        """Why a run is where it is, and what to do."""
        return self.session(user).explain(run)

    def report(self, user: str, run: Run) -> Report:
        """Predicted against actual."""
        return self.session(user).report_of(run)

    def report_document(self, user: str, run: Run) -> Mapping[str, Any]:
        """The body of an ``isched.report/1`` document."""
        found = self.report(user, run)
        body = to_plain(found)
        for plain, line in zip(body["lines"], found.lines, strict=True):
            plain |= {"inside": line.inside, "error": line.error}
        return {"report": body}

    def log_tail(self, user: str, run: Run, attempt: int | None = None, lines: int = 200) -> str:
        """The last lines that an attempt printed."""
        numbers = [a.number for a in run.attempts]
        wanted = attempt if attempt is not None else (run.attempt.number if run.attempt else None)
        if wanted not in numbers:
            said = f"attempt {attempt}" if attempt is not None else "any attempt yet"
            raise NotFound(f"run {run.id} does not have {said}.")
        if self.services.batch_kind in ("agent", "tapis"):  # no file of the run's can be seen from here: its owner's hands fetch it
            try:
                return "\n".join(self.services.files.log_tail(run, wanted).splitlines()[-lines:])
            except OSError as error:
                raise BatchUnavailable(f"the output cannot be fetched: {error}") from None
        return read_tail(Path(run.directory), ("logs", f"{wanted}.out"), self.account_of(user), lines)

    def account_of(self, user: str) -> str:
        """What the cluster calls a user."""
        return str(dict(self.services.settings["serve.accounts"]).get(user, user))

    def clusters(self, user: str) -> Sequence[Cluster]:
        """Every known cluster, as this user sees it."""
        return self.session(user).clusters()

    def reachable(self, user: str) -> Sequence[str]:
        """Names of the clusters that this user's runs can be submitted to."""
        return tuple(self.session(user).services.batches)

    def queue(self, user: str, cluster: str) -> QueueSnapshot:
        """The queue, at most ten seconds old."""
        batches = self.session(user).services.batches
        if cluster not in batches:
            raise NotFound(f"the queue of '{cluster}' cannot be seen by you; live is {', '.join(batches) or 'none'}.")
        return batches[cluster].snapshot()

    def forecasts(self, user: str, cluster: str, partitions: Sequence[str] = (), **asked: Any) -> Sequence[PartitionForecast]:
        """When a job would start, partition by partition."""
        from ischeduler.helper.forecast import Question, forecast

        return forecast(self.session(user), cluster, partitions, Question(**asked))

    def estimators(self, user: str) -> Mapping[str, Any]:
        """The body of an ``isched.estimators/1`` document."""
        from ischeduler.helper.estimators import EstimatorDesk

        session = self.session(user)
        registry = session.services.estimators().registry
        try:
            rows = list(EstimatorDesk(session).rows())
        except IschedError:
            rows = []  # a damaged register is one of the list's problems already
        return {"estimators": [e.info for e in registry], "problems": list(registry.problems), "plugins": rows}

    def accuracy(self, user: str) -> Mapping[str, Any]:
        """The body of an ``isched.estimator-report/1`` document."""
        from ischeduler.helper.estimator_report import estimator_report
        from ischeduler.store.run_pages import RunPages

        runs, _ = RunPages(self.engine).page(owner=user, states=[s for s in RunState if s.ended], limit=HISTORY_RUNS)
        return {"report": estimator_report(runs, self.store.history(owner=user, limit=HISTORY_RUNS))}


@cache
def _schema(document: str) -> Mapping[str, Any]:
    from ischeduler.helper.documents import schema_of

    return schema_of(document)


def _name(workload: Workload) -> str:
    from ischeduler.helper.workloads import _name_of

    return _name_of(workload)


def _suffix(text: str) -> str:
    return ".json" if text.lstrip().startswith(("{", "[{")) else ".toml"
