"""Small worlds for the estimators' tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ischeduler.core.cluster import Accelerator, ChargePolicy, Cluster, NodeType, Partition
from ischeduler.core.estimate import Estimate
from ischeduler.core.history import HistoryRecord
from ischeduler.core.workload import Workload
from ischeduler.ports import EstimateRequest, EstimatorInfo

NOW = 1_800_000_000.0
CARD = Accelerator("v100-32g", 32 * 2**30, fp32_flops=15.7e12, bf16_flops=125e12, bandwidth_bytes_s=9e11)
GPU = NodeType("gpu", 48, 384 * 2**30, CARD, 2, 40)
CPU = NodeType("cpu", 28, 128 * 2**30)
PARTITION = Partition("gpu", ("gpu",))
CLUSTER = Cluster("pitzer", partitions=(PARTITION, Partition("cpu", ("cpu",))), node_types=(GPU, CPU),
                  charge=ChargePolicy("core-gpu-hours", "RU", 0.003, {"gpu_weight": 30.0}))
WORK = Workload(model="timm:resnet50", samples=20_000, epochs=10, batch_size=32, gpus=1, cpus=8)


def request(quantity: str = "run_time", **changes: Any) -> EstimateRequest:
    """A request for the V100 partition, changed as wanted."""
    base = EstimateRequest(quantity, WORK, NOW, CLUSTER, PARTITION, GPU)
    return replace(base, **changes)


def finished(**changes: Any) -> HistoryRecord:
    """A run of :data:`WORK` that took 200 s and 20 s of start-up."""
    base = HistoryRecord(
        "r1", "run", "me", WORK.family, "pitzer", "gpu", "gpu", NOW - 3600, batch_size=32, samples=20_000, epochs=10, gpus=1,
        cpus=8, run_s=220.0, startup_s=20.0, step_time_s=0.032, wait_s=600.0, gpu_memory_bytes=4 * 2**30,
        host_memory_bytes=5 * 2**30, cause="finished",
    )
    return replace(base, **changes)


class Fixed:
    """An estimator that answers, or raises, what it was made with."""

    def __init__(self, name: str, answer: Estimate | Exception, basis: str = "analytic", quantity: str = "startup") -> None:
        self.info = EstimatorInfo(name, "1", (quantity,), basis)
        self.answer = answer
        self.asked = 0

    def estimate(self, request: EstimateRequest) -> Estimate:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer
