"""Two estimators side by side on finished runs, each asked with what was known before that run began. Pure but for the asking."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ischeduler.core.errors import IschedError
from ischeduler.core.estimate import Estimate
from ischeduler.core.history import HistoryRecord
from ischeduler.core.workload import Workload
from ischeduler.estimators.contract import QUANTITIES
from ischeduler.ports import EstimateRequest, Estimator

ACTUAL: Mapping[str, str] = {
    "run_time": "run_s", "step_time": "step_time_s", "startup": "startup_s", "checkpoint": "checkpoint_s",
    "gpu_memory": "gpu_memory_bytes", "host_memory": "host_memory_bytes", "queue_wait": "wait_s",
}
"""Which field of a finished run is the truth of a quantity."""
_WAIT_KINDS = ("attempt",)

Complete = Callable[[EstimateRequest, HistoryRecord], EstimateRequest]
"""Adds cluster, partition, node type and resources, as far as the record tells."""


@dataclass(frozen=True, slots=True)
class Score:
    """One estimator on one quantity. ``error`` is the median of |p50 - actual| / actual, ``bias`` the median of
    (p50 - actual) / actual, ``coverage`` the share of runs inside p10 to p90, ``under_p90`` the share at or below p90.
    None where it answered nothing.
    """

    source: str
    quantity: str
    runs: int
    answered: int
    error: float | None
    bias: float | None
    coverage: float | None
    under_p90: float | None
    example_refusal: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Scores in pairs (first, second) by quantity; ``common`` counts the runs both answered, on which they are scored."""

    first: str
    second: str
    scores: tuple[Score, ...]
    common: Mapping[str, int]
    verdict: str


def compare(
    first: Estimator, second: Estimator, records: Sequence[HistoryRecord], complete: Complete, quantities: Iterable[str] = (),
    limit: int = 50,
) -> Comparison:
    """Score both on the newest ``limit`` records that have the truth of a quantity both answer.

    History shown is that which had finished before a run began.
    """
    wanted = [q for q in (quantities or ACTUAL) if q in ACTUAL and _both(first, second, q)]
    scores: list[Score] = []
    common: dict[str, int] = {}
    for quantity in wanted:
        asked = [(r, float(truth)) for r in records if (truth := _truth(r, quantity)) is not None]
        asked = sorted(asked, key=lambda pair: pair[0].finished_at)[-limit:]
        if not asked:
            continue
        answers = [(_ask(first, r, quantity, records, complete), _ask(second, r, quantity, records, complete), t) for r, t in asked]
        pairs = [(a, b, t) for a, b, t in answers if isinstance(a, Estimate) and isinstance(b, Estimate)]
        common[quantity] = len(pairs)
        scores.append(_score(first, quantity, [a for a, _, _ in answers], [(a, t) for a, _, t in pairs]))
        scores.append(_score(second, quantity, [b for _, b, _ in answers], [(b, t) for _, b, t in pairs]))
    return Comparison(_name(first), _name(second), tuple(scores), common, _verdict(scores, common))


def _both(first: Estimator, second: Estimator, quantity: str) -> bool:
    return quantity in first.info.quantities and quantity in second.info.quantities


def _truth(record: HistoryRecord, quantity: str) -> float | None:
    value = getattr(record, ACTUAL[quantity])
    if value is None or value <= 0 or (quantity == "queue_wait") != (record.kind in _WAIT_KINDS):
        return None
    if QUANTITIES[quantity].per_data and not (record.samples and record.epochs):
        return None
    return float(value)


def _ask(
    estimator: Estimator, record: HistoryRecord, quantity: str, records: Sequence[HistoryRecord], complete: Complete
) -> Estimate | str:
    began = record.finished_at - (record.run_s or 0.0) - (record.wait_s or 0.0)
    earlier = tuple(r for r in records if r.finished_at <= began and r.run_id != record.run_id)
    request = EstimateRequest(quantity, workload_of(record), began, history=earlier)
    try:
        return estimator.estimate(complete(request, record))
    except IschedError as error:
        return str(error)
    except Exception as error:  # other people's code: its crash is a refusal here
        return f"{type(error).__name__}: {error}"


def workload_of(record: HistoryRecord) -> Workload:
    """The training a record tells of, as far as it does."""
    script = record.family.endswith(".py")
    return Workload(
        model="" if script else record.family, command=(record.family,) if script else (), samples=record.samples,
        epochs=max(1, record.epochs), batch_size=max(1, record.batch_size), grad_accum=max(1, record.grad_accum),
        precision=record.precision, optimizer=record.optimizer, nodes=max(1, record.nodes), gpus=record.gpus or None,
        cpus=record.cpus or None,
    )


def _score(
    estimator: Estimator, quantity: str, answers: Sequence[Estimate | str], pairs: Sequence[tuple[Estimate, float]]
) -> Score:
    refusals = [a for a in answers if isinstance(a, str)]
    answered = len(answers) - len(refusals)
    refusal = refusals[-1] if refusals else ""
    if not pairs:
        return Score(_name(estimator), quantity, len(answers), answered, None, None, None, None, refusal)
    signed = [(e.p50 - t) / t for e, t in pairs]
    return Score(
        _name(estimator), quantity, len(answers), answered, statistics.median(abs(s) for s in signed), statistics.median(signed),
        sum(e.p10 <= t <= e.p90 for e, t in pairs) / len(pairs), sum(t <= e.p90 for e, t in pairs) / len(pairs), refusal,
    )


def _name(estimator: Estimator) -> str:
    digest = getattr(estimator, "digest", "")
    return f"{estimator.info.name}@{estimator.info.version}" + (f"+{digest[:19]}" if digest else "")


def _verdict(scores: Sequence[Score], common: Mapping[str, int]) -> str:
    if not scores:
        return "No finished run has the truth of a quantity that both answer."
    words: list[str] = []
    for left, right in zip(scores[::2], scores[1::2], strict=True):
        if left.error is None or right.error is None:
            words.append(f"{left.quantity}: no run was answered by both")
            continue
        better, worse = (right, left) if right.error < left.error else (left, right)
        same = left.error == right.error
        lead = "equal" if same else f"{better.source} errs less ({better.error:.1%} against {worse.error:.1%})"
        words.append(f"{left.quantity}: {lead} on {common[left.quantity]} run(s)")
    return "; ".join(words) + "."
