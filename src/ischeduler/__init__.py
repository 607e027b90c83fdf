"""iScheduler: says what a DNN training will need on every partition its user can reach, and carries it to completion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ischeduler.core.workload import Workload
    from ischeduler.helper.api import Plans, RunHandle, clusters, estimate, plan, run, runs

__all__ = ["Plans", "RunHandle", "Workload", "__version__", "clusters", "estimate", "plan", "run", "runs"]


def __getattr__(name: str) -> Any:
    """Import the Helper only when it is used: ``import ischeduler`` must cost nothing inside a job."""
    from importlib import import_module

    if name == "Workload":
        return import_module("ischeduler.core.workload").Workload
    if name in __all__:
        return getattr(import_module("ischeduler.helper.api"), name)
    raise AttributeError(f"module 'ischeduler' has no attribute '{name}'")
