"""The 'roofline' estimator: step time from the traced operations, corrected by a measured step where there is one."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

from ischeduler.core.cluster import NodeType
from ischeduler.core.errors import EstimatorFailed
from ischeduler.core.estimate import Estimate
from ischeduler.core.history import HistoryRecord
from ischeduler.core.workload import Workload
from ischeduler.estimators.evidence import NoEvidence, newest, resources_of, similar, widest
from ischeduler.estimators.memory.spec import TraceReport
from ischeduler.estimators.steptime.devices import CpuCalibration, Device, of_accelerator, of_cpu, prior_cpu
from ischeduler.estimators.steptime.oplog import at_batch
from ischeduler.estimators.steptime.roofline import step_seconds
from ischeduler.ports import EstimateRequest, EstimatorInfo

SOURCE = "roofline@1"
ALLREDUCE_BYTES_S = 8e9
"""Ring all-reduce over PCIe or one InfiniBand port; half of it hides behind the backward pass."""
_CORRECTED_SPREAD = 0.15
_PER_DOUBLING = 0.08
_MEASURED = ("run", "attempt", "profile")


class RooflineEstimator:
    """Step time. ``calibrations`` are measured CPU coefficients by node type name."""

    info = EstimatorInfo(
        "roofline", "1", ("step_time",), "trace",
        "the traced operations on the device's datasheet peaks; one measured step of the model corrects the whole curve",
    )

    def __init__(
        self, trace: Callable[[Workload], TraceReport], calibrations: Mapping[str, CpuCalibration] | None = None
    ) -> None:
        self._trace = trace
        self._calibrations = dict(calibrations or {})
        self._known: dict[tuple[int, Device, str, int, int], float] = {}
        self._kept: dict[int, TraceReport] = {}

    def estimate(self, request: EstimateRequest) -> Estimate:
        """Seconds an optimizer step; EstimatorFailed when the model was not traced or the device is not described."""
        trace, workload = self._trace(request.workload), request.workload
        if not trace.operations:
            raise EstimatorFailed(f"no operations were traced: {'; '.join(trace.notes) or 'only parameters were counted'}")
        device, on_cpu, how = self._device(request)
        seconds = self._seconds(trace, device, workload, workload.batch, on_cpu) + _communication(trace, workload, on_cpu)
        measured = [r for r in similar(request, kinds=_MEASURED, same_batch=False) if r.step_time_s]
        if measured:
            return self._corrected(request, trace, device, on_cpu, seconds, measured)
        reason = f"{how}; nothing was measured there, so within a factor {1 + device.spread:.2g}"
        return Estimate.spread(seconds, device.spread, "s", SOURCE, basis="trace", reason=reason)

    def _device(self, request: EstimateRequest) -> tuple[Device, bool, str]:
        node = request.node_type
        if node is None:
            raise NoEvidence("no node type")
        gpus = resources_of(request).gpus_per_node
        if node.accelerator is not None and gpus:
            device = of_accelerator(node.accelerator)
            if device is None:
                raise EstimatorFailed(f"FLOP/s and bandwidth of {node.accelerator.name} are unknown; add them or profile a step.")
            return device, False, f"roofline of the traced operations on {device.name}'s datasheet"
        return self._cpu(node, resources_of(request).cpus_per_node)

    def _cpu(self, node: NodeType, cores: int) -> tuple[Device, bool, str]:
        calibration = self._calibrations.get(node.name)
        if calibration is not None:
            return of_cpu(calibration, cores), True, f"roofline on {cores} cores calibrated by a micro-benchmark"
        if not node.cores:
            raise EstimatorFailed(f"The number of cores of {node.name} is unknown; add it or profile a step.")
        return of_cpu(prior_cpu(node), cores), True, f"roofline on {cores} typical server cores"

    def _seconds(self, trace: TraceReport, device: Device, workload: Workload, batch: int, on_cpu: bool) -> float:
        key = (id(trace), device, workload.precision, batch, workload.grad_accum)
        if key not in self._known:
            self._kept[id(trace)] = trace  # an id must not be used twice
            rows = trace.operations if batch == trace.batch else at_batch(trace.operations, batch / trace.batch)
            self._known[key] = step_seconds(
                rows, device, workload.precision, on_cpu=on_cpu, accumulate=workload.grad_accum
            )
        return self._known[key]

    def _corrected(
        self, request: EstimateRequest, trace: TraceReport, device: Device, on_cpu: bool, seconds: float,
        measured: Sequence[HistoryRecord],
    ) -> Estimate:
        workload = request.workload
        ratios: list[float] = []
        for record in measured:
            then = self._seconds(trace, device, workload, record.batch_size or workload.batch, on_cpu)
            if record.step_time_s:
                ratios.append(record.step_time_s / then * (workload.grad_accum / max(1, record.grad_accum)))
        ratio = statistics.median(ratios)
        nearest = min(measured, key=lambda r: widest(r.batch_size or workload.batch, workload.batch, 1.0))
        far = widest(nearest.batch_size or workload.batch, workload.batch, _PER_DOUBLING)
        basis = "history" if any(r.kind != "profile" for r in measured) else "profile"
        batches = ", ".join(str(b) for b in sorted({r.batch_size for r in measured}))
        reason = f"roofline corrected by {len(ratios)} measured step time(s) at batch {batches} (x {ratio:.2f})"
        spread = (1 + _CORRECTED_SPREAD) * far - 1
        return Estimate.spread(seconds * ratio, spread, "s", SOURCE, basis=basis, as_of=newest(measured), reason=reason)


def _communication(trace: TraceReport, workload: Workload, on_cpu: bool) -> float:
    devices = workload.devices
    if devices < 2:
        return 0.0
    volume = 2 * (devices - 1) / devices * trace.gradients_bytes
    speed = ALLREDUCE_BYTES_S / (8 if on_cpu else 1)
    return 0.5 * volume / speed
