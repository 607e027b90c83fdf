"""The walltime estimator as a plug-in: run time from finished runs and profiles alone, which is all that a container is shown."""

from __future__ import annotations

from dataclasses import replace

from ischeduler.core.errors import EstimatorFailed
from ischeduler.core.estimate import Estimate
from ischeduler.estimators.builtins import built_ins
from ischeduler.estimators.evidence import NoEvidence
from ischeduler.estimators.registry import Registry
from ischeduler.estimators.walltime.formula import WalltimeEstimator
from ischeduler.ports import EstimateRequest, EstimatorInfo

EVIDENCE = ("history", "profile")
"""Bases that rest on measurements of the very workload; a trace would need torch in the image."""


class WalltimeImage:
    """Asks the package's own estimators in their order of trust; start-up + steps x step time where no whole run is known."""

    info = EstimatorInfo(
        "walltime-image", "1", ("run_time",), "history", "the package's walltime estimators on finished runs and profiles, as an image",
    )

    def __init__(self) -> None:
        parts = [e for e in built_ins(plug_ins=False).registry if e.info.basis in EVIDENCE or e.info.name == "startup-prior"]
        self._registry = Registry(reversed(parts))  # of equal trust, the one added later is asked first
        self._registry.add(WalltimeEstimator(lambda request: self._registry.answer(request)[0]))

    def estimate(self, request: EstimateRequest) -> Estimate:
        """NoEvidence where nothing similar has been measured."""
        try:
            answer, _ = self._registry.answer(request)
        except EstimatorFailed as error:
            raise NoEvidence(f"nothing similar has been measured: {error}") from None
        return replace(answer, source=f"{self.info.name}@{self.info.version}({answer.source})")
