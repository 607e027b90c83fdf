"""A finished run as evidence for later estimates."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HistoryRecord:
    """What one attempt or run really took. Durations in seconds, memory in bytes, ``finished_at`` in epoch seconds.

    None where it was not observed. ``kind`` is 'run' (a whole run), 'attempt' (one job: its wait) or 'profile'.
    """

    run_id: str
    kind: str
    owner: str
    family: str
    cluster: str
    partition: str
    node_type: str
    finished_at: float
    accelerator: str | None = None
    batch_size: int = 0
    grad_accum: int = 1
    samples: int = 0
    epochs: int = 0
    precision: str = "fp32"
    optimizer: str = "sgd"
    nodes: int = 1
    gpus: int = 0
    cpus: int = 0
    walltime_s: float | None = None
    wait_s: float | None = None
    run_s: float | None = None
    startup_s: float | None = None
    step_time_s: float | None = None
    epoch_time_s: float | None = None
    checkpoint_s: float | None = None
    gpu_memory_bytes: int | None = None
    host_memory_bytes: int | None = None
    cause: str = ""
