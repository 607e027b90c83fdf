"""What is traced, and what a trace says. Plain data: crosses the process boundary as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ischeduler.core.workload import Workload
from ischeduler.estimators.memory.steplog import StepLog
from ischeduler.estimators.steptime.oplog import OpRow, from_lists, to_lists

TRACER_VERSION = "4"


@dataclass(frozen=True)
class TraceSpec:
    """One training step: model reference, samples a step and device, precision, optimizer.

    ``second_batch``, where not 0, is traced at the same time, so that the log holds for every batch. ``accumulate`` is True
    where gradients are kept over several backward passes. ``options`` are the workload's own: ``model.NAME`` and
    ``optimizer.NAME`` become keyword arguments, ``sequence_length`` and ``input`` ('image' or 'tokens') describe a sample,
    ``checkpointing`` 'true' recomputes activations block by block, ``train_only`` trains only the parameters whose names match
    one of its comma-separated patterns, and ``zero_grad`` 'keep' says that gradients are set to zero and not dropped between
    steps (PyTorch's default before 2.0).
    """

    model: str
    batch: int
    directory: str = ""
    input_shape: tuple[int, ...] = ()
    classes: int | None = None
    precision: str = "fp32"
    optimizer: str = "sgd"
    accumulate: bool = False
    second_batch: int = 0
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, workload: Workload) -> TraceSpec:
        """The step of a workload with one batch size."""
        return cls(
            workload.model, workload.batch, workload.directory, workload.input_shape, workload.classes, workload.precision,
            workload.optimizer, workload.grad_accum > 1, 2 * workload.batch, dict(workload.options),
        )

    def arguments(self, prefix: str) -> dict[str, Any]:
        """Keyword arguments from the options ``PREFIX.NAME``, numbers and booleans read as such."""
        return {k[len(prefix) + 1 :]: _literal(v) for k, v in self.options.items() if k.startswith(prefix + ".")}

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TraceSpec:
        """The inverse of :meth:`to_json`."""
        return cls(**{**data, "input_shape": tuple(data["input_shape"])})


@dataclass(frozen=True)
class TraceReport:
    """A traced step. Bytes on the accelerator, before the driver's context; the parts add up to ``allocated_bytes``.

    ``backend`` is 'fake-accelerator' (CUDA's rules), 'fake-cpu' (fallback), 'keras-torch' (a Keras model on Keras' torch backend),
    'keras-walk' or 'parameters' (counted only: then activations are a formula, not a trace). ``inputs_bytes`` is one batch, part of
    the activations. ``log`` is the allocation log; ``units`` the parameter bytes of the model's repeated blocks, in order: what FSDP
    gathers one at a time.
    """

    batch: int
    backend: str
    torch: str
    parameters: int
    weights_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int
    allocated_bytes: int
    reserved_bytes: int
    inputs_bytes: int
    build_s: float = 0.0
    trace_s: float = 0.0
    operations: tuple[OpRow, ...] = ()
    notes: tuple[str, ...] = ()
    log: StepLog | None = None
    units: tuple[int, ...] = ()

    @property
    def fixed_bytes(self) -> int:
        """What does not depend on the batch: weights, gradients, optimizer state."""
        return self.weights_bytes + self.gradients_bytes + self.optimizer_bytes

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        plain = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        log = None if self.log is None else self.log.to_json()
        return {**plain, "operations": to_lists(self.operations), "notes": list(self.notes), "log": log, "units": list(self.units)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TraceReport:
        """The inverse of :meth:`to_json`; KeyError or TypeError on anything else."""
        log = None if data["log"] is None else StepLog.from_json(data["log"])
        return cls(**{**data, "operations": from_lists(data["operations"]), "notes": tuple(data["notes"]), "log": log, "units": tuple(data["units"])})


def _literal(text: str) -> Any:
    lowered = str(text).strip().lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
