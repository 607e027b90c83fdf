"""Out-of-memory text in a training's output: CUDA, ROCm, PyTorch, TensorFlow, JAX, Slurm, the kernel and Python itself."""

from __future__ import annotations

import re
from dataclasses import dataclass

_CUDA = re.compile(
    rb"(?:CUDA|HIP|ROCm|XPU|MPS backend) (?:error: )?out of memory|torch\.(?:cuda\.|cuda\.memory\.)?OutOfMemoryError"
    rb"|\bCUDA_ERROR_OUT_OF_MEMORY|\bhipErrorOutOfMemory|\bcudaErrorMemoryAllocation"
    rb"|\b(?:CUDNN|CUBLAS|HIPBLAS|MIOPEN|CUSOLVER)_STATUS_(?:ALLOC_FAILED|ALLOCATION_FAILED)"
    rb"|RESOURCE_EXHAUSTED: Out of memory|OOM when allocating tensor"
    rb"|\bNCCL .{0,80}out of memory"
)
_HOST = re.compile(
    rb"(?m:^(?:numpy[\w.]*\.)?_?(?:Array)?MemoryError\b)|DefaultCPUAllocator: (?:can't|not enough)|std::bad_alloc"
    rb"|Cannot allocate memory"
    rb"|oom[-_]kill|Out of memory: Kill(?:ed)? process|[Ee]xceeded (?:step |job )?memory limit|Exceeded job memory"
    rb"|Some of (?:your processes|the step tasks) (?:may )?have been OOM Killed|java\.lang\.OutOfMemoryError"
    rb"|DataLoader worker .{0,60}is killed by signal: (?:Bus error|Killed)"
)
_HINTS = (b"emory", b"ALLOC", b"bad_alloc", b"oom", b"OOM", b"OUT_OF_MEM", b"killed by")  # every pattern has one of them
_TAIL_BYTES = 256
_TEXT_CHARS = 300


@dataclass(frozen=True, slots=True)
class OomText:
    """Out-of-memory text that was seen. `where` is `cuda` (any accelerator) or `host`."""

    where: str
    text: str


class OomScanner:
    """Looks through a byte stream chunk by chunk, also across their borders; reports the first find of each kind.

    A cheap search for a few words goes first, so that ordinary output passes at memory speed.
    """

    def __init__(self) -> None:
        self._tail = b""
        self._found: set[str] = set()

    def feed(self, chunk: bytes) -> list[OomText]:
        """New finds in `chunk` (with the end of the chunk before)."""
        if len(self._found) == 2:
            return []
        window = self._tail + chunk
        self._tail = window[-_TAIL_BYTES:]
        if not any(hint in window for hint in _HINTS):
            return []
        finds = []
        for where, pattern in (("cuda", _CUDA), ("host", _HOST)):
            match = None if where in self._found else pattern.search(window)
            if match is not None:
                self._found.add(where)
                finds.append(OomText(where, _line_around(window, match.start())))
        return finds


def _line_around(window: bytes, position: int) -> str:
    start = window.rfind(b"\n", 0, position) + 1
    end = window.find(b"\n", position)
    line = window[start : end if end >= 0 else len(window)]
    return line.decode("utf-8", errors="replace").strip()[:_TEXT_CHARS]


def is_out_of_memory(error: BaseException) -> str | None:
    """`cuda`, `host` or None: whether an exception says that memory ran out."""
    if type(error).__name__ in ("OutOfMemoryError", "ResourceExhaustedError", "XlaRuntimeError"):
        return "cuda" if type(error).__name__ != "XlaRuntimeError" or b"xhausted" in str(error).encode() else None
    if isinstance(error, MemoryError):
        return "host"
    finds = OomScanner().feed(str(error).encode(errors="replace"))
    return finds[0].where if finds else None
