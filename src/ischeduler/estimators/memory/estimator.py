"""The 'trace' estimator: memory of a card and of a node from the traced step."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace

from ischeduler.core.estimate import Estimate
from ischeduler.core.memory_model import MemoryModel
from ischeduler.core.workload import Workload
from ischeduler.estimators.evidence import NoEvidence, resources_of
from ischeduler.estimators.memory import host
from ischeduler.estimators.memory.allocator_conf import AllocatorConf
from ischeduler.estimators.memory.calibration import DeviceCalibration
from ischeduler.estimators.memory.interpreter import of_environment
from ischeduler.estimators.memory.remedies import Remedy, remedies
from ischeduler.estimators.memory.report import SOURCE, MemoryReport, Setting, at_batch, largest_batch, memory_report
from ischeduler.estimators.memory.sharding import Sharding
from ischeduler.estimators.memory.spec import TraceReport, TraceSpec
from ischeduler.estimators.memory.tracer import Tracer
from ischeduler.estimators.memory.workspaces import Workspaces, generation_of
from ischeduler.ports import EstimateRequest, EstimatorInfo

TraceOf = Callable[[Workload], TraceReport]
_CHECKPOINT_BYTES_S = (3e8, 8e8, 2e9)  # a shared file system under load, as usual, and at its best
_CHECKPOINT_BASE_S = (1.5, 0.6, 0.3)


def tracing(tracer: Tracer) -> TraceOf:
    """How the estimators ask for a trace: with the workload's own Python."""

    def trace(workload: Workload) -> TraceReport:
        if not workload.model:
            return tracer.report(_script(workload), of_environment(workload.environment))
        spec = TraceSpec.of(workload)
        if workload.framework != "pytorch":
            backend = workload.environment.variables.get("KERAS_BACKEND") or os.environ.get("KERAS_BACKEND", "")
            spec = replace(spec, options={"keras_backend": backend, **spec.options, "framework": workload.framework})
        return tracer.report(spec, of_environment(workload.environment))

    return trace


def _script(workload: Workload) -> TraceSpec:
    """The training script itself, where the user allows it to be run: the option ``trace_script``."""
    command = workload.command_line()
    place = next((i for i, part in enumerate(command) if part.endswith(".py")), None)
    if place is None:
        raise NoEvidence("the workload names a command but no model to trace")
    if str(workload.options.get("trace_script", "")).lower() not in ("1", "true", "yes", "on"):
        raise NoEvidence(
            "the workload names a command but no model to trace; trace_script = true lets its script's first two steps be run"
        )
    options = {**workload.options, "arguments": shlex.join(command[place + 1 :])}
    return TraceSpec(f"script:{command[place]}", workload.batch, workload.directory, options=options)


class TraceEstimator:
    """Card memory, node memory and checkpoint time from the workload's own model."""

    info = EstimatorInfo(
        "trace", "1", ("gpu_memory", "host_memory", "checkpoint"), "trace",
        "traces a training step on fake tensors with the user's torch and replays it in an allocator model",
    )

    def __init__(self, trace: TraceOf, calibrations: Mapping[str, DeviceCalibration] | None = None) -> None:
        """``calibrations`` are what a site has measured, by accelerator name."""
        self._trace = trace
        self._calibrations = dict(calibrations or {})
        self._reports: dict[tuple[int, Setting], tuple[TraceReport, MemoryReport]] = {}

    def estimate(self, request: EstimateRequest) -> Estimate:
        """The contract's answer; EstimatorFailed with a sentence."""
        trace = self._trace(request.workload)
        if request.quantity == "gpu_memory":
            return self._gpu_memory(request, trace)
        if request.quantity == "host_memory":
            return self._host_memory(request, trace)
        return _checkpoint(trace)

    def report(self, workload: Workload, accelerator: str = "") -> MemoryReport:
        """The breakdown of a workload on one card."""
        return self._report(self._trace(workload), self.setting(workload, accelerator))

    def largest_batch_that_fits(self, workload: Workload, memory_bytes: float, accelerator: str = "") -> int:
        """The largest batch whose p90 fits, by replaying the trace; 0 when not even one sample does."""
        return largest_batch(self._trace(workload), memory_bytes, self.setting(workload, accelerator))

    def line_to_the_edge(self, workload: Workload, memory_bytes: float, accelerator: str = "") -> MemoryModel | None:
        """Memory as a line in the batch through this batch and the largest that fits, both replayed; None where there is no such line."""
        largest = self.largest_batch_that_fits(workload, memory_bytes, accelerator)
        if largest in (0, workload.batch):
            return None
        trace, setting = self._trace(workload), self.setting(workload, accelerator)
        try:
            edge = memory_report(at_batch(trace, largest), setting=setting)
        except ValueError:  # this trace speaks for its own batch alone
            return None
        return MemoryModel.through({workload.batch: self._report(trace, setting).total.p90, largest: edge.total.p90})

    def remedies(self, workload: Workload, memory_bytes: float, accelerator: str = "") -> tuple[Remedy, ...]:
        """What would make it fit, each change traced."""
        return remedies(self._trace, workload, memory_bytes, self.setting(workload, accelerator))

    def setting(self, workload: Workload, accelerator: str = "") -> Setting:
        """Where a workload runs: the options ``cudnn_benchmark`` and ``parallelism`` ('ddp', 'ddp-view', 'fsdp2') and the
        environment's ``PYTORCH_CUDA_ALLOC_CONF`` decide. BadInput for a knob that PyTorch would refuse.
        """
        benchmark = str(workload.options.get("cudnn_benchmark", "")).lower() in ("1", "true", "yes", "on")
        kind = str(workload.options.get("parallelism", "ddp" if workload.devices > 1 else ""))
        sharding = Sharding(kind, workload.devices, workload.precision in ("bf16", "fp16"))
        rules = Workspaces(generation_of(accelerator), benchmark)
        variables = workload.environment.variables
        text = next((variables[n] for n in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF") if n in variables), None)
        conf = None if text is None else AllocatorConf.parse(text)
        return Setting(rules, self._calibrations.get(accelerator), sharding, conf)

    def _report(self, trace: TraceReport, setting: Setting) -> MemoryReport:
        """One replay serves all partitions with such a card."""
        key = id(trace), setting
        known = self._reports.get(key)
        if known is None or known[0] is not trace:
            known = self._reports[key] = trace, memory_report(trace, setting=setting)
        return known[1]

    def _gpu_memory(self, request: EstimateRequest, trace: TraceReport) -> Estimate:
        node = request.node_type
        if node is None or node.accelerator is None:
            raise NoEvidence("the node type has no accelerator")
        report = self._report(trace, self.setting(request.workload, node.accelerator.name))
        reason = "; ".join([report.sentence(), _how(trace), *trace.notes])
        return replace(report.total, reason=reason)

    def _host_memory(self, request: EstimateRequest, trace: TraceReport) -> Estimate:
        gpus = resources_of(request).gpus_per_node
        answer = host.host_memory(request.workload, trace, gpus > 0, max(1, gpus))
        return replace(answer, reason="; ".join([answer.reason, *trace.notes]))


def _how(trace: TraceReport) -> str:
    if trace.backend == "keras-walk":
        return "weights exact, activations summed over the layers' outputs (within a factor of 3)"
    if trace.backend == "parameters":
        return "weights counted, activations by a rule of thumb (within a factor of 3)"
    how = f"two steps traced with torch {trace.torch}"
    return f"{how} on fake CPU tensors, so less exact" if trace.backend == "fake-cpu" else how


def _checkpoint(trace: TraceReport) -> Estimate:
    size = trace.weights_bytes + trace.optimizer_bytes
    slow, usual, fast = (base + size / speed for base, speed in zip(_CHECKPOINT_BASE_S, _CHECKPOINT_BYTES_S, strict=True))
    reason = f"{size / 1e6:.0f} MB of weights and optimizer state at 0.3-2 GB/s"
    return Estimate(fast, usual, slow, "s", SOURCE, basis="analytic", reason=reason)
