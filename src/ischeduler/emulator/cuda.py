"""``torch.cuda`` as scripts expect it where there are cards."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch

from ischeduler.core.sizes import MIB
from ischeduler.emulator.device import Devices, EmulatedDevice

CAPABILITIES = {
    "kepler": (3, 7), "pascal": (6, 0), "volta": (7, 0), "turing": (7, 5), "ampere": (8, 0), "ada": (8, 9), "hopper": (9, 0),
    "blackwell": (10, 0),
}


def patch(devices: Devices, name: str, capability: tuple[int, int], units: int) -> None:
    """Replace torch.cuda's questions and commands by those of the emulated cards."""
    cuda: Any = torch.cuda

    def at(device: Any = None) -> EmulatedDevice:
        found = devices.named("cuda" if device is None else device)
        if found is None:
            raise ValueError(f"Expected a cuda device, but got: {device}")
        return found

    class Event:
        """A moment on the device's clock."""

        def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
            self.at_s: float | None = None

        def record(self, stream: Any = None) -> None:
            """The moment when all that is queued now will be done."""
            self.at_s = at().clock.done_at()

        def synchronize(self) -> None:
            """Wait for it."""
            if self.at_s is not None:
                devices.host.wait_until(self.at_s)

        def wait(self, stream: Any = None) -> None:
            """One stream: always in order."""

        def query(self) -> bool:
            """Whether it has passed."""
            return self.at_s is None or devices.host.now() >= self.at_s

        def elapsed_time(self, end_event: Event) -> float:
            """Milliseconds between two moments."""
            if self.at_s is None or end_event.at_s is None:
                raise ValueError("Both events must be recorded before calculating elapsed time.")
            return (end_event.at_s - self.at_s) * 1e3

    class Stream:
        """All streams of an emulated card are one."""

        def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
            self.device = torch.device("cuda", at(device).index)
            self.cuda_stream = 0

        def synchronize(self) -> None:
            """Wait for all work."""
            at(self.device).clock.synchronize()

        def wait_stream(self, stream: Any) -> None:
            """Always in order."""

        def wait_event(self, event: Any) -> None:
            """Always in order."""

        def record_event(self, event: Any = None) -> Any:
            """See :class:`Event`."""
            event = event or Event()
            event.record(self)
            return event

        def query(self) -> bool:
            """Whether all work is done."""
            return at(self.device).clock.done_at() <= devices.host.now()

        def __enter__(self) -> Stream:
            return self

        def __exit__(self, *args: object) -> None:
            return None

    @contextlib.contextmanager
    def as_current(device: Any) -> Iterator[None]:
        before, devices.current = devices.current, at(device).index if device is not None else devices.current
        try:
            yield
        finally:
            devices.current = before

    def choose(device: Any) -> None:
        devices.current = at(device).index

    def statistics(device: Any = None) -> dict[str, int]:
        held = at(device).allocator
        return {
            "allocated_bytes.all.current": held.allocated, "allocated_bytes.all.peak": held.peak_allocated,
            "reserved_bytes.all.current": held.reserved, "reserved_bytes.all.peak": held.peak_reserved,
            "num_alloc_retries": held.retries, "num_ooms": 0,
        }  # fmt: skip

    def forget_peaks(device: Any = None) -> None:
        held = at(device).allocator
        held.peak_allocated, held.peak_reserved = held.allocated, held.reserved

    def properties(device: Any = None) -> SimpleNamespace:
        return SimpleNamespace(
            name=name, total_memory=at(device).capacity, major=capability[0], minor=capability[1], multi_processor_count=units,
            is_integrated=False, is_multi_gpu_board=False, warp_size=32, gcnArchName="",
        )  # fmt: skip

    count = len(devices.all)
    values: dict[str, Any] = {
        "is_available": lambda: True, "device_count": lambda: count, "is_initialized": lambda: True, "init": lambda: None,
        "_lazy_init": lambda: None, "current_device": lambda: devices.current, "set_device": choose, "device": as_current,
        "get_device_name": lambda device=None: name, "get_device_capability": lambda device=None: capability,
        "get_device_properties": properties, "synchronize": lambda device=None: at(device).clock.synchronize(),
        "mem_get_info": lambda device=None: (max(0, at(device).free_bytes), at(device).capacity),
        "memory_allocated": lambda device=None: at(device).allocator.allocated,
        "max_memory_allocated": lambda device=None: at(device).allocator.peak_allocated,
        "memory_reserved": lambda device=None: at(device).allocator.reserved,
        "max_memory_reserved": lambda device=None: at(device).allocator.peak_reserved,
        "memory_stats": statistics, "reset_peak_memory_stats": forget_peaks, "reset_max_memory_allocated": forget_peaks,
        "empty_cache": lambda: [d.empty_cache() for d in devices.all] and None,
        "memory_summary": lambda device=None, abbreviated=False: "\n".join(f"{k}: {v / MIB:.1f} MiB" for k, v in statistics(device).items()),
        "manual_seed": lambda seed: None, "manual_seed_all": lambda seed: None, "seed": lambda: None, "seed_all": lambda: None,
        "initial_seed": lambda: 0, "get_rng_state": lambda device="cuda": torch.zeros(16, dtype=torch.uint8),
        "get_rng_state_all": lambda: [torch.zeros(16, dtype=torch.uint8) for _ in devices.all],
        "set_rng_state": lambda state, device="cuda": None, "set_rng_state_all": lambda states: None,
        "is_bf16_supported": lambda including_emulation=True: including_emulation or capability >= (8, 0),
        "can_device_access_peer": lambda device, peer: True, "utilization": lambda device=None: 100,
        "Event": Event, "Stream": Stream, "current_stream": lambda device=None: Stream(device),
        "default_stream": lambda device=None: Stream(device), "stream": lambda stream: contextlib.nullcontext(),
        "set_stream": lambda stream: None, "get_arch_list": lambda: [f"sm_{capability[0]}{capability[1]}"],
        "is_current_stream_capturing": lambda: False, "ipc_collect": lambda: None,
    }  # fmt: skip
    for key, value in values.items():
        setattr(cuda, key, value)
        for module in (getattr(cuda, "memory", None), getattr(cuda, "random", None)):
            if module is not None and key in vars(module):
                setattr(module, key, value)
    torch.version.cuda = torch.version.cuda or "12.6"
    _patch_rest()


def _patch_rest() -> None:
    """What asks for CUDA elsewhere: autocast, loaders' pinned memory, loading of checkpoints, and the generic accelerator."""
    autocast: Any = torch.autocast
    begin = autocast.__init__

    def on_host(self: Any, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: Any = None) -> None:
        """Autocast of the host's tensors, which those on emulated cards are; CUDA's default is half precision."""
        kind = "cpu" if device_type == "cuda" else device_type
        begin(self, kind, dtype if dtype is not None or device_type != "cuda" else torch.float16, enabled, cache_enabled)

    autocast.__init__ = on_host
    loader: Any = torch.utils.data.DataLoader
    start = loader.__init__

    def unpinned(self: Any, *args: Any, **kwargs: Any) -> None:
        start(self, *args, **{**kwargs, "pin_memory": False, "pin_memory_device": ""})

    loader.__init__ = unpinned
    load = torch.load

    def to_host(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        cards = isinstance(map_location, (str, torch.device)) and str(map_location).startswith("cuda")
        return load(f, "cpu" if cards or isinstance(map_location, dict) else map_location, *args, **kwargs)

    torch.load = to_host
