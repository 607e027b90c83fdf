"""What a card must hold: the traced step plus what lives beside it, as intervals; and which batches would fit. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ischeduler.core.estimate import Estimate
from ischeduler.core.sizes import GIB, MIB, human_size
from ischeduler.core.workload import Workload
from ischeduler.estimators.memory.allocator_conf import AllocatorConf
from ischeduler.estimators.memory.calibration import SEARCH_SHARE, DeviceCalibration
from ischeduler.estimators.memory.replay import Parts, allocator_of, replayed
from ischeduler.estimators.memory.sharding import Sharding, replicated
from ischeduler.estimators.memory.spec import TraceReport
from ischeduler.estimators.memory.workspaces import Borrowers, Workspaces, borrowers

CONTEXT_BYTES = (0.5 * GIB, 1.2 * GIB, 1.75 * GIB)
"""p10, p50, p90 of driver context and libraries where nothing was measured (0.3 to 1.75 GB by card, driver and libraries)."""
SOURCE = "trace@2"
# p10, p50 and p90 of (truth / traced) by backend, for the reserved part.
_FACTORS = {"fake-accelerator": (0.97, 1.0, 1.06), "fake-cpu": (0.85, 1.0, 1.25), "keras-torch": (0.85, 1.0, 1.25)}
_ACTIVATION_FACTORS = (1 / 3, 1.0, 3.0)


@dataclass(frozen=True, slots=True)
class Setting:
    """Where the step runs. ``rules`` are the card's workspaces, ``calibration`` what was measured at the site, if anything,
    ``conf`` the allocator's knobs (None: PyTorch's defaults).
    """

    rules: Workspaces = Workspaces("")
    calibration: DeviceCalibration | None = None
    sharding: Sharding = Sharding()
    conf: AllocatorConf | None = None


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """Bytes on one card. ``total`` is what must fit; the parts explain it.

    Weights, gradients, optimizer and activations add up to ``allocated_bytes``; ``buckets_bytes`` are DDP's copies of the
    gradients or FSDP's gathered blocks (0 on one device); ``workspaces_bytes`` is what cuDNN and cuBLAS add to the reserved.
    """

    batch: int
    weights_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int
    buckets_bytes: int
    allocated_bytes: int
    reserved_bytes: int
    context: Estimate
    total: Estimate
    workspaces_bytes: int = 0

    def sentence(self) -> str:
        """The breakdown in words."""
        parts = [
            ("weights", self.weights_bytes), ("gradients", self.gradients_bytes), ("optimizer", self.optimizer_bytes),
            ("activations", self.activations_bytes), ("buckets or gathered blocks", self.buckets_bytes),
            ("workspaces", self.workspaces_bytes),
        ]
        words = " + ".join(f"{name} {human_size(size)}" for name, size in parts if size >= MIB)
        return f"{words}; reserved {human_size(self.reserved_bytes)}, context about {human_size(self.context.p50)}"


def memory_report(
    trace: TraceReport, *, devices: int = 1, as_of: float | None = None, setting: Setting | None = None
) -> MemoryReport:
    """The card's share of a traced step. ``as_of`` dates the trace; without a setting: DDP on a card nobody measured."""
    where = setting or Setting(sharding=Sharding("ddp" if devices > 1 else "", devices))
    trace = _with_knobs(trace, where.conf)
    shared = replicated(trace, where.sharding)
    beside = _borrowers(trace)
    workspaces = _workspaces(trace, shared.reserved, where, beside)
    context, quantiles = _quantiles(trace, shared.reserved, workspaces, where, beside)
    basis = "trace" if trace.backend in _FACTORS else "analytic"
    return MemoryReport(
        trace.batch, shared.weights, shared.gradients, shared.optimizer, trace.activations_bytes, shared.extra,
        shared.weights + shared.gradients + shared.optimizer + trace.activations_bytes, shared.reserved, context,
        Estimate(*quantiles, "bytes", SOURCE, basis=basis, as_of=as_of), workspaces,
    )


def _with_knobs(trace: TraceReport, conf: AllocatorConf | None) -> TraceReport:
    """The trace with what these knobs reserve; they change nothing where nothing was traced."""
    if conf is None or conf == AllocatorConf() or trace.log is None:
        return trace
    return replace(trace, reserved_bytes=replayed(trace.log, trace.batch, allocator=allocator_of(conf)).peak_reserved)


def _borrowers(trace: TraceReport) -> Borrowers:
    return borrowers(trace.log, trace.batch) if trace.log is not None else Borrowers()


def _workspaces(trace: TraceReport, reserved: int, where: Setting, beside: Borrowers) -> int:
    """By the rules, and what the site's convolutions were seen to borrow beyond them."""
    if trace.log is None or trace.backend == "parameters":
        return 0
    memory = replayed(trace.log, trace.batch, allocator=allocator_of(where.conf), workspaces=where.rules)
    rules = max(0, memory.peak_reserved - trace.reserved_bytes)
    if where.calibration is None or trace.backend != "fake-accelerator":
        return rules
    moved = replace(beside, busiest=beside.busiest + reserved - trace.reserved_bytes)  # what sharding moves lives all step long
    return rules + round(where.calibration.behaviour(where.rules.benchmark).borrowed(reserved + rules, moved))


def _quantiles(
    trace: TraceReport, reserved: int, workspaces: int, where: Setting, beside: Borrowers
) -> tuple[Estimate, tuple[float, float, float]]:
    """The context, and p10, p50, p90 of the device total."""
    known = where.calibration
    if known is not None and trace.backend == "fake-accelerator":
        extra = reserved - trace.reserved_bytes
        low, middle, high = known.spread(reserved + workspaces, trace.inputs_bytes, beside, where.rules.benchmark)
        context = known.context_bytes
        estimate = Estimate(context, context, context, "bytes", SOURCE, basis="history", reason=f"measured ({known.source})")
        return estimate, (low + min(0, extra), middle, high)
    context = Estimate(*CONTEXT_BYTES, "bytes", SOURCE, basis="analytic", reason="driver context and libraries")
    factors = _FACTORS.get(trace.backend)
    if factors is not None:
        low, middle, high = (f * reserved + workspaces for f in factors)
    else:
        rest = reserved - trace.activations_bytes
        low, middle, high = (rest + f * trace.activations_bytes for f in _ACTIVATION_FACTORS)
    search = SEARCH_SHARE * beside.largest if where.rules.benchmark else 0.0
    return context, (low + context.p10, middle + context.p50, high + search + context.p90)


def at_batch(trace: TraceReport, batch: int) -> TraceReport:
    """The same trace for another batch, replayed; ValueError where its log does not hold for it. Operations stay as traced."""
    if batch == trace.batch:
        return trace
    if trace.log is None:
        raise ValueError(f"this trace holds for batch {trace.batch} alone")
    memory = replayed(trace.log, batch)
    parts = Parts.of(trace.weights_bytes, trace.gradients_bytes, trace.optimizer_bytes, memory.peak_allocated)
    return replace(
        trace, batch=batch, gradients_bytes=parts.gradients, activations_bytes=parts.activations,
        allocated_bytes=memory.peak_allocated, reserved_bytes=memory.peak_reserved,
        inputs_bytes=round(trace.inputs_bytes / trace.batch * batch),
    )


@dataclass(frozen=True, slots=True)
class BatchModel:
    """Memory as a straight line in the batch: ``fixed`` + batch x ``per_sample`` bytes (reserved and context, at p90)."""

    fixed_bytes: float
    per_sample_bytes: float

    @classmethod
    def through(cls, report: MemoryReport) -> BatchModel:
        """The line through one report: all but the activations is fixed."""
        activations = max(1.0, report.activations_bytes * report.total.p90 / max(1, report.allocated_bytes + report.context.p90))
        activations = min(activations, report.total.p90)
        return cls(report.total.p90 - activations, activations / report.batch)

    @classmethod
    def between(cls, first: MemoryReport, second: MemoryReport) -> BatchModel:
        """The line through two reports of different batches."""
        slope = (second.total.p90 - first.total.p90) / (second.batch - first.batch)
        return cls(first.total.p90 - slope * first.batch, slope)

    def bytes_at(self, batch: int) -> float:
        """What a batch of that size needs."""
        return self.fixed_bytes + self.per_sample_bytes * batch

    def largest_batch(self, memory_bytes: float) -> int:
        """The largest batch that fits, 0 when not even one sample does; above 16 a multiple of 8, as people choose them."""
        batch = int((memory_bytes - self.fixed_bytes) // max(1.0, self.per_sample_bytes))
        return max(0, _handy(batch))


def _handy(batch: int) -> int:
    return batch - batch % 8 if batch > 16 else batch


def largest_batch(trace: TraceReport, memory_bytes: float, setting: Setting | None = None, devices: int = 1) -> int:
    """The largest batch whose p90 fits, by replaying each candidate where the log allows, else by the line; 0 when none does.

    Above 16 a multiple of 8. The search halves the range, so it takes some twenty replays.
    """
    line = BatchModel.through(memory_report(trace, devices=devices, setting=setting))
    if trace.log is None or not trace.log.linear:
        return line.largest_batch(memory_bytes)

    def fits(batch: int) -> bool:
        return memory_report(at_batch(trace, batch), devices=devices, setting=setting).total.p90 <= memory_bytes

    low, high = 0, max(16, 2 * line.largest_batch(memory_bytes))
    while fits(high):
        low, high = high, 2 * high
    while high - low > (1 if low < 16 else 8):
        middle = _handy((low + high) // 2)
        middle = middle if low < middle < high else (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return _handy(low)


def smallest_accumulation(model: BatchModel, workload: Workload, memory_bytes: float) -> int | None:
    """The smallest power of two of micro-batches that splits the batch evenly and fits; None when even one sample does not."""
    pieces = 2
    while pieces <= workload.batch:
        if workload.batch % pieces == 0 and model.bytes_at(workload.batch // pieces) <= memory_bytes:
            return pieces * workload.grad_accum
        pieces *= 2
    return None
