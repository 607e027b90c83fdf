"""The 'host-memory' estimator of last resort: no trace, only what a training process holds anyway."""

from __future__ import annotations

from ischeduler.core.estimate import Estimate
from ischeduler.estimators.evidence import NoEvidence, resources_of
from ischeduler.estimators.memory.host import host_memory
from ischeduler.ports import EstimateRequest, EstimatorInfo


class HostMemoryPrior:
    """Node memory of a process on an accelerator; on CPU nodes the tensors decide, and only a trace knows them."""

    info = EstimatorInfo("host-memory", "1", ("host_memory",), "analytic", "interpreter, libraries and data loading")

    def estimate(self, request: EstimateRequest) -> Estimate:
        """NoEvidence on CPU nodes."""
        gpus = resources_of(request).gpus_per_node
        if not gpus:
            raise NoEvidence("on CPU nodes the training's tensors decide, and they were not traced")
        return host_memory(request.workload, None, True, gpus)
