"""Runs training steps under a recorder. Lives in the tracing subprocess."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ischeduler.core.errors import BadInput
from ischeduler.estimators.memory import torch_private
from ischeduler.estimators.memory.recorder import Recorder
from ischeduler.estimators.memory.replay import Parts, replayed
from ischeduler.estimators.memory.spec import TraceReport, TraceSpec
from ischeduler.estimators.memory.steplog import StepLog, joined
from ischeduler.estimators.models.batches import Task
from ischeduler.estimators.models.changes import blocks, prepare
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
    units: tuple[int, ...] = ()


def trace(
    spec: TraceSpec, load: Callable[[], Any], task: Callable[[Any], Task], device: str,
    built: Callable[[Any], None] = lambda model: None, optimizer: Callable[[TraceSpec, Any], Any] | None = None,
) -> TraceReport:
    """Two training steps on fake tensors, ``built`` called with the model before. Raises whatever the model raises on them.

    ``optimizer`` makes another one of spec and model than torch.optim's.
    Where the request names another batch, that is traced at the same time by a fork of this process.
    """
    started = time.perf_counter()
    recorder = Recorder(device)
    with torch_private.fake_mode(), recorder:
        model = _place(load, device)
        model.train()
        prepare(model, spec)
        built(model)
        ready = time.perf_counter()
        with _Second(spec, recorder, model, task, device, optimizer) as second:
            sizes = _steps(spec, recorder, model, task, device, optimizer)
    done = time.perf_counter()
    log = recorder.step_log(spec.batch)
    if second.log is not None:
        log = joined(log, second.log)
    report = _report(spec, recorder, sizes, log, device)
    return replace(report, build_s=ready - started, trace_s=done - ready)


class _Second:
    """The trace of the other batch, in a fork: it costs the second core, not time. No fork, no second trace."""

    def __init__(self, spec: TraceSpec, *rest: Any) -> None:
        self._spec, self._rest = spec, rest
        self._pid = 0
        folder = os.environ.get("ISCHED_TRACE_FOLDER") or tempfile.gettempdir()
        self._path = Path(folder) / f"isched-second-{os.getpid()}.json"
        self.log: StepLog | None = None

    def __enter__(self) -> _Second:
        if self._spec.second_batch and hasattr(os, "fork"):
            self._pid = os.fork()
            if self._pid == 0:
                self._child()
        return self

    def __exit__(self, *error: object) -> None:
        if not self._pid:
            return
        os.waitpid(self._pid, 0)
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # it failed: then one batch must do
            self.log = StepLog.from_json(json.loads(self._path.read_text()))
            self._path.unlink()

    def _child(self) -> None:
        code = 1
        try:
            recorder, model, task, device, make = self._rest
            spec = replace(self._spec, batch=self._spec.second_batch)
            _steps(spec, recorder, model, task, device, make)
            self._path.write_text(json.dumps(recorder.step_log(spec.batch).to_json()))
            code = 0
        finally:
            os._exit(code)


def _steps(
    spec: TraceSpec, recorder: Recorder, model: Any, task: Callable[[Any], Task], device: str,
    make: Callable[[TraceSpec, Any], Any] | None,
) -> _Sizes:
    sizes = _measure(model)
    work = task(model)
    optimizer = make(spec, model) if make else make_optimizer(spec.optimizer, model, spec.arguments("optimizer"))
    for step in range(STEPS):
        recorder.log_operations = step == STEPS - 1
        _one_step(spec, recorder, model, work, optimizer, device, sizes)
    sizes.persistent = recorder.live
    recorder.log_operations = False
    return sizes


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
    units = tuple(_bytes(block.parameters()) for block in blocks(model))
    return _Sizes(weights, _bytes(trainable), sum(p.numel() for p in parameters), units=units)


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
        recorder.mark_gradients(p.grad for p in model.parameters() if p.grad is not None)
        del loss, batch
    recorder.begin("optimizer")
    optimizer.step()
    optimizer.zero_grad(set_to_none=not _keeps_gradients(spec))


def _keeps_gradients(spec: TraceSpec) -> bool:
    return spec.options.get("zero_grad") == "keep"


def _autocast(precision: str, device: str) -> Any:
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    return torch.autocast(device, dtype=dtype) if dtype is not None else contextlib.nullcontext()


def _report(spec: TraceSpec, recorder: Recorder, sizes: _Sizes, log: StepLog, device: str) -> TraceReport:
    at_peak = replayed(log, spec.batch)
    kept = sizes.gradients if _keeps_gradients(spec) else 0
    optimizer = max(0, sizes.persistent - sizes.weights - kept)
    parts = Parts.of(sizes.weights, sizes.gradients, optimizer, at_peak.peak_allocated)
    known = torch_private.tested_version(torch.__version__)
    notes = () if known else (f"the tracer was not verified with torch {torch.__version__}",)
    return TraceReport(
        spec.batch, "fake-accelerator" if device == torch_private.DEVICE else "fake-cpu", torch.__version__,
        sizes.parameters, sizes.weights, parts.gradients, optimizer, parts.activations, at_peak.peak_allocated,
        at_peak.peak_reserved, sizes.inputs, operations=tuple(
            r for r in recorder.operations if r.phase != "input"), notes=notes, log=log, units=sizes.units,
    )
