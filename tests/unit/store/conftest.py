"""A run to store."""

from __future__ import annotations

import pytest

from ischeduler.core.estimate import Estimate
from ischeduler.core.jobs import Resources
from ischeduler.core.plan import Needs, Plan
from ischeduler.core.run import Run, RunState
from ischeduler.core.workload import Workload


@pytest.fixture
def some_run() -> Run:
    """A small run."""
    some = Estimate.exact(1.0, "s", "sample@1")
    plan = Plan(1, "lab", "gpu", "box", Workload("timm:resnet18"), Resources(), (), Needs(), some, some, some, some)
    return Run("r-1", "alice", plan, RunState.PLANNED, "/scratch/r-1", created_at=1.0)
