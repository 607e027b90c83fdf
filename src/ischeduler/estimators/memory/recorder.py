"""Watches a traced step: every allocation, every release, every operation. Runs in the tracing subprocess only."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ischeduler.estimators.memory import torch_private
from ischeduler.estimators.memory.allocator import Event, accumulate_in_place
from ischeduler.estimators.memory.shortcut import Shortcut
from ischeduler.estimators.memory.steplog import ALLOC, FREE, TAGS, WORK, ConvolutionCall, StepLog
from ischeduler.estimators.steptime.oplog import OpRow, convolution_kind, grouped, kind_of, shape_of

_DTYPES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
_TAG_OF = {"build": "weights", "input": "inputs", "optimizer": "optimizer", "backward": "temporaries"}
_MATMULS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")


class Recorder(TorchDispatchMode):
    """``events`` is the allocation log; ``sums`` the additions that may have been gradient accumulation.

    ``begin(phase)`` names what runs next; operations are logged where ``log_operations`` is set. ``live`` is the bytes now held.
    """

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = device
        self.events: list[Event] = []
        self.sums: dict[int, int] = {}
        self.tags: dict[int, int] = {}
        self.convolutions: list[ConvolutionCall] = []
        self.matmuls = 0
        self.live = 0
        self.log_operations = False
        self._phase = "build"
        self._tag = 0
        self._made = 0
        self._holder: dict[int, int] = {}
        self._shortcut = Shortcut()
        self._rows: list[tuple[str, str, str, float, float, tuple[int, ...]]] = []

    def begin(self, phase: str) -> None:
        """Name the phase that starts."""
        self._phase = phase
        self._tag = TAGS.index(_TAG_OF.get(phase, "activations"))

    @property
    def operations(self) -> tuple[OpRow, ...]:
        """The logged operations."""
        return grouped(self._rows)

    def step_log(self, batch: int) -> StepLog:
        """The log so far, as plain data, with gradient sums put back in place."""
        rows = tuple((k, i, n, 0.0) for k, i, n in accumulate_in_place(self.events, self.sums))
        return StepLog(batch, False, rows, dict(self.tags), tuple(self.convolutions), self.matmuls)

    def mark_gradients(self, gradients: Iterable[Any]) -> None:
        """Say which of the blocks are parameters' gradients."""
        for gradient in gradients:
            identity = self._holder.get(torch_private.storage_identity(gradient)[1])
            if identity is not None:
                self.tags[self.sums.get(identity, identity)] = self.tags[identity] = TAGS.index("gradients")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        answer = torch_private.answered(func, args)
        if answer is not None:
            return answer
        out = self._run(func, args, kwargs)
        name = torch_private.operation_name(func)
        before = self._made
        for tensor in _tensors(out):
            self._hold(tensor)
        if name == "aten::add" and self._phase == "backward" and self._made == before + 1:
            self._note_sum(args[0])
        elif name in _MATMULS:
            self._note_matmul()
        elif name == "aten::convolution":
            self._note_convolution("forward", args[0], args[1], out, args[8])
        elif name == "aten::convolution_backward":
            for wanted, direction in zip(args[10][:2], ("data", "weight"), strict=True):
                if wanted:
                    self._note_convolution(direction, args[1], args[2], args[0], args[9])
        if self.log_operations and not torch_private.is_view(func):
            self._log(func, name, args, kwargs, out)
        return out

    def _run(self, func: Any, args: Any, kwargs: Any) -> Any:
        key, tensors = self._shortcut.key(func, args, kwargs)
        if key is None:
            return func(*args, **kwargs)
        recipe = self._shortcut.find(key)
        if recipe is not None:
            return self._shortcut.replay(recipe, tensors)
        out = func(*args, **kwargs)
        self._shortcut.learn(key, func, tensors, out)
        return out

    def _hold(self, tensor: torch.Tensor) -> None:
        if tensor.device.type != self.device:
            return
        storage, key, size_bytes = torch_private.storage_identity(tensor)
        if key in self._holder:
            return
        self._made += 1
        identity = self._holder[key] = self._made
        self.tags[identity] = self._tag
        self.events.append((ALLOC, identity, size_bytes))
        self.live += size_bytes
        weakref.finalize(storage, self._drop, key, identity, size_bytes).atexit = False

    def _drop(self, key: int, identity: int, size_bytes: int) -> None:
        if self._holder.get(key) == identity:
            del self._holder[key]
        self.events.append((FREE, identity, size_bytes))
        self.live -= size_bytes

    def _note_sum(self, operand: Any) -> None:
        if isinstance(operand, torch.Tensor):
            first = self._holder.get(torch_private.storage_identity(operand)[1])
            if first is not None:
                self.sums[self._made] = first

    def _note_matmul(self) -> None:
        if not self.matmuls:
            self.events.append((WORK, -1, 0))  # cuBLAS takes its workspace with the first one, and keeps it
        self.matmuls += 1

    def _note_convolution(self, direction: str, images: Any, weight: Any, result: Any, groups: int) -> None:
        self.events.append((WORK, len(self.convolutions), 0))
        self.convolutions.append(ConvolutionCall(
            direction, tuple(images.shape), tuple(weight.shape), tuple(result.shape), int(groups),
            _DTYPES.get(images.dtype, "other"),
        ))

    def _log(self, func: Any, name: str, args: Any, kwargs: Any, out: Any) -> None:
        tensors = [t for t in (*_tensors(args), *_tensors(tuple(kwargs.values()))) if t.device.type == self.device]
        results = list(_tensors(out))
        if not tensors and not results:
            return
        size = sum(t.numel() * t.element_size() for t in (*tensors, *results))
        dtype = _DTYPES.get((tensors or results)[0].dtype, "other")
        convolution = _convolution(name, args, out)
        if convolution is not None:
            kind, flops = convolution
        else:
            formula = torch_private.flop_formula(func)
            kind = kind_of(name)
            flops = float(formula(*args, **kwargs, out_val=out)) if formula is not None else 0.0
        self._rows.append((self._phase, kind, dtype, flops, float(size), shape_of(name, args, out)))


def _tensors(values: Any) -> Iterable[torch.Tensor]:
    """The tensors in an operation's arguments or results."""
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, (list, tuple)):
        for value in values:
            if isinstance(value, (torch.Tensor, list, tuple)):
                yield from _tensors(value)


def _convolution(name: str, args: Any, out: Any) -> tuple[str, float] | None:
    """(class, FLOPs) of a convolution; None of anything else.

    Counted here because torch's own counter forgets the groups of the weight's gradient.
    """
    if name == "aten::convolution":
        images, weight, transposed, groups, passes, result = args[0], args[1], args[6], args[8], 1, out
    elif name == "aten::convolution_backward":
        images, weight, transposed, groups, result = args[1], args[2], args[7], args[9], args[0]
        passes = sum(map(bool, args[10][:2]))
    else:
        return None
    spatial = images if transposed else result
    products = spatial.shape[0] * spatial.shape[2:].numel() * weight.numel()
    return convolution_kind(int(groups), int(images.shape[1]), tuple(weight.shape[2:])), 2.0 * passes * products
