"""The caching allocator with ``expandable_segments:True``: one growing address range for small and one for large requests.

Memory is mapped in pages (2 MiB for small requests, 20 MiB for large ones) at the end of the range or back into a hole that
was given back; free space is always split; a full card gives back every page that is wholly free. Source: PyTorch,
c10/cuda/CUDACachingAllocator.cpp (ExpandableSegment, try_allocate_expandable_block, unmap_block).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ischeduler.estimators.memory.allocator import MIB, SMALL_REQUEST, OutOfMemory
from ischeduler.estimators.memory.allocator_conf import AllocatorConf

PAGE = {True: 2 * MIB, False: 20 * MIB}


@dataclass(slots=True)
class _Span:
    address: int
    size: int
    used: bool


class _Range:
    """One address range: used and free spans without gaps, and which pages are mapped."""

    def __init__(self, page: int) -> None:
        self.page = page
        self.spans: list[_Span] = []
        self.mapped: set[int] = set()

    def pages(self, address: int, size: int) -> Iterable[int]:
        return range(address // self.page, -(-(address + size) // self.page))

    def missing(self, address: int, size: int) -> list[int]:
        return [p for p in self.pages(address, size) if p not in self.mapped]

    def place(self, size: int) -> tuple[int | None, int]:
        """(index of the free span to use, or None for the end; its address): mapped space first, the smallest that fits."""
        fits = [(len(self.missing(s.address, size)), s.size, s.address, i)
                for i, s in enumerate(self.spans) if not s.used and s.size >= size]
        if fits:
            best = min(fits)
            return best[3], best[2]
        last = self.spans[-1] if self.spans else None
        if last is not None and not last.used:
            return len(self.spans) - 1, last.address
        return None, (last.address + last.size if last else 0)

    def take(self, index: int | None, address: int, size: int) -> _Span:
        taken = _Span(address, size, True)
        if index is None:
            self.spans.append(taken)
            return taken
        old = self.spans[index]
        rest = [_Span(address + size, old.size - size, False)] if old.size > size else []
        self.spans[index : index + 1] = [taken, *rest]
        return taken

    def release(self, span: _Span) -> None:
        span.used = False
        place = next(i for i, s in enumerate(self.spans) if s is span)
        for first in (place, place - 1):
            if 0 <= first < len(self.spans) - 1 and not self.spans[first].used and not self.spans[first + 1].used:
                self.spans[first].size += self.spans.pop(first + 1).size

    def unmap_free(self) -> int:
        """Give wholly free pages back; the bytes."""
        held = {page for s in self.spans if s.used for page in self.pages(s.address, s.size)}
        gone = self.mapped - held
        self.mapped &= held
        return len(gone) * self.page


class ExpandableAllocator:
    """The same interface as the plain allocator: ``allocated``, ``reserved`` and their peaks in bytes."""

    def __init__(self, capacity: int | None = None, conf: AllocatorConf | None = None) -> None:
        self.capacity = capacity
        self.conf = conf or AllocatorConf(expandable_segments=True)
        self.allocated = self.reserved = self.peak_allocated = self.peak_reserved = self.retries = 0
        self._ranges = {small: _Range(page) for small, page in PAGE.items()}
        self._held: dict[int, tuple[_Range, _Span]] = {}

    def malloc(self, identity: int, size_bytes: int) -> None:
        """Serve a request; OutOfMemory when the capacity does not allow it. Zero bytes take nothing."""
        if size_bytes <= 0:
            return
        size = self.conf.rounded(size_bytes)
        part = self._ranges[size <= SMALL_REQUEST]
        index, address = part.place(size)
        if not self._map(part, address, size):
            self.retries += 1
            self.empty_cache()
            index, address = part.place(size)
            if not self._map(part, address, size):
                raise OutOfMemory(size, self.reserved, self.capacity or 0)
        self._held[identity] = part, part.take(index, address, size)
        self.allocated += size
        self.peak_allocated = max(self.peak_allocated, self.allocated)

    def free(self, identity: int) -> None:
        """Give a request's block back; an unknown identity (zero bytes) is no error."""
        part, span = self._held.pop(identity, (None, None))
        if part is not None and span is not None:
            self.allocated -= span.size
            part.release(span)

    def empty_cache(self) -> None:
        """Give every wholly free page back to the driver."""
        self.reserved -= sum(part.unmap_free() for part in self._ranges.values())

    def spans(self) -> list[tuple[int, int, bool]]:
        """(address, size, free) of every block by address, the large range beyond the small one: for checks."""
        beyond = 1 << 60
        return [(s.address + (0 if small else beyond), s.size, not s.used)
                for small in (True, False) for s in self._ranges[small].spans]

    def _map(self, part: _Range, address: int, size: int) -> bool:
        missing = part.missing(address, size)
        wanted = len(missing) * part.page
        if self.capacity is not None and self.reserved + wanted > self.capacity:
            return False
        part.mapped.update(missing)
        self.reserved += wanted
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return True
