"""The estimators that come with the package, wired to one tracer and to each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ischeduler.core.estimate import Estimate
from ischeduler.estimators.calibration.record import records
from ischeduler.estimators.cost import CostEstimator
from ischeduler.estimators.given import GivenEstimator
from ischeduler.estimators.memory.calibration import DeviceCalibration
from ischeduler.estimators.memory.estimator import TraceEstimator, tracing
from ischeduler.estimators.memory.prior import HostMemoryPrior
from ischeduler.estimators.memory.tracer import Tracer
from ischeduler.estimators.queuewait.estimator import QueueEstimator
from ischeduler.estimators.queuewait.site import SiteWaits
from ischeduler.estimators.registry import Registry, default_registry
from ischeduler.estimators.steptime.devices import CpuCalibration
from ischeduler.estimators.steptime.estimator import RooflineEstimator
from ischeduler.estimators.walltime.formula import StartupEstimator, WalltimeEstimator
from ischeduler.estimators.walltime.history import HistoryEstimator, ProfileEstimator
from ischeduler.estimators.walltime.scaling import ScalingEstimator
from ischeduler.ports import EstimateRequest


@dataclass(frozen=True)
class BuiltIns:
    """The registry with the parts some callers need by themselves."""

    registry: Registry
    tracer: Tracer
    trace: TraceEstimator


def measured_contexts() -> dict[str, DeviceCalibration]:
    """What CUDA and its libraries were seen to take on this user's cards, by accelerator: learned from whole steps
    (``isched calibrate --models``) where that was done, else the context alone (``isched calibrate``).
    """
    found: dict[str, DeviceCalibration] = {}
    for record in reversed(records()[0]):  # the newest last
        if record.accelerator and record.memory is not None:
            found[record.accelerator] = record.memory
        elif record.accelerator and record.context_bytes and not found.get(record.accelerator, _UNMEASURED).measured:
            source = f"isched calibrate, torch {record.torch}"
            found[record.accelerator] = DeviceCalibration(float(record.context_bytes), source=source)
    return found


_UNMEASURED = DeviceCalibration(0.0)


def built_ins(
    *, given: GivenEstimator | None = None, tracer: Tracer | None = None,
    calibrations: Mapping[str, CpuCalibration] | None = None, plug_ins: bool = True, site: SiteWaits | None = None,
) -> BuiltIns:
    """Everything wired. ``calibrations`` are measured CPU coefficients by node type name; ``site`` learns waits from accounting."""
    tracer = tracer or Tracer()
    trace = tracing(tracer)
    memory = TraceEstimator(trace, measured_contexts())

    def ask(request: EstimateRequest) -> Estimate:
        return registry.answer(request)[0]

    estimators = [
        StartupEstimator(), HostMemoryPrior(), QueueEstimator(site), CostEstimator(ask), WalltimeEstimator(ask),
        RooflineEstimator(trace, calibrations), memory, ProfileEstimator(), HistoryEstimator(), ScalingEstimator(),
        given or GivenEstimator(),
    ]
    registry = default_registry(estimators) if plug_ins else Registry(estimators)
    return BuiltIns(registry, tracer, memory)
