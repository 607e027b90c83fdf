"""What happens to tensors on an emulated device: nothing is computed; shapes, memory and time are as on the card."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ischeduler.emulator.device import Devices, EmulatedDevice
from ischeduler.emulator.timing import Timing
from ischeduler.estimators.memory import torch_private

_LONG = 16
_SMALL = 4096
"""Results of up to this many elements are zeros; larger ones stay untouched memory, which nobody pays for."""
_READS = ("aten::_local_scalar_dense", "aten::equal", "aten::is_nonzero")
_TRUE_COPY = "aten::copy_"


@dataclass(frozen=True, slots=True)
class _New:
    """A result of its own."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class _Same:
    """A result that is the argument at that place."""

    place: int


class Operations(TorchDispatchMode):
    """Takes every operation of which an argument lives on a card; leaves the others alone."""

    def __init__(self, devices: Devices, timing: Timing) -> None:
        super().__init__()
        self._devices, self._timing = devices, timing
        self._recipes: dict[Any, tuple[Any, ...] | None] = {}
        self.computed: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        device = self._device_of(args, kwargs)
        if device is None:
            return func(*args, **kwargs)
        if torch_private.is_view(func):
            return func(*args, **kwargs)
        name = torch_private.operation_name(func)
        with self._devices.host:
            if name in _READS:
                return self._read(func, name, args, device)
            if name == _TRUE_COPY and self._copies_from_host(args):
                device.mark_real(args[0])
                return func(*args, **kwargs)
            return self._pretend(func, name, args, kwargs, device)

    def _device_of(self, args: Any, kwargs: Any) -> EmulatedDevice | None:
        for tensor in _tensors((args, tuple(kwargs.values()))):
            found = self._devices.of(tensor)
            if found is not None:
                return found
        return None

    def _copies_from_host(self, args: Any) -> bool:
        source = args[1]
        return isinstance(source, torch.Tensor) and self._devices.of(source) is None and source.dim() > 0

    def _read(self, func: Any, name: str, args: Any, device: EmulatedDevice) -> Any:
        device.clock.synchronize()
        if device.is_real(args[0]):
            return func(*args)
        if name != "aten::_local_scalar_dense":
            return False
        dtype = args[0].dtype
        return False if dtype is torch.bool else 0.0 if dtype.is_floating_point else 0

    def _pretend(self, func: Any, name: str, args: Any, kwargs: Any, device: EmulatedDevice) -> Any:
        key = _key(func, args, kwargs)
        recipe = self._recipes.get(key, _UNKNOWN)
        if recipe is _UNKNOWN:
            recipe = self._recipes[key] = self._learn(func, args, kwargs)
        if recipe is None:  # nobody knows the result's shape without its values: computed, on whatever the memory holds
            self.computed[name] = self.computed.get(name, 0) + 1
            out = func(*args, **kwargs)
            for tensor in _tensors(out):
                device.book(tensor)
        else:
            out = _made(recipe, args, device)
        self._timing.operation(device, key, func, name, args, kwargs, out)
        return out

    def _learn(self, func: Any, args: Any, kwargs: Any) -> tuple[Any, ...] | None:
        """What an operation returns, from its schema and a run on tensors without memory."""
        schema = func._schema
        try:
            out = func(*_on_meta(args), **_on_meta(kwargs))
        except (NotImplementedError, RuntimeError):
            return None
        single = not isinstance(out, (tuple, list))
        outs = (out,) if single else tuple(out)
        if any(not isinstance(o, torch.Tensor) and o is not None for o in outs):
            return self._lists(schema, out)
        shapes: list[Any] = []
        for place, result in enumerate(outs if out is not None else ()):
            if result is None:  # a gradient that nobody asked for
                shapes.append(None)
                continue
            written = _written_argument(schema, place)
            shapes.append(_Same(written) if written is not None else _New(tuple(result.shape), result.stride(), result.dtype))
        return (None if out is None else "one" if single else "many", tuple(shapes))

    @staticmethod
    def _lists(schema: Any, out: Any) -> tuple[Any, ...] | None:
        """A list of new tensors, as of the foreach operations; anything else is computed."""
        rows = out if isinstance(out, (list, tuple)) else ()
        if len(schema.returns) == 1 and rows and all(isinstance(o, torch.Tensor) for o in rows):
            return ("many", tuple(_New(tuple(o.shape), o.stride(), o.dtype) for o in rows))
        return None


_UNKNOWN: Any = object()


def _made(recipe: tuple[Any, ...], args: Any, device: EmulatedDevice) -> Any:
    kind, shapes = recipe
    outs = [None if s is None else args[s.place] if isinstance(s, _Same) else device.book(_empty(s)) for s in shapes]
    return None if kind is None else outs[0] if kind == "one" else tuple(outs)


def _empty(shape: _New) -> torch.Tensor:
    out = torch.empty_strided(shape.size, shape.stride, dtype=shape.dtype)
    if out.numel() <= _SMALL:
        out.zero_()
    return out


def _written_argument(schema: Any, place: int) -> int | None:
    """The argument that the result at that place is, where the operation writes into it."""
    alias = schema.returns[place].alias_info if place < len(schema.returns) else None
    if alias is None or not alias.is_write:
        return None
    for number, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.before_set & alias.before_set:
            return number
    return None


def _on_meta(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(tuple(value.shape), value.stride(), dtype=value.dtype, device="meta")
    if isinstance(value, dict):
        return {k: torch.device("meta") if k == "device" and v is not None else _on_meta(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_on_meta(v) for v in value)
    return value


def _key(func: Any, args: Any, kwargs: Any) -> Any:
    if args and isinstance(args[0], (list, tuple)) and len(args[0]) > _LONG and _in_place(func):
        ends = _part((args[0][0], args[0][-1]))
        return (func, len(args[0]), ends, sum(t.numel() for t in args[0]))  # a long list of parameters, and nothing is returned
    return (func, _part(args), _part(tuple(kwargs.items())) if kwargs else ())


@cache
def _in_place(func: Any) -> bool:
    return not func._schema.returns


def _part(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return (tuple(value.shape), value.stride(), value.dtype)
    if isinstance(value, (list, tuple)):
        return tuple(_part(v) for v in value)
    return (type(value), value) if isinstance(value, (int, float, bool)) else value if _hashable(value) else repr(value)


def _hashable(value: Any) -> bool:
    return getattr(type(value), "__hash__", None) is not None


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            if isinstance(item, (torch.Tensor, list, tuple)):
                yield from _tensors(item)


