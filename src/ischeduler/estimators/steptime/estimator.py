"""The 'roofline' estimator: step time from the traced operations, corrected by measured steps where there are some."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ischeduler.core.cluster import NodeType
from ischeduler.core.errors import EstimatorFailed
from ischeduler.core.estimate import Estimate
from ischeduler.core.history import HistoryRecord
from ischeduler.core.workload import Workload
from ischeduler.estimators.calibration.record import CalibrationRecord, best_for_accelerator, best_for_cpu, records
from ischeduler.estimators.evidence import NoEvidence, newest, resources_of, similar, widest
from ischeduler.estimators.memory.spec import TraceReport
from ischeduler.estimators.steptime import collective
from ischeduler.estimators.steptime.coefficients import Load
from ischeduler.estimators.steptime.correction import Correction, MeasuredStep, corrected_by
from ischeduler.estimators.steptime.devices import CpuCalibration, Device, of_accelerator, of_cpu, prior_cpu
from ischeduler.estimators.steptime.oplog import at_batch
from ischeduler.estimators.steptime.pipeline import Input, Stages, stages
from ischeduler.estimators.steptime.roofline import phase_loads, residual
from ischeduler.estimators.steptime.work import kernels
from ischeduler.ports import EstimateRequest, EstimatorInfo

SOURCE = "roofline@2"
_PER_DOUBLING = 0.05
_MEASURED = ("run", "attempt", "profile")


@dataclass(frozen=True)
class _Place:
    """Where the step runs: the device, how it is known, devices a node and nodes."""

    device: Device
    how: str
    as_of: float | None
    per_node: int
    nodes: int

    @property
    def devices(self) -> int:
        return self.per_node * self.nodes


class RooflineEstimator:
    """Step time. ``calibrations`` are measured CPU coefficients by node type name; ``kept`` finds calibration records
    (default: the user's and the shipped ones, read when first needed).
    """

    info = EstimatorInfo(
        "roofline", "2", ("step_time",), "trace",
        "the traced operations on the device's fitted coefficients; one measured step of the model corrects the whole curve",
    )

    def __init__(
        self, trace: Callable[[Workload], TraceReport], calibrations: Mapping[str, CpuCalibration] | None = None,
        kept: Callable[[], Sequence[CalibrationRecord]] | None = None,
    ) -> None:
        self._trace = trace
        self._calibrations = dict(calibrations or {})
        self._kept = kept or (lambda: records()[0])
        self._records: Sequence[CalibrationRecord] | None = None
        self._devices: dict[tuple[str, str], tuple[Device, str, float | None]] = {}
        self._known: dict[tuple[int, int, str, int], dict[str, Load]] = {}
        self._alive: list[object] = []

    def estimate(self, request: EstimateRequest) -> Estimate:
        """Seconds an optimizer step; EstimatorFailed when the model was not traced or the device is not described."""
        trace, workload = self._trace(request.workload), request.workload
        if not trace.operations:
            raise EstimatorFailed(f"no operations were traced: {'; '.join(trace.notes) or 'only parameters were counted'}")
        place = self._place(request)
        measured = [r for r in similar(request, kinds=_MEASURED, same_batch=False) if r.step_time_s]
        if measured:
            return self._corrected(request, trace, place, measured)
        compute, added = self._seconds(trace, place, workload, workload.batch, Correction())
        pipe = _pipeline(workload, trace, compute, resources_of(request).cpus_per_node)
        low, high = residual([w for works in kernels(trace.operations).values() for w in works], place.device)
        slack = collective.PLAUSIBLE
        whole = pipe.step_s + added
        return Estimate(
            (pipe.step_s + added / slack) * math.exp(min(low, 0.0)), whole, (pipe.step_s + added * slack) * math.exp(max(high, 0.0)),
            "s", SOURCE, basis="trace", as_of=place.as_of, reason=_reason(place, pipe, compute, added, max(-low, high)),
        )

    def _place(self, request: EstimateRequest) -> _Place:
        node = request.node_type
        if node is None:
            raise NoEvidence("no node type")
        resources = resources_of(request)
        if node.accelerator is not None and resources.gpus_per_node:
            device, how, as_of = self._accelerator(node)
            return _Place(device, how, as_of, resources.gpus_per_node, max(1, resources.nodes))
        device, how, as_of = self._processors(node, resources.cpus_per_node)
        return _Place(device, how, as_of, 1, max(1, resources.nodes))

    def _accelerator(self, node: NodeType) -> tuple[Device, str, float | None]:
        card = node.accelerator
        assert card is not None
        key = ("", card.name)
        if key not in self._devices:
            record = best_for_accelerator(self._all_records(), card.name)
            fitted = record.fitted() if record is not None else None
            device = of_accelerator(card, fitted)
            if device is None:
                raise EstimatorFailed(f"FLOP/s and bandwidth of {card.name} are unknown; add them or profile a step.")
            if record is not None:
                how = f"roofline of the traced operations, calibrated on {card.name} with torch {record.torch}"
            else:
                origin = device.architecture or "no known architecture"
                how = f"roofline of the traced operations on {device.name}'s datasheet with coefficients of {origin}"
            self._devices[key] = device, how, record.measured_at if record is not None else None
        return self._devices[key]

    def _processors(self, node: NodeType, cores: int) -> tuple[Device, str, float | None]:
        key = (node.name, f"{cores} cores")
        if key not in self._devices:
            self._devices[key] = self._cpu(node, cores)
        return self._devices[key]

    def _cpu(self, node: NodeType, cores: int) -> tuple[Device, str, float | None]:
        record = best_for_cpu(self._all_records(), node.name, node.cpu_model)
        found = self._calibrations.get(node.name) or (record.cpu if record is not None else None)
        if found is not None:
            return of_cpu(found, cores), f"roofline on {cores} cores calibrated by a micro-benchmark", found.measured_at
        if not node.cores:
            raise EstimatorFailed(f"The number of cores of {node.name} is unknown; add it or profile a step.")
        return of_cpu(prior_cpu(node), cores), f"roofline on {cores} typical server cores", None

    def _all_records(self) -> Sequence[CalibrationRecord]:
        if self._records is None:
            self._records = self._kept()
        return self._records

    def _loads(self, trace: TraceReport, device: Device, workload: Workload, batch: int) -> dict[str, Load]:
        key = (id(trace), id(device), workload.precision, batch)
        if key not in self._known:
            self._alive += [trace, device]  # an id must not be used twice
            rows = trace.operations if batch == trace.batch else at_batch(trace.operations, batch / trace.batch)
            self._known[key] = phase_loads(rows, device, workload.precision)
        return self._known[key]

    def _seconds(
        self, trace: TraceReport, place: _Place, workload: Workload, batch: int, correction: Correction
    ) -> tuple[float, float]:
        """(computing, communication that is not hidden), of one optimizer step."""
        loads = self._loads(trace, place.device, workload, batch)
        backward = correction.seconds([loads["backward"]])
        passes = correction.seconds([loads["forward"]]) + backward
        compute = max(1, workload.grad_accum) * passes + correction.seconds([loads["optimizer"]])
        if place.devices < 2:
            return compute, 0.0
        options = workload.options
        links = collective.links_of(
            place.device.architecture, place.device.name, options.get("links_inside", ""), options.get("links_between", "")
        )
        return compute, collective.exposed_s(trace.gradients_bytes, place.per_node, place.nodes, links, backward)

    def _corrected(
        self, request: EstimateRequest, trace: TraceReport, place: _Place, measured: Sequence[HistoryRecord]
    ) -> Estimate:
        workload, steps = request.workload, []
        for record in measured:
            if record.step_time_s:
                loads = self._loads(trace, place.device, workload, record.batch_size or workload.batch)
                added = self._seconds(trace, place, workload, record.batch_size or workload.batch, Correction())[1]
                parts = (*(loads[p] for p in ("forward", "backward") for _ in range(max(1, record.grad_accum))), loads["optimizer"])
                steps.append(MeasuredStep(parts, max(record.step_time_s - added, record.step_time_s / 2)))
        correction = corrected_by(steps)
        compute, added = self._seconds(trace, place, workload, workload.batch, correction)
        nearest = min(measured, key=lambda r: widest(r.batch_size or workload.batch, workload.batch, 1.0))
        far = widest(nearest.batch_size or workload.batch, workload.batch, _PER_DOUBLING)
        low, high = place.device.coefficients.corrected
        basis = "history" if any(r.kind != "profile" for r in measured) else "profile"
        batches = ", ".join(str(b) for b in sorted({r.batch_size for r in measured}))
        reason = f"roofline corrected by {len(steps)} measured step time(s) at batch {batches} (x {correction.device:.2f})"
        seconds = compute + added
        return Estimate(
            seconds * math.exp(low) / far, seconds, seconds * math.exp(high) * far, "s", SOURCE, basis=basis,
            as_of=newest(measured), reason=reason,
        )


def _pipeline(workload: Workload, trace: TraceReport, compute_s: float, cores: int) -> Stages:
    """The step with its data loading, where the workload says how it loads."""
    micro = max(1, workload.grad_accum) * workload.batch
    data = Input.of_options(workload.options, trace.inputs_bytes / max(1, trace.batch))
    return stages(data or Input(), micro, compute_s, cores or None)


def _reason(place: _Place, pipe: Stages, compute_s: float, added_s: float, spread: float) -> str:
    words = [place.how]
    if pipe.step_s > compute_s * 1.001:
        words.append(f"{pipe.bottleneck} sets the pace ({pipe.step_s:.3g} s a step, computing {compute_s:.3g} s)")
    if place.devices > 1:
        share = collective.efficiency(compute_s, added_s)
        words.append(f"{place.devices} devices at {share:.0%} scaling efficiency, links assumed from the architecture")
    words.append(f"nothing was measured there, so within a factor {math.exp(spread):.2g}")
    return "; ".join(words)
