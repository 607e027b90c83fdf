"""What a card must hold: the traced step plus what lives beside it, as intervals; and which batches would fit. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ischeduler.core.estimate import Estimate
from ischeduler.core.sizes import GIB, MIB, human_size
from ischeduler.core.workload import Workload
from ischeduler.estimators.memory.spec import TraceReport

CONTEXT_BYTES = (0.5 * GIB, 1.2 * GIB, 1.75 * GIB)
"""p10, p50, p90 of context, libraries and workspaces (nvidia-smi beside reserved: 1,754 MiB on A100, 0.3-1.7 GB elsewhere)."""
SOURCE = "trace@1"
# p10, p50 and p90 of (truth / traced) by backend, for the reserved part.
_FACTORS = {"fake-accelerator": (0.97, 1.0, 1.06), "fake-cpu": (0.85, 1.0, 1.25)}
_ACTIVATION_FACTORS = (1 / 3, 1.0, 3.0)


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """Bytes on one card. ``total`` is what must fit; the parts explain it (they add up to ``allocated_bytes``).

    ``buckets_bytes`` are DDP's copies of the gradients (0 on one device).
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

    def sentence(self) -> str:
        """The breakdown in words."""
        parts = [
            ("weights", self.weights_bytes), ("gradients", self.gradients_bytes), ("optimizer", self.optimizer_bytes),
            ("activations", self.activations_bytes), ("DDP buckets", self.buckets_bytes),
        ]
        words = " + ".join(f"{name} {human_size(size)}" for name, size in parts if size >= MIB)
        return f"{words}; reserved {human_size(self.reserved_bytes)}, context about {human_size(self.context.p50)}"


def memory_report(trace: TraceReport, *, devices: int = 1, as_of: float | None = None) -> MemoryReport:
    """The card's share of a traced step. ``as_of`` dates the trace."""
    buckets = trace.gradients_bytes if devices > 1 else 0
    low, mid, high = (f * trace.reserved_bytes for f in _FACTORS.get(trace.backend, (1.0, 1.0, 1.0)))
    if trace.backend not in _FACTORS:
        rest = trace.reserved_bytes - trace.activations_bytes
        low, mid, high = (rest + f * trace.activations_bytes for f in _ACTIVATION_FACTORS)
    basis = "trace" if trace.backend in _FACTORS else "analytic"
    context = Estimate(*CONTEXT_BYTES, "bytes", SOURCE, basis="analytic", reason="driver context, libraries and workspaces")
    total = Estimate(
        low + buckets + context.p10, mid + buckets + context.p50, high + buckets + context.p90, "bytes", SOURCE,
        basis=basis, as_of=as_of,
    )
    return MemoryReport(
        trace.batch, trace.weights_bytes, trace.gradients_bytes, trace.optimizer_bytes, trace.activations_bytes, buckets,
        trace.allocated_bytes, trace.reserved_bytes, context, total,
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
        if batch > 16:
            batch -= batch % 8
        return max(0, batch)


def smallest_accumulation(model: BatchModel, workload: Workload, memory_bytes: float) -> int | None:
    """The smallest power of two of micro-batches that splits the batch evenly and fits; None when even one sample does not."""
    pieces = 2
    while pieces <= workload.batch:
        if workload.batch % pieces == 0 and model.bytes_at(workload.batch // pieces) <= memory_bytes:
            return pieces * workload.grad_accum
        pieces *= 2
    return None
