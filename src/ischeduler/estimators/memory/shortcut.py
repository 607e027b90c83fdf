"""Remembers what an operation does to tensors of given shapes, so that the second time costs microseconds.

Fake tensors cost about a millisecond an operation, and a training step repeats its operations: layer after layer, step after
step. The key is everything that decides the result (operation, shapes, strides, types, devices, numbers); what cannot be
keyed (constants whose values matter, complex numbers, anything data dependent) takes the long way every time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from ischeduler.estimators.memory import torch_private

_PLAIN = (int, float, bool, str)
_TORCH = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size)
_NEW, _SAME, _VIEW = 0, 1, 2


@dataclass(slots=True)
class Recipe:
    """How to make an operation's outputs again, and notes the recorder keeps with it.

    ``sequence`` is None for a single tensor, else the container's type. Each output is (what, operand, shape, stride, offset,
    dtype, attributes): a new tensor, the operand itself, or a view of it.
    """

    sequence: type | None
    outputs: tuple[tuple[Any, ...] | None, ...]
    notes: dict[str, Any] = field(default_factory=dict[str, Any])


class Shortcut:
    """``key`` of a call, then ``replay`` what ``learn`` has seen."""

    def __init__(self) -> None:
        self._recipes: dict[tuple[Any, ...], Recipe | None] = {}
        self._refused: set[Any] = set()
        self.hits = self.misses = 0

    def key(self, func: Any, args: Any, kwargs: Any) -> tuple[tuple[Any, ...] | None, list[Any]]:
        """(what decides the result, the tensors among the arguments); None where the long way is the only one."""
        tensors: list[Any] = []
        if func in self._refused:
            return None, tensors
        parts: list[Any] = [func]
        if not _collect(args, parts, tensors):
            return None, tensors
        if kwargs:
            parts.extend(kwargs)
            if not _collect(kwargs.values(), parts, tensors):
                return None, tensors
        return tuple(parts), tensors

    def find(self, key: tuple[Any, ...]) -> Recipe | None:
        """The recipe, if this call was seen."""
        return self._recipes.get(key)

    def learn(self, key: tuple[Any, ...], func: Any, tensors: list[Any], out: Any) -> Recipe | None:
        """Remember a call's outcome; None where it cannot be repeated."""
        self.misses += 1
        if torch_private.metadata_changes(func):
            self._refused.add(func)
            return None
        single = isinstance(out, torch.Tensor) or out is None
        parts = (out,) if single else out
        if not isinstance(parts, (tuple, list)):
            return None
        outputs = [_describe(part, tensors) for part in parts]
        if False in outputs:
            return None
        recipe = Recipe(None if single else type(parts), tuple(outputs))  # type: ignore[arg-type]
        self._recipes[key] = recipe
        return recipe

    def replay(self, recipe: Recipe, tensors: list[Any]) -> Any:
        """The outputs again, as new tensors."""
        self.hits += 1
        made = [None if o is None else _make(o, tensors) for o in recipe.outputs]
        return made[0] if recipe.sequence is None else recipe.sequence(made)


def _collect(values: Any, parts: list[Any], tensors: list[Any]) -> bool:
    fake = torch_private.fake_tensor_class()
    for value in values:
        kind = value.__class__
        if kind is fake:
            if value.constant is not None or value.dtype.is_complex or value.layout is not torch.strided:
                return False
            tensors.append(value)
            parts += (value.shape, value.stride(), value.storage_offset(), value.dtype, value.fake_device)
        elif value is None:
            parts.append(None)
        elif kind in _PLAIN:
            parts += (kind, value)
        elif kind in (list, tuple):
            parts += (kind, len(value))
            if not _collect(value, parts, tensors):
                return False
        elif kind in _TORCH:
            parts.append(value)
        else:
            return False
    return True


def _describe(part: Any, tensors: list[Any]) -> Any:
    """One output's line of the recipe; False where it cannot be repeated."""
    if part is None:
        return None
    if part.__class__ is not torch_private.fake_tensor_class() or part.constant is not None or part.dtype.is_complex:
        return False
    for place, tensor in enumerate(tensors):
        if tensor is part:
            return (_SAME, place)
    if part.layout is not torch.strided or part.requires_grad:
        return False
    line = (tuple(part.shape), part.stride(), part.storage_offset(), part.dtype, torch_private.attributes(part))
    identity = torch_private.storage_identity(part)
    for place, tensor in enumerate(tensors):
        if torch_private.storage_identity(tensor)[1] == identity[1]:
            return (_VIEW, place, *line)
    span = 1 + sum((n - 1) * s for n, s in zip(part.shape, part.stride(), strict=True)) if part.numel() else 0
    if part.storage_offset() or identity[2] != span * part.element_size():
        return False
    return (_NEW, -1, *line)


def _make(output: tuple[Any, ...], tensors: list[Any]) -> Any:
    what, place = output[0], output[1]
    if what == _SAME:
        return tensors[place]
    base = tensors[place] if what == _VIEW else None
    return torch_private.like_before(base, *output[2:])
