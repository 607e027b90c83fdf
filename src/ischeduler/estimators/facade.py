"""What the Helper asks: everything a workload will need at one place, in one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ischeduler.core.cluster import Cluster, NodeType, Partition
from ischeduler.core.errors import BadInput, EstimatorFailed, IschedError
from ischeduler.core.estimate import Estimate
from ischeduler.core.history import HistoryRecord
from ischeduler.core.jobs import Probe, Resources
from ischeduler.core.memory_model import MemoryModel
from ischeduler.core.plan import Needs
from ischeduler.core.snapshot import QueueSnapshot
from ischeduler.core.workload import Workload
from ischeduler.estimators.builtins import BuiltIns, built_ins
from ischeduler.estimators.cost import cost_of
from ischeduler.estimators.given import GivenEstimator, read_given
from ischeduler.estimators.memory.estimator import TraceEstimator
from ischeduler.estimators.memory.report import BatchModel, smallest_accumulation
from ischeduler.estimators.registry import Registry
from ischeduler.estimators.walltime.formula import run_time
from ischeduler.ports import EstimateRequest

HistoryProvider = Callable[..., Sequence[HistoryRecord]]
"""``Store.history``, or anything that takes its keywords ``family`` and ``cluster``."""
HISTORY_AGE_S = 30.0


class Estimators:
    """Answers for one user. ``history`` must show only what that user may see.

    One trace per (model, batch) serves every node type; history is read once in :data:`HISTORY_AGE_S`.
    """

    def __init__(
        self, parts: BuiltIns | None = None, history: HistoryProvider | None = None, *,
        given: Path | str | Mapping[str, Any] | Sequence[Mapping[str, Any]] | GivenEstimator | None = None, **options: Any,
    ) -> None:
        if parts is not None and (given is not None or options):
            raise BadInput("Give either ready parts or what to build them from, not both.")
        self._given = given if isinstance(given, GivenEstimator) else read_given(given)
        self._parts = parts or built_ins(given=self._given, **options)
        self._history = history or (lambda **_: ())
        self._read: dict[tuple[str, str], tuple[float, tuple[HistoryRecord, ...]]] = {}

    @property
    def registry(self) -> Registry:
        """Who answers."""
        return self._parts.registry

    def sources(self) -> dict[str, str]:
        """The most trusted estimator by quantity, and its version: for a plan's footer."""
        chosen: dict[str, list[str]] = {}
        for estimator in self.registry:
            for quantity in estimator.info.quantities:
                chosen.setdefault(quantity, []).append(f"{estimator.info.name}@{estimator.info.version}")
        return {quantity: " > ".join(names) for quantity, names in chosen.items()}

    def answer(
        self, quantity: str, workload: Workload, cluster: Cluster | None, partition: Partition | None,
        node_type: NodeType | None, resources: Resources, snapshot: QueueSnapshot | None, now: float,
    ) -> tuple[Estimate, tuple[str, ...]]:
        """One quantity and notes; EstimatorFailed when nobody can say."""
        request = self._request(workload, cluster, partition, node_type, resources, snapshot, now, None)
        return self.registry.answer(replace(request, quantity=quantity))

    def needs(
        self, workload: Workload, cluster: Cluster, partition: Partition, node_type: NodeType, resources: Resources,
        snapshot: QueueSnapshot | None, now: float, probe: Probe | None = None, deadline: float | None = None,
    ) -> Needs:
        """Everything, each None where nobody can say; the notes tell which and why. Never raises for an estimator.

        ``deadline`` (epoch seconds): when the training shall be done; the wait then tells the chance of a start in time for it.
        """
        request = self._request(workload, cluster, partition, node_type, resources, snapshot, now, probe)
        notes: dict[str, None] = dict.fromkeys(self.registry.problems)
        ask = lambda quantity: self._ask(request, quantity, notes)  # noqa: E731
        step, startup, checkpoint = ask("step_time"), ask("startup"), ask("checkpoint")
        memory = ask("gpu_memory") if resources.gpus_per_node else None
        run = self._run(request, step, startup, checkpoint, notes) if workload.samples else None
        if deadline is not None and run is not None:
            request = replace(request, options={**request.options, "start_by_s": deadline - run.p50})
        return Needs(
            step_time=step, startup=startup, checkpoint=checkpoint, run=run,
            gpu_memory=memory, host_memory=ask("host_memory"), wait=ask("queue_wait"), notes=tuple(notes),
            memory_model=self._line(workload, node_type, memory),
        )

    def _line(self, workload: Workload, node_type: NodeType, memory: Estimate | None) -> MemoryModel | None:
        """Where a traced workload does not fit the card: which batch would."""
        card = node_type.accelerator
        if memory is None or card is None or memory.basis != "trace" or not card.memory_bytes or memory.p90 <= card.memory_bytes:
            return None
        try:
            return self._parts.trace.line_to_the_edge(workload, card.memory_bytes, card.name)
        except IschedError:
            return None  # another estimator answered for the memory

    def cost(self, run: Estimate, cluster: Cluster, partition: Partition, node_type: NodeType, resources: Resources) -> Estimate:
        """What one job of that run time is charged."""
        return cost_of(run, cluster.charge, partition, node_type, resources)

    def largest_batch(self, workload: Workload, memory_bytes: float) -> int | None:
        """The largest batch that fits a card, by the trace; None when nothing was traced."""
        model = self.batch_model(workload)
        return None if model is None else model.largest_batch(memory_bytes)

    def fitting_accumulation(self, workload: Workload, memory_bytes: float) -> int | None:
        """The gradient accumulation that would make this workload's batch fit a card; None when none would."""
        model = self.batch_model(workload)
        return None if model is None else smallest_accumulation(model, workload, memory_bytes)

    @property
    def memory(self) -> TraceEstimator:
        """The traced memory, part by part."""
        return self._parts.trace

    def batch_model(self, workload: Workload) -> BatchModel | None:
        """Memory as a line in the batch; None when nothing was traced."""
        try:
            return BatchModel.through(self._parts.trace.report(workload))
        except IschedError:
            return None  # needs() has said why

    def _run(
        self, request: EstimateRequest, step: Estimate | None, startup: Estimate | None, checkpoint: Estimate | None,
        notes: dict[str, None],
    ) -> Estimate | None:
        """The registry's walltime composite would ask for its parts again; they are at hand."""
        own = [e for e in self.registry.for_quantity("run_time") if e.info.name != "walltime"]
        try:
            found, said = Registry(reversed(own)).answer(replace(request, quantity="run_time"))
            notes.update(dict.fromkeys(said))
            return found
        except EstimatorFailed as error:
            if step is None or startup is None:
                notes[f"run time is unknown: {error}" if step is not None else "run time is unknown: no step time"] = None
                return None
        return run_time(request, step, startup, checkpoint if request.workload.checkpoints else None)

    def _ask(self, request: EstimateRequest, quantity: str, notes: dict[str, None]) -> Estimate | None:
        try:
            found, said = self.registry.answer(replace(request, quantity=quantity))
        except (EstimatorFailed, BadInput) as error:
            notes[f"{quantity.replace('_', ' ')} is unknown: {error}"] = None
            return None
        notes.update(dict.fromkeys(said))
        return found

    def _request(
        self, workload: Workload, cluster: Cluster | None, partition: Partition | None, node_type: NodeType | None,
        resources: Resources, snapshot: QueueSnapshot | None, now: float, probe: Probe | None,
    ) -> EstimateRequest:
        history = self._records("family", workload.family, now)
        if cluster is not None:
            waits = self._records("cluster", cluster.name, now)
            family = workload.family
            history = (*history, *(r for r in waits if r.family != family))
        options: dict[str, Any] = {"resources": resources}
        if probe is not None and probe.start_s is not None:
            options["probe_start_s"] = probe.start_s
        return EstimateRequest("step_time", workload, now, cluster, partition, node_type, snapshot, history, options)

    def look_again(self) -> None:
        """Read the history anew at the next question: something was learned just now."""
        self._read.clear()

    def _records(self, by: str, name: str, now: float) -> tuple[HistoryRecord, ...]:
        kept = self._read.get((by, name))
        if kept is None or not 0 <= now - kept[0] <= HISTORY_AGE_S:
            kept = (now, tuple(self._history(**{by: name})))
            self._read[by, name] = kept
        return kept[1]
