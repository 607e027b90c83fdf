"""A model of PyTorch's CUDA caching allocator on one stream.

Blocks are rounded to 512 bytes. Requests up to 1 MiB come from 2 MiB segments; requests under 10 MiB from 20 MiB segments;
larger ones get segments rounded to 2 MiB. Free blocks are taken best fit (smallest size, then lowest address), split when
the rest is worth keeping, and merged with their free neighbours. When the card is full, whole free segments are given back
before the request fails. ``max_split_size_mb`` keeps large blocks whole and for large requests;
``garbage_collection_threshold`` gives old free segments back before the card is full. Source: PyTorch,
c10/cuda/CUDACachingAllocator.cpp, and its documentation on memory management.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass

from ischeduler.estimators.memory.allocator_conf import AllocatorConf

MIB = 2**20
ROUND = 512
SMALL_REQUEST = MIB
SMALL_SEGMENT = 2 * MIB
MIDDLE_REQUEST = 10 * MIB
MIDDLE_SEGMENT = 20 * MIB
LARGE_ROUND = 2 * MIB
OVERSIZE_SLACK = 20 * MIB  # a whole block may be that much larger than an oversize request
_GAP = 4096  # segments are never neighbours

ALLOC, FREE = 1, 0
Event = tuple[int, int, int]
"""(ALLOC or FREE, block identity, requested bytes)."""


class OutOfMemory(Exception):
    """The modelled card is full. ``requested`` and ``reserved`` are bytes."""

    def __init__(self, requested: int, reserved: int, capacity: int) -> None:
        super().__init__(f"{requested} bytes do not fit beside {reserved} of {capacity}")
        self.requested, self.reserved, self.capacity = requested, reserved, capacity


@dataclass(slots=True)
class _Block:
    address: int
    size: int
    segment: int
    small: bool
    free: bool = True
    before: _Block | None = None
    after: _Block | None = None
    freed_at: int = 0


def rounded(size_bytes: int) -> int:
    """What a request of that size occupies."""
    return max(ROUND, -(-size_bytes // ROUND) * ROUND)


def segment_size(size_bytes: int) -> int:
    """The segment asked of the driver for a (rounded) request that no free block can serve."""
    if size_bytes <= SMALL_REQUEST:
        return SMALL_SEGMENT
    if size_bytes < MIDDLE_REQUEST:
        return MIDDLE_SEGMENT
    return -(-size_bytes // LARGE_ROUND) * LARGE_ROUND


class CachingAllocator:
    """Feed it requests; read ``allocated``, ``reserved`` and their peaks (bytes)."""

    def __init__(self, capacity: int | None = None, conf: AllocatorConf | None = None) -> None:
        self.capacity = capacity
        self.conf = conf or AllocatorConf()
        self._searches = 0
        self.allocated = self.reserved = self.peak_allocated = self.peak_reserved = self.retries = 0
        self._free: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
        self._blocks: dict[int, _Block] = {}
        self._held: dict[int, _Block] = {}
        self._next_address = 0

    def malloc(self, identity: int, size_bytes: int) -> None:
        """Serve a request; OutOfMemory when the capacity does not allow it. Zero bytes take nothing."""
        if size_bytes <= 0:
            return
        size = self.conf.rounded(size_bytes)
        block = self._best_fit(size)
        if block is None:
            self._collect_garbage()
            block = self._new_segment(size)
        self._split(block, size)
        block.free = False
        self._held[identity] = block
        self.allocated += block.size
        self.peak_allocated = max(self.peak_allocated, self.allocated)

    def free(self, identity: int) -> None:
        """Give a request's block back; an unknown identity (zero bytes) is no error."""
        block = self._held.pop(identity, None)
        if block is None:
            return
        self.allocated -= block.size
        block.free = True
        block.freed_at = self._searches
        block = self._merge(block)
        self._shelve(block)

    def empty_cache(self) -> None:
        """Give every wholly free segment back to the driver."""
        for small in (True, False):
            kept: list[tuple[int, int]] = []
            for size, address in self._free[small]:
                block = self._blocks[address]
                if block.before is None and block.after is None:
                    self.reserved -= size
                    del self._blocks[address]
                else:
                    kept.append((size, address))
            self._free[small] = kept

    def spans(self) -> list[tuple[int, int, bool]]:
        """(address, size, free) of every block by address: for checks."""
        return sorted((b.address, b.size, b.free) for b in self._blocks.values())

    def _best_fit(self, size: int) -> _Block | None:
        shelf = self._free[size <= SMALL_REQUEST]
        self._searches += size > SMALL_REQUEST
        place = bisect_left(shelf, (size, -1))
        if place == len(shelf) or not self._may_use(shelf[place][0], size):
            return None
        return self._blocks[shelf.pop(place)[1]]

    def _may_use(self, block_size: int, size: int) -> bool:
        """Whether ``max_split_size`` lets a block serve a request: no oversize block for a small one, no far too large one."""
        limit = self.conf.max_split_size
        if limit is None or size <= SMALL_REQUEST:
            return True
        return block_size < limit if size < limit else block_size < size + OVERSIZE_SLACK

    def _collect_garbage(self) -> None:
        """Give free segments back, those unused for longest first, until the threshold holds again."""
        if self.capacity is None or not self.conf.garbage_collection_threshold:
            return
        excess = self.reserved - self.conf.garbage_collection_threshold * self.capacity
        whole = [b for b in (self._blocks[a] for _, a in self._free[False]) if b.before is None and b.after is None]
        while excess > 0 and whole:
            ages = [self._searches - b.freed_at for b in whole]
            least = sum(ages) / len(ages)
            old = [b for b, age in zip(whole, ages, strict=True) if age >= least]
            for block in sorted(old, key=lambda b: b.freed_at):
                if excess <= 0:
                    return
                self._give_back(block)
                excess -= block.size
            whole = [b for b in whole if b not in old]

    def _give_back(self, block: _Block) -> None:
        self._unshelve(block)
        del self._blocks[block.address]
        self.reserved -= block.size

    def _release_oversize(self, wanted: int) -> bool:
        """With ``max_split_size``: give back just enough oversize blocks for a request; whether they were enough."""
        limit = self.conf.max_split_size
        if limit is None:
            return False
        gained = 0
        shelf = self._free[False]
        place = bisect_left(shelf, (max(wanted, limit), -1))
        chosen = [shelf[place]] if place < len(shelf) else [s for s in reversed(shelf) if s[0] >= limit]
        for _, address in chosen:
            block = self._blocks[address]
            if gained < wanted and block.before is None and block.after is None:
                self._give_back(block)
                gained += block.size
        return gained >= wanted

    def _new_segment(self, size: int) -> _Block:
        wanted = segment_size(size)
        if self.capacity is not None and self.reserved + wanted > self.capacity:
            self.retries += 1
            if not self._release_oversize(wanted):
                self.empty_cache()
            if self.reserved + wanted > self.capacity:
                raise OutOfMemory(size, self.reserved, self.capacity)
        block = _Block(self._next_address, wanted, self._next_address, size <= SMALL_REQUEST)
        self._blocks[block.address] = block
        self._next_address += wanted + _GAP
        self.reserved += wanted
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return block

    def _split(self, block: _Block, size: int) -> None:
        rest = block.size - size
        if rest < ROUND or (not block.small and rest <= SMALL_REQUEST):
            return
        if not block.small and self.conf.max_split_size is not None and size >= self.conf.max_split_size:
            return
        tail = _Block(block.address + size, rest, block.segment, block.small, before=block, after=block.after)
        if block.after is not None:
            block.after.before = tail
        block.after, block.size = tail, size
        self._blocks[tail.address] = tail
        self._shelve(tail)

    def _merge(self, block: _Block) -> _Block:
        after = block.after
        if after is not None and after.free:
            self._unshelve(after)
            self._absorb(block, after)
        before = block.before
        if before is not None and before.free:
            self._unshelve(before)
            self._absorb(before, block)
            before.freed_at = self._searches
            return before
        return block

    def _absorb(self, block: _Block, after: _Block) -> None:
        block.size += after.size
        block.after = after.after
        if after.after is not None:
            after.after.before = block
        del self._blocks[after.address]

    def _shelve(self, block: _Block) -> None:
        insort(self._free[block.small], (block.size, block.address))

    def _unshelve(self, block: _Block) -> None:
        shelf = self._free[block.small]
        shelf.pop(bisect_left(shelf, (block.size, block.address)))


def replay(events: Iterable[Event], capacity: int | None = None) -> CachingAllocator:
    """The allocator after a log of requests; OutOfMemory where they exceed the capacity."""
    allocator = CachingAllocator(capacity)
    for kind, identity, size_bytes in events:
        if kind == ALLOC:
            allocator.malloc(identity, size_bytes)
        else:
            allocator.free(identity)
    return allocator


def accumulate_in_place(events: list[Event], sums: dict[int, int]) -> list[Event]:
    """Undo an artefact of tracing: autograd adds a second gradient in place on plain tensors, out of place on fake ones.

    ``sums`` maps a block made by an addition during backward to the block of its first operand. Where that operand is freed
    right after, the two become one block.
    """
    same: dict[int, int] = {}
    dropped: set[int] = set()
    for place, (kind, identity, size_bytes) in enumerate(events):
        operand = sums.get(identity) if kind == ALLOC else None
        if operand is None:
            continue
        for later in range(place + 1, min(place + 3, len(events))):
            later_kind, later_identity, later_size = events[later]
            if later_kind == ALLOC:
                break
            if later_identity == operand and later_size == size_bytes:
                same[identity] = operand
                dropped |= {place, later}
                break
    return [(k, _root(same, i), n) for place, (k, i, n) in enumerate(events) if place not in dropped]


def _root(same: dict[int, int], identity: int) -> int:
    while identity in same:
        identity = same[identity]
    return identity
