"""The caching allocator's model: never overlaps, never loses memory, and behaves as PyTorch documents it."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ischeduler.estimators.memory.allocator import (
    ALLOC,
    FREE,
    MIB,
    CachingAllocator,
    Event,
    OutOfMemory,
    accumulate_in_place,
    replay,
    rounded,
)

SIZES = st.one_of(
    st.integers(0, 4096), st.integers(MIB - 600, MIB + 600), st.integers(1, 40 * MIB), st.sampled_from([10 * MIB, 10 * MIB - 512])
)


@st.composite
def logs(draw: st.DrawFn) -> list[Event]:
    """Allocations and frees in any legal order."""
    events: list[Event] = []
    alive: list[tuple[int, int]] = []
    for number in range(draw(st.integers(1, 60))):
        if alive and draw(st.booleans()):
            identity, size = alive.pop(draw(st.integers(0, len(alive) - 1)))
            events.append((FREE, identity, size))
        else:
            size = draw(SIZES)
            alive.append((number, size))
            events.append((ALLOC, number, size))
    return events


@settings(max_examples=200, deadline=None)
@given(logs())
def test_blocks_never_overlap_and_add_up(events: list[Event]) -> None:
    allocator = CachingAllocator()
    held: dict[int, int] = {}
    for kind, identity, size in events:
        if kind == ALLOC:
            allocator.malloc(identity, size)
            held[identity] = size
        else:
            allocator.free(identity)
            del held[identity]
        spans = allocator.spans()
        for (address, length, _), (after, _, _) in itertools.pairwise(spans):
            assert address + length <= after
        assert sum(length for _, length, _ in spans) == allocator.reserved
        assert sum(length for _, length, free in spans if not free) == allocator.allocated
        assert allocator.allocated >= sum(rounded(n) for n in held.values() if n)
        assert allocator.reserved >= allocator.allocated
    assert allocator.peak_reserved >= allocator.peak_allocated >= allocator.allocated


@settings(max_examples=100, deadline=None)
@given(logs())
def test_everything_freed_can_be_given_back(events: list[Event]) -> None:
    allocator = replay(events)
    for kind, identity, _ in events:
        if kind == ALLOC:
            allocator.free(identity)
    assert allocator.allocated == 0
    allocator.empty_cache()
    assert allocator.reserved == 0
    assert allocator.spans() == []


@pytest.mark.parametrize(("size", "reserved"), [
    (1, 2 * MIB), (MIB, 2 * MIB), (MIB + 1, 20 * MIB), (10 * MIB - 512, 20 * MIB), (10 * MIB, 10 * MIB), (10 * MIB + 1, 12 * MIB),
])
def test_segment_sizes(size: int, reserved: int) -> None:
    assert replay([(ALLOC, 1, size)]).reserved == reserved


def test_best_fit_takes_the_smallest_hole() -> None:
    allocator = replay([(ALLOC, 1, 30 * MIB), (ALLOC, 2, 20 * MIB), (FREE, 1, 0), (FREE, 2, 0), (ALLOC, 3, 19 * MIB)])
    assert allocator.reserved == 50 * MIB
    assert (20 * MIB, False) in [(size, free) for _, size, free in allocator.spans()]  # a rest of 1 MiB is not split off


def test_a_full_card_gives_free_segments_back_first() -> None:
    events = [(ALLOC, 1, 40 * MIB), (FREE, 1, 0), (ALLOC, 2, 60 * MIB)]
    allocator = replay(events, capacity=70 * MIB)
    assert (allocator.reserved, allocator.retries) == (60 * MIB, 1)
    with pytest.raises(OutOfMemory):
        replay([(ALLOC, 1, 40 * MIB), (ALLOC, 2, 60 * MIB)], capacity=70 * MIB)


def test_gradient_accumulation_becomes_one_block() -> None:
    events = [(ALLOC, 1, 512), (ALLOC, 2, 512), (ALLOC, 3, 512), (FREE, 1, 512), (FREE, 2, 512), (FREE, 3, 512)]
    assert accumulate_in_place(events, {3: 1}) == [(ALLOC, 1, 512), (ALLOC, 2, 512), (FREE, 2, 512), (FREE, 1, 512)]
    assert accumulate_in_place(events, {3: 2}) == [(ALLOC, 1, 512), (ALLOC, 2, 512), (FREE, 1, 512), (FREE, 2, 512)]
    kept = [(ALLOC, 1, 512), (ALLOC, 3, 512), (ALLOC, 4, 512), (FREE, 1, 512)]
    assert accumulate_in_place(kept, {3: 1}) == kept
