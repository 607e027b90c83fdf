"""Features of the queue: only what was known at that second, the same for a trace and for a live queue."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("numba", reason="numba is not installed")

from queue_wait_worlds import UNITS, shuffled_after, trace

from ischeduler.core.errors import BadInput
from ischeduler.core.snapshot import FinishedJob, NodeCounts, QueuedJob, QueueSnapshot
from ischeduler.estimators.queuewait.features import Asked, names, of_trace
from ischeduler.estimators.queuewait.jobs import NEVER_S, Jobs, coded, from_columns
from ischeduler.estimators.queuewait.site import jobs_of
from ischeduler.estimators.queuewait.sweep import whose
from ischeduler.simulator.kernel import rollouts


@pytest.mark.parametrize("share", [0.4, 0.9])
@pytest.mark.parametrize("named", [True, False])
def test_another_future_changes_no_feature(share: float, named: bool) -> None:
    jobs = trace(named=named)
    now = float(jobs.submit_s[int(share * len(jobs))])
    past = jobs.submit_s <= now
    told = of_trace(jobs, twin=rollouts)
    other = of_trace(shuffled_after(jobs, now), twin=rollouts)
    assert (jobs.start_s[past] >= now).sum() > 3  # some of the past is still undecided
    np.testing.assert_array_equal(told[past], other[past])
    assert not np.array_equal(told[~past], other[~past], equal_nan=True)


def test_a_feature_that_looks_ahead_would_be_caught() -> None:
    jobs = trace()
    now = float(jobs.submit_s[900])
    past = jobs.submit_s <= now
    assert (jobs.wait_s[past] != shuffled_after(jobs, now).wait_s[past]).any()


def test_the_known_part_of_a_trace_tells_the_same() -> None:
    jobs = trace()
    now = float(jobs.submit_s[1000])
    seen = jobs.known_at(now)
    np.testing.assert_array_equal(of_trace(seen), of_trace(jobs)[: len(seen)])


def column(table: np.ndarray, name: str) -> np.ndarray:
    return table[:, names(twin=True).index(name)]


def test_what_the_columns_say() -> None:
    jobs = trace()
    table = of_trace(jobs, twin=rollouts, capacity=UNITS)
    row = 1200
    now = jobs.submit_s[row]
    before = np.arange(len(jobs)) < row
    waiting, active = before & (jobs.start_s >= now), before & (jobs.start_s < now) & (jobs.end_s >= now)
    assert column(table, "pending")[row] == waiting.sum()
    assert column(table, "pending_units")[row] == pytest.approx(jobs.units[waiting].sum() / UNITS)
    assert column(table, "running")[row] == active.sum()
    assert column(table, "busy_share")[row] == pytest.approx(jobs.units[active].sum() / UNITS)
    assert column(table, "own_known")[row] == min(64, (before & (jobs.user == jobs.user[row])).sum())
    assert column(table, "oldest")[row] == pytest.approx(np.log1p(now - jobs.submit_s[waiting].min()) if waiting.any() else -1.0)


def test_the_twin_knows_more_of_the_waits_than_the_request() -> None:
    jobs = trace()
    table = of_trace(jobs, twin=rollouts, capacity=UNITS)
    waits = np.log1p(jobs.wait_s)
    agreement = np.corrcoef(column(table, "twin_expected"), waits)[0, 1]
    assert agreement > 0.6
    assert agreement > np.corrcoef(column(table, "log_work_h"), waits)[0, 1]


def test_jobs_without_names_are_told_apart_by_their_shape() -> None:
    nameless = whose(trace(named=False))
    jobs = trace(named=False)
    assert len(np.unique(nameless)) == len(np.unique(np.column_stack([jobs.units, jobs.limit_s]), axis=0))
    np.testing.assert_array_equal(whose(trace()), trace().user)


def live(jobs: Jobs, row: int) -> QueueSnapshot:
    """What squeue would have shown as that job was handed in."""
    now = float(jobs.submit_s[row])
    found = []
    for k in range(row):
        runs = jobs.start_s[k] < now
        if jobs.end_s[k] >= now:
            found.append(QueuedJob(
                str(k), "batch", "RUNNING" if runs else "PENDING", nodes=int(jobs.units[k]), submit_s=float(jobs.submit_s[k]),
                start_s=float(jobs.start_s[k]) if runs else None, limit_s=float(jobs.limit_s[k]), user=str(jobs.user[k]), name=str(jobs.name[k]),
            ))  # fmt: skip
    counts = NodeCounts("batch", "node", allocated=UNITS)
    return QueueSnapshot("site", now, (counts,), tuple(found))


def over(jobs: Jobs, row: int) -> list[FinishedJob]:
    """What sacct would have told then."""
    return [
        FinishedJob(
            str(jobs.user[k]), str(jobs.name[k]), "batch", *(float(c[k]) for c in (jobs.submit_s, jobs.start_s, jobs.end_s, jobs.limit_s)),
            nodes=int(jobs.units[k]),
        ) for k in range(row) if jobs.end_s[k] < jobs.submit_s[row]
    ]  # fmt: skip


def test_a_live_queue_tells_what_the_trace_told() -> None:
    jobs = trace()
    row = 1300
    asked = Asked(float(jobs.units[row]), float(jobs.limit_s[row]), str(jobs.user[row]), str(jobs.name[row]))
    rows = jobs_of(over(jobs, row), live(jobs, row), "batch", asked=asked)
    assert len(rows) == row + 1
    told, truth = of_trace(rows, capacity=UNITS, twin=rollouts)[-1], of_trace(jobs, capacity=UNITS, twin=rollouts)[row]
    off = [n for n, a, b in zip(names(twin=True), told, truth, strict=True) if not np.isclose(a, b, equal_nan=True)]
    assert off == []


def test_the_asked_job_is_the_last_row_and_has_not_started() -> None:
    jobs = trace()
    rows = jobs_of([], live(jobs, 700), "batch", asked=Asked(4, 3600.0))
    assert rows.start_s[-1] == rows.end_s[-1] == NEVER_S
    assert rows.submit_s[-1] == jobs.submit_s[700]
    assert (np.diff(rows.submit_s) >= 0).all()


def test_a_table_without_a_column_is_refused_by_its_name() -> None:
    with pytest.raises(BadInput, match="req_walltime_s"):
        from_columns({"submit_s": [1.0], "start_s": [2.0], "end_s": [3.0], "req_units": [1]})
    with pytest.raises(BadInput, match="no job"):
        from_columns({"submit_s": [1.0], "start_s": [0.0], "end_s": [3.0], "req_units": [1], "req_walltime_s": [60]})


def test_unknown_words_have_no_code_and_order_is_by_submission() -> None:
    assert coded(["b", "", "a", "-1", "b"]).tolist() == [0, -1, 1, -1, 0]
    jobs = from_columns({
        "submit_s": [5.0, 1.0], "start_s": [6.0, 3.0], "end_s": [9.0, 4.0], "req_units": [1, 2], "req_walltime_s": [float("nan"), 60.0],
    })  # fmt: skip
    assert jobs.units.tolist() == [2.0, 1.0]
    assert jobs.limit_s.tolist() == [60.0, 86400.0]
    assert replace(jobs).wait_s.tolist() == [2.0, 1.0]
