"""Runs training steps under a recorder. Lives in the tracing subprocess."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch

from ischeduler.core.errors import BadInput
from ischeduler.estimators.memory import torch_private
from ischeduler.estimators.memory.allocator import accumulate_in_place, replay
from ischeduler.estimators.memory.recorder import Recorder
from ischeduler.estimators.memory.spec import TraceReport, TraceSpec
from ischeduler.estimators.models.batches import Task
from ischeduler.estimators.models.optimizers import make_optimizer

STEPS = 2
"""The first step makes the optimizer's state; the second shows the peak with it."""


@dataclass
class _Sizes:
    weights: int = 0
    gradients: int = 0
    parameters: int = 0
    persistent: int = 0
    inputs: int = 0


def trace(spec: TraceSpec, load: Callable[[], Any], task: Callable[[Any], Task], device: str) -> TraceReport:
    """Two training steps on fake tensors. Raises whatever the model raises on them."""
    started = time.perf_counter()
    recorder = Recorder(device)
    with torch_private.fake_mode(), recorder:
        model = _place(load, device)
        model.train()
        built = time.perf_counter()
        sizes = _measure(model)
        work = task(model)
        optimizer = make_optimizer(spec.optimizer, model, spec.arguments("optimizer"))
        for step in range(STEPS):
            recorder.log_operations = step == STEPS - 1
            _one_step(spec, recorder, model, work, optimizer, device, sizes)
        sizes.persistent = recorder.live
        recorder.log_operations = False
    done = time.perf_counter()
    report = _report(spec, recorder, sizes, device)
    return replace(report, build_s=built - started, trace_s=done - built)


def _place(load: Callable[[], Any], device: str) -> Any:
    """The model on the fake device: made there, else made on meta or on the CPU and moved (some constructors compute)."""
    try:
        with torch.device(device):
            return load()
    except BadInput:
        raise
    except Exception:
        with torch_private.without_modes():
            model = load()
        return torch_private.swap_for_fake(model, device)


def _measure(model: Any) -> _Sizes:
    parameters = list(model.parameters())
    trainable = [p for p in parameters if p.requires_grad]
    weights = _bytes(parameters) + _bytes(model.buffers())
    return _Sizes(weights, _bytes(trainable), sum(p.numel() for p in parameters))


def _bytes(tensors: Iterable[Any]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def _one_step(
    spec: TraceSpec, recorder: Recorder, model: Any, work: Task, optimizer: Any, device: str, sizes: _Sizes
) -> None:
    for _ in range(2 if spec.accumulate else 1):
        recorder.begin("input")
        before = recorder.live
        with torch.device(device):
            batch = work.batch(spec.batch)
        sizes.inputs = recorder.live - before
        recorder.begin("forward")
        with _autocast(spec.precision, device):
            loss = work.loss(model, batch)
        recorder.begin("backward")
        loss.backward()
        del loss, batch
    recorder.begin("optimizer")
    optimizer.step()
    optimizer.zero_grad(set_to_none=not _keeps_gradients(spec))


def _keeps_gradients(spec: TraceSpec) -> bool:
    return spec.options.get("zero_grad") == "keep"


def _autocast(precision: str, device: str) -> Any:
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    return torch.autocast(device, dtype=dtype) if dtype is not None else contextlib.nullcontext()


def _report(spec: TraceSpec, recorder: Recorder, sizes: _Sizes, device: str) -> TraceReport:
    allocator = replay(accumulate_in_place(recorder.events, recorder.sums))
    kept = sizes.gradients if _keeps_gradients(spec) else 0
    optimizer = max(0, sizes.persistent - sizes.weights - kept)
    activations = max(0, allocator.peak_allocated - sizes.weights - sizes.gradients - optimizer)
    gradients = max(0, allocator.peak_allocated - sizes.weights - optimizer - activations)
    known = torch_private.tested_version(torch.__version__)
    notes = () if known else (f"the tracer was not verified with torch {torch.__version__}",)
    return TraceReport(
        spec.batch, "fake-accelerator" if device == torch_private.DEVICE else "fake-cpu", torch.__version__,
        sizes.parameters, sizes.weights, gradients, optimizer, activations, allocator.peak_allocated,
        allocator.peak_reserved, sizes.inputs, operations=tuple(
            r for r in recorder.operations if r.phase != "input"), notes=notes,
    )
