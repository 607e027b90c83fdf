"""The scheduling policy an option names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ischeduler.simulator.engine.classic import Easy, Fcfs
from ischeduler.simulator.engine.conservative import Conservative
from ischeduler.simulator.engine.options import SchedulerOptions
from ischeduler.simulator.engine.slurm import Slurm

if TYPE_CHECKING:
    from ischeduler.simulator.engine.cluster_sim import Policy


def policy_of(options: SchedulerOptions) -> Policy:
    """A new policy."""
    kinds = {"slurm": Slurm, "fcfs": Fcfs, "easy": Easy, "conservative": Conservative}
    return kinds[options.scheduler]()
