"""'cuda' in a user's script means the fake accelerator: devices, ``torch.cuda``, autocast, gradient scaler. In the subprocess only."""

from __future__ import annotations

import contextlib
import re
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ischeduler.core.sizes import GIB
from ischeduler.estimators.memory.torch_private import DEVICE

_CUDA = re.compile(r"cuda(:\d+)?")
CARD_BYTES = 80 * GIB


class Mapping(TorchFunctionMode):
    """Rewrites every device argument that says 'cuda', and ``tensor.cuda()``; puts stand-ins into ``torch.cuda`` on entry."""

    def __enter__(self) -> Any:
        _cuda_functions()
        _training_helpers()
        return super().__enter__()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = {k: mapped(v) if k in ("device", "dtype", "other") else v for k, v in (kwargs or {}).items()}
        name = getattr(func, "__name__", "")
        if func is torch.Tensor.cuda:
            return args[0].to(DEVICE)
        if name == "pin_memory":
            return args[0]
        if kwargs.pop("pin_memory", False):
            pass  # pages of the host
        if name == "to" or kwargs.get("device") is not None:
            args = tuple(mapped(a) for a in args)
        return func(*args, **kwargs)


def mapped(value: Any) -> Any:
    """The fake accelerator for 'cuda' in any spelling; anything else as it is."""
    if isinstance(value, str) and _CUDA.fullmatch(value):
        return torch.device(DEVICE)
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device(DEVICE)
    return value


class _Scaler:
    """A gradient scaler that never finds an overflow."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._enabled = kwargs.get("enabled", True)

    def scale(self, outputs: Any) -> Any:
        return outputs * 1.0 if self._enabled and isinstance(outputs, torch.Tensor) else outputs

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        return optimizer.step(*args, **kwargs)

    def unscale_(self, optimizer: Any) -> None:
        """Nothing to undo."""

    def update(self, new_scale: Any = None) -> None:
        """Nothing changes."""

    def is_enabled(self) -> bool:
        return self._enabled

    def get_scale(self) -> float:
        return 1.0

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Any) -> None:
        """Nothing to load."""


class _Stream:
    """A stream or an event that does nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: 0.0


def _cuda_functions() -> None:
    cuda: Any = torch.cuda
    properties = SimpleNamespace(name="fake accelerator", total_memory=CARD_BYTES, major=8, minor=0, multi_processor_count=108)
    answers: dict[str, Any] = {
        "is_available": True, "device_count": 1, "current_device": 0, "is_initialized": True, "is_current_stream_capturing": False, "is_bf16_supported": True,
        "get_device_name": properties.name, "get_device_properties": properties, "get_device_capability": (8, 0),
        "memory_allocated": 0, "max_memory_allocated": 0, "memory_reserved": 0, "max_memory_reserved": 0,
        "mem_get_info": (CARD_BYTES, CARD_BYTES), "get_rng_state": torch.zeros(16, dtype=torch.uint8),
        "memory_summary": "", "memory_stats": {}, "utilization": 0,
    }
    for name, answer in answers.items():
        setattr(cuda, name, lambda *args, _answer=answer, **kwargs: _answer)
    for name in ("init", "synchronize", "empty_cache", "set_device", "manual_seed", "manual_seed_all", "seed", "seed_all",
                 "reset_peak_memory_stats", "ipc_collect", "set_rng_state", "set_per_process_memory_fraction", "_lazy_init"):
        setattr(cuda, name, lambda *args, **kwargs: None)
    cuda.device = lambda *args, **kwargs: contextlib.nullcontext()
    cuda.stream = lambda *args, **kwargs: contextlib.nullcontext()
    for name in ("Stream", "Event"):
        setattr(cuda, name, _Stream)
    cuda.current_stream = cuda.default_stream = lambda *args, **kwargs: _Stream()


def _training_helpers() -> None:
    autocast: Any = torch.autocast
    begin = autocast.__init__

    def mapped_begin(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        begin(self, DEVICE if _CUDA.fullmatch(device_type) else device_type, *args, **kwargs)

    autocast.__init__ = mapped_begin
    anything: Any = torch
    anything.amp.GradScaler = anything.cuda.amp.GradScaler = _Scaler
    anything.compile = lambda model=None, **kwargs: model if model is not None else (lambda fn: fn)
    _single_threaded_loader()


def _single_threaded_loader() -> None:
    """Data loader processes would be forks of a process that pretends: load in this one."""
    from torch.utils import data

    loader: Any = data.DataLoader
    begin = loader.__init__

    def plain_begin(self: Any, *args: Any, **kwargs: Any) -> None:
        kwargs |= {"num_workers": 0, "pin_memory": False, "persistent_workers": False, "prefetch_factor": None, "timeout": 0}
        kwargs.pop("multiprocessing_context", None)
        begin(self, *args[:5], **kwargs)  # the sixth would be the workers

    loader.__init__ = plain_begin
