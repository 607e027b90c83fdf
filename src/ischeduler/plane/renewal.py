"""Pilots of pools are renewed before they end, whatever provisioner other runs have."""

from __future__ import annotations

from dataclasses import dataclass

from ischeduler.core.run import Run
from ischeduler.plane.provisioners import REACTIVE, Forecast
from ischeduler.plane.provisioners.rules import segment_of, submit_at
from ischeduler.ports import Foresight, Provisioner

PILOT_PROGRAM = "ischeduler.training.pilot"
RENEWAL_SHARE = 0.25
"""Of a pilot's walltime: so long before its end the next one is queued."""


def is_pilot(run: Run) -> bool:
    """Whether a run is a pilot of a pool."""
    return PILOT_PROGRAM in run.plan.workload.command


@dataclass(frozen=True, slots=True)
class Renewal:
    """When a pilot's successor is queued: a share of its walltime before its end, without a look at the queue.

    Its start ends the predecessor, whose members save and go on in it: an early start costs one checkpoint each, a late one the pool's
    accelerators. Pilots therefore start early rather than late.
    """

    share: float = RENEWAL_SHARE

    def submit_at(self, run: Run, now: float) -> float | None:
        """The port's question."""
        if segment_of(run) is None:
            return None
        return submit_at(_Lead(self.share * run.plan.resources.walltime_s), run, now, None)


@dataclass(frozen=True, slots=True)
class _Lead:
    seconds: float

    def lead_s(self, forecast: Forecast | None) -> float | None:
        return self.seconds


class PilotsRenewed:
    """A Foresight that answers for pilots itself and asks ``others`` for all other runs (None: they are reactive)."""

    def __init__(self, others: Foresight | None) -> None:
        self._others = others

    def provisioner(self, run: Run, now: float) -> tuple[Provisioner, str]:
        """The rule for this run, and what was wrong."""
        if is_pilot(run):
            return Renewal(), ""
        return (REACTIVE, "") if self._others is None else self._others.provisioner(run, now)
