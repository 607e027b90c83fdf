"""Where going through a model operation by operation costs the host more than the card would need, the model is not gone through.

A model's first calls run as always and are measured. If the host is too slow to keep the emulated card busy, later calls of the same
model with inputs of the same shape return results of the same shape at once, and their backward pass gives every parameter a gradient:
the card's time is what the measured calls took (or the table says), its peak memory what they needed. What a model's own code does
besides (counters, prints in ``forward``) is left out from then on, which is said once.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree

from ischeduler.emulator import distributed
from ischeduler.emulator.device import Devices, EmulatedDevice
from ischeduler.emulator.timing import Timing, say

MEASURED_CALLS = 3
HOST_SHARE = 0.3
"""A model is replayed where the host needs more than this share of the card's time: other work shares the host."""
_WRAPPERS = ("DistributedDataParallel", "FullyShardedDataParallel", "DataParallel")


@dataclass(slots=True)
class _Seen:
    """One model with inputs of one shape."""

    calls: int = 0
    began: tuple[float, float, float] = (0.0, 0.0, 0.0)
    forward_s: float = 0.0
    backward_s: float = 0.0
    tree: Any = None
    leaves: list[Any] = field(default_factory=list)
    reached: list[bool] = field(default_factory=list)
    replayed: bool = False


class Replay:
    """Watches the outermost call of every model in training; ``backward_s`` tells it what the last backward pass cost."""

    def __init__(self, devices: Devices, timing: Timing) -> None:
        self._devices, self._timing = devices, timing
        self._seen: dict[Any, _Seen] = {}
        self._inside = False
        self._last: _Seen | None = None
        self.models: set[str] = set()

    def install(self) -> None:
        """Look at every module's call."""
        module: Any = torch.nn.Module
        plain = module.__call__

        def call(itself: Any, *args: Any, **kwargs: Any) -> Any:
            if self._inside or not torch.is_grad_enabled() or not itself.training or type(itself).__name__ in _WRAPPERS:
                return plain(itself, *args, **kwargs)
            device = self._device(itself, args, kwargs)
            if device is None:
                return plain(itself, *args, **kwargs)
            self._inside = True
            try:
                return self._call(plain, itself, args, kwargs, device)
            finally:
                self._inside = False

        module.__call__ = call

    def backward_cost(self, seconds: float) -> None:
        """A backward pass queued that much work."""
        if self._last is not None and not self._last.replayed:
            self._last.backward_s = seconds

    def _device(self, model: Any, args: Any, kwargs: Any) -> EmulatedDevice | None:
        first = next(model.parameters(), None)
        if first is None:
            return None
        given = [t for t in _pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        device = self._devices.of(first)
        return device if device is not None and given and not any(t.requires_grad for t in given) else None

    def _call(self, plain: Any, model: Any, args: Any, kwargs: Any, device: EmulatedDevice) -> Any:
        key = (id(model), tuple(_shape(v) for v in _pytree.tree_leaves((args, kwargs))), torch.is_autocast_enabled("cpu"))
        seen = self._seen.setdefault(key, _Seen())
        self._last = seen
        if seen.calls >= MEASURED_CALLS and not seen.replayed and self._too_slow(seen.began, device):
            seen.replayed = True
            self._tell(model)
            self._devices.host.forgive()
        if seen.replayed:
            with self._devices.host:
                return self._again(seen, model, device)
        if seen.calls % 2:  # looked at over two calls each; the first learns shapes, which takes its own time
            seen.began = self._spent(device)
        before = device.clock.busy_s
        out = plain(model, *args, **kwargs)
        seen.calls += 1
        seen.forward_s = device.clock.busy_s - before
        leaves, seen.tree = _pytree.tree_flatten(out)
        seen.leaves = [_leaf(v) for v in leaves]
        return out

    def _spent(self, device: EmulatedDevice) -> tuple[float, float, float]:
        """Processor time of this thread, time spent emulating (longer on a loaded host), the card's time."""
        return time.thread_time(), self._devices.host.own_s, device.clock.busy_s

    def _too_slow(self, began: tuple[float, float, float], device: EmulatedDevice) -> bool:
        processor_s, own_s, busy_s = (now - then for now, then in zip(self._spent(device), began, strict=True))
        return busy_s > 0 and max(processor_s, own_s) > HOST_SHARE * busy_s

    def _tell(self, model: Any) -> None:
        name = type(model).__name__
        if name not in self.models:
            self.models.add(name)
            say(f"this host is too slow to go through {name} operation by operation; it is replayed from now on")

    def _again(self, seen: _Seen, model: Any, device: EmulatedDevice) -> Any:
        with torch._C.DisableTorchFunction():  # nobody need see these questions, and there are many
            parameters = [p for p in model.parameters() if p.requires_grad]
            if not seen.reached:
                seen.reached = [p.grad is not None for p in parameters]
                seen.reached = seen.reached if any(seen.reached) else [True] * len(parameters)
        self._timing.replayed_forward(device, seen.forward_s)
        tensors = iter(_Replayed.apply(seen, device, self._timing, *parameters))
        leaves = [next(tensors) if isinstance(leaf, _Tensor) else leaf for leaf in seen.leaves]
        return _pytree.tree_unflatten(leaves, seen.tree)


@dataclass(frozen=True, slots=True)
class _Tensor:
    size: tuple[int, ...]
    dtype: torch.dtype
    differentiable: bool


def _leaf(value: Any) -> Any:
    return _Tensor(tuple(value.shape), value.dtype, value.requires_grad) if isinstance(value, torch.Tensor) else value


def _shape(value: Any) -> Any:
    return (tuple(value.shape), value.dtype) if isinstance(value, torch.Tensor) else value if isinstance(value, (int, str)) else type(value)


class _Replayed(torch.autograd.Function):
    """A whole model as one node: results out of nothing, a gradient for each parameter."""

    @staticmethod
    def forward(ctx: Any, seen: _Seen, device: EmulatedDevice, timing: Timing, *parameters: torch.Tensor) -> Any:
        ctx.seen, ctx.device, ctx.timing, ctx.parameters = seen, device, timing, parameters
        results = [leaf for leaf in seen.leaves if isinstance(leaf, _Tensor)]
        with torch._C.DisableTorchFunction():
            outs = tuple(device.book(torch.empty(leaf.size, dtype=leaf.dtype)) for leaf in results)
        ctx.mark_non_differentiable(*(o for o, leaf in zip(outs, results, strict=True) if not leaf.differentiable))
        return outs

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        ctx.timing.replayed_backward(ctx.device, ctx.seen.backward_s)
        watched = distributed.is_used()
        with torch._C.DisableTorchFunction():
            made = [
                ctx.device.book(torch.empty(tuple(p.shape), dtype=p.dtype)) if reached and (watched or p.grad is None) else None
                for p, reached in zip(ctx.parameters, ctx.seen.reached, strict=True)
            ]  # a gradient that is there already stays as it is
        return (None, None, None, *made)

