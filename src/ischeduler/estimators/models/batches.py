"""One batch of a model and its loss. Lives in the tracing subprocess and in the profile's.

A user's module may say it itself: ``sample_batch(batch_size)`` returns what ``loss(model, batch)`` takes; without ``loss``
the batch is (inputs, targets) for cross-entropy. Otherwise the model, its configuration and ``input_shape`` decide.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch.nn import functional

from ischeduler.core.errors import BadInput
from ischeduler.estimators.memory.spec import TraceSpec

LONGEST_DEFAULT_SEQUENCE = 512


@dataclass(frozen=True)
class Task:
    """``batch(n)`` makes n samples on the current default device; ``loss(model, batch)`` is a scalar to differentiate."""

    batch: Callable[[int], Any]
    loss: Callable[[Any, Any], Any]


def task_of(spec: TraceSpec, module: ModuleType | None) -> Callable[[Any], Task]:
    """What to feed a model, once it is built."""

    def choose(model: Any) -> Task:
        own = getattr(module, "sample_batch", None)
        if own is not None:
            return Task(own, getattr(module, "loss", None) or _supervised)
        config = getattr(model, "config", None)
        if config is not None and hasattr(config, "model_type"):
            return _transformer(config, spec)
        return _tokens(spec) if spec.options.get("input") == "tokens" else _dense(model, spec)

    return choose


def _dense(model: Any, spec: TraceSpec) -> Task:
    shape = spec.input_shape or _default_shape(model, spec)
    return Task(lambda n: (torch.randn(n, *shape), None), _supervised)


def _default_shape(model: Any, spec: TraceSpec) -> tuple[int, ...]:
    config = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", None)
    if config:
        get = config.get if isinstance(config, dict) else lambda key: getattr(config, key, None)
        size = get("input_size")
        if size:
            return tuple(size)
    if type(model).__module__.startswith("torchvision."):
        return (3, 299, 299) if "inception" in type(model).__module__ else (3, 224, 224)
    raise BadInput(
        f"The shape of one sample of '{spec.model}' is unknown; set input_shape (e.g. 3,224,224) or define "
        "sample_batch(batch_size) beside it."
    )


def _tokens(spec: TraceSpec) -> Task:
    length = spec.input_shape[0] if spec.input_shape else LONGEST_DEFAULT_SEQUENCE
    vocabulary = int(spec.options.get("vocabulary", 1000))
    return Task(lambda n: (torch.randint(0, vocabulary, (n, length)), None), _supervised)


def _supervised(model: Any, batch: Any) -> Any:
    if isinstance(batch, dict):
        return _loss_of(model(**batch), None)
    inputs, targets = batch if isinstance(batch, (tuple, list)) and len(batch) == 2 else (batch, None)
    return _loss_of(model(inputs), targets)


def _loss_of(output: Any, targets: Any) -> Any:
    """A training loss for whatever a model returns; targets are made up where the batch has none."""
    given = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
    if given is not None and not callable(given):
        return given
    if isinstance(output, (tuple, list)):
        heads = list(output)
    elif getattr(output, "logits", None) is not None:
        heads = [output.logits]  # type: ignore[union-attr]
    elif isinstance(output, dict):
        heads = list(output.values())
    else:
        heads = [output]
    losses = [_head_loss(h, targets) for h in heads if isinstance(h, torch.Tensor) and h.is_floating_point()]
    if not losses:
        raise BadInput("The model's output holds no tensor to train on; define loss(model, batch) beside it.")
    return sum(losses[1:], losses[0])


def _head_loss(output: Any, targets: Any) -> Any:
    if targets is not None and targets.is_floating_point():
        return functional.mse_loss(output, targets)
    if output.dim() < 2 or output.shape[1] < 2:
        return functional.mse_loss(output, torch.zeros_like(output) if targets is None else targets.float().view_as(output))
    if targets is None:
        targets = torch.randint(0, output.shape[1], (output.shape[0], *output.shape[2:]), device=output.device)
    return functional.cross_entropy(output, targets)


def _transformer(config: Any, spec: TraceSpec) -> Task:
    size = getattr(config, "image_size", None)
    if size is not None:
        side = (size, size) if isinstance(size, int) else tuple(size)
        shape = spec.input_shape or (getattr(config, "num_channels", 3), *side)
        labels = max(2, getattr(config, "num_labels", 2))
        return Task(
            lambda n: {"pixel_values": torch.randn(n, *shape), "labels": torch.randint(0, labels, (n,))}, _supervised
        )
    length = _sequence_length(config, spec)
    classes = spec.classes if spec.classes is not None and not getattr(config, "is_encoder_decoder", False) else None

    def batch(n: int) -> dict[str, Any]:
        tokens = torch.randint(0, config.vocab_size, (n, length))
        labels = tokens if classes is None else torch.randint(0, classes, (n,))
        return {"input_ids": tokens, "labels": labels}

    return Task(batch, _supervised)


def _sequence_length(config: Any, spec: TraceSpec) -> int:
    asked = spec.options.get("sequence_length") or (spec.input_shape[0] if spec.input_shape else None)
    if asked is not None:
        return int(asked)
    longest = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None)
    return min(LONGEST_DEFAULT_SEQUENCE, int(longest or LONGEST_DEFAULT_SEQUENCE))
