"""One emulated card of this process: its clock, its memory, and what lives on it."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from ischeduler.core.sizes import GIB, MIB
from ischeduler.emulator.clock import DeviceClock, HostTime
from ischeduler.emulator.shared_memory import Ledger
from ischeduler.estimators.memory.allocator import CachingAllocator, OutOfMemory
from ischeduler.estimators.memory.torch_private import storage_identity


class EmulatedDevice:
    """``capacity`` is what the driver shows, in bytes; ``ledger`` is what other processes hold of it.

    ``real`` are the storages whose contents were truly written (parameters, loaded checkpoints); all others read as zeros. Operations
    in place leave contents as they were: a parameter keeps its first value.
    """

    def __init__(self, index: int, capacity: int, context_bytes: int, clock: DeviceClock, ledger: Ledger) -> None:
        self.index, self.capacity, self.clock, self.ledger = index, capacity, clock, ledger
        self.context_bytes = context_bytes
        self.allocator = CachingAllocator()
        self.real: set[int] = set()
        self._held: dict[int, int] = {}
        self._made = 0
        ledger.claim(context_bytes)

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor lives here."""
        return tensor.untyped_storage()._cdata in self._held

    def book(self, tensor: torch.Tensor, *, real: bool = False) -> torch.Tensor:
        """Take a tensor's memory of the card. torch's own OutOfMemoryError when it does not fit."""
        storage, key, size_bytes = storage_identity(tensor)
        if key in self._held:
            return tensor
        self._made += 1
        identity = self._made
        self._take(identity, size_bytes)
        self._held[key] = identity
        if real:
            self.real.add(key)
        weakref.finalize(storage, self._drop, key, identity).atexit = False
        return tensor

    def is_real(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor's contents are worth reading."""
        return tensor.untyped_storage()._cdata in self.real

    def mark_real(self, tensor: torch.Tensor) -> None:
        """Note that a tensor's contents were truly written."""
        self.real.add(tensor.untyped_storage()._cdata)

    @property
    def free_bytes(self) -> int:
        """What nobody has reserved."""
        return self.capacity - self.ledger.others() - self.allocator.reserved - self.context_bytes

    def empty_cache(self) -> None:
        """Give whole free segments back, as torch.cuda.empty_cache does."""
        give_back = getattr(self.allocator, "empty_cache", None)
        if give_back is not None:
            give_back()
            self.ledger.claim(self.context_bytes + self.allocator.reserved)

    def _take(self, identity: int, size_bytes: int) -> None:
        reserved = self.allocator.reserved
        self.allocator.capacity = self.capacity - self.context_bytes - self.ledger.others()
        try:
            self.allocator.malloc(identity, size_bytes)
        except OutOfMemory as error:
            raise torch.OutOfMemoryError(self._words(error)) from None
        if self.allocator.reserved != reserved:
            self.ledger.claim(self.context_bytes + self.allocator.reserved)

    def _drop(self, key: int, identity: int) -> None:
        if self._held.get(key) == identity:
            del self._held[key]
            self.real.discard(key)
        self.allocator.free(identity)

    def _words(self, error: OutOfMemory) -> str:
        """As torch says it, so that scripts and log scanners that look for its words find them."""
        held = self.allocator
        return (
            f"CUDA out of memory. Tried to allocate {_size(error.requested)}. GPU {self.index} has a total capacity of "
            f"{_size(self.capacity)} of which {_size(max(0, self.free_bytes))} is free. Of the allocated memory "
            f"{_size(held.allocated)} is allocated by PyTorch, and {_size(held.reserved - held.allocated)} is reserved by PyTorch but "
            "unallocated. (emulated device)"
        )


def _size(size_bytes: int) -> str:
    return f"{size_bytes / GIB:.2f} GiB" if size_bytes >= GIB else f"{size_bytes / MIB:.2f} MiB"


class Devices:
    """All cards of this process. The current one is where ``cuda`` without a number means."""

    def __init__(self, devices: list[EmulatedDevice], host: HostTime) -> None:
        self.all, self.host = devices, host
        self.current = 0

    def of(self, tensor: torch.Tensor) -> EmulatedDevice | None:
        """Where a tensor lives; None for a tensor on the host."""
        key = tensor.untyped_storage()._cdata
        for device in self.all:
            if key in device._held:
                return device
        return None

    def named(self, device: Any) -> EmulatedDevice | None:
        """The card that ``cuda``, ``cuda:1``, a torch.device or a number means; None for any other device. Bad numbers raise as torch's."""
        if isinstance(device, bool):
            return None
        if isinstance(device, int):
            return self._numbered(device)
        if isinstance(device, str):
            device = torch.device(device)
        if not isinstance(device, torch.device) or device.type != "cuda":
            return None
        return self.all[self.current] if device.index is None else self._numbered(device.index)

    def _numbered(self, index: int) -> EmulatedDevice:
        if not 0 <= index < len(self.all):
            raise RuntimeError("CUDA error: invalid device ordinal")
        return self.all[index]
