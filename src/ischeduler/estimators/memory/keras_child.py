"""Counts a Keras 3 model in a subprocess of the user's own Python: one JSON file in, one out. No torch, and nothing is run.

Weights and optimizer state are exact; activations are the sizes of all layers' outputs, which the backward pass keeps, and the
two largest once more for its own work. TensorFlow's and JAX's compilers fuse and reuse at their discretion: the caller labels
the answer analytic and widens it to a factor of three.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

from ischeduler.core.errors import BadInput
from ischeduler.estimators.memory.spec import TraceReport, TraceSpec
from ischeduler.estimators.models.build import library, user_target
from ischeduler.estimators.models.optimizers import state_copies
from ischeduler.estimators.models.references import parse

BACKEND = "keras-walk"
_BACKENDS = ("tensorflow", "jax", "torch")
_BYTES = {"float16": 2, "bfloat16": 2, "float64": 8}


def main(spec_path: str, result_path: str) -> None:
    """Answer the request in ``spec_path`` into ``result_path``."""
    spec = TraceSpec.from_json(json.loads(Path(spec_path).read_text()))
    try:
        answer: dict[str, Any] = {"report": walked(spec).to_json()}
    except BadInput as error:
        answer = {"error": str(error)}
    except Exception as error:
        answer = {"error": f"The Keras model '{spec.model}' could not be built: {type(error).__name__}: {' '.join(str(error).split())[:200]}."}
    Path(result_path).write_text(json.dumps(answer))


def walked(spec: TraceSpec) -> TraceReport:
    """The report of a built model; BadInput where it cannot be built."""
    if "KERAS_BACKEND" not in os.environ:
        os.environ["KERAS_BACKEND"] = next((b for b in _BACKENDS if importlib.util.find_spec(b)), "numpy")
    keras = library("keras")
    use_policy(keras, spec.precision)
    model = built(keras, spec)
    weights = sum(_size(v) for v in model.weights)
    trained = sum(_size(v) for v in model.trainable_weights)
    optimizer = round(trained * state_copies(spec.optimizer, spec.arguments("optimizer")))
    outputs = _outputs(model, spec.batch)
    activations = sum(outputs) + sum(sorted(outputs)[-2:])
    total = weights + trained + optimizer + activations
    notes = ("a Keras model's activations are the sum of its layers' outputs, not traced: low confidence",
             "TensorFlow takes the whole card unless memory growth is set")
    return TraceReport(spec.batch, BACKEND, "", model.count_params(), weights, trained, optimizer, activations, total,
                       round(total * 1.05), 0, notes=notes)


def use_policy(keras: Any, precision: str) -> None:
    """Keras' way of training in half precision."""
    if precision in ("bf16", "fp16"):
        keras.mixed_precision.set_global_policy("mixed_bfloat16" if precision == "bf16" else "mixed_float16")


def built(keras: Any, spec: TraceSpec) -> Any:
    """The referenced keras.Model with its weights made; BadInput where there is none."""
    reference = parse(spec.model)
    if reference.kind in ("module", "file"):
        target = user_target(reference, spec.directory)[1]
    else:
        target = getattr(keras.applications, reference.name, None)
        if target is None:
            raise BadInput(f"keras.applications has no model '{reference.name}'; give a function that builds yours, e.g. net.py:build_model.")
    arguments = spec.arguments("model")
    if reference.kind not in ("module", "file"):
        arguments = {"weights": None, **arguments}
    model: Any = target(**arguments) if callable(target) and not isinstance(target, keras.Model) else target
    if not isinstance(model, keras.Model):
        raise BadInput(f"'{spec.model}' returned {type(model).__name__}; it must return a keras.Model.")
    if not model.built:
        if not spec.input_shape:
            raise BadInput(f"The shape of one sample of '{spec.model}' is unknown; set input_shape, e.g. 224,224,3.")
        model.build((spec.batch, *spec.input_shape))
    return model


def _size(variable: Any) -> int:
    return math.prod(variable.shape) * _BYTES.get(str(variable.dtype), 4)


def _outputs(model: Any, batch: int) -> list[int]:
    """Bytes of every layer's output for one batch; a layer without a known output shape counts nothing."""
    sizes: list[int] = []
    for layer in model._flatten_layers(include_self=False, recursive=True):
        try:
            outputs = layer.output
        except (AttributeError, ValueError, RuntimeError):
            continue  # it is part of another layer, or was never called
        for tensor in outputs if isinstance(outputs, (list, tuple)) else [outputs]:
            shape = [batch if n is None else n for n in tensor.shape]
            sizes.append(math.prod(shape) * _BYTES.get(str(tensor.dtype), 4))
    return sizes


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
