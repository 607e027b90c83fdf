"""What cuDNN and cuBLAS borrow beside a step's own tensors: the rules, and what a fit scales.

No rule is fitted; every one follows from how the libraries work (:mod:`~ischeduler.estimators.memory.calibration` fits what
goes beyond them to a site's own measurements):

- cuBLAS takes one workspace with the first matrix product and keeps it: ``:4096:2:16:8`` (KiB x count), on Hopper and later
  32 MiB (PyTorch, ``CUDABlas.cpp``; CUDA documentation, CUBLAS_WORKSPACE_CONFIG).
- Tensor-core convolutions work on channels-last data. For PyTorch's usual layout cuDNN copies the images, the filter and the
  result into that layout, in a workspace as large as the three together. That holds for TF32 from Ampere on and for half
  precision from Volta on; kernels of one point are plain matrix products, depthwise ones have kernels of their own.
- With ``cudnn.benchmark`` PyTorch tries all algorithms at the first sight of a convolution and then empties its cache
  (``Conv_v7.cpp``, ``Conv_v8.cpp``). While trying, a workspace may take whatever is free, for milliseconds: that is the risk
  which :class:`Borrowers` measures; a fit learns how much of it shows, and the interval must carry the rest.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from ischeduler.estimators.memory.steplog import ALLOC, FREE, ConvolutionCall, StepLog

KIB = 1024
CUBLAS_BYTES = (4096 * 2 + 16 * 8) * KIB
CUBLAS_HOPPER_BYTES = 32 * 1024 * KIB
_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
_GENERATIONS = (
    ("blackwell", r"\b(gb|b)[123]\d\d\b|rtx[- _]?50"), ("hopper", r"\b(gh|h)[12]\d\d\b"), ("ada", r"\bl(4|40|40s)\b|rtx[- _]?(6000[- _]?ada|40)"),
    ("ampere", r"\ba(2|10|16|30|40|100|800|5000|6000)g?\b|rtx[- _]?30|rtx[- _]?a\d"), ("turing", r"\bt4\b|rtx[- _]?(20|6000|8000)|quadro[- _]?rtx"),
    ("volta", r"\bv100s?\b|titan[- _]?v"), ("pascal", r"\bp(4|40|100)\b|gtx[- _]?10"), ("maxwell", r"\bm(40|60)\b"), ("kepler", r"\bk(20|40|80)\b"),
)
_TF32 = ("ampere", "ada", "hopper", "blackwell")
_HALF = ("volta", "turing", *_TF32)


def generation_of(accelerator: str) -> str:
    """NVIDIA's architecture by a card's name ('a100-40g' is 'ampere'); '' when the name says nothing."""
    name = accelerator.lower().replace("_", "-")
    return next((word for word, pattern in _GENERATIONS if re.search(pattern, name)), "")


def uses_tf32(generation: str) -> bool:
    """Whether fp32 convolutions of PyTorch's defaults run on tensor cores there."""
    return (generation or "ampere") in _TF32


@dataclass(frozen=True, slots=True)
class Workspaces:
    """The rules for one card: ``generation`` as of :func:`generation_of` ('' counts as Ampere), ``benchmark`` as in
    ``torch.backends.cudnn.benchmark``.
    """

    generation: str = "ampere"
    benchmark: bool = False

    @property
    def matmul_bytes(self) -> int:
        """cuBLAS's workspace."""
        return CUBLAS_HOPPER_BYTES if self.generation in ("hopper", "blackwell") else CUBLAS_BYTES

    def convolution_bytes(self, call: ConvolutionCall) -> int:
        """What one pass borrows while it runs."""
        cores = _TF32 if call.dtype == "fp32" else _HALF
        if (self.generation or "ampere") not in cores or call.dtype not in _BYTES:
            return 0
        if call.groups > 1 or math.prod(call.weight[2:]) <= 1:
            return 0
        return _BYTES[call.dtype] * (math.prod(call.images) + math.prod(call.weight) + math.prod(call.result))


@dataclass(frozen=True, slots=True)
class Borrowers:
    """Bytes that say how much a step's convolutions may borrow beyond the rules; of ungrouped ones over more than one point.

    ``largest`` is the most that images and result of one of them take; ``busiest`` the most that is allocated while one runs.
    """

    largest: int = 0
    busiest: int = 0


def borrowers(log: StepLog, batch: int) -> Borrowers:
    """The borrowers of a step at that batch; ValueError where the log does not hold for it."""
    scales = [_scale(call.at_batch(batch)) for call in log.convolutions]
    if not any(scales):
        return Borrowers()
    sizes: dict[int, int] = {}
    live = busiest = 0
    for kind, identity, size_bytes in log.events(batch):
        if kind == ALLOC:
            sizes[identity] = size_bytes
            live += size_bytes
        elif kind == FREE:
            live -= sizes.pop(identity, 0)
        elif identity >= 0 and scales[identity]:
            busiest = max(busiest, live)
    return Borrowers(max(scales), busiest)


def _scale(call: ConvolutionCall) -> int:
    """Bytes of images and result; 0 of a plain product or a grouped convolution, which have kernels that borrow nothing."""
    if call.groups > 1 or math.prod(call.weight[2:]) <= 1:
        return 0
    return _BYTES.get(call.dtype, 4) * (math.prod(call.images) + math.prod(call.result))
