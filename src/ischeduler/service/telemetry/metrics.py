"""Every metric of the service, and the Prometheus recorder behind :mod:`ischeduler.core.meters`.

What the database knows (runs by state, leases, pool) is asked when Prometheus asks, at most every few seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from sqlalchemy import Engine

FAST = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
SLOW = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
LOOK_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class Metric:
    """``kind`` is counter, gauge or histogram; durations are in seconds."""

    kind: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = FAST


METRICS: Mapping[str, Metric] = {
    "isched_http_request_seconds": Metric("histogram", "Time to the first byte of an answer", ("method", "route", "status")),
    "isched_http_in_flight": Metric("gauge", "Requests being answered"),
    "isched_worker_tick_seconds": Metric("histogram", "One look of a plane worker at its runs", ("worker",), SLOW),
    "isched_worker_runs": Metric("gauge", "Runs a plane worker holds", ("worker",)),
    "isched_lease_events_total": Metric("counter", "Leases claimed, renewed, lost, released", ("event",)),
    "isched_controller_calls_total": Metric("counter", "Calls of batch systems, by what came of them", ("cluster", "call", "outcome")),
    "isched_controller_call_seconds": Metric("histogram", "How long calls of batch systems took", ("cluster", "call"), SLOW),
    "isched_events_ingested_total": Metric("counter", "Events from inside jobs that were stored", ("transport",)),
    "isched_events_duplicate_total": Metric("counter", "Events that were stored already", ("transport",)),
    "isched_events_dead_total": Metric("counter", "Events that could not be taken", ("transport", "reason")),
    "isched_ingest_lag_events": Metric("gauge", "Events waiting in the broker", ("topic", "partition")),
    "isched_ingest_batch_seconds": Metric("histogram", "One batch of events into the database", (), SLOW),
    "isched_notifications_total": Metric("counter", "Messages to people", ("outcome",)),
    "isched_guard_answers_total": Metric("counter", "Jobs shown to the submit-time guard", ("advice",)),
}
"""What is counted as it happens. The names are the code's interface: a test compares them with every call of ``meters``."""

LOOKED_UP: Mapping[str, Metric] = {
    "isched_runs": Metric("gauge", "Runs by state", ("state",)),
    "isched_leases": Metric("gauge", "Leases held, and those whose holder is late", ("state",)),
    "isched_database_up": Metric("gauge", "Whether the database answered the last look"),
    "isched_database_pool_connections": Metric("gauge", "Connections to the database", ("state",)),
}
"""What is asked of the database when Prometheus asks."""
_KINDS = {"counter": Counter, "gauge": Gauge, "histogram": Histogram}


class PrometheusRecorder:
    """Takes the figures of :mod:`ischeduler.core.meters`. A name or label that is not registered is dropped, never an error."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._metrics: dict[str, Any] = {name: _make(name, metric, registry) for name, metric in METRICS.items()}

    def count(self, name: str, amount: float, labels: Mapping[str, str]) -> None:
        """Something happened ``amount`` times more."""
        if (metric := self._of(name, labels)) is not None:
            metric.inc(amount)

    def observe(self, name: str, value: float, labels: Mapping[str, str]) -> None:
        """One more value of a distribution."""
        if (metric := self._of(name, labels)) is not None:
            metric.observe(value)

    def gauge(self, name: str, value: float, labels: Mapping[str, str]) -> None:
        """How it is now."""
        if (metric := self._of(name, labels)) is not None:
            metric.set(value)

    @contextmanager
    def timed(self, name: str, labels: Mapping[str, str]) -> Iterator[None]:
        """Observes the block's duration."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.observe(name, time.perf_counter() - started, labels)

    def _of(self, name: str, labels: Mapping[str, str]) -> Any:
        metric = self._metrics.get(name)
        if metric is None or set(labels) != set(METRICS[name].labels):
            return None
        return metric.labels(**labels) if labels else metric


def _make(name: str, metric: Metric, registry: CollectorRegistry) -> Any:
    if metric.kind == "histogram":
        return Histogram(name, metric.help, metric.labels, buckets=metric.buckets, registry=registry)
    if metric.kind == "gauge":
        return Gauge(name, metric.help, metric.labels, registry=registry, multiprocess_mode="livesum")
    return _KINDS[metric.kind](name, metric.help, metric.labels, registry=registry)


class DatabaseCollector(Collector):
    """Asks the database how many runs and leases there are, at most every :data:`LOOK_EVERY_S`; a database that is away shows as that."""

    def __init__(self, engine: Engine, clock: Callable[[], float] = time.time) -> None:
        self._engine, self._clock = engine, clock
        self._looked_at = float("-inf")
        self._families: list[GaugeMetricFamily] = []

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Names without asking the database: registering must not need one."""
        return [GaugeMetricFamily(name, metric.help, labels=metric.labels) for name, metric in LOOKED_UP.items()]

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """The figures, some seconds old at most."""
        now = self._clock()
        if now - self._looked_at >= LOOK_EVERY_S:
            self._families, self._looked_at = self._look(now), now
        yield from self._families
        yield self._pool()

    def _look(self, now: float) -> list[GaugeMetricFamily]:
        from ischeduler.core.errors import IschedError
        from ischeduler.service.telemetry.census import leases, runs_by_state

        up = _family("isched_database_up")
        try:
            runs, held = runs_by_state(self._engine), leases(self._engine, now)
        except IschedError:
            up.add_metric((), 0.0)
            return [up]
        up.add_metric((), 1.0)
        return [up, _filled("isched_runs", runs), _filled("isched_leases", held)]

    def _pool(self) -> GaugeMetricFamily:
        pool: Any = self._engine.pool
        counts = {"in_use": "checkedout", "idle": "checkedin"}
        found = {state: float(getattr(pool, method)()) for state, method in counts.items() if hasattr(pool, method)}
        return _filled("isched_database_pool_connections", found)


def _family(name: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, LOOKED_UP[name].help, labels=LOOKED_UP[name].labels)


def _filled(name: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = _family(name)
    for label, value in values.items():
        family.add_metric((label,), value)
    return family
