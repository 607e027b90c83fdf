"""The figures of a simulation. Standard library only, so that they can be shown where numpy is not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Summary:
    """Figures of one simulation. Waits in seconds over the jobs that started; utilisation in [0, 1] from first start to last end."""

    trace: str
    scheduler: str
    nodes: int
    jobs: int
    started: int
    never_started: int
    makespan_s: int
    utilisation: float
    wait_mean_s: float
    wait_p50_s: float
    wait_p90_s: float
    wait_p95_s: float
    wait_max_s: float
    waited_share: float
    bounded_slowdown_mean: float
    queue_depth_mean: float
    queue_depth_max: int
    recorded_wait_mean_s: float | None
