"""Traces a Keras 3 model that its user trains on Keras' torch backend: its layers are ``torch.nn.Module``s there.

Lives in the tracing subprocess. The optimizer is Keras' own, and gradients live until the next backward pass, as in ``fit``
(keras.src.backend.torch.trainer, ``train_step``). Keras 3.15; what it hides is replaced in one place, :func:`_without_generators`.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from ischeduler.core.errors import BadInput
from ischeduler.estimators.memory.keras_child import built, use_policy
from ischeduler.estimators.memory.spec import TraceReport, TraceSpec
from ischeduler.estimators.models.build import library

BACKEND = "keras-torch"
_CHANGES = ("checkpointing", "train_only")
_NAMES = {"momentum": "sgd", "sgd-momentum": "sgd"}


def main(spec_path: str, result_path: str) -> None:
    """Answer the request in ``spec_path`` into ``result_path``."""
    spec = TraceSpec.from_json(json.loads(Path(spec_path).read_text()))
    os.environ["KERAS_BACKEND"] = "torch"
    os.environ.setdefault("ISCHED_TRACE_FOLDER", os.path.dirname(os.path.abspath(result_path)))
    gc.disable()  # importing makes only what stays
    try:
        answer: dict[str, Any] = {"report": traced(spec).to_json()}
    except BadInput as error:
        answer = {"error": str(error)}
    except Exception as error:
        answer = {"error": f"The Keras model '{spec.model}' could not be traced: {type(error).__name__}: {' '.join(str(error).split())[:200]}."}
    Path(result_path).write_text(json.dumps(answer))
    sys.stdout.flush()
    os._exit(0)  # the answer is written


def traced(spec: TraceSpec) -> TraceReport:
    """Two training steps on the fake accelerator. BadInput where they cannot be; whatever the model raises on fake tensors."""
    for option in _CHANGES:
        if spec.options.get(option):
            raise BadInput(f"The option {option} is not traced for Keras models; build the model so.")
    library("torch")
    from ischeduler.estimators.memory import torch_private

    torch_private.install_device()
    os.environ["KERAS_TORCH_DEVICE"] = torch_private.DEVICE
    keras = library("keras")
    _without_generators()
    from ischeduler.estimators.memory import step

    use_policy(keras, spec.precision)
    gc.freeze()
    gc.enable()
    made: list[_Step] = []

    def make(spec: TraceSpec, model: Any) -> _Step:
        made[:] = [_optimizer(keras, spec, model)]
        return made[0]

    # Keras casts by its policy, not by autocast, and drops the last step's gradients after the forward pass
    plain = replace(spec, precision="fp32", options={**spec.options, "zero_grad": "keep"})
    report = step.trace(
        plain, lambda: built(keras, spec), lambda model: _task(keras, model, spec), torch_private.DEVICE, optimizer=make
    )
    state = made[0].state_bytes  # Keras leaves cycles that hold a layer's output: what lives after a step is more than state
    notes = (*report.notes, f"traced on Keras {keras.__version__}'s torch backend, which was not compared with a card")
    activations = max(0, report.activations_bytes + report.optimizer_bytes - state)
    return replace(report, backend=BACKEND, optimizer_bytes=state, activations_bytes=activations, notes=notes)


def _without_generators() -> None:
    """Random numbers on the fake accelerator need no seed: it has no generators."""
    from keras.src.backend.torch import random  # type: ignore[import-not-found]

    if not hasattr(random, "torch_seed_generator"):
        raise BadInput("This Keras draws random numbers in a way that cannot be traced.")
    random.torch_seed_generator = lambda seed: None


def _task(keras: Any, model: Any, spec: TraceSpec) -> Any:
    from ischeduler.estimators.models.batches import Task

    inputs = [(_shape(i.shape, spec), str(i.dtype)) for i in model.inputs] if getattr(model, "inputs", None) else [(spec.input_shape, "float32")]

    def batch(n: int) -> Any:
        made = [_sample(n, shape, dtype) for shape, dtype in inputs]
        return made[0] if len(made) == 1 else made

    def loss(model: Any, batch: Any) -> Any:
        out = model(batch, training=True)
        heads = [_loss(keras, head) for head in (out.values() if isinstance(out, dict) else out if isinstance(out, (list, tuple)) else [out])]
        model.zero_grad()
        return sum(heads[1:], heads[0])

    return Task(batch, loss)


def _shape(shape: Any, spec: TraceSpec) -> tuple[int, ...]:
    """One sample of an input; what the model leaves open is taken from ``input_shape`` or ``sequence_length``."""
    sample = tuple(shape)[1:]
    if None not in sample:
        return sample
    given = spec.input_shape or ((int(spec.options["sequence_length"]),) if "sequence_length" in spec.options else ())
    if len(given) < len(sample):
        raise BadInput(f"The model '{spec.model}' leaves the shape of its input open; set input_shape, e.g. 224,224,3, or sequence_length.")
    return tuple(g if s is None else s for s, g in zip(sample, given, strict=False))


def _sample(n: int, shape: tuple[int, ...], dtype: str) -> Any:
    import torch

    if dtype.startswith(("int", "uint")):
        return torch.zeros((n, *shape), dtype=torch.int32)
    return torch.zeros((n, *shape), dtype=getattr(torch, dtype, torch.float32))


def _loss(keras: Any, output: Any) -> Any:
    """Cross-entropy over the last axis, as Keras' classifiers have it; mean squares for a single number."""
    import torch

    if output.dim() < 2 or output.shape[-1] < 2:
        return keras.losses.mean_squared_error(torch.zeros_like(output), output).mean()
    labels = torch.zeros(output.shape[:-1], dtype=torch.int64)
    return keras.losses.sparse_categorical_crossentropy(labels, output).mean()


class _Step:
    """Keras' optimizer as the tracer calls one."""

    def __init__(self, optimizer: Any, variables: Any) -> None:
        self._optimizer, self._variables = optimizer, variables

    @property
    def state_bytes(self) -> int:
        """What its variables hold, the two counters left out."""
        held = [v.value for v in self._optimizer.variables if len(v.shape) > 0]
        return sum(t.numel() * t.element_size() for t in held)

    def step(self) -> None:
        """Apply the gradients, as ``train_step`` does."""
        import torch

        with torch.no_grad():
            self._optimizer.apply([v.value.grad for v in self._variables], self._variables)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Later: gradients live until the next backward pass."""


def _optimizer(keras: Any, spec: TraceSpec, model: Any) -> _Step:
    name = spec.optimizer.lower()
    arguments = ({"momentum": 0.9} if name in _NAMES else {}) | spec.arguments("optimizer")
    arguments = {"learning_rate" if k == "lr" else k: v for k, v in arguments.items()}
    try:
        optimizer = keras.optimizers.get({"class_name": _NAMES.get(name, name), "config": arguments})
    except (ValueError, TypeError) as error:
        said = " ".join(str(error).split())[:160]
        raise BadInput(f"optimizer '{spec.optimizer}' is not one that Keras makes with {arguments} ({said}).") from None
    return _Step(optimizer, model.trainable_variables)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
