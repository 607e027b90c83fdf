"""Which batch sizes fit where: the table behind ``--batch-size 32,64``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ischeduler.planning.candidates import Candidate
from ischeduler.planning.memory import AllNeeds, handy_batch, memory_model


@dataclass(frozen=True, slots=True)
class BatchFit:
    """One batch size on one card. ``fits`` is None where need or card is unknown; ``largest`` is the largest handy batch."""

    where: str
    node_type: str
    batch_size: int
    need_bytes: float | None
    have_bytes: int | None
    fits: bool | None
    largest: int | None


def batch_fits(places: Iterable[Candidate], needs: AllNeeds) -> tuple[BatchFit, ...]:
    """A row for each place with GPUs and each batch size, in the order of their keys."""
    return tuple(_fit(c, needs) for c in sorted(places, key=lambda c: c.key) if c.gpus and c.key in needs)


def _fit(c: Candidate, needs: AllNeeds) -> BatchFit:
    need, have = needs[c.key].gpu_memory, c.card_memory_bytes
    line = memory_model(c, needs)
    return BatchFit(
        c.where, c.node_type.name, c.workload.batch, need.p90 if need else None, have,
        need.p90 <= have if need and have else None, handy_batch(line.largest_batch(float(have))) if line and have else None,
    )
