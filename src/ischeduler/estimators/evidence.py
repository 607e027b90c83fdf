"""Which finished runs speak for a request, and what spread a handful of them supports. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ischeduler.core.errors import EstimatorFailed
from ischeduler.core.history import HistoryRecord
from ischeduler.core.jobs import Resources
from ischeduler.ports import EstimateRequest

PRIOR_SPREAD = 0.12
"""Log-spread (about 12 %) assumed of repeated runs before any were seen, worth :data:`PRIOR_RUNS` of them."""
PRIOR_RUNS = 3
_T90 = {1: 3.08, 2: 1.89, 3: 1.64, 4: 1.53, 5: 1.48, 6: 1.44, 7: 1.41, 8: 1.40, 9: 1.38, 10: 1.37}
"""Student's t at 90 % by degrees of freedom."""


class NoEvidence(EstimatorFailed):
    """This estimator has nothing to go by here: quietly ask the next."""


@dataclass(frozen=True, slots=True)
class Quantiles:
    """A factor-wise summary: p10 <= p50 <= p90 of positive figures, and how many there were."""

    p10: float
    p50: float
    p90: float
    n: int

    def widened(self, factor: float) -> Quantiles:
        """Both sides further out by a factor of at least 1."""
        return Quantiles(self.p10 / factor, self.p50, self.p90 * factor, self.n)


def summary(values: Iterable[float], prior_spread: float = PRIOR_SPREAD) -> Quantiles:
    """Median and a predictive 80 % interval of positive figures, on the log scale, honest for small samples.

    The spread is robust (median absolute deviation, but at least half the plain deviation) and mixed with a prior;
    Student's t and ``sqrt(1 + 1/n)`` widen it for few. NoEvidence when there are none.
    """
    logs = [math.log(v) for v in values if v > 0]
    if not logs:
        raise NoEvidence("no similar finished run")
    n = len(logs)
    centre = statistics.median(logs)
    robust = 1.4826 * statistics.median(abs(x - centre) for x in logs)
    plain = statistics.stdev(logs) if n > 1 else 0.0
    spread = max(robust, plain / 2)
    mixed = math.sqrt((PRIOR_RUNS * prior_spread**2 + (n - 1) * spread**2) / (PRIOR_RUNS + n - 1))
    half = _T90.get(PRIOR_RUNS + n - 1, 1.31) * mixed * math.sqrt(1 + 1 / n)
    return Quantiles(math.exp(centre - half), math.exp(centre), math.exp(centre + half), n)


def widest(first: float, second: float, per_doubling: float) -> float:
    """The widening factor for going from one size to another: ``1 + per_doubling`` for each doubling or halving."""
    if first <= 0 or second <= 0:
        return 1.0
    return (1.0 + per_doubling) ** abs(math.log2(first / second))


def resources_of(request: EstimateRequest) -> Resources:
    """What one job asks for: the option ``resources`` where given, else the workload's own words, else a whole node's share."""
    given = request.options.get("resources")
    if isinstance(given, Resources):
        return given
    node, workload = request.node_type, request.workload
    gpus = 0
    if node is not None and node.accelerators_per_node:
        gpus = min(max(1, workload.gpus or 1), node.accelerators_per_node)
    cpus = workload.cpus or (node.cores if node is not None and node.cores and not gpus else 1)
    own = Resources(nodes=workload.nodes, cpus_per_node=cpus, memory_bytes=workload.memory_bytes, gpus_per_node=gpus)
    if not isinstance(given, dict):
        return own
    return Resources(**{**{f: getattr(own, f) for f in ("nodes", "cpus_per_node", "memory_bytes", "gpus_per_node")},
                        **{k: v for k, v in given.items() if k in ("nodes", "cpus_per_node", "memory_bytes", "gpus_per_node")}})


def similar(request: EstimateRequest, *, kinds: Sequence[str], same_batch: bool = True) -> list[HistoryRecord]:
    """Finished work of the same model, precision, optimizer and parallelism on the same node type; own cluster first."""
    workload, node, resources = request.workload, request.node_type, resources_of(request)
    found = [
        r for r in request.history
        if r.kind in kinds and r.family == workload.family and r.precision == workload.precision
        and (node is None or r.node_type == node.name) and r.nodes == resources.nodes
        and _same_gpus(r, resources)
        and (not same_batch or (r.batch_size == workload.batch and r.grad_accum == workload.grad_accum))
    ]
    here = [r for r in found if request.cluster is None or r.cluster == request.cluster.name]
    return here or found


def _same_gpus(record: HistoryRecord, resources: Resources) -> bool:
    """Writers count GPUs a node or in all; either may match."""
    per_node = resources.gpus_per_node
    return not per_node or not record.gpus or record.gpus in (per_node, per_node * resources.nodes)


def newest(records: Iterable[HistoryRecord]) -> float | None:
    """When the newest of them finished."""
    return max((r.finished_at for r in records), default=None)


def words(records: Sequence[HistoryRecord], what: str) -> str:
    """``from 7 similar runs on pitzer``."""
    places = ", ".join(dict.fromkeys(r.cluster for r in records))
    return f"{what} from {len(records)} similar finished run{'s' if len(records) != 1 else ''} on {places}"
