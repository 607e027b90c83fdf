"""A traced step on several cards: what DDP adds and what FSDP2 splits, computed on the single card's trace. Pure.

DDP keeps a second copy of the gradients in its buckets (unless ``gradient_as_bucket_view`` makes them the same memory).
FSDP2 (``fully_shard`` on each block and on the root) keeps a share of weights, gradients and optimizer state, and holds two
gathered blocks at a time (the current one and the next, prefetched), one block's gradients before they are reduced and
scattered, and the root's own parameters throughout. Source: PyTorch documentation, DistributedDataParallel and fully_shard.
"""

from __future__ import annotations

from dataclasses import dataclass

from ischeduler.core.errors import BadInput
from ischeduler.estimators.memory.spec import TraceReport

KINDS = ("", "ddp", "ddp-view", "fsdp2")
_GATHERED_BLOCKS = 2


@dataclass(frozen=True, slots=True)
class Sharding:
    """``kind`` of :data:`KINDS` over ``devices`` cards; ``half_gather`` where FSDP's mixed precision gathers 16-bit weights."""

    kind: str = ""
    devices: int = 1
    half_gather: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BadInput(f"parallelism '{self.kind}' is unknown; expected one of {', '.join(k for k in KINDS if k)}.")
        if self.devices < 1:
            raise BadInput(f"devices must be at least 1, not {self.devices}.")


@dataclass(frozen=True, slots=True)
class Share:
    """One card's part, bytes: ``extra`` are buckets or gathered blocks; ``reserved`` holds everything."""

    weights: int
    gradients: int
    optimizer: int
    extra: int
    reserved: int


def replicated(trace: TraceReport, sharding: Sharding) -> Share:
    """What one of the cards holds."""
    weights, gradients, optimizer = trace.weights_bytes, trace.gradients_bytes, trace.optimizer_bytes
    if sharding.devices == 1 or sharding.kind in ("", "ddp-view"):
        return Share(weights, gradients, optimizer, 0, trace.reserved_bytes)
    if sharding.kind == "ddp":
        return Share(weights, gradients, optimizer, gradients, trace.reserved_bytes + gradients)
    own = [-(-part // sharding.devices) for part in (weights, gradients, optimizer)]
    extra = _gathered(trace, sharding)
    saved = weights + gradients + optimizer - sum(own)
    return Share(own[0], own[1], own[2], extra, max(sum(own), trace.reserved_bytes - saved) + extra)


def _gathered(trace: TraceReport, sharding: Sharding) -> int:
    """Blocks gathered at once, a block's unreduced gradients, and the root's parameters; without blocks, all is one."""
    blocks = trace.units or (trace.weights_bytes,)
    largest = max(blocks)
    root = max(0, trace.weights_bytes - sum(blocks))
    gathered = _GATHERED_BLOCKS * largest if len(blocks) > 1 else largest
    weights = (gathered + root) // (2 if sharding.half_gather else 1)
    trained = trace.gradients_bytes / max(1, trace.weights_bytes)
    return round(weights + trained * largest)
