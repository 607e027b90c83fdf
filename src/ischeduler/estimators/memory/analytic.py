"""Memory without a trace: exact for weights, gradients and optimizer state, a rule of thumb for activations.

The rule: models that are trained on 224 x 224 images keep 75-180 MiB a sample in fp32 (mobilenet_v2, ResNet50, VGG16,
ViT-B/16, traced), in proportion to the input's size; transformers on text about 1 MiB a token at width 768. The caller widens
the interval to a factor of three for it.
"""

from __future__ import annotations

import math

from ischeduler.core.sizes import MIB
from ischeduler.estimators.memory.spec import TraceReport, TraceSpec
from ischeduler.estimators.models.optimizers import state_copies

IMAGE_ACTIVATION_BYTES = 100 * MIB
TOKEN_ACTIVATION_BYTES = 1 * MIB
_IMAGE_ELEMENTS = 3 * 224 * 224


def activation_bytes(spec: TraceSpec) -> int:
    """Activations of one batch by the rule of thumb."""
    elements = math.prod(spec.input_shape) if spec.input_shape else _IMAGE_ELEMENTS
    text = len(spec.input_shape) == 1 or spec.model.startswith("transformers:")
    if text:
        tokens = spec.input_shape[0] if spec.input_shape else 512
        sample = TOKEN_ACTIVATION_BYTES * tokens
    else:
        sample = IMAGE_ACTIVATION_BYTES * elements / _IMAGE_ELEMENTS
    half = 0.6 if spec.precision in ("bf16", "fp16") else 1.0
    return round(sample * spec.batch * half)


def counted_report(spec: TraceSpec, parameters: int, weights: int, trainable: int, torch_version: str = "") -> TraceReport:
    """A report from parameter counts (``weights`` and ``trainable`` in bytes)."""
    optimizer = round(trainable * state_copies(spec.optimizer, spec.arguments("optimizer")))
    activations = activation_bytes(spec)
    total = weights + trainable + optimizer + activations
    return TraceReport(
        spec.batch, "parameters", torch_version, parameters, weights, trainable, optimizer, activations, total,
        round(total * 1.05), 0,
    )
