"""What a training step computes: its operations with FLOPs and bytes, grouped so that equal ones are one row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

PHASES = ("forward", "backward", "optimizer")
CLASSES = ("conv", "conv3x3", "group_conv", "depthwise_conv", "matmul", "attention", "norm", "pool", "elementwise")
_NORMS = ("batch_norm", "layer_norm", "group_norm", "instance_norm", "softmax")


@dataclass(frozen=True, slots=True)
class OpRow:
    """``count`` launches of one shape: FLOPs and bytes are of one launch; ``dtype`` is 'fp32', 'bf16', 'fp16' or 'other'."""

    phase: str
    kind: str
    dtype: str
    flops: float
    bytes: float
    count: int = 1


def convolution_kind(groups: int, channels: int, kernel: tuple[int, ...]) -> str:
    """The class of a convolution by its groups, input channels and kernel."""
    if groups <= 1:
        return "conv3x3" if kernel == (3, 3) else "conv"
    return "depthwise_conv" if groups >= channels else "group_conv"


def kind_of(name: str) -> str:
    """The class of any other operation, by its name."""
    if "attention" in name:
        return "attention"
    if name in ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::_scaled_mm", "aten::mv", "aten::addmv"):
        return "matmul"
    if any(n in name for n in _NORMS):
        return "norm"
    return "pool" if "pool" in name else "elementwise"


def grouped(rows: Iterable[tuple[str, str, str, float, float]]) -> tuple[OpRow, ...]:
    """Equal launches as one row each, in order of first appearance."""
    return tuple(OpRow(*key, count=count) for key, count in Counter(rows).items())


def to_lists(rows: Iterable[OpRow]) -> list[list[object]]:
    """Compact JSON rows."""
    return [[r.phase, r.kind, r.dtype, r.flops, r.bytes, r.count] for r in rows]


def from_lists(rows: Iterable[list[object]]) -> tuple[OpRow, ...]:
    """The inverse of :func:`to_lists`."""
    return tuple(
        OpRow(str(p), str(k), str(d), float(f), float(b), int(n))  # type: ignore[arg-type]
        for p, k, d, f, b, n in rows
    )


def at_batch(rows: Iterable[OpRow], factor: float) -> tuple[OpRow, ...]:
    """The log with the per-sample work scaled; the optimizer's work does not depend on the batch."""
    return tuple(
        r if r.phase == "optimizer" else OpRow(r.phase, r.kind, r.dtype, r.flops * factor, r.bytes * factor, r.count)
        for r in rows
    )
