"""Where a tensor lives, as scripts ask for it and see it: ``.to("cuda")``, ``device="cuda"``, ``x.device``, ``x.cpu()``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

from ischeduler.emulator import distributed
from ischeduler.emulator.device import Devices, EmulatedDevice
from ischeduler.emulator.replay import Replay
from ischeduler.emulator.timing import Timing

_SMALL_BYTES = 65_536
"""Uploads up to this size, and all parameters, carry their contents along; larger inputs do not: nothing reads them."""


class Places(TorchFunctionMode):
    """Makes ``cuda`` a place. Everything else is torch's own."""

    def __init__(self, devices: Devices, timing: Timing, replay: Replay) -> None:
        super().__init__()
        self._devices, self._timing, self._replay = devices, timing, replay
        self._in_backward = False
        tensor: Any = torch.Tensor
        self._special: dict[Any, Callable[..., Any]] = {
            tensor.device.__get__: self._device, tensor.is_cuda.__get__: self._is_cuda, tensor.is_cpu.__get__: self._is_cpu,
            tensor.get_device: self._get_device, tensor.cuda: self._cuda, tensor.cpu: self._cpu, tensor.to: self._to,
            tensor.numpy: self._host_first, tensor.tolist: self._host_first, tensor.__repr__: self._shown,
            tensor.__array__: self._host_first, tensor.backward: self._backward, torch.autograd.backward: self._backward,
            tensor.pin_memory: lambda func, args, kwargs: args[0], tensor.is_pinned: lambda func, args, kwargs: False,
        }  # fmt: skip

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        special = self._special.get(func)
        if special is not None:
            return special(func, args, kwargs)
        wanted = kwargs.get("device")
        if wanted is None:
            return func(*args, **kwargs)
        device = self._devices.named(wanted)
        if device is None:
            return func(*args, **kwargs)
        return self._made_there(func, args, kwargs, device)

    # What is asked of a tensor

    def _device(self, func: Any, args: Any, kwargs: Any) -> torch.device:
        found = self._devices.of(args[0]) if _has_storage(args[0]) else None
        return func(*args) if found is None else torch.device("cuda", found.index)

    def _is_cuda(self, func: Any, args: Any, kwargs: Any) -> bool:
        return _has_storage(args[0]) and self._devices.of(args[0]) is not None

    def _is_cpu(self, func: Any, args: Any, kwargs: Any) -> bool:
        return func(*args) and not self._is_cuda(func, args, kwargs)

    def _get_device(self, func: Any, args: Any, kwargs: Any) -> int:
        found = self._devices.of(args[0])
        return func(*args) if found is None else found.index

    # Moving

    def _cuda(self, func: Any, args: Any, kwargs: Any) -> torch.Tensor:
        where = args[1] if len(args) > 1 else kwargs.get("device")
        device = self._devices.named("cuda" if where is None else where)
        if device is None:
            raise RuntimeError(f"Invalid device, must be cuda device but got {where}")
        return self._move(args[0], device, waits=not (args[2] if len(args) > 2 else kwargs.get("non_blocking", False)))

    def _cpu(self, func: Any, args: Any, kwargs: Any) -> torch.Tensor:
        return self._download(args[0]) if self._devices.of(args[0]) is not None else func(*args, **kwargs)

    def _to(self, func: Any, args: Any, kwargs: Any) -> torch.Tensor:
        tensor, rest = args[0], list(args[1:])
        if rest and isinstance(rest[0], torch.Tensor):
            other = self._devices.of(rest[0])
            rest[:1] = [torch.device("cpu") if other is None else torch.device("cuda", other.index), rest[0].dtype]
        wanted = kwargs.get("device", rest[0] if rest and isinstance(rest[0], (str, int, torch.device)) else None)
        here = self._devices.of(tensor)
        if wanted is None:
            return func(tensor, *rest, **kwargs)
        there = self._devices.named(wanted)
        if here is None and there is None:
            return func(tensor, *rest, **kwargs)
        rest = [torch.device("cpu") if i == 0 and isinstance(r, (str, int, torch.device)) else r for i, r in enumerate(rest)]
        kwargs = {k: torch.device("cpu") if k == "device" else v for k, v in kwargs.items()}
        if there is None:
            return func(self._download(tensor), *rest, **kwargs)
        changed = func(tensor, *rest, **kwargs)  # the dtype, where one is given
        if there is here:
            return changed
        return self._move(changed, there, waits=not kwargs.get("non_blocking", False))

    def _move(self, tensor: torch.Tensor, device: EmulatedDevice, *, waits: bool) -> torch.Tensor:
        here = self._devices.of(tensor)
        if here is device:
            return tensor
        with self._devices.host:
            size_bytes = tensor.numel() * tensor.element_size()
            keeps = tensor.requires_grad or size_bytes <= _SMALL_BYTES or isinstance(tensor, torch.nn.Parameter)
            out = tensor.clone() if keeps else torch.empty_like(tensor)
            device.book(out, real=keeps)
            self._timing.upload(device, tensor, waits=waits and size_bytes > _SMALL_BYTES)  # CUDA stages small copies and goes on
            return out

    def _download(self, tensor: torch.Tensor) -> torch.Tensor:
        device = self._devices.of(tensor)
        assert device is not None
        self._timing.download(device, tensor.numel() * tensor.element_size())
        out = torch.zeros(tuple(tensor.shape), dtype=tensor.dtype)
        if device.is_real(tensor):
            with _disable_current_modes():
                out.copy_(tensor.detach())
        return out

    def _host_first(self, func: Any, args: Any, kwargs: Any) -> Any:
        tensor = args[0]
        if self._devices.of(tensor) is None:
            return func(*args, **kwargs)
        if func is torch.Tensor.numpy or func is torch.Tensor.__array__:
            raise TypeError(
                f"can't convert cuda:{self._get_device(None, (tensor,), {})} device type tensor to numpy. "
                "Use Tensor.cpu() to copy the tensor to host memory first."
            )
        return func(self._download(tensor), *args[1:], **kwargs)

    def _shown(self, func: Any, args: Any, kwargs: Any) -> str:
        tensor = args[0]
        device = self._devices.of(tensor) if _has_storage(tensor) else None
        if device is None:
            return func(*args, **kwargs)
        return f"{func(self._download(tensor.detach()))[:-1]}, device='cuda:{device.index}')"

    # Making

    def _made_there(self, func: Any, args: Any, kwargs: Any, device: EmulatedDevice) -> Any:
        out = func(*args, **{**kwargs, "device": "cpu"})
        if isinstance(out, torch.Tensor):
            device.book(out, real=True)
        elif isinstance(out, torch.nn.Module):
            for tensor in (*out.parameters(), *out.buffers()):
                device.book(tensor, real=True)
        return out

    def _backward(self, func: Any, args: Any, kwargs: Any) -> Any:
        first = args[0] if args else kwargs.get("tensors")
        tensor = first if isinstance(first, torch.Tensor) else next(iter(first or ()), None)
        device = self._devices.of(tensor) if isinstance(tensor, torch.Tensor) else None
        if device is None or self._in_backward:
            return func(*args, **kwargs)  # Tensor.backward calls autograd.backward
        before, self._in_backward = device.clock.busy_s, True
        waits_for_others = contextlib.nullcontext() if distributed.is_used() else self._devices.host
        try:
            with waits_for_others:
                out = func(*args, **kwargs)
        finally:
            self._in_backward = False
        self._timing.backward(device)
        self._replay.backward_cost(device.clock.busy_s - before)
        return out


def _has_storage(tensor: Any) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided and not tensor.is_meta
