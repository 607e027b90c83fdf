"""How long emulated work takes: by a table of measured steps, else operation by operation from the step-time estimator."""

from __future__ import annotations

import sys
from typing import Any, Protocol

import torch

from ischeduler.emulator.device import EmulatedDevice
from ischeduler.emulator.tables import StepTable
from ischeduler.estimators.memory import torch_private
from ischeduler.estimators.steptime.devices import Device
from ischeduler.estimators.steptime.oplog import NO_WORK, OpRow, convolution_kind, kind_of, shape_of
from ischeduler.estimators.steptime.work import kernels

_DTYPES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}


class Timing(Protocol):
    """Puts work on a device's clock. ``phase`` is forward or optimizer."""

    phase: str

    def operation(self, device: EmulatedDevice, key: Any, func: Any, name: str, args: Any, kwargs: Any, out: Any) -> None:
        """One operation was launched."""
        ...

    def upload(self, device: EmulatedDevice, tensor: torch.Tensor, *, waits: bool) -> None:
        """A tensor goes to the device."""
        ...

    def download(self, device: EmulatedDevice, size_bytes: int) -> None:
        """A result comes to the host, which waits for it."""
        ...

    def backward(self, device: EmulatedDevice) -> None:
        """A backward pass has been launched."""
        ...

    def replayed_forward(self, device: EmulatedDevice, seconds: float) -> None:
        """A model was not gone through; its forward pass takes that long."""
        ...

    def replayed_backward(self, device: EmulatedDevice, seconds: float) -> None:
        """The same of its backward pass."""
        ...


class Transfers:
    """Copies between host and device: bytes over a bandwidth. ``busy_s`` is their sum."""

    def __init__(self, bytes_s: float) -> None:
        self._bytes_s = bytes_s
        self.busy_s = 0.0

    def seconds(self, size_bytes: int) -> float:
        """One copy."""
        self.busy_s += size_bytes / self._bytes_s
        return size_bytes / self._bytes_s


class ByOperation:
    """Every operation takes what the estimator's kernels take on the card."""

    def __init__(self, card: Device, precision: str, transfers: Transfers) -> None:
        self._card, self._precision, self._transfers = card, precision, transfers
        self._seconds: dict[Any, float] = {}
        self.phase = "forward"

    def operation(self, device: EmulatedDevice, key: Any, func: Any, name: str, args: Any, kwargs: Any, out: Any) -> None:
        """See :class:`Timing`."""
        phase = "backward" if torch._C._current_graph_task_id() != -1 else self.phase
        seconds = self._seconds.get((phase, key))
        if seconds is None:
            seconds = self._seconds[phase, key] = self._price(phase, func, name, args, kwargs, out)
        device.clock.run(seconds)

    def upload(self, device: EmulatedDevice, tensor: torch.Tensor, *, waits: bool) -> None:
        """See :class:`Timing`."""
        device.clock.run(self._transfers.seconds(tensor.numel() * tensor.element_size()))
        if waits:
            device.clock.synchronize()

    def download(self, device: EmulatedDevice, size_bytes: int) -> None:
        """See :class:`Timing`."""
        device.clock.run(self._transfers.seconds(size_bytes))
        device.clock.synchronize()

    def backward(self, device: EmulatedDevice) -> None:
        """Its operations have been timed one by one."""

    def replayed_forward(self, device: EmulatedDevice, seconds: float) -> None:
        """See :class:`Timing`."""
        device.clock.run(seconds)

    def replayed_backward(self, device: EmulatedDevice, seconds: float) -> None:
        """See :class:`Timing`."""
        device.clock.run(seconds)

    def _price(self, phase: str, func: Any, name: str, args: Any, kwargs: Any, out: Any) -> float:
        row = _row(phase, func, name, args, kwargs, out)
        if row is None:
            return 0.0
        shares = self._card.coefficients.phases.get(phase) or self._card.coefficients.phases["forward"]
        total = 0.0
        for work in kernels((row,))[phase]:
            peak, mode = self._card.peak(work, self._precision)
            total += work.count * shares.kernel_seconds(work, peak, mode, self._card.bandwidth_bytes_s, self._card.units)
        return total


class ByTable:
    """Every step takes what was measured for its batch size: forward when its batch is used, backward after it.

    The batch size is the first dimension of what was uploaded last; a batch without a backward pass costs its forward alone.
    """

    def __init__(self, table: StepTable, transfers: Transfers) -> None:
        self._table, self._transfers = table, transfers
        self._batch = 0
        self._fresh = False
        self.phase = "forward"

    def operation(self, device: EmulatedDevice, key: Any, func: Any, name: str, args: Any, kwargs: Any, out: Any) -> None:
        """See :class:`Timing`."""
        if self._fresh:
            self._fresh = False
            device.clock.run(self._table.seconds("forward", self._batch))

    def upload(self, device: EmulatedDevice, tensor: torch.Tensor, *, waits: bool) -> None:
        """See :class:`Timing`."""
        if tensor.requires_grad:
            return
        if tensor.dim() >= 2:
            self._batch, self._fresh = int(tensor.shape[0]), True
            device.clock.run(self._seconds(tensor))
        if waits:
            device.clock.synchronize()

    def download(self, device: EmulatedDevice, size_bytes: int) -> None:
        """See :class:`Timing`."""
        device.clock.synchronize()

    def backward(self, device: EmulatedDevice) -> None:
        """See :class:`Timing`."""
        device.clock.run(self._table.seconds("backward", self._batch))

    def replayed_forward(self, device: EmulatedDevice, seconds: float) -> None:
        """The table knows better."""
        self.operation(device, None, None, "", (), {}, None)

    def replayed_backward(self, device: EmulatedDevice, seconds: float) -> None:
        """The table's time is added by :meth:`backward`."""

    def _seconds(self, tensor: torch.Tensor) -> float:
        if self._table.transfer:
            return self._table.seconds("transfer", self._batch)
        return self._transfers.seconds(tensor.numel() * tensor.element_size())


def _row(phase: str, func: Any, name: str, args: Any, kwargs: Any, out: Any) -> OpRow | None:
    tensors = [t for t in _flat((args, tuple(kwargs.values()))) if t.dim() > 0 or t.numel()]
    results = list(_flat(out))
    if not tensors and not results:
        return None
    size = float(sum(t.numel() * t.element_size() for t in (*tensors, *results)))
    dtype = _DTYPES.get((tensors or results)[0].dtype, "other")
    if name in ("aten::convolution", "aten::convolution_backward"):
        forward = name == "aten::convolution"
        images, weight, groups = (args[0], args[1], args[8]) if forward else (args[1], args[2], args[9])
        transposed, result = (args[6], out) if forward else (args[7], args[0])
        kind = convolution_kind(int(groups), int(images.shape[1]), tuple(weight.shape[2:]))
        passes = 1 if forward else sum(map(bool, args[10][:2]))
        spatial = images if transposed else result
        flops = 2.0 * passes * spatial.shape[0] * spatial.shape[2:].numel() * weight.numel()
    else:
        kind = kind_of(name)
        formula = torch_private.flop_formula(func)
        flops = float(formula(*args, **kwargs, out_val=out)) if formula is not None else 0.0
    return None if kind == NO_WORK else OpRow(phase, kind, dtype, flops, size, 1, shape_of(name, args, out))


def _flat(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for v in value for t in _flat(v)] if isinstance(value, (list, tuple)) else []


def say(words: str) -> None:
    """One line on standard error, marked as the emulator's."""
    print(f"isched emulate: {words}", file=sys.stderr, flush=True)
