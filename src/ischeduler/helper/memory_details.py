"""What a card would hold, part by part, the largest batch that fits it, and what would make a batch fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ischeduler.core.cluster import Accelerator, Cluster
from ischeduler.core.errors import IschedError
from ischeduler.core.estimate import Estimate
from ischeduler.core.sizes import human_size
from ischeduler.core.workload import Workload
from ischeduler.estimators.facade import Estimators


@dataclass(frozen=True, slots=True)
class Change:
    """One change and whether the workload would fit with it. ``total`` is None where nothing can be said."""

    name: str
    fits: bool
    total: Estimate | None
    reason: str


@dataclass(frozen=True, slots=True)
class MemoryDetail:
    """One batch size on one kind of card, in bytes. ``changes`` are tried only where it does not fit."""

    accelerator: str
    card_bytes: int
    batch_size: int
    weights_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int
    buckets_bytes: int
    workspaces_bytes: int
    allocated_bytes: int
    reserved_bytes: int
    context: Estimate
    total: Estimate
    fits: bool
    largest_batch: int
    changes: tuple[Change, ...] = ()

    def lines(self) -> list[str]:
        """For people."""
        parts = [
            ("weights", self.weights_bytes), ("gradients", self.gradients_bytes), ("optimizer", self.optimizer_bytes),
            ("activations", self.activations_bytes), ("buckets", self.buckets_bytes), ("workspaces", self.workspaces_bytes),
        ]  # fmt: skip
        verdict = "fits" if self.fits else f"{human_size(self.total.p90 - self.card_bytes)} too much at p90"
        found = [
            f"{self.accelerator} ({human_size(self.card_bytes)}), batch {self.batch_size}: {human_size(self.total.p50)} "
            f"(p90 {human_size(self.total.p90)}), {verdict}; largest batch that fits: {self.largest_batch}",
            "  " + " + ".join(f"{name} {human_size(size)}" for name, size in parts if size),
            f"  allocated {human_size(self.allocated_bytes)}, reserved {human_size(self.reserved_bytes)}, context about "
            f"{human_size(self.context.p50)}",
        ]
        return found + [f"  {'✓' if c.fits else '✗'} {c.name}: {_size(c)}{c.reason}" for c in self.changes]


def _size(change: Change) -> str:
    return "" if change.total is None else f"{human_size(change.total.p50)} (p90 {human_size(change.total.p90)}), "


def memory_details(
    estimators: Estimators, workload: Workload, batches: Sequence[int], clusters: Sequence[Cluster]
) -> tuple[list[MemoryDetail], list[str]]:
    """One row for each kind of card and batch size, and what could not be said."""
    cards = {n.accelerator.name: n.accelerator for c in clusters for n in c.node_types if n.accelerator and n.accelerator.memory_bytes}
    details: list[MemoryDetail] = []
    troubles: dict[str, None] = {}
    for batch in batches:
        for card in sorted(cards.values(), key=lambda a: (a.memory_bytes, a.name)):
            try:
                details.append(_detail(estimators, replace(workload, batch_size=batch), card))
            except IschedError as error:
                troubles[str(error)] = None
    return details, list(troubles)


def _detail(estimators: Estimators, workload: Workload, card: Accelerator) -> MemoryDetail:
    trace = estimators.memory
    report = trace.report(workload, card.name)
    fits = report.total.p90 <= card.memory_bytes
    tried = () if fits else trace.remedies(workload, card.memory_bytes, card.name)
    return MemoryDetail(
        card.name, card.memory_bytes, report.batch, report.weights_bytes, report.gradients_bytes, report.optimizer_bytes,
        report.activations_bytes, report.buckets_bytes, report.workspaces_bytes, report.allocated_bytes, report.reserved_bytes,
        report.context, report.total, fits, trace.largest_batch_that_fits(workload, card.memory_bytes, card.name),
        tuple(Change(r.name, r.fits, r.report.total if r.report else None, r.reason) for r in tried),
    )  # fmt: skip
