"""The 'trace' estimator: memory of a card and of a node from the traced step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ischeduler.core.errors import EstimatorFailed
from ischeduler.core.estimate import Estimate
from ischeduler.core.workload import Workload
from ischeduler.estimators.evidence import NoEvidence, resources_of
from ischeduler.estimators.memory import host
from ischeduler.estimators.memory.interpreter import of_environment
from ischeduler.estimators.memory.report import SOURCE, BatchModel, MemoryReport, memory_report
from ischeduler.estimators.memory.spec import TraceReport, TraceSpec
from ischeduler.estimators.memory.tracer import Tracer
from ischeduler.ports import EstimateRequest, EstimatorInfo

TraceOf = Callable[[Workload], TraceReport]
_CHECKPOINT_BYTES_S = (3e8, 8e8, 2e9)  # a shared file system under load, as usual, and at its best
_CHECKPOINT_BASE_S = (1.5, 0.6, 0.3)


def tracing(tracer: Tracer) -> TraceOf:
    """How the estimators ask for a trace: with the workload's own Python."""

    def trace(workload: Workload) -> TraceReport:
        if not workload.model:
            raise NoEvidence("the workload names a command but no model to trace")
        if workload.framework != "pytorch":
            raise EstimatorFailed(f"Only PyTorch models can be traced, not {workload.framework}; profile it or give its needs.")
        return tracer.report(TraceSpec.of(workload), of_environment(workload.environment))

    return trace


class TraceEstimator:
    """Card memory, node memory and checkpoint time from the workload's own model."""

    info = EstimatorInfo(
        "trace", "1", ("gpu_memory", "host_memory", "checkpoint"), "trace",
        "traces a training step on fake tensors with the user's torch and replays it in an allocator model",
    )

    def __init__(self, trace: TraceOf) -> None:
        self._trace = trace

    def estimate(self, request: EstimateRequest) -> Estimate:
        """The contract's answer; EstimatorFailed with a sentence."""
        trace = self._trace(request.workload)
        if request.quantity == "gpu_memory":
            return self._gpu_memory(request, trace)
        if request.quantity == "host_memory":
            return self._host_memory(request, trace)
        return _checkpoint(trace)

    def report(self, workload: Workload) -> MemoryReport:
        """The breakdown of a workload on one card."""
        return memory_report(self._trace(workload), devices=workload.devices)

    def largest_batch_that_fits(self, workload: Workload, memory_bytes: float) -> int:
        """By the straight line through this workload's trace; 0 when not even one sample fits."""
        return BatchModel.through(self.report(workload)).largest_batch(memory_bytes)

    def _gpu_memory(self, request: EstimateRequest, trace: TraceReport) -> Estimate:
        node = request.node_type
        if node is None or node.accelerator is None:
            raise NoEvidence("the node type has no accelerator")
        report = memory_report(trace, devices=request.workload.devices)
        reason = "; ".join([report.sentence(), _how(trace), *trace.notes])
        return replace(report.total, reason=reason)

    def _host_memory(self, request: EstimateRequest, trace: TraceReport) -> Estimate:
        gpus = resources_of(request).gpus_per_node
        answer = host.host_memory(request.workload, trace, gpus > 0, max(1, gpus))
        return replace(answer, reason="; ".join([answer.reason, *trace.notes]))


def _how(trace: TraceReport) -> str:
    if trace.backend == "parameters":
        return "weights counted, activations by a rule of thumb (within a factor of 3)"
    how = f"two steps traced with torch {trace.torch}"
    return how if trace.backend == "fake-accelerator" else f"{how} on fake CPU tensors, so less exact"


def _checkpoint(trace: TraceReport) -> Estimate:
    size = trace.weights_bytes + trace.optimizer_bytes
    slow, usual, fast = (base + size / speed for base, speed in zip(_CHECKPOINT_BASE_S, _CHECKPOINT_BYTES_S, strict=True))
    reason = f"{size / 1e6:.0f} MB of weights and optimizer state at 0.3-2 GB/s"
    return Estimate(fast, usual, slow, "s", SOURCE, basis="analytic", reason=reason)
