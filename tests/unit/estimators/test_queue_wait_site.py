"""Waits learned at a site: used where accounting tells enough, otherwise the answers are those of before; cold starts know the load."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("lightgbm", reason="LightGBM is not installed")
pytest.importorskip("numba", reason="numba is not installed")

from estimator_worlds import CLUSTER, request
from estimator_worlds import finished as past_run
from hypothesis import given
from hypothesis import strategies as st
from queue_wait_worlds import UNITS, trace

from ischeduler import __version__
from ischeduler.core.cluster import Partition
from ischeduler.core.errors import BatchUnavailable
from ischeduler.core.jobs import Resources
from ischeduler.core.snapshot import FinishedJob, NodeCounts, QueuedJob, QueueSnapshot
from ischeduler.estimators.queuewait import model
from ischeduler.estimators.queuewait.estimator import QueueEstimator
from ischeduler.estimators.queuewait.live import live_wait
from ischeduler.estimators.queuewait.model import train
from ischeduler.estimators.queuewait.prior import LOADS, mixed, prior_wait
from ischeduler.estimators.queuewait.site import FEWEST, FRESH_S, SiteWaits
from ischeduler.ports import EstimateRequest
from ischeduler.simulator.kernel import rollouts

JOBS = trace(seed=4)


def at(row: int) -> tuple[QueueSnapshot, tuple[FinishedJob, ...]]:
    """squeue and sacct of a simulated cluster as a job is handed in."""
    now = float(JOBS.submit_s[row])
    shown, over = [], []
    for k in range(row):
        start, end, submit, limit = (float(c[k]) for c in (JOBS.start_s, JOBS.end_s, JOBS.submit_s, JOBS.limit_s))
        who, name, nodes = f"u{JOBS.user[k]}", f"n{JOBS.name[k]}", int(JOBS.units[k])
        if end <= now:
            over.append(FinishedJob(who, name, "batch", submit, start, end, limit, nodes))
        else:
            runs = start <= now
            shown.append(QueuedJob(str(k), "batch", "RUNNING" if runs else "PENDING", nodes, 0, submit, start if runs else None, limit, user=who, name=name))
    busy = sum(j.nodes for j in shown if j.state == "RUNNING")
    return QueueSnapshot("pitzer", now, (NodeCounts("batch", "cpu", idle=UNITS - busy, allocated=busy),), tuple(shown)), tuple(over)


def asking(row: int, snapshot: QueueSnapshot) -> EstimateRequest:
    resources = Resources(nodes=int(JOBS.units[row]), walltime_s=float(JOBS.limit_s[row]))
    return request(
        "queue_wait", now=snapshot.taken_at, cluster=CLUSTER, partition=Partition("batch", ("cpu",)), node_type=None, snapshot=snapshot,
        options={"resources": resources},
    )  # fmt: skip


def site(over: tuple[FinishedJob, ...], **more: object) -> SiteWaits:
    return SiteWaits(lambda _: over, "u1", **more)  # type: ignore[arg-type]


def test_where_accounting_tells_enough_the_wait_is_learned() -> None:
    snapshot, over = at(1300)
    told = QueueEstimator(site(over, twin=lambda: rollouts)).foretell(asking(1300, snapshot))
    assert "learned from" in told.wait.reason
    assert "starts within 10 min" in told.wait.reason
    assert told.wait.basis == "live"
    assert told.wait.as_of == snapshot.taken_at
    assert 0 <= told.within_10min.p50 <= told.within_1h.p50 <= told.started_by(snapshot.taken_at + 40 * 86400).p50 <= 1
    assert told.within_1h.unit == "probability"
    assert told.within_1h.source == told.wait.source
    assert told.started_by(snapshot.taken_at - 1).p50 == 0


def test_learned_waits_are_better_than_those_by_rule() -> None:
    snapshot, over = at(1250)
    learned, rule = QueueEstimator(site(over, twin=lambda: rollouts)), QueueEstimator()
    off = np.zeros((12, 2))
    for place, row in enumerate(range(1250, 1310, 5)):  # the queue moves on, the model is that of the first question
        snapshot, _ = at(row)
        told = [np.log1p(e.estimate(asking(row, snapshot)).p50) for e in (learned, rule)]
        off[place] = np.abs(np.array(told) - np.log1p(JOBS.wait_s[row]))
    assert off[:, 0].mean() < off[:, 1].mean()


def same_as_before(answered: QueueEstimator, row: int) -> bool:
    snapshot, _ = at(row)
    return answered.estimate(asking(row, snapshot)) == QueueEstimator().estimate(asking(row, snapshot))


def test_too_few_jobs_leave_the_answer_as_it_was() -> None:
    _, over = at(1300)
    assert same_as_before(QueueEstimator(site(over[: FEWEST - 1])), 1300)
    assert not same_as_before(QueueEstimator(site(over)), 1300)


def test_accounting_that_tells_only_of_ones_own_jobs_teaches_nothing_of_the_queue() -> None:
    _, over = at(1300)
    assert same_as_before(QueueEstimator(site(tuple(replace(j, user="u1") for j in over))), 1300)


def test_accounting_that_does_not_answer_leaves_the_answer_as_it_was() -> None:
    def silent(_: str) -> tuple[FinishedJob, ...]:
        raise BatchUnavailable("sacct does not answer")

    assert same_as_before(QueueEstimator(SiteWaits(silent)), 1300)


def test_jobs_that_all_came_at_once_teach_nothing_and_are_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing had started when the last fifth was handed in, so nothing could be calibrated."""
    _, over = at(1300)
    came = min(j.start_s for j in over[-FEWEST:])
    burst = tuple(replace(j, submit_s=came) for j in over[-FEWEST:])
    tries: list[int] = []
    monkeypatch.setattr(model, "train", lambda jobs, **more: tries.append(1) or train(jobs, **more))
    answered = QueueEstimator(site(burst))
    assert same_as_before(answered, 1300)
    assert same_as_before(answered, 1300)
    assert len(tries) == 1


def test_the_chance_of_a_start_in_time_for_a_deadline_is_told() -> None:
    snapshot, over = at(1300)
    for estimator in (QueueEstimator(site(over)), QueueEstimator()):
        question = asking(1300, snapshot)
        by = {s: replace(question, options={**question.options, "start_by_s": snapshot.taken_at + s}) for s in (-60.0, 600.0, 30 * 86400.0)}
        chances = {s: estimator.foretell(question).started_by(snapshot.taken_at + s).p50 for s in by}
        assert chances[-60.0] == 0 < chances[600.0] <= chances[30 * 86400.0]
        for left_s, told in by.items():
            assert estimator.estimate(told).reason.endswith(f": {chances[left_s]:.0%}")
        assert "in time for the deadline (within 10m): " in estimator.estimate(by[600.0]).reason


def test_who_answered_is_named_with_version_and_age() -> None:
    snapshot, over = at(1300)
    told = QueueEstimator(site(over)).estimate(asking(1300, snapshot))
    assert told.source == "queue@1"
    assert f"jobs of this partition 0s ago (version {__version__})" in told.reason


def test_another_partitions_jobs_teach_nothing() -> None:
    _, over = at(1300)
    assert same_as_before(QueueEstimator(site(tuple(replace(j, partition="gpu") for j in over))), 1300)


def test_a_model_is_kept_and_grown_anew_when_it_is_old(tmp_path: Path) -> None:
    def ask(row: int) -> str:
        snapshot, over = at(row)
        return QueueEstimator(site(over, keep=tmp_path)).estimate(asking(row, snapshot)).reason

    ask(1000)
    (path,) = tmp_path.glob("wait-*.json")
    first = path.read_text()
    soon = int(np.searchsorted(JOBS.submit_s, JOBS.submit_s[1000] + 0.5 * FRESH_S))
    ask(soon)
    assert path.read_text() == first
    late = int(np.searchsorted(JOBS.submit_s, JOBS.submit_s[1000] + 2 * FRESH_S))
    ask(late)
    assert path.read_text() != first
    path.write_text("{}")
    assert "learned from" in ask(late)


def test_an_old_snapshot_is_not_what_a_model_is_asked_about() -> None:
    snapshot, over = at(1300)
    told = QueueEstimator(site(over)).estimate(replace(asking(1300, snapshot), now=snapshot.taken_at + 3600))
    assert "learned from" not in told.reason


def test_own_past_waits_still_count_where_nothing_is_learned() -> None:
    snapshot, _ = at(1300)
    mine = past_run(partition="batch", wait_s=7200.0, finished_at=snapshot.taken_at - 60)
    told = QueueEstimator().estimate(replace(asking(1300, snapshot), history=(mine,)))
    assert "1 past wait" in told.reason or "idle now" in told.reason


@given(st.integers(0, 64), st.integers(1, 64), st.floats(0, 1000))
def test_a_prior_is_ordered_and_never_shorter_under_a_higher_load(free: int, need: int, pending: float) -> None:
    low, middle, high = prior_wait(free, 64, need, pending)
    assert 0 < low <= middle <= high
    busier = prior_wait(free, 64, need, pending + 64 * LOADS[-1])
    assert all(a <= b for a, b in zip((low, middle, high), busier, strict=True))


def test_a_cold_start_knows_the_load() -> None:
    def waiting(pending: int) -> QueueSnapshot:
        jobs = [QueuedJob(f"r{i}", "batch", "RUNNING", 8, 0, 0.0, 100.0, 7200.0) for i in range(8)]
        jobs += [QueuedJob(f"p{i}", "batch", "PENDING", 8, 0, 900.0, None, 7200.0) for i in range(pending)]
        return QueueSnapshot("pitzer", 1000.0, (NodeCounts("batch", "cpu", allocated=UNITS),), tuple(jobs))

    answers = [QueueEstimator().estimate(asking(0, waiting(n))) for n in (0, 4, 40)]
    assert all("the prior, what jobs waited elsewhere under such a load, counts 70%" in a.reason for a in answers)
    assert answers[0].p50 < answers[2].p50
    assert answers[1].p90 <= answers[2].p90
    live = live_wait(waiting(40), "batch", None, Resources(nodes=int(JOBS.units[0])), 1000.0)
    assert live is not None
    assert live.prior is not None
    assert answers[2].p50 == pytest.approx(mixed((live.p10, live.p50, live.p90), live.prior)[1])
