"""What the service needs from the rest of the house, stated here and provided by :mod:`ischeduler.helper.centre`.

Everything is asked on behalf of a named user; a backend shows and touches that user's things only, unless a method says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ischeduler.core.cluster import Cluster
from ischeduler.core.errors import IschedError
from ischeduler.core.plan import PlanSet
from ischeduler.core.run import Run
from ischeduler.core.snapshot import QueueSnapshot
from ischeduler.core.workload import Workload
from ischeduler.ports import Clock, Store

if TYPE_CHECKING:
    from sqlalchemy import Engine


class Busy(IschedError):
    """The service does as much as it can at the moment; the same request succeeds a little later."""


class Backend(Protocol):
    """Planner, estimators, forecasts and explanations for users, over one store."""

    @property
    def store(self) -> Store:
        """Runs, events, leases, history."""
        ...

    @property
    def engine(self) -> Engine:
        """The database, for the service's own tables."""
        ...

    @property
    def clock(self) -> Clock:
        """Time."""
        ...

    def schema(self, document: str) -> Mapping[str, Any]:
        """The JSON Schema of a document of the command line: ``run`` for ``isched.run/1``."""
        ...

    def problems(self) -> Sequence[str]:
        """Why the service cannot do its work now, a sentence each; empty when it is ready."""
        ...

    def workload(self, user: str, fields: Mapping[str, Any]) -> Workload:
        """A workload of its fields as people write them. BadInput with one sentence."""
        ...

    def plan(
        self, user: str, fields: Mapping[str, Any], *, goal: str | None = None, clusters: Sequence[str] = (),
        partitions: Sequence[str] = (), account: str | None = None, qos: str | None = None, assume: str = "",
    ) -> tuple[str, PlanSet]:
        """Options for a training and the id under which they are kept. ``assume`` is the text of a file of declared figures."""
        ...

    def planset(self, user: str, plan_id: str) -> PlanSet:
        """Kept options of this user. NotFound for any other."""
        ...

    def script(self, user: str, plan_id: str, choice: str) -> tuple[str, str]:
        """Where, and the batch script of an option's first job."""
        ...

    def estimates(self, user: str, fields: Mapping[str, Any], **asked: Any) -> Mapping[str, Any]:
        """The body of an ``isched.estimate/1`` document; ``asked`` as in :meth:`plan`, and ``memory`` for card memory by part."""
        ...

    def submit(
        self, user: str, plan_id: str, choice: str, caps: Mapping[str, Any], project: str = "", key: str = ""
    ) -> Run:
        """Delegate an option of kept plans: stored, not yet submitted. Old plans are checked anew first.

        The same ``key`` again (20 characters or more that nobody guesses) is the same run, ``r-KEY``, whatever happened in between.
        """
        ...

    def cancel(self, user: str, run_id: str) -> Run:
        """Note that the run shall end; ``user`` is the run's owner, whoever asked."""
        ...

    def move(self, user: str, run_id: str, where: str) -> Run:
        """Note that the run shall go on elsewhere; ``user`` is the run's owner."""
        ...

    def explain(self, user: str, run: Run) -> str:
        """Why a run is where it is, and what to do."""
        ...

    def report(self, user: str, run: Run) -> Any:
        """Predicted against actual, a :class:`ischeduler.helper.report.Report`."""
        ...

    def report_document(self, user: str, run: Run) -> Mapping[str, Any]:
        """The body of an ``isched.report/1`` document."""
        ...

    def log_tail(self, user: str, run: Run, attempt: int | None = None, lines: int = 200) -> str:
        """The last lines that an attempt printed. NotFound when there is no such attempt."""
        ...

    def clusters(self, user: str) -> Sequence[Cluster]:
        """Every known cluster, as this user sees it."""
        ...

    def reachable(self, user: str) -> Sequence[str]:
        """Names of the clusters that this user's runs can be submitted to."""
        ...

    def queue(self, user: str, cluster: str) -> QueueSnapshot:
        """The queue, at most some seconds old. NotFound when it cannot be seen, BatchUnavailable when nobody answers."""
        ...

    def forecasts(self, user: str, cluster: str, partitions: Sequence[str] = (), **asked: Any) -> Sequence[Any]:
        """When a job would start, partition by partition (:class:`ischeduler.helper.forecast.PartitionForecast`)."""
        ...

    def estimators(self, user: str) -> Mapping[str, Any]:
        """The body of an ``isched.estimators/1`` document."""
        ...

    def accuracy(self, user: str) -> Mapping[str, Any]:
        """The body of an ``isched.estimator-report/1`` document, over this user's own runs."""
        ...
