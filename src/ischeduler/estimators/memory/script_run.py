"""Runs a user's unmodified training script on the fake accelerator, up to its second optimizer step. Lives in the subprocess.

Tensors on the CPU stay real, so data loading, tokenizers and constructors work as ever; whatever is moved to or made on 'cuda'
is fake from then on. Values read back from the card (``loss.item()``) are taken as 1 (False for a truth value): a step's
memory seldom depends on them, and the report says so. Network connections are refused, for an estimate must not download.
"""

from __future__ import annotations

import os
import runpy
import shlex
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ischeduler.core.errors import BadInput
from ischeduler.estimators.memory import script_device, torch_private
from ischeduler.estimators.memory.recorder import Recorder
from ischeduler.estimators.memory.replay import Parts, replayed
from ischeduler.estimators.memory.spec import TraceReport, TraceSpec

STEPS = 2
_ENOUGH = 8  # steps of one optimizer while another (a GAN's) has made fewer than two
_READ = "values read back from the card were taken as 1"


class Refused(OSError):
    """The script asked for the network."""


class ScriptRecorder(Recorder):
    """Sends what touches the fake card to the fake tensor mode, and lets all else run for real."""

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self.mode = torch_private.fake_mode()
        self.moved: Counter[int] = Counter()
        self.read_back = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not _on_card(args, kwargs, self.device):
            return func(*args, **kwargs)
        name = torch_private.operation_name(func)
        if name == "aten::_local_scalar_dense":
            self.read_back += 1
            return False if args[0].dtype == torch.bool else (1.0 if args[0].is_floating_point() else 1)
        if name == "aten::_to_copy" and args[0].__class__ is torch.Tensor and args[0].dim():
            self.moved[int(args[0].shape[0])] += 1
        if kwargs.get("device") is not None and torch.device(kwargs["device"]).type == "cpu":
            return self._back(func, args, kwargs)
        with self.mode:
            return super().__torch_dispatch__(func, types, args, kwargs)

    def _back(self, func: Any, args: Any, kwargs: Any) -> Any:
        """A copy to the CPU: real there, filled with ones."""
        source = args[0]
        self.read_back += 1
        return torch.ones(source.shape, dtype=kwargs.get("dtype") or source.dtype)


def _on_card(args: Any, kwargs: Any, device: str) -> bool:
    wanted = kwargs.get("device")
    if wanted is not None and torch.device(wanted).type == device:
        return True
    fake = torch_private.fake_tensor_class()
    return any(_holds(value, fake) for value in (*args, *kwargs.values()))


def _holds(value: Any, fake: type) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_holds(part, fake) for part in value)
    return value.__class__ is fake


class Run:
    """One script's run: counts optimizer steps, and ends the process with the answer after the second."""

    def __init__(self, spec: TraceSpec, answer: Callable[[TraceReport], None]) -> None:
        self.spec, self._answer = spec, answer
        self.recorder = ScriptRecorder(torch_private.DEVICE)
        self.root: Any = None
        self.optimizers: dict[int, Any] = {}
        self.steps: Counter[int] = Counter()
        self._started = time.perf_counter()

    def start(self) -> None:
        """Run the script; BadInput in words when it ends, fails or asks for what it cannot have before its second step."""
        name = self.spec.model.partition(":")[2]
        path = Path(self.spec.directory or ".").resolve() / name
        if not path.is_file():
            raise BadInput(f"There is no script {path}; correct the name.")
        self._hooks()
        sys.argv = [str(path), *shlex.split(self.spec.options.get("arguments", ""))]
        sys.path.insert(0, str(path.parent))
        try:
            with script_device.Mapping(), self.recorder:
                runpy.run_path(str(path), run_name="__main__")
        except SystemExit as error:
            raise BadInput(f"'{name}' ended with code {error.code or 0} before its second optimizer step; nothing was traced.") from None
        raise BadInput(f"'{name}' ended before its second optimizer step ({self.steps.total()} seen on the card); nothing was traced.")

    def _hooks(self) -> None:
        from torch.nn.modules.module import register_module_forward_pre_hook
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        socket.socket.connect = _refuse  # type: ignore[method-assign,assignment]
        register_module_forward_pre_hook(self._forward)
        register_optimizer_step_pre_hook(self._before_step)
        register_optimizer_step_post_hook(self._after_step)
        self.recorder.begin("build")

    def _forward(self, module: Any, inputs: Any) -> None:
        if self.root is None and any(True for _ in module.parameters()):
            self.root = module
        if module is self.root:
            self.recorder.begin("forward")

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self.optimizers[id(optimizer)] = optimizer
        gradients = (p.grad for p in _parameters(optimizer) if p.grad is not None)
        self.recorder.mark_gradients(g for g in gradients if g.device.type == self.recorder.device)
        self.recorder.begin("optimizer")

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if any(p.device.type == self.recorder.device for p in _parameters(optimizer)):
            self.steps[id(optimizer)] += 1
        self.recorder.begin("forward")
        done = [self.steps[key] for key in self.optimizers]
        if min(done) >= STEPS or max(done) >= _ENOUGH:
            self._answer(self.report())
            sys.stdout.flush()
            os._exit(0)

    def report(self) -> TraceReport:
        """What the card held so far."""
        held = list(self.root.parameters()) + list(self.root.buffers()) if self.root is not None else []
        weights = _bytes(held)
        trained = [p for o in self.optimizers.values() for p in _parameters(o)]
        state = _bytes(t for o in self.optimizers.values() for s in o.state.values() for t in s.values()
                       if isinstance(t, torch.Tensor) and t.device.type == self.recorder.device)
        batch = self.recorder.moved.most_common(1)[0][0] if self.recorder.moved else self.spec.batch
        log = self.recorder.step_log(batch)
        peak = replayed(log, batch)
        parts = Parts.of(weights, _bytes(trained), state, peak.peak_allocated)
        notes = (f"traced '{self.spec.model}' up to its second optimizer step",)
        if self.recorder.read_back:
            notes = (*notes, _READ)
        return replace(
            TraceReport(batch, "fake-accelerator", torch.__version__, sum(p.numel() for p in held), weights, parts.gradients, state,
                        parts.activations, peak.peak_allocated, peak.peak_reserved, 0, notes=notes, log=log),
            trace_s=time.perf_counter() - self._started,
        )


def _parameters(optimizer: Any) -> list[Any]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _bytes(tensors: Any) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def _refuse(self: socket.socket, address: Any) -> None:
    raise Refused(f"a connection to {address} is not allowed while tracing")
