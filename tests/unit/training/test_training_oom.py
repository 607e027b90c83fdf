"""Out-of-memory text as the frameworks, Slurm and the kernel really print it."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ischeduler.training.oom import OomScanner, is_out_of_memory

CUDA = [
    b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 31.73 GiB",
    b"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    b"RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.90 GiB total capacity)",
    b"RuntimeError: CUDA error: out of memory",
    b"torch.OutOfMemoryError: HIP out of memory. Tried to allocate 64.00 MiB",
    b"RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    b"RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    b"jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes.",
    b"tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape[256,256]",
    b"failed to allocate memory: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
]
HOST = [
    b"MemoryError",
    b"numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7.45 GiB for an array",
    b"RuntimeError: [enforce fail at alloc_cpu.cpp:121] . DefaultCPUAllocator: can't allocate memory: you tried to allocate",
    b"terminate called after throwing an instance of 'std::bad_alloc'",
    b"OSError: [Errno 12] Cannot allocate memory",
    b"slurmstepd: error: Detected 1 oom_kill event in StepId=4182.batch. Some of the step tasks have been OOM Killed.",
    b"slurmstepd: error: Job 12 exceeded memory limit (1048576 > 512000), being killed",
    b"slurmstepd: error: Step 12.0 exceeded memory limit",
    b"RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed.",
]
INNOCENT = [
    b"loss 0.25 memory 23.1/24 GB",
    b"peak memory allocated: 4.2 GB",
    b"Saving out of memory-mapped file",
    b"cannot find room 12, zoom is on",
    b"Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation",
    b"except MemoryError: # handled",
    b"epoch 3/50 memory: rss 12 GB",
]


@pytest.mark.parametrize("line", CUDA)
def test_accelerator_text(line: bytes) -> None:
    assert [find.where for find in OomScanner().feed(b"step 12\n" + line + b"\n")] == ["cuda"]


@pytest.mark.parametrize("line", HOST)
def test_host_text(line: bytes) -> None:
    finds = OomScanner().feed(b"step 12\n" + line + b"\nbye\n")
    assert [(find.where, find.text) for find in finds] == [("host", line.decode())]


@pytest.mark.parametrize("line", INNOCENT)
def test_innocent_text(line: bytes) -> None:
    assert OomScanner().feed(line + b"\n") == []


@given(st.sampled_from(CUDA + HOST), st.integers(1, 40), st.binary(max_size=60))
def test_text_is_found_across_chunk_borders(line: bytes, size: int, before: bytes) -> None:
    scanner, text = OomScanner(), before + b"\n" + line + b"\n"
    finds = [find for start in range(0, len(text), size) for find in scanner.feed(text[start : start + size])]
    assert {find.where for find in finds} >= {"cuda" if line in CUDA else "host"}


def test_each_kind_is_reported_once() -> None:
    scanner = OomScanner()
    assert len(scanner.feed(CUDA[0] + b"\n")) == 1
    assert scanner.feed(CUDA[1] + b"\n") == []
    assert len(scanner.feed(HOST[0] + b"\n")) == 1


def test_ordinary_output_passes_at_hundreds_of_megabytes_a_second() -> None:
    line = b"epoch 3 step 120 loss 0.2345 lr 1e-3 images/s 1234.5 eta 0:12:34\n"
    chunk = line * (65536 // len(line))
    scanner, start_s = OomScanner(), time.process_time()
    for _ in range(1600):
        scanner.feed(chunk)
    assert 1600 * len(chunk) / (time.process_time() - start_s) > 100e6


def test_binary_noise_is_harmless() -> None:
    noise = random.Random(7).randbytes(1 << 20)
    assert OomScanner().feed(noise) == []


def test_exceptions() -> None:
    assert is_out_of_memory(MemoryError()) == "host"
    assert is_out_of_memory(RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")) == "cuda"
    assert is_out_of_memory(ValueError("bad shape")) is None
    assert is_out_of_memory(SystemExit(85)) is None
