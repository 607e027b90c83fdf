"""What cuDNN and cuBLAS borrow beside a step's own tensors.

Nothing here is fitted; every rule follows from how the libraries work:

- cuBLAS takes one workspace with the first matrix product and keeps it: ``:4096:2:16:8`` (KiB x count), on Hopper and later
  32 MiB (PyTorch, ``CUDABlas.cpp``; CUDA documentation, CUBLAS_WORKSPACE_CONFIG).
- Tensor-core convolutions work on channels-last data. For PyTorch's usual layout cuDNN copies the images, the filter and the
  result into that layout, in a workspace as large as the three together. That holds for TF32 from Ampere on and for half
  precision from Volta on; kernels of one point are plain matrix products, depthwise ones have kernels of their own.
- With ``cudnn.benchmark`` PyTorch tries all algorithms at the first sight of a convolution and then empties its cache
  (``Conv_v7.cpp``, ``Conv_v8.cpp``). While trying, a workspace may take whatever is free, for milliseconds: that is the risk
  :func:`largest_convolution` measures, and the interval must carry it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from ischeduler.estimators.memory.steplog import ConvolutionCall, StepLog

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


def largest_convolution(log: StepLog, batch: int) -> int:
    """Bytes of images and result of the largest convolution over more than one point: the scale of the search's risk."""
    sizes = (
        _BYTES.get(c.dtype, 4) * (math.prod(c.images) + math.prod(c.result))
        for c in (call.at_batch(batch) for call in log.convolutions) if math.prod(c.weight[2:]) > 1
    )
    return max(sizes, default=0)
