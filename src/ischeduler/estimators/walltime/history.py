"""The 'history' and 'profile' estimators: what this user's own similar runs took.

For run time the rate per (family, node type, batch) times samples times epochs: on the HARP data it beats regressions and
trees by far when scaling up, because it extrapolates by the physics of training rather than by fitted shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ischeduler.core.estimate import Estimate
from ischeduler.core.history import HistoryRecord
from ischeduler.estimators.evidence import NoEvidence, Quantiles, newest, resources_of, similar, summary, widest, words
from ischeduler.ports import EstimateRequest, EstimatorInfo

FAR = 4.0
"""Beyond this many times the largest run seen, extrapolation is said and widens the interval."""
_PER_DOUBLING_SIZE = 0.04
_PER_DOUBLING_BATCH = 0.20
_OTHER_CLUSTER = 1.15
_SAME_SIZE_DOUBLINGS = 3.0  # the best of none, 1 and 3 on the HARP data
_FIELDS: dict[str, tuple[str, str, float]] = {
    "gpu_memory": ("gpu_memory_bytes", "bytes", 0.03),
    "host_memory": ("host_memory_bytes", "bytes", 0.10),
    "step_time": ("step_time_s", "s", 0.08),
    "startup": ("startup_s", "s", 0.40),
    "checkpoint": ("checkpoint_s", "s", 0.40),
}
_BATCH_MATTERS = ("gpu_memory", "host_memory", "step_time")


class HistoryEstimator:
    """Answers from finished runs in the request's history (the caller shows only what the user may see)."""

    info = EstimatorInfo(
        "history", "1", ("gpu_memory", "host_memory", "step_time", "startup", "checkpoint", "run_time"), "history",
        "this user's own finished runs of the same model on the same node type",
    )
    kinds: tuple[str, ...] = ("run", "attempt")

    def estimate(self, request: EstimateRequest) -> Estimate:
        """NoEvidence where nothing similar has finished."""
        return _run_time(request, self.info, self.kinds) if request.quantity == "run_time" else self._field(request)

    def _field(self, request: EstimateRequest) -> Estimate:
        name, unit, prior = _FIELDS[request.quantity]
        found = similar(request, kinds=self.kinds, same_batch=request.quantity in _BATCH_MATTERS)
        records = [r for r in found if getattr(r, name)]
        spread = _elsewhere(request, summary((float(getattr(r, name)) for r in records), prior), records)
        return _answer(spread, unit, self.info, records, words(records, name.rpartition("_")[0].replace("_", " ")))


class ProfileEstimator(HistoryEstimator):
    """The same from short profiles (records of kind 'profile'); run time follows from their step time."""

    info = EstimatorInfo(
        "profile", "1", ("gpu_memory", "host_memory", "step_time", "startup", "checkpoint"), "profile",
        "short profiles of the same model on the node type",
    )
    kinds = ("profile",)


def _run_time(request: EstimateRequest, info: EstimatorInfo, kinds: tuple[str, ...]) -> Estimate:
    finished = lambda r: bool(r.run_s and r.samples and r.epochs) and (r.kind == "run" or r.cause == "finished")  # noqa: E731
    records = [r for r in similar(request, kinds=kinds) if finished(r)]
    far_batch = 1.0
    if not records and not request.workload.model:
        # nothing can trace a bare command, so other batch sizes are the best there is
        records = [r for r in similar(request, kinds=kinds, same_batch=False) if finished(r)]
        nearest = min((widest(r.batch_size, request.workload.batch, _PER_DOUBLING_BATCH) for r in records), default=1.0)
        records = [r for r in records if widest(r.batch_size, request.workload.batch, _PER_DOUBLING_BATCH) == nearest]
        far_batch = nearest
    size = float(request.workload.samples * request.workload.epochs)
    records = _same_size(_same_cores(request, records), size)
    rates = summary(_rate(r) for r in records)
    startup = _startup(records)
    spread, note = _far(_elsewhere(request, rates, records), size, [float(r.samples * r.epochs) for r in records])
    spread = spread.widened(far_batch)
    scaled = Quantiles(startup + spread.p10 * size, startup + spread.p50 * size, startup + spread.p90 * size, spread.n)
    batch = "" if far_batch == 1.0 else f"; at batch {records[0].batch_size}, so wider"
    reason = words(records, f"rate of {1 / spread.p50:.3g} samples/s") + note + batch
    return _answer(scaled, "s", info, records, reason)


def _rate(record: HistoryRecord) -> float:
    """Seconds a sample and epoch, without start-up."""
    run_s = record.run_s or 0.0
    return max(run_s - (record.startup_s or 0.0), 0.05 * run_s) / (record.samples * record.epochs)


def _startup(records: Sequence[HistoryRecord]) -> float:
    seen = sorted(r.startup_s for r in records if r.startup_s)
    return seen[len(seen) // 2] if seen else 0.0


def _far(spread: Quantiles, size: float, seen: Sequence[float]) -> tuple[Quantiles, str]:
    nearest = min(seen, key=lambda s: widest(s, size, 1.0))
    spread = spread.widened(widest(nearest, size, _PER_DOUBLING_SIZE))
    if size > FAR * max(seen):
        return spread, f"; extrapolated {size / max(seen):.0f} times beyond the largest run seen, so wider"
    if size * FAR < min(seen):
        return spread, f"; extrapolated {min(seen) / size:.0f} times below the smallest run seen, so wider"
    return spread, ""


def _same_cores(request: EstimateRequest, records: list[HistoryRecord]) -> list[HistoryRecord]:
    """On CPU nodes the core count decides: runs within a fifth of it only."""
    resources = resources_of(request)
    if resources.gpus_per_node:
        return records
    near = [r for r in records if not r.cpus or abs(r.cpus - resources.cpus_per_node) <= 0.2 * resources.cpus_per_node]
    if not near:
        raise NoEvidence("similar runs used another number of cores")
    return near


def _same_size(records: list[HistoryRecord], size: float) -> list[HistoryRecord]:
    """The runs nearest in size and those within a factor of eight of them.

    Much shorter runs are mostly start-up and mislead; runs of one size alone may share an oddity (in the HARP data they do).
    """
    distance = {id(r): abs(math.log2(r.samples * r.epochs / size)) for r in records}
    nearest = min(distance.values(), default=0.0)
    return [r for r in records if distance[id(r)] <= nearest + _SAME_SIZE_DOUBLINGS]


def _elsewhere(request: EstimateRequest, spread: Quantiles, records: Sequence[HistoryRecord]) -> Quantiles:
    here: Callable[[HistoryRecord], bool] = lambda r: request.cluster is None or r.cluster == request.cluster.name  # noqa: E731
    return spread if all(here(r) for r in records) else spread.widened(_OTHER_CLUSTER)


def _answer(spread: Quantiles, unit: str, info: EstimatorInfo, records: Sequence[HistoryRecord], reason: str) -> Estimate:
    return Estimate(
        spread.p10, spread.p50, spread.p90, unit, f"{info.name}@{info.version}", basis=info.basis, as_of=newest(records),
        reason=reason,
    )
