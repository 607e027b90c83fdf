"""Cost from run time, by the centre's charging rule: dollars where it publishes a price, else its own unit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ischeduler.core.charging import Charged, charge_units, charge_usd
from ischeduler.core.cluster import ChargePolicy, NodeType, Partition
from ischeduler.core.estimate import Estimate
from ischeduler.core.jobs import Resources
from ischeduler.estimators.evidence import resources_of
from ischeduler.ports import EstimateRequest, EstimatorInfo

SOURCE = "charging@1"


def cost_of(run: Estimate, policy: ChargePolicy, partition: Partition, node_type: NodeType, resources: Resources) -> Estimate:
    """The charge of one job that runs that long; basis and age are the run time's."""
    jobs = [Charged(partition, node_type, resources, used_s) for used_s in (run.p10, run.p50, run.p90)]
    units = [charge_units(policy, job) for job in jobs]
    prices = [charge_usd(policy, job) for job in jobs]
    low, middle, high = (u if p is None else p for u, p in zip(units, prices, strict=True))
    unit = policy.unit if policy.usd_per_unit is None else "usd"
    reason = f"rule {policy.rule} on {run.source}'s run time"
    return Estimate(low, middle, high, unit, f"{SOURCE}({run.source})", basis=run.basis, as_of=run.as_of, reason=reason)


class CostEstimator:
    """The registry's face of :func:`cost_of`."""

    info = EstimatorInfo("charging", "1", ("cost",), "trace", "the centre's charging rule on the run time")

    def __init__(self, ask: Callable[[EstimateRequest], Estimate]) -> None:
        self._ask = ask

    def estimate(self, request: EstimateRequest) -> Estimate:
        """EstimatorFailed when nobody knows the run time."""
        assert request.cluster is not None
        assert request.partition is not None
        assert request.node_type is not None
        run = self._ask(replace(request, quantity="run_time"))
        return cost_of(run, request.cluster.charge, request.partition, request.node_type, resources_of(request))
