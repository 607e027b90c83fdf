"""An epoch as overlapping stages: read and decode, copy to the device, compute. Pure.

Loader processes, the copy engine and the device work at the same time on different batches (PyTorch's DataLoader with workers and
pinned memory), so the slowest stage sets the pace and the others only fill the pipe once. Without workers the main process
loads between steps; without pinned memory the copy waits for the step: then the stages add up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ischeduler.core.errors import BadInput

STORAGE_BYTES_S = 5e8
"""One job's share of a busy parallel file system."""
TRANSFER_BYTES_S = 1.2e10
"""PCIe 3.0 x16, pinned memory."""
_NUMBERS = ("loader_workers", "sample_bytes", "decode_s", "storage_bytes_s", "transfer_bytes_s")


@dataclass(frozen=True, slots=True)
class Input:
    """How data reaches the device. Bytes of one sample on storage and on the device; ``decode_s`` CPU seconds for one sample.

    ``storage_bytes_s`` is one job's share of the file system; ``transfer_bytes_s`` host to device (PCIe 3.0 x16: about 12e9
    pinned, half of that pageable).
    """

    stored_bytes: float = 0.0
    device_bytes: float = 0.0
    decode_s: float = 0.0
    workers: int = 0
    storage_bytes_s: float = STORAGE_BYTES_S
    transfer_bytes_s: float = TRANSFER_BYTES_S
    pinned: bool = True

    @classmethod
    def of_options(cls, options: Mapping[str, str], device_bytes: float) -> Input | None:
        """From a workload's options ``loader_workers``, ``sample_bytes``, ``decode_s``, ``storage_bytes_s``, ``transfer_bytes_s``,
        ``pin_memory``; None when nothing is said of loading. BadInput on a figure that is none.
        """
        given = {name: _number(name, options[name]) for name in _NUMBERS if name in options}
        if not given:
            return None
        return cls(
            stored_bytes=given.get("sample_bytes", device_bytes), device_bytes=device_bytes, decode_s=given.get("decode_s", 0.0),
            workers=int(given.get("loader_workers", 0)), storage_bytes_s=given.get("storage_bytes_s") or STORAGE_BYTES_S,
            transfer_bytes_s=given.get("transfer_bytes_s") or TRANSFER_BYTES_S,
            pinned=options.get("pin_memory", "true").strip().lower() not in ("false", "0", "no"),
        )


@dataclass(frozen=True, slots=True)
class Stages:
    """Seconds a batch needs in each stage."""

    load_s: float
    copy_s: float
    compute_s: float
    workers: int = 0
    pinned: bool = True

    @property
    def step_s(self) -> float:
        """Seconds from one batch to the next once the pipe is full."""
        work = max(self.copy_s, self.compute_s) if self.pinned else self.copy_s + self.compute_s
        return max(self.load_s, work) if self.workers else self.load_s + work

    @property
    def bottleneck(self) -> str:
        """The stage that sets the pace: 'loading', 'copying' or 'computing'."""
        stages = {"loading": self.load_s, "copying": self.copy_s, "computing": self.compute_s}
        return max(stages, key=lambda name: stages[name])

    @property
    def first_s(self) -> float:
        """Seconds to the end of the first step: it goes through every stage, and one worker alone makes its batch."""
        return self.load_s * max(1, self.workers) + self.copy_s + self.compute_s

    def epoch_s(self, steps: int) -> float:
        """Seconds of an epoch of so many steps, first fill included."""
        return 0.0 if steps < 1 else self.first_s + (steps - 1) * self.step_s


def stages(data: Input, batch: int, compute_s: float, cores: int | None = None) -> Stages:
    """The stages of one device's batch. More workers than cores only share them."""
    if batch < 1 or compute_s < 0:
        raise BadInput(f"A batch of {batch} samples computed in {compute_s} s is impossible; give at least one sample and no less than 0 s.")
    at_once = min(data.workers, cores) if cores else data.workers
    decode = batch * data.decode_s / max(1, at_once)
    read = batch * data.stored_bytes / data.storage_bytes_s
    speed = data.transfer_bytes_s if data.pinned else data.transfer_bytes_s / 2
    load = max(read, decode) if data.workers else read + decode
    return Stages(load, batch * data.device_bytes / speed, compute_s, at_once, data.pinned)


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if value < 0:
        raise BadInput(f"The option {name} cannot be '{text}'; give a number that is not negative.")
    return value
