"""A step's log through the allocator: peaks at any batch, with or without workspaces. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ischeduler.estimators.memory.allocator import CachingAllocator, OutOfMemory
from ischeduler.estimators.memory.allocator_conf import AllocatorConf
from ischeduler.estimators.memory.expandable import ExpandableAllocator
from ischeduler.estimators.memory.steplog import ALLOC, FREE, TAGS, ConvolutionCall, StepLog
from ischeduler.estimators.memory.workspaces import Workspaces

Allocator = CachingAllocator | ExpandableAllocator
_CUBLAS = -1
_BORROWED = -2


@dataclass(frozen=True, slots=True)
class Parts:
    """Bytes at the peak by purpose; they add up to the peak."""

    weights: int
    gradients: int
    optimizer: int
    activations: int

    @classmethod
    def of(cls, weights: int, gradients: int, optimizer: int, peak: int) -> Parts:
        """Weights, gradients and optimizer state as known, the rest of the peak is activations."""
        activations = max(0, peak - weights - gradients - optimizer)
        return cls(weights, max(0, peak - weights - optimizer - activations), optimizer, activations)


def allocator_of(conf: AllocatorConf | None = None, capacity: int | None = None) -> Allocator:
    """The allocator with those knobs, on a card with that many bytes for it (None: as many as it takes)."""
    if conf is not None and conf.expandable_segments:
        return ExpandableAllocator(capacity, conf)
    return CachingAllocator(capacity, conf)


@dataclass(frozen=True, slots=True)
class Survival:
    """How the steps go on a full card: whether they run, how often the cache had to be given back, what was reserved at most."""

    runs: bool
    retries: int
    peak_reserved: int


def survival(
    log: StepLog, batch: int, capacity: int, *, conf: AllocatorConf | None = None, workspaces: Workspaces | None = None
) -> Survival:
    """The steps on a card with ``capacity`` bytes for the allocator: PyTorch frees its cache and tries again before it fails."""
    memory = allocator_of(conf, capacity)
    try:
        replayed(log, batch, allocator=memory, workspaces=workspaces)
    except OutOfMemory:
        return Survival(False, memory.retries, memory.peak_reserved)
    return Survival(True, memory.retries, memory.peak_reserved)


def replayed(
    log: StepLog, batch: int, *, allocator: Allocator | None = None, workspaces: Workspaces | None = None
) -> Allocator:
    """The allocator after the logged steps at that batch; ``workspaces`` None leaves them out.

    ValueError where the log does not hold for that batch; OutOfMemory from an allocator with a capacity.
    """
    memory = allocator if allocator is not None else CachingAllocator()
    seen: set[ConvolutionCall] = set()
    for kind, identity, size_bytes in log.events(batch):
        if kind == ALLOC:
            memory.malloc(identity, size_bytes)
        elif kind == FREE:
            memory.free(identity)
        elif workspaces is not None and identity == _CUBLAS:
            memory.malloc(_CUBLAS, workspaces.matmul_bytes)
        elif workspaces is not None:
            call = log.convolutions[identity]
            memory.malloc(_BORROWED, workspaces.convolution_bytes(call.at_batch(batch)))
            memory.free(_BORROWED)
            if workspaces.benchmark and call not in seen:
                seen.add(call)
                memory.empty_cache()
    return memory


def tensor_sum(log: StepLog, batch: int, steps: int = 2) -> int:
    """The naive figure: everything the step's forward pass ever makes, and all that stays, with no reuse and no rounding.

    This is what tensor-level estimators add up; kept as a peer to compare with.
    """
    total = 0.0
    for kind, identity, size_bytes in log.events(batch):
        tag = TAGS[log.tags.get(identity, 0)]
        if kind == ALLOC and tag in ("weights", "optimizer"):
            total += size_bytes
        elif kind == ALLOC and tag in ("activations", "inputs", "gradients"):
            total += size_bytes / steps
    return round(total)
