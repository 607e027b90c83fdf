"""torch.optim's optimizers: their operations are a phase of their own, and where a model is replayed, so are they.

A step that goes through hundreds of parameters costs this host milliseconds in which a card would be done. Once an optimizer has been
measured, and a model is replayed, its steps advance its step counts and take the card's time; no parameter changes either way.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch

from ischeduler.emulator.device import Devices, EmulatedDevice
from ischeduler.emulator.replay import Replay
from ischeduler.emulator.timing import Timing

MEASURED_CALLS = 2
"""The first step makes the state."""
KINDS = ("SGD", "Adam", "AdamW", "Adamax", "RAdam", "RMSprop", "Adagrad", "Adadelta")
"""Those whose only state on the host is the step count."""


@dataclass(slots=True)
class _Seen:
    """What one call cost with that many gradients."""

    calls: int = 0
    gradients: int = -1
    busy_s: float = 0.0


class Optimizers:
    """Watches steps and ``zero_grad``."""

    def __init__(self, devices: Devices, timing: Timing, replay: Replay) -> None:
        self._devices, self._timing, self._replay = devices, timing, replay
        self._steps: WeakKeyDictionary[Any, _Seen] = WeakKeyDictionary()
        self._zeroed: WeakKeyDictionary[Any, _Seen] = WeakKeyDictionary()

    def install(self) -> None:
        """Look at every optimizer's calls."""
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        register_optimizer_step_pre_hook(lambda *args: self._phase("optimizer"))
        register_optimizer_step_post_hook(lambda *args: self._phase("forward"))
        for name in KINDS:
            kind: Any = getattr(torch.optim, name, None)
            if kind is not None and "step" in vars(kind):
                kind.step = self._stepping(kind.step)
        base: Any = torch.optim.Optimizer
        base.zero_grad = self._zeroing(base.zero_grad)

    def _phase(self, name: str) -> None:
        self._timing.phase = name

    def _stepping(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def step(itself: Any, closure: Any = None) -> Any:
            if closure is not None or type(itself).__name__ not in KINDS:
                return plain(itself, closure)
            return self._call(self._steps, itself, lambda: plain(itself), lambda gradients: _counted(itself))

        return step

    def _zeroing(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def zero_grad(itself: Any, set_to_none: bool = True) -> None:
            if set_to_none:
                with self._devices.host, torch._C.DisableTorchFunction():
                    plain(itself, True)
                return
            self._call(self._zeroed, itself, lambda: plain(itself, False), lambda gradients: None)

        return zero_grad

    def _call(self, known: Any, optimizer: Any, plain: Callable[[], Any], again: Callable[[Any], None]) -> Any:
        with self._devices.host:
            with torch._C.DisableTorchFunction():
                gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
                device = self._device(gradients)
            if device is None:
                return plain()
            seen = known.setdefault(optimizer, _Seen())
            if seen.gradients != len(gradients):
                seen.calls, seen.gradients = 0, len(gradients)
            if seen.calls >= MEASURED_CALLS and self._replay.models:
                again(gradients)
                self._timing.replayed_forward(device, seen.busy_s)
                return None
            before = device.clock.busy_s
            out = plain()
            seen.calls, seen.busy_s = seen.calls + 1, device.clock.busy_s - before
            return out

    def _device(self, gradients: list[torch.Tensor]) -> EmulatedDevice | None:
        """The card that holds the gradients; None for those on the host, or with a graph of their own."""
        if not gradients or gradients[0].requires_grad:
            return None
        return self._devices.of(gradients[0])


def _counted(optimizer: Any) -> None:
    """Advance the step counts, as a step does."""
    for state in optimizer.state.values():
        count = state.get("step")
        if isinstance(count, torch.Tensor):
            with torch._C.DisableTorchFunction():
                count += 1
        elif count is not None:
            state["step"] = count + 1
