"""The 'scaling' estimator: this user's own runs of several sizes, the method chosen by data, margins that were measured.

It speaks where a law can be fitted: runs of the same training on the same node type with the same batch, of at least three
sizes (for one number of epochs), such as scaled-down runs leave. Otherwise it passes silently and 'history' answers. Method,
odd sizes and margins come from all the runs of several sizes that the request shows, other models and node types included.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median

from ischeduler.core.estimate import Estimate
from ischeduler.core.history import HistoryRecord
from ischeduler.estimators.evidence import NoEvidence, newest, resources_of, similar, summary, widest
from ischeduler.estimators.learning.drift import FEWEST, last_drift
from ischeduler.estimators.walltime.law import fit_law
from ischeduler.estimators.walltime.models import TABLES, RunTimeModel
from ischeduler.estimators.walltime.selection import Selection, select
from ischeduler.estimators.walltime.timed import MIN_SIZES, Config, TimedRun
from ischeduler.ports import EstimateRequest, EstimatorInfo

FAR = 4.0
"""Beyond this many times the largest run seen, extrapolation is said."""
_EXAMINED = 2.0
_PER_DOUBLING = 0.04
_CORE_STEP = math.log(1.25)
_KEPT = 4

class ScalingEstimator:
    """Run time from runs of several sizes. ``candidates`` are the methods that compete. Selections are kept by their evidence."""

    info = EstimatorInfo(
        "scaling", "1", ("run_time",), "history",
        "this user's own runs of several sizes: a fixed part and a rate, the method chosen by data",
    )

    def __init__(self, candidates: Sequence[RunTimeModel] = TABLES) -> None:
        self._candidates = candidates
        self._kept: dict[tuple[TimedRun, ...], Selection] = {}

    def estimate(self, request: EstimateRequest) -> Estimate:
        """NoEvidence where too few sizes of this training were run."""
        if not request.workload.samples:
            raise NoEvidence("how many samples there are is not known")
        similar_runs = _similar(request)
        if not similar_runs:
            raise NoEvidence("no finished run of this training on the node type")
        batch = request.workload.batch * request.workload.grad_accum
        wanted = TimedRun(
            request.workload.family, _hardware(similar_runs[-1]), batch, request.workload.samples, request.workload.epochs,
        )  # fmt: skip
        pool = _pool(request.history)
        own = pool.get(wanted.config, [])
        if not own:
            raise NoEvidence(f"no runs of {MIN_SIZES} sizes at this batch")
        chosen = self._selection([r for found in pool.values() for r in found])
        return _answer(request, chosen, wanted, own, similar_runs)

    def _selection(self, runs: list[TimedRun]) -> Selection:
        """Choosing takes a second or two with a thousand runs; a plan asks once for each place."""
        key = tuple(sorted(runs, key=lambda r: (r.config, r.samples, r.epochs, r.seconds)))
        found = self._kept.get(key)
        if found is None:
            found = select(key, self._candidates)
            self._kept = {**dict(list(self._kept.items())[1 - _KEPT :]), key: found}
        return found


def _answer(
    request: EstimateRequest, chosen: Selection, wanted: TimedRun, own: Sequence[TimedRun], records: Sequence[HistoryRecord],
) -> Estimate:
    startup = _startup(records)
    low, middle, high = _interval(chosen, wanted, own)
    seen = max(r.seen for r in own)
    wider = widest(max(1.0, wanted.seen / seen / _EXAMINED), 1.0, _PER_DOUBLING)
    reason = f"{len(own)} own runs of {len({r.samples for r in own})} sizes on {records[-1].cluster}, {chosen.words}"
    if wanted.seen > FAR * seen:
        reason += f"; extrapolated {wanted.seen / seen:.0f} times beyond the largest run seen, so wider"
    info = ScalingEstimator.info
    return Estimate(
        startup + low / wider, startup + middle, startup + high * wider, "s", f"{info.name}@{info.version}",
        basis=info.basis, as_of=newest(records), reason=reason,
    )  # fmt: skip


def _similar(request: EstimateRequest) -> list[HistoryRecord]:
    """Whole runs of this training at any batch, own cluster only, with about the cores asked for on CPU nodes; oldest first."""
    resources = resources_of(request)
    found = [
        r for r in _whole(similar(request, kinds=("run", "attempt"), same_batch=False))
        if request.cluster is None or r.cluster == request.cluster.name
    ]
    if not resources.gpus_per_node:
        cores = resources.cpus_per_node
        found = [r for r in found if not r.cpus or abs(r.cpus - cores * r.nodes) <= 0.2 * cores * r.nodes]
    return sorted(found, key=lambda r: r.finished_at)


def _whole(records: Iterable[HistoryRecord]) -> list[HistoryRecord]:
    """Trainings that came to their end; a run and its only job tell the same, so the run speaks."""
    ended = [
        r for r in records
        if r.run_s and r.samples and r.epochs and r.batch_size and (r.kind == "run" or (r.kind == "attempt" and r.cause == "finished"))
    ]
    runs = {r.run_id for r in ended if r.kind == "run"}
    return [r for r in ended if r.kind == "run" or r.run_id not in runs]


def _pool(history: Sequence[HistoryRecord]) -> dict[Config, list[TimedRun]]:
    """Runs by configuration, those before a drift left out; only configurations of several sizes."""
    parts: dict[Config, list[TimedRun]] = {}
    for record in sorted(_whole(history), key=lambda r: r.finished_at):
        run = _timed(record)
        parts.setdefault(run.config, []).append(run)
    several = {config: _since_drift(runs) for config, runs in parts.items() if _most_sizes(runs) >= MIN_SIZES}
    return several


def _timed(record: HistoryRecord) -> TimedRun:
    run_s = record.run_s or 0.0
    return TimedRun(
        record.family, _hardware(record), record.batch_size * record.grad_accum, record.samples, record.epochs,
        max(run_s - (record.startup_s or 0.0), 0.05 * run_s),
    )  # fmt: skip


def _hardware(record: HistoryRecord) -> str:
    """What one rate holds for, beside model and batch. On CPU nodes core counts within about a tenth are one."""
    size = f"{record.gpus} gpus" if record.gpus else f"cores {round(math.log(max(1, record.cpus)) / _CORE_STEP)}"
    return f"{record.cluster}/{record.node_type} {record.nodes} x {size} {record.precision} {record.optimizer}"


def _startup(records: Sequence[HistoryRecord]) -> float:
    seen = [r.startup_s for r in records if r.startup_s]
    return median(seen) if seen else 0.0


def _most_sizes(runs: Sequence[TimedRun]) -> int:
    """How many sizes were run with one number of epochs, where these are most."""
    return max((len({r.samples for r in runs if r.epochs == e}) for e in {r.epochs for r in runs}), default=0)


def _since_drift(runs: list[TimedRun]) -> list[TimedRun]:
    """One configuration's runs (oldest first) since the last drift, where these repeat enough sizes; else all of them.

    Sizes that were only run lately say nothing of a drift: what is new may be the size.
    """
    if len(runs) <= FEWEST:
        return runs
    law = fit_law(runs)
    drift = last_drift([math.log(r.seconds / law.seconds(r.samples, r.epochs)) for r in runs])
    if drift is None:
        return runs
    old, fresh = runs[: drift.index], runs[drift.index :]
    again = {(r.samples, r.epochs) for r in fresh} & {(r.samples, r.epochs) for r in old}
    return fresh if len({samples for samples, _ in again}) >= MIN_SIZES and _most_sizes(fresh) >= MIN_SIZES else runs


def _interval(chosen: Selection, wanted: TimedRun, own: Sequence[TimedRun]) -> tuple[float, float, float]:
    """Measured margins where enough were examined, else what a handful of residuals supports."""
    measured = chosen.interval(wanted)
    if measured is not None:
        return measured
    ratios = [r.seconds / chosen.predict(replace(r, seconds=0.0)).seconds for r in own]
    spread = summary(ratios)
    middle = chosen.predict(wanted).seconds
    return middle * spread.p10 / spread.p50, middle, middle * spread.p90 / spread.p50
