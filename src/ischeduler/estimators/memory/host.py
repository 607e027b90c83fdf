"""Main memory of a training process: interpreter and libraries, data loading, and on CPU nodes the tensors themselves. Pure."""

from __future__ import annotations

from ischeduler.core.estimate import Estimate
from ischeduler.core.sizes import GIB, human_size
from ischeduler.core.workload import Workload
from ischeduler.estimators.memory.spec import TraceReport

SOURCE = "host-memory@1"
CPU_BASE_BYTES = (0.3 * GIB, 0.5 * GIB, 1.2 * GIB)
"""Interpreter with torch imported (0.25-0.3 GB resident) to one with pandas, vision and metrics packages."""
GPU_BASE_BYTES = (1.8 * GIB, 3.0 * GIB, 5.0 * GIB)
"""The same with CUDA's libraries and context loaded."""
WORKER_BYTES = (0.1 * GIB, 0.3 * GIB, 0.8 * GIB)
"""One data loader process beyond the pages it shares."""
PREFETCH = 2  # torch.utils.data.DataLoader's prefetch_factor
_CPU_TENSORS = (0.9, 1.1, 1.6)  # fragmentation and oneDNN's reordered copies


def host_memory(workload: Workload, trace: TraceReport | None, on_accelerator: bool, processes: int) -> Estimate:
    """Bytes a node needs for ``processes`` training processes.

    A data set held in memory is the user's to say: the option ``dataset_bytes``.
    """
    quantiles: list[float] = []
    held = float(workload.options.get("dataset_bytes", 0))
    batch = trace.inputs_bytes if trace else workload.batch * 4 * 3 * 224 * 224
    for place in range(3):
        process = (GPU_BASE_BYTES if on_accelerator else CPU_BASE_BYTES)[place]
        process += workload.workers * (WORKER_BYTES[place] + PREFETCH * batch) + 2 * batch
        if trace is not None:
            process += trace.weights_bytes if on_accelerator else trace.allocated_bytes * _CPU_TENSORS[place]
        quantiles.append(process * max(1, processes) + held)
    low, middle, high = quantiles
    basis = "trace" if trace else "analytic"
    return Estimate(low, middle, high, "bytes", SOURCE, basis=basis, reason=_reason(workload, trace, on_accelerator))


def _reason(workload: Workload, trace: TraceReport | None, on_accelerator: bool) -> str:
    parts = ["interpreter and libraries"]
    if workload.workers:
        parts.append(f"{workload.workers} data loader workers")
    if trace is not None:
        tensors = trace.weights_bytes if on_accelerator else trace.allocated_bytes
        parts.append(f"{'a copy of the weights' if on_accelerator else 'the training tensors'} ({human_size(tensors)})")
    text = ", ".join(parts)
    return text if "dataset_bytes" in workload.options else f"{text}; without a data set held in memory"
