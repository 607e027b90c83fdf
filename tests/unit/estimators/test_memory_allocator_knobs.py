"""The allocator's knobs: parsed as PyTorch does, and never a block lost, doubled or overlapping whatever they say."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ischeduler.core.errors import BadInput
from ischeduler.estimators.memory.allocator import ALLOC, FREE, MIB, CachingAllocator, Event, OutOfMemory, replay
from ischeduler.estimators.memory.allocator_conf import AllocatorConf
from ischeduler.estimators.memory.expandable import PAGE, ExpandableAllocator
from ischeduler.estimators.memory.replay import allocator_of, survival
from ischeduler.estimators.memory.steplog import StepLog

SIZES = st.one_of(st.integers(0, 4096), st.integers(MIB - 600, MIB + 600), st.integers(1, 90 * MIB))
CONFS = st.builds(
    AllocatorConf, st.sampled_from([None, 21 * MIB, 64 * MIB]), st.booleans(), st.sampled_from([0.0, 0.3, 0.8]),
    st.sampled_from([0, 1, 4, 8]),
)


@st.composite
def logs(draw: st.DrawFn) -> list[Event]:
    """Allocations and frees in any legal order."""
    events: list[Event] = []
    alive: list[tuple[int, int]] = []
    for number in range(draw(st.integers(1, 50))):
        if alive and draw(st.booleans()):
            events.append((FREE, *alive.pop(draw(st.integers(0, len(alive) - 1)))))
        else:
            alive.append((number, draw(SIZES)))
            events.append((ALLOC, *alive[-1]))
    return events


def _check(allocator: CachingAllocator | ExpandableAllocator, held: dict[int, int]) -> None:
    spans = sorted(allocator.spans())
    for (address, length, _), (after, _, _) in itertools.pairwise(spans):
        assert address + length <= after
    used = sum(length for _, length, free in spans if not free)
    assert used == allocator.allocated
    assert used >= sum(held.values())
    assert allocator.reserved >= allocator.allocated
    assert allocator.capacity is None or allocator.reserved <= allocator.capacity
    assert allocator.peak_reserved >= allocator.reserved


@settings(max_examples=200, deadline=None)
@given(logs(), CONFS, st.sampled_from([None, 200 * MIB, 600 * MIB]))
def test_no_knob_loses_doubles_or_overlaps_a_block(events: list[Event], conf: AllocatorConf, capacity: int | None) -> None:
    allocator = allocator_of(conf, capacity)
    held: dict[int, int] = {}
    for kind, identity, size in events:
        if kind == FREE:
            allocator.free(identity)
            held.pop(identity, None)
        else:
            try:
                allocator.malloc(identity, size)
            except OutOfMemory:
                assert capacity is not None
                assert allocator.retries > 0
                continue
            held[identity] = size
        _check(allocator, held)
    for identity in list(held):
        allocator.free(identity)
    allocator.empty_cache()
    assert (allocator.allocated, allocator.reserved) == (0, 0)


@settings(max_examples=100, deadline=None)
@given(logs())
def test_a_request_fails_only_when_nothing_could_be_freed_for_it(events: list[Event]) -> None:
    allocator = CachingAllocator(150 * MIB)
    for kind, identity, size in events:
        if kind == FREE:
            allocator.free(identity)
            continue
        failed = False
        try:
            allocator.malloc(identity, size)
        except OutOfMemory:
            failed = True
        if failed:
            reserved = allocator.reserved
            allocator.empty_cache()
            assert allocator.reserved == reserved
            assert reserved + size > 150 * MIB - 20 * MIB


@settings(max_examples=100, deadline=None)
@given(logs())
def test_expandable_segments_waste_at_most_their_fragments(events: list[Event]) -> None:
    allocator = ExpandableAllocator()
    for kind, identity, size in events:
        allocator.malloc(identity, size) if kind == ALLOC else allocator.free(identity)
    assert allocator.reserved % PAGE[True] == 0
    allocator.empty_cache()
    used = sum(1 for _, _, free in allocator.spans() if not free)
    assert allocator.reserved <= allocator.allocated + 2 * used * PAGE[False]


def test_expandable_segments_join_what_separate_segments_cannot() -> None:
    events: list[Event] = [(ALLOC, 1, 40 * MIB), (ALLOC, 2, 40 * MIB), (FREE, 1, 0), (FREE, 2, 0), (ALLOC, 3, 80 * MIB)]
    assert replay(events).peak_reserved == 160 * MIB
    allocator = ExpandableAllocator()
    for kind, identity, size in events:
        allocator.malloc(identity, size) if kind == ALLOC else allocator.free(identity)
    assert allocator.peak_reserved == 80 * MIB


def test_max_split_size_keeps_large_blocks_whole() -> None:
    small_after_large: list[Event] = [(ALLOC, 1, 100 * MIB), (FREE, 1, 0), (ALLOC, 2, 30 * MIB)]
    plain, kept = CachingAllocator(), CachingAllocator(None, AllocatorConf(64 * MIB))
    for memory in (plain, kept):
        for kind, identity, size in small_after_large:
            memory.malloc(identity, size) if kind == ALLOC else memory.free(identity)
    assert plain.reserved == 100 * MIB
    assert kept.reserved == 130 * MIB
    kept.malloc(3, 90 * MIB)
    assert kept.reserved == 130 * MIB
    assert kept.allocated == 130 * MIB  # the whole block, 10 MiB of it unused


@pytest.mark.parametrize(("threshold", "reserved"), [(0.0, 350 * MIB), (0.4, 250 * MIB), (0.9, 350 * MIB)])
def test_garbage_is_collected_above_the_threshold_only(threshold: float, reserved: int) -> None:
    memory = CachingAllocator(400 * MIB, AllocatorConf(garbage_collection_threshold=threshold))
    memory.malloc(1, 100 * MIB)
    memory.malloc(2, 100 * MIB)
    memory.free(1)
    memory.free(2)
    memory.malloc(3, 150 * MIB)
    assert (memory.reserved, memory.retries) == (reserved, 0)


def test_a_full_card_frees_its_cache_and_goes_on() -> None:
    rows = ((ALLOC, 1, 40 * MIB, 0.0), (FREE, 1, 0, 0.0), (ALLOC, 2, 60 * MIB, 0.0))
    log = StepLog(8, False, rows)
    assert survival(log, 8, 70 * MIB) == survival(log, 8, 70 * MIB, conf=AllocatorConf())
    assert (survival(log, 8, 70 * MIB).runs, survival(log, 8, 70 * MIB).retries) == (True, 1)
    assert not survival(log, 8, 50 * MIB).runs
    assert survival(log, 8, 200 * MIB).retries == 0


@pytest.mark.parametrize(("text", "conf"), [
    ("", AllocatorConf()),
    ("max_split_size_mb:128", AllocatorConf(128 * MIB)),
    ("expandable_segments:True, garbage_collection_threshold:0.8", AllocatorConf(None, True, 0.8)),
    ("backend:native,roundup_power2_divisions:4", AllocatorConf(roundup_divisions=4)),
])
def test_knobs_are_read_as_pytorch_reads_them(text: str, conf: AllocatorConf) -> None:
    assert AllocatorConf.parse(text) == conf


@pytest.mark.parametrize(("text", "words"), [
    ("max_split_size_mb", "NAME:VALUE"), ("max_split_size_mb:10", "more than 20"), ("max_split:128", "did you mean max_split_size_mb"),
    ("garbage_collection_threshold:1.5", "between 0 and 1"), ("expandable_segments:yes", "True or False"),
    ("backend:cudaMallocAsync", "not modelled"), ("max_split_size_mb:many", "not a number"), ("roundup_power2_divisions:3", "power of two"),
])
def test_a_wrong_knob_is_one_sentence(text: str, words: str) -> None:
    with pytest.raises(BadInput, match=words) as caught:
        AllocatorConf.parse(text)
    assert "\n" not in str(caught.value)


@given(st.integers(1, 200 * MIB), st.sampled_from([2, 4, 8, 16]))
def test_rounding_to_divisions_of_a_power_of_two(size: int, divisions: int) -> None:
    rounded = AllocatorConf(roundup_divisions=divisions).rounded(size)
    assert rounded >= size
    assert rounded <= size + max(512, (1 << size.bit_length()) // divisions)
