"""What a training step computes: its operations with FLOPs, bytes and shape, grouped so that equal ones are one row."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

PHASES = ("forward", "backward", "optimizer")
CLASSES = (
    "conv", "conv3x3", "group_conv", "depthwise_conv", "matmul", "attention", "norm", "pool", "elementwise", "copy",
)
LOG_VERSION = "2"
"""Changes when the same step gives other rows: kept logs of other versions are traced again."""
NO_WORK = ""
"""The class of what launches no kernel: such rows are dropped."""
BIAS, DATA_GRADIENT, WEIGHT_GRADIENT = 1, 2, 4
_NORMS = ("batch_norm", "layer_norm", "group_norm", "instance_norm", "softmax")
_COPIES = ("cat", "copy", "clone", "index", "embedding", "gather", "scatter", "fill", "zero", "slice", "stack", "roll", "where")
_FREE = ("prim::device", "aten::empty", "aten::new_empty", "aten::detach", "aten::empty_like", "aten::empty_strided",
         "aten::new_empty_strided", "aten::is_same_size", "aten::_local_scalar_dense", "aten::lift_fresh")
_MATMULS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::_scaled_mm", "aten::mv", "aten::addmv")
_ELEMENT_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}


@dataclass(frozen=True, slots=True)
class OpRow:
    """``count`` launches of one shape: FLOPs and bytes are of one launch; ``dtype`` is 'fp32', 'bf16', 'fp16' or 'other'.

    ``shape`` is empty, or of a convolution (images, input channels, output rows, output columns, output channels, kernel rows,
    kernel columns, stride, groups, flags of BIAS, DATA_GRADIENT, WEIGHT_GRADIENT), or of a product (batch, m, n, k).
    """

    phase: str
    kind: str
    dtype: str
    flops: float
    bytes: float
    count: int = 1
    shape: tuple[int, ...] = ()


def convolution_kind(groups: int, channels: int, kernel: tuple[int, ...]) -> str:
    """The class of a convolution by its groups, input channels and kernel."""
    if groups <= 1:
        return "conv3x3" if kernel == (3, 3) else "conv"
    return "depthwise_conv" if groups >= channels else "group_conv"


def kind_of(name: str) -> str:
    """The class of any other operation, by its name."""
    if name in _FREE:
        return NO_WORK
    if "attention" in name:
        return "attention"
    if name in _MATMULS:
        return "matmul"
    if any(n in name for n in _NORMS):
        return "norm"
    if "pool" in name:
        return "pool"
    return "copy" if any(c in name for c in _COPIES) else "elementwise"


def shape_of(name: str, args: Sequence[Any], out: Any) -> tuple[int, ...]:
    """The :attr:`OpRow.shape` of an ATen call, () of what needs none. Tensors are only asked for their shapes."""
    if name == "aten::convolution":
        return _convolution_shape(args[0], args[1], out, args[6], args[8], BIAS if args[2] is not None else 0)
    if name == "aten::convolution_backward":
        flags = sum(f for f, wanted in zip((DATA_GRADIENT, WEIGHT_GRADIENT, BIAS), args[10], strict=True) if wanted)
        return _convolution_shape(args[1], args[2], args[0], args[7], args[9], flags)
    if name in ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"):
        left, right = args[-2:] if "add" not in name else args[1:3]
        batch = int(left.shape[0]) if len(left.shape) == 3 else 1
        return batch, int(left.shape[-2]), int(right.shape[-1]), int(left.shape[-1])
    return ()


def _convolution_shape(images: Any, weight: Any, result: Any, transposed: bool, groups: int, flags: int) -> tuple[int, ...]:
    small, large = (images, result) if transposed else (result, images)
    rows, columns = int(small.shape[2]), math.prod(int(n) for n in small.shape[3:])
    stride = max(1, round(int(large.shape[2]) / max(1, rows)))
    kernel = int(weight.shape[2]), math.prod(int(n) for n in weight.shape[3:])
    return (int(images.shape[0]), int(large.shape[1]), rows, columns, int(small.shape[1]), *kernel, stride, int(groups), flags)


def grouped(rows: Iterable[tuple[Any, ...]]) -> tuple[OpRow, ...]:
    """Equal launches ``(phase, kind, dtype, flops, bytes[, shape])`` as one row each, in order of first appearance."""
    counted = Counter(row for row in rows if row[1] != NO_WORK)
    return tuple(OpRow(*row[:5], count=count, shape=row[5] if len(row) > 5 else ()) for row, count in counted.items())


def at_batch(rows: Iterable[OpRow], factor: float) -> tuple[OpRow, ...]:
    """The log with the per-sample work scaled; the optimizer's work and the weights' bytes do not depend on the batch."""
    return tuple(r if r.phase == "optimizer" else _scaled(r, factor) for r in rows)


def weight_bytes(row: OpRow) -> float:
    """Bytes of one launch that do not grow with the batch: the weights of a convolution or a linear layer."""
    size = _ELEMENT_BYTES.get(row.dtype, 4)
    if len(row.shape) == 10:
        _, channels, _, _, filters, height, width, _, groups, flags = row.shape
        passes = max(1, bool(flags & DATA_GRADIENT) + bool(flags & WEIGHT_GRADIENT))
        return min(row.bytes, float(size * passes * channels // groups * filters * height * width))
    if len(row.shape) == 4 and row.shape[0] == 1:
        _, m, n, k = row.shape
        return float(size * min(m * k, k * n, m * n))  # of a layer's three matrices the weight's is nearly always the smallest
    return 0.0


def _scaled(row: OpRow, factor: float) -> OpRow:
    fixed = weight_bytes(row)
    shape = row.shape
    if shape and (len(shape) == 10 or shape[0] > 1):
        shape = (max(1, round(shape[0] * factor)), *shape[1:])
    elif shape:
        longest = max(range(1, 4), key=lambda i: shape[i])
        shape = tuple(max(1, round(n * factor)) if i == longest else n for i, n in enumerate(shape))
    return replace(row, flops=row.flops * factor, bytes=fixed + (row.bytes - fixed) * factor, shape=shape)


def to_lists(rows: Iterable[OpRow]) -> list[list[object]]:
    """As JSON."""
    return [[r.phase, r.kind, r.dtype, r.flops, r.bytes, r.count, list(r.shape)] for r in rows]


def from_lists(rows: Iterable[list[Any]]) -> tuple[OpRow, ...]:
    """The inverse of :func:`to_lists`; rows of older logs have no shape."""
    return tuple(
        OpRow(str(p), str(k), str(d), float(f), float(b), int(n), tuple(int(v) for v in (rest[0] if rest else ())))
        for p, k, d, f, b, n, *rest in rows
    )
