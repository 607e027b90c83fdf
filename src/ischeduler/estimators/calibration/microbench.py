"""Micro-benchmarks of single operations on a CPU or an accelerator: the rows that coefficients are fitted to. Needs PyTorch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from ischeduler.estimators.calibration.record import OperationTime
from ischeduler.estimators.steptime.oplog import DATA_GRADIENT, WEIGHT_GRADIENT, convolution_kind

_BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2}
_FEWEST = 5


@dataclass(frozen=True, slots=True)
class Convolution:
    """A layer: images, input channels, rows (= columns) of the result, filters, kernel, stride, groups."""

    images: int
    channels: int
    size: int
    filters: int
    kernel: int
    stride: int = 1
    groups: int = 1


@dataclass(frozen=True, slots=True)
class Operations:
    """What to measure. ``products`` are (batch, m, n, k); ``maps`` (images, channels, size) for norm, pool and element-wise work."""

    convolutions: tuple[Convolution, ...]
    products: tuple[tuple[int, int, int, int], ...]
    maps: tuple[tuple[int, int, int], ...]


SHORT = Operations(
    convolutions=(
        Convolution(16, 64, 56, 64, 3), Convolution(16, 256, 28, 128, 1), Convolution(16, 128, 28, 128, 3, 2),
        Convolution(16, 128, 28, 128, 3, groups=128), Convolution(16, 3, 112, 64, 7, 2),
    ),
    products=((1, 2048, 2048, 2048), (1, 4096, 1024, 256), (32, 512, 512, 64)), maps=((16, 64, 56), (16, 256, 28)),
)
"""About ten seconds on a card; what ``isched calibrate`` runs."""
SMALL = Operations(
    convolutions=(Convolution(2, 16, 14, 16, 3), Convolution(2, 16, 14, 32, 1), Convolution(2, 16, 14, 16, 3, groups=16)),
    products=((1, 128, 128, 128), (4, 64, 64, 32)), maps=((2, 16, 14),),
)
"""A second on any computer."""


def long_list() -> Operations:
    """Some 200 operations a precision, forward and backward counted apart: the layers of common networks over sizes."""
    layers = [
        Convolution(images, channels, size, filters, kernel, stride, groups)
        for images in (8, 64)
        for channels, size, filters, kernel, stride, groups in (
            (3, 112, 64, 7, 2, 1), (64, 56, 64, 1, 1, 1), (64, 56, 64, 3, 1, 1), (64, 56, 256, 1, 1, 1), (128, 28, 128, 3, 1, 1),
            (256, 28, 128, 1, 1, 1), (128, 28, 128, 3, 2, 1), (256, 14, 256, 3, 1, 1), (1024, 14, 256, 1, 1, 1),
            (512, 7, 512, 3, 1, 1), (2048, 7, 512, 1, 1, 1), (64, 112, 128, 3, 1, 1), (256, 28, 256, 3, 1, 32), (32, 112, 32, 3, 1, 32),
            (144, 56, 144, 3, 1, 144), (96, 56, 96, 3, 2, 96), (576, 14, 576, 3, 1, 576), (16, 112, 96, 1, 1, 1), (24, 56, 144, 1, 1, 1),
            (512, 14, 32, 3, 1, 1), (160, 7, 960, 1, 1, 1),
        )
    ]
    products = [(1, m, n, k) for m in (512, 4096) for n, k in ((768, 768), (3072, 768), (768, 3072), (1000, 2048), (30522, 768), (64, 64))]
    products += [(b, n, n, 64) for b in (12, 96) for n in (128, 512)] + [(b, n, 64, n) for b in (12, 96) for n in (128, 512)]
    maps = ((8, 64, 112), (64, 64, 56), (64, 256, 28), (64, 1024, 14), (8, 2048, 7))
    return Operations(tuple(layers), tuple(products), maps)


def measure(
    operations: Operations, precision: str, device: str, *, seconds_each: float = 0.25, deadline: float = float("inf")
) -> list[OperationTime]:
    """Times of as many operations as fit before ``deadline`` (time.monotonic()). One that does not fit in memory is left out."""
    import torch

    found: list[OperationTime] = []
    for row, action in _actions(torch, operations, precision, device):
        if time.monotonic() > deadline:
            break
        try:
            seconds = _median_s(torch, action, device, seconds_each)
        except torch.OutOfMemoryError:
            continue
        kind, phase, shape, flops, size = row
        found.append(OperationTime(kind, phase, precision, shape, flops, size, seconds))
    return found


_Row = tuple[str, str, tuple[int, ...], float, float]


def _actions(torch: Any, operations: Operations, precision: str, device: str) -> Iterator[tuple[_Row, Callable[[], Any]]]:
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision, torch.float32)
    make = _Maker(torch, dtype, device, _BYTES[precision])
    for layer in operations.convolutions:
        yield from make.convolution(layer)
    for shape in operations.products:
        yield make.product(shape)
    for shape in operations.maps:
        yield from make.maps(shape)


@dataclass(frozen=True)
class _Maker:
    """Tensors of one type on one device, and what an operation on them costs."""

    torch: Any
    dtype: Any
    device: str
    size: int

    def _random(self, *shape: int) -> Any:
        return self.torch.randn(*shape, dtype=self.dtype, device=self.device)

    def convolution(self, layer: Convolution) -> Iterator[tuple[_Row, Callable[[], Any]]]:
        """Forward, and both gradients together."""
        side = layer.size * layer.stride
        images = self._random(layer.images, layer.channels, side, side)
        weight = self._random(layer.filters, layer.channels // layer.groups, layer.kernel, layer.kernel)
        padding = [layer.kernel // 2] * 2
        fixed: tuple[Any, ...] = ([layer.stride] * 2, padding, [1, 1], False, [0, 0], layer.groups)
        result = self.torch.convolution(images, weight, None, *fixed)
        kind = convolution_kind(layer.groups, layer.channels, (layer.kernel, layer.kernel))
        flops = 2.0 * result.numel() * weight.numel() / layer.filters
        traffic = float(self.size * (images.numel() + weight.numel() + result.numel()))
        rows, columns = int(result.shape[2]), int(result.shape[3])
        shape = (layer.images, layer.channels, rows, columns, layer.filters, layer.kernel, layer.kernel, layer.stride, layer.groups)
        yield ((kind, "forward", (*shape, 0), flops, traffic), lambda: self.torch.convolution(images, weight, None, *fixed))
        back = self.torch.ops.aten.convolution_backward
        grad = self.torch.randn_like(result)
        yield (
            (kind, "backward", (*shape, DATA_GRADIENT | WEIGHT_GRADIENT), 2 * flops, 2 * traffic),
            lambda: back(grad, images, weight, None, *fixed, [True, True, False]),
        )

    def product(self, shape: tuple[int, int, int, int]) -> tuple[_Row, Callable[[], Any]]:
        """A matrix product, batched where the batch is not 1."""
        b, m, n, k = shape
        left, right = (self._random(m, k), self._random(k, n)) if b == 1 else (self._random(b, m, k), self._random(b, k, n))
        size = float(self.size * b * (m * k + k * n + m * n))
        return ("matmul", "forward", shape, 2.0 * b * m * n * k, size), lambda: self.torch.matmul(left, right)

    def maps(self, shape: tuple[int, int, int]) -> Iterator[tuple[_Row, Callable[[], Any]]]:
        """Batch norm in training, max pooling, an addition, a copy, a sum."""
        images, channels, side = shape
        x = self._random(images, channels, side, side)
        ones = self.torch.ones(channels, device=self.device)
        f, one = self.torch.nn.functional, float(x.numel() * self.size)
        cases: Sequence[tuple[str, float, Callable[[], Any]]] = (
            ("norm", 2 * one, lambda: f.batch_norm(x, None, None, ones, ones, True)),
            ("pool", 1.25 * one, lambda: f.max_pool2d(x, 2)), ("elementwise", 2 * one, lambda: self.torch.add(x, 1.0)),
            ("copy", 2 * one, x.clone), ("reduction", one, lambda: x.sum((0, 2, 3))),
        )
        for kind, size, action in cases:
            yield (kind, "forward", (), 0.0, size), action


def _median_s(torch: Any, action: Callable[[], Any], device: str, seconds: float) -> float:
    """The median of the faster half of repetitions in that time; on an accelerator several launches a repetition."""
    on_card = device.startswith("cuda")

    def once(launches: int) -> float:
        started = time.perf_counter()
        for _ in range(launches):
            action()
        if on_card:
            torch.cuda.synchronize()
        return (time.perf_counter() - started) / launches

    with torch.no_grad():
        once(1)
        launches = max(1, min(50, int(2e-3 / max(once(1), 1e-6)))) if on_card else 1
        times: list[float] = []
        end = time.perf_counter() + seconds
        while len(times) < _FEWEST or (time.perf_counter() < end and len(times) < 200):
            times.append(once(launches))
    return median(sorted(times)[: max(1, len(times) // 2)])
