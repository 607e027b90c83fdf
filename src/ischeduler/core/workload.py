"""What the user trains."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ischeduler.core.elastic import Elastic
from ischeduler.core.errors import BadInput
from ischeduler.core.service import Service

PLACEHOLDERS = ("batch_size", "epochs", "grad_accum", "samples")
"""What a command's words may hold in braces."""
PRECISIONS = ("fp32", "tf32", "fp16", "bf16")


@dataclass(frozen=True, slots=True)
class EnvironmentSpec:
    """How the job's shell is prepared: module loads, then conda, virtual environment or container image."""

    modules: tuple[str, ...] = ()
    conda: str | None = None
    venv: str | None = None
    image: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Workload:
    """A training: model, data, epochs, batch sizes, optimizer, precision, framework, parallelism. Or, with ``service``, a service.

    ``model`` is a reference: ``timm:resnet50``, ``torchvision:resnet50``, ``transformers:bert-base-uncased``
    (configuration only), ``my_module:build_model``, or a bare name looked up in that order. ``command`` is the argument
    list that trains, in which ``{batch_size}``, ``{epochs}``, ``{grad_accum}`` and ``{samples}`` are replaced. ``input_shape`` is one
    sample's shape. ``gpus`` and ``cpus`` are a node's (None: the planner chooses; 0 GPUs: CPU nodes only).
    ``batch_size`` may be several candidates; :meth:`variants` gives one workload each.
    """

    model: str = ""
    samples: int = 0
    epochs: int = 1
    batch_size: int | tuple[int, ...] = 32
    name: str = ""
    command: tuple[str, ...] = ()
    directory: str = ""
    input_shape: tuple[int, ...] = ()
    classes: int | None = None
    optimizer: str = "sgd"
    precision: str = "fp32"
    framework: str = "pytorch"
    grad_accum: int = 1
    eval_samples: int = 0
    workers: int = 0
    nodes: int = 1
    gpus: int | None = None
    cpus: int | None = None
    memory_bytes: int | None = None
    checkpoints: bool = True
    checkpoint_every_s: float | None = None
    environment: EnvironmentSpec = EnvironmentSpec()
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    service: Service | None = None
    elastic: Elastic | None = None

    def __post_init__(self) -> None:
        size = self.batch_size
        if not isinstance(size, int):
            sizes = tuple(dict.fromkeys(int(b) for b in size))
            object.__setattr__(self, "batch_size", sizes[0] if len(sizes) == 1 else sizes)
        problem = _problem(self)
        if problem:
            raise BadInput(problem)

    @property
    def batch(self) -> int:
        """The batch size of a single-variant workload (samples a step and device, before accumulation)."""
        if isinstance(self.batch_size, tuple):
            raise BadInput(f"This workload has {len(self.batch_size)} batch sizes; choose one of {self.batch_size}.")
        return self.batch_size

    def variants(self) -> tuple[Workload, ...]:
        """One workload a batch size."""
        sizes = self.batch_size if isinstance(self.batch_size, tuple) else (self.batch_size,)
        return tuple(replace(self, batch_size=b) for b in sizes)

    def command_line(self) -> tuple[str, ...]:
        """The command with its placeholders replaced (one batch size); other braces are left alone."""
        values = {"batch_size": self.batch, "epochs": self.epochs, "grad_accum": self.grad_accum, "samples": self.samples}
        words: list[str] = []
        for word in self.command:
            for name in PLACEHOLDERS:
                word = word.replace(f"{{{name}}}", str(values[name]))
            words.append(word)
        return tuple(words)

    @property
    def devices(self) -> int:
        """Data-parallel workers: accelerators over all nodes (or nodes, on CPU)."""
        return self.nodes * max(1, self.gpus or 1)

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps an epoch; at least one."""
        return max(1, math.ceil(self.samples / (self.batch * self.grad_accum * self.devices)))

    @property
    def steps(self) -> int:
        """Optimizer steps of the whole training."""
        return self.steps_per_epoch * self.epochs

    @property
    def family(self) -> str:
        """What counts as similar in history: the model reference, or the command's script where there is no model."""
        if self.model:
            return self.model
        return next((a for a in self.command if a.endswith(".py")), self.name or "unnamed")


def _problem(w: Workload) -> str:
    sizes = w.batch_size if isinstance(w.batch_size, tuple) else (w.batch_size,)
    positive = {"epochs": w.epochs, "grad_accum": w.grad_accum, "nodes": w.nodes, **{f"batch_size {b}": b for b in sizes}}
    for name, value in positive.items():
        if value < 1:
            return f"{name} must be at least 1, not {value}."
    if not sizes:
        return "batch_size is empty; give at least one, e.g. 32."
    for name, value, least in (
        ("samples", w.samples, 0), ("eval_samples", w.eval_samples, 0), ("workers", w.workers, 0),
        ("gpus", w.gpus, 0), ("cpus", w.cpus, 1), ("memory_bytes", w.memory_bytes, 1),
    ):
        if value is not None and value < least:
            return f"{name} must be at least {least}, not {value}."
    if w.precision not in PRECISIONS:
        return f"precision '{w.precision}' is unknown; expected one of {', '.join(PRECISIONS)}."
    return ""
