"""What the queue estimator would have said of past waits, each from the waits before it: evidence without having predicted. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from ischeduler.core.history import HistoryRecord
from ischeduler.estimators.learning.outcomes import Outcome
from ischeduler.estimators.queuewait.past import past_waits

LABEL = "queue@1 (past waits, replayed)"
FEWEST = 5
"""Waits before the first that is judged."""
MEMORY = 200
"""How many of the latest waits of a partition are looked back on."""


def replayed_waits(records: Iterable[HistoryRecord]) -> tuple[Outcome, ...]:
    """One outcome a job from the sixth on of each partition, told from those that had *started* before it was submitted."""
    by_place: dict[tuple[str, str], list[HistoryRecord]] = {}
    for record in records:
        if record.wait_s is not None and record.run_s is not None:
            by_place.setdefault((record.cluster, record.partition), []).append(record)
    found: list[Outcome] = []
    for (cluster, partition), rows in sorted(by_place.items()):
        ordered = sorted(rows, key=_started)
        starts = [_started(r) for r in ordered]
        for number, record in enumerate(ordered):
            waited = record.wait_s or 0.0
            asked = starts[number] - waited
            known = ordered[: min(number, bisect_right(starts, asked))][-MEMORY:]
            waits = past_waits(known, partition, record.nodes, asked) if len(known) >= FEWEST else None
            if waits is not None:
                told = (starts[number], waits.p10, waits.p50, waits.p90, waited)
                found.append(Outcome(LABEL, "queue_wait", f"{cluster}/{partition}", "", *told))
    return tuple(found)


def _started(record: HistoryRecord) -> float:
    return record.finished_at - (record.run_s or 0.0)
