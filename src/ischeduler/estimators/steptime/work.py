"""The kernels behind a log's rows: a convolution's backward pass is two, a bias is one more. Pure.

``features`` are three logarithms that say how far a shape is from what a device likes: short input channels (of a product: short
inner dimension), short output channels, and fewer tiles of 128 x 128 results than the device has units (Williams et al. know only
arithmetic and traffic; cuDNN's and cuBLAS's kernels lose on these three).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ischeduler.estimators.steptime.oplog import BIAS, DATA_GRADIENT, WEIGHT_GRADIENT, OpRow

DIRECTIONS = ("forward", "data", "weight", "matmul")
_SHAPES = ("1x1", "3x3", "3x3_strided", "other", "grouped", "depthwise")
CONVOLUTIONS = tuple(f"{d}_{s}" for d in DIRECTIONS[:3] for s in _SHAPES)
KINDS = (*CONVOLUTIONS, "matmul", "attention", "norm", "pool", "elementwise", "copy", "reduction")
_OF_CLASS = {"conv": "1x1", "conv3x3": "3x3", "group_conv": "grouped", "depthwise_conv": "depthwise"}
_ELEMENT_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
_TILE = 128
_SMALLEST_SCALAR_BYTES = 32.0


@dataclass(frozen=True, slots=True)
class Work:
    """``count`` equal kernels. FLOPs and bytes of one; ``launches`` calls of the framework each costs (0 where it rides along).

    ``channels``, ``filters``, ``tiles`` describe a convolution or product; 0 of anything else.
    """

    kind: str
    dtype: str
    flops: float
    bytes: float
    count: int
    launches: float = 1.0
    channels: float = 0.0
    filters: float = 0.0
    tiles: float = 0.0

    @property
    def direction(self) -> str:
        """Which set of exponents speaks for it; '' for none."""
        if not self.tiles:
            return ""
        return "matmul" if self.kind == "matmul" else self.kind.partition("_")[0]


def features(work: Work, units: float) -> tuple[float, float, float]:
    """Non-positive logarithms; 0 where nothing is lost."""
    if not work.tiles:
        return 0.0, 0.0, 0.0
    return (
        math.log2(min(work.channels, _TILE) / _TILE), math.log2(min(work.filters, _TILE) / _TILE),
        -math.log1p(units / work.tiles),
    )


def kernels(rows: Iterable[OpRow]) -> dict[str, tuple[Work, ...]]:
    """Phase -> kernels."""
    found: dict[str, list[Work]] = {"forward": [], "backward": [], "optimizer": []}
    for row in rows:
        if row.flops or row.bytes > _SMALLEST_SCALAR_BYTES:  # counters of batches seen are not worth a kernel
            found[row.phase].extend(_of_row(row))
    return {phase: tuple(parts) for phase, parts in found.items()}


def _of_row(row: OpRow) -> Iterator[Work]:
    if row.kind in _OF_CLASS:
        yield from _convolution(row) if len(row.shape) == 10 else _shapeless(row)
    elif row.kind == "matmul" and len(row.shape) == 4:
        batch, m, n, k = row.shape
        tiles = batch * max(1.0, m / _TILE) * max(0.25, n / _TILE)
        yield Work("matmul", row.dtype, row.flops, row.bytes, row.count, 1.0, k, min(m, n), tiles)
    else:
        yield Work(row.kind, row.dtype, row.flops, row.bytes, row.count)


def _shapeless(row: OpRow) -> Iterator[Work]:
    """A row of an older log: its class is all that is known."""
    shape = _OF_CLASS[row.kind]
    ways = ("forward",) if row.phase == "forward" else ("data", "weight")
    for way in ways:
        yield Work(f"{way}_{shape}", row.dtype, row.flops / len(ways), row.bytes / len(ways), row.count, 1 / len(ways))


def _convolution(row: OpRow) -> Iterator[Work]:
    images, channels, height, width, filters, rows, columns, stride, groups, flags = row.shape
    size = _ELEMENT_BYTES.get(row.dtype, 4)
    inside, outside = max(1, channels // groups), max(1, filters // groups)
    result = float(images * filters * height * width * size)
    traffic = images * channels * height * width * stride**2 * size + result + inside * filters * rows * columns * size
    flops = 2.0 * images * filters * height * width * inside * rows * columns
    shape = _shape(row.kind, (rows, columns), stride)
    tiles = max(1.0, images * height * width / _TILE) * max(0.25, outside / _TILE) * groups
    ways = _ways(row.phase, flags)
    plain = row.kind in ("conv", "conv3x3")
    for way in ways:
        yield Work(f"{way}_{shape}", row.dtype, flops, traffic, row.count, 1 / len(ways), inside if plain else 0,
                   outside if plain else 0, tiles if plain else 0)
    if flags & BIAS:
        sums = row.phase == "backward"
        yield Work("reduction" if sums else "elementwise", row.dtype, 0.0, result * (1 if sums else 2), row.count, 0.0)


def _ways(phase: str, flags: int) -> tuple[str, ...]:
    if phase == "forward":
        return ("forward",)
    return tuple(w for w, f in (("data", DATA_GRADIENT), ("weight", WEIGHT_GRADIENT)) if flags & f)


def _shape(kind: str, kernel: tuple[int, int], stride: int) -> str:
    if kind == "conv":
        return "1x1" if kernel == (1, 1) else "other"
    return "3x3_strided" if kind == "conv3x3" and stride > 1 else _OF_CLASS[kind]
