"""What runs and accounting rows teach: outcomes, accuracy by place and month, drift, and replayed waits."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from ischeduler.core.estimate import Estimate
from ischeduler.core.history import HistoryRecord
from ischeduler.core.jobs import Cause, JobState, Resources
from ischeduler.core.plan import Needs, Plan, Segment
from ischeduler.core.run import Attempt, Progress, Run, RunState
from ischeduler.core.workload import Workload
from ischeduler.estimators.learning import sacct
from ischeduler.estimators.learning.accuracy import accuracies, figures
from ischeduler.estimators.learning.outcomes import Outcome, outcomes, outcomes_of
from ischeduler.estimators.learning.replay import LABEL, replayed_waits

T0 = 1_800_000_000.0
DAY = 86400.0


def seconds(p50: float, source: str = "history@1") -> Estimate:
    return Estimate(0.9 * p50, p50, 1.1 * p50, "s", source)


def plan(partition: str = "gpu") -> Plan:
    work = Workload(model="timm:resnet50", samples=20_000, epochs=10, batch_size=32)
    needs = Needs(step_time=seconds(0.1, "roofline@1"), host_memory=Estimate(3e9, 4e9, 5e9, "bytes", "trace@1"))
    segments = (Segment(0, 4000, 3900, seconds(600, "queue@1")),)
    cost = Estimate.exact(0.5, "usd", "charging@1")
    return Plan(
        1, "pitzer", partition, "v100", work, Resources(), segments, needs, seconds(1000), seconds(600), seconds(1600), cost,
    )  # fmt: skip


def job(number: int = 1, ran_s: float = 1080.0, waited_s: float = 300.0) -> Attempt:
    return Attempt(
        number, f"r-{number}", "pitzer", "gpu", Resources(), 32, state=JobState.COMPLETED, submitted_at=T0,
        started_at=T0 + waited_s, ended_at=T0 + waited_s + ran_s, cause=Cause.FINISHED,
    )  # fmt: skip


def run(**changes: object) -> Run:
    done = Run(
        "r-1", "me", plan(), RunState.COMPLETED, "/tmp/r-1", T0, attempts=(job(),), spent=0.55, ended_at=T0 + 1400,
        progress=Progress(step_time_s=0.12, peak_rss_bytes=4_200_000_000),
    )  # fmt: skip
    return replace(done, **changes)  # type: ignore[arg-type]


def test_a_finished_run_tells_what_was_predicted_and_seen() -> None:
    found = {o.quantity: o for o in outcomes_of(run())}
    assert set(found) == {"run_time", "step_time", "host_memory", "cost", "queue_wait"}
    took = found["run_time"]
    assert (took.estimator, took.site, took.family) == ("history@1", "pitzer/gpu", "timm:resnet50")
    assert (took.p50, took.actual, took.inside, took.under_p90) == (1000, 1080, True, True)
    assert took.log_ratio == pytest.approx(math.log(1.08))
    assert found["queue_wait"].log_ratio == pytest.approx(math.log(360 / 660))
    assert found["step_time"].inside is False


@pytest.mark.parametrize("changes", [
    {"state": RunState.RUNNING, "ended_at": None}, {"first_plan": plan("cpu")},
])  # fmt: skip
def test_what_goes_on_or_was_moved_is_no_outcome(changes: dict[str, object]) -> None:
    assert outcomes_of(run(**changes)) == ()


def test_a_failed_run_tells_of_its_waits_alone_and_later_jobs_had_no_estimate() -> None:
    failed = run(state=RunState.FAILED, attempts=(job(), job(2)))
    assert [o.quantity for o in outcomes_of(failed)] == ["queue_wait"]
    assert outcomes_of(run(attempts=(), progress=Progress(), spent=0.0)) == ()


def test_a_job_that_gave_its_allocation_back_moves_no_segment() -> None:
    two = replace(plan(), segments=(Segment(0, 4000, 3900, seconds(600)), Segment(1, 4000, 3900, seconds(60))))
    back = replace(job(2, ran_s=2.0, waited_s=50.0), cause=Cause.RETURNED)
    failed = run(plan=two, state=RunState.FAILED, attempts=(job(), back, job(3, waited_s=70.0), job(4)))
    assert [(o.p50, o.actual) for o in outcomes_of(failed)] == [(600, 300), (60, 50), (60, 70)]


def outcome(day: float, actual: float, *, estimator: str = "history@1", site: str = "pitzer/gpu", family: str = "m") -> Outcome:
    return Outcome(estimator, "run_time", site, family, T0 + day * DAY, 90, 100, 110, actual)


def test_figures_by_hand() -> None:
    found = figures([outcome(0, 80), outcome(1, 100), outcome(2, 125), outcome(3, 105)])
    assert found.n == 4
    assert found.median_error == pytest.approx((0.2 + 1 / 21) / 2)
    assert found.mape == pytest.approx((0.25 + 0 + 0.2 + 1 / 21) / 4)
    assert found.bias == pytest.approx(math.sqrt(1.05))
    assert (found.inside, found.under_p90) == (0.5, 0.75)


def test_records_by_estimator_place_and_model_with_a_total_where_there_are_several() -> None:
    told = [outcome(0, 100), outcome(1, 100, family="n"), outcome(2, 100, estimator="walltime@1")]
    rows = [(a.estimator, a.site, a.family, a.figures.n) for a in accuracies(told)]
    assert rows == [
        ("history@1", "", "", 2), ("history@1", "pitzer/gpu", "m", 1), ("history@1", "pitzer/gpu", "n", 1),
        ("walltime@1", "pitzer/gpu", "m", 1),
    ]  # fmt: skip


def test_months_and_drift_show_change_over_time() -> None:
    told = [outcome(3 * i, 100 + i % 2) for i in range(12)] + [outcome(36 + 3 * i, 180 + i % 2) for i in range(6)]
    (row,) = accuracies(reversed(told))
    assert [m.figures.n for m in row.months] == [6, 9, 3]
    assert [m.month for m in row.months] == ["2027-01", "2027-02", "2027-03"]
    assert row.months[0].figures.inside == 1.0
    assert row.months[-1].figures.inside == 0.0
    assert row.drift is not None
    assert row.drift.at == pytest.approx(T0 + 36 * DAY, abs=4 * DAY)
    assert row.drift.factor == pytest.approx(1.8, rel=0.05)
    assert row.drift.n == pytest.approx(6, abs=1)
    assert accuracies(told[:12])[0].drift is None


def sacct_line(**changes: str) -> str:
    row = {
        "JobIDRaw": "101", "User": "me", "Partition": "gpu", "State": "COMPLETED", "Submit": "1000", "Eligible": "1500",
        "Start": "2000", "End": "5600", "TimelimitRaw": "120", "NNodes": "2", "NCPUS": "56",
        "AllocTRES": "billing=56,cpu=56,gres/gpu:v100=4,gres/gpu=4,node=2", "Comment": "", "JobName": "train",
    }  # fmt: skip
    return sacct.SEPARATOR.join({**row, **changes}[f] for f in sacct.FIELDS)


def test_an_accounting_row_becomes_evidence_of_a_wait() -> None:
    (record,) = sacct.records(sacct_line() + "\n", "pitzer")
    assert (record.run_id, record.kind, record.owner, record.family) == ("sacct:pitzer:101", "attempt", "me", "job:train")
    assert (record.wait_s, record.run_s, record.walltime_s) == (500, 3600, 7200)
    assert (record.nodes, record.gpus, record.cpus, record.cause) == (2, 4, 56, "finished")
    odd = sacct.records(sacct_line(State="CANCELLED by 1000", TimelimitRaw="UNLIMITED", Eligible="Unknown", AllocTRES=""), "pitzer")[0]
    assert (odd.cause, odd.walltime_s, odd.wait_s, odd.gpus) == ("cancelled", None, 1000, 0)


@pytest.mark.parametrize("line", [
    "", "garbage", sacct_line(Start="Unknown"), sacct_line(End="Unknown"), sacct_line(JobIDRaw=""), sacct_line(End="1"),
    sacct_line(JobName="isched-r-1"),
])  # fmt: skip
def test_rows_that_are_no_finished_job_of_others_are_left_out(line: str) -> None:
    assert sacct.records(line, "pitzer", lambda name, comment: name.startswith("isched-")) == ()


def test_the_question_asks_for_ones_own_ended_jobs_in_utc_seconds() -> None:
    argv = sacct.question("me", T0)
    assert argv[:4] == ("env", "TZ=UTC", "SLURM_TIME_FORMAT=%s", "sacct")
    assert {"--user=me", "--starttime=2027-01-15T08:00:00", "-X"} <= set(argv)
    assert argv[-1].endswith(",JobName")  # free text comes last


def waited(number: int, wait_s: float) -> HistoryRecord:
    start = T0 + 1000 * number
    return HistoryRecord(f"j{number}", "attempt", "me", "job:x", "pitzer", "gpu", "", start + 100, wait_s=wait_s, run_s=100.0)


def test_waits_are_replayed_from_those_known_before() -> None:
    told = replayed_waits(waited(i, 300.0) for i in range(12))
    assert len(told) == 12 - 5  # five must have started before the sixth was asked for
    assert {(o.estimator, o.site, o.p50, o.actual) for o in told} == {(LABEL, "pitzer/gpu", 300.0, 300.0)}
    late = replayed_waits([*(waited(i, 300.0) for i in range(6)), waited(6, 5990.0)])
    assert [o.at for o in late] == [T0 + 5000]  # when the last was submitted one job alone had started
    assert replayed_waits([replace(waited(i, 1.0), wait_s=None) for i in range(9)]) == ()


def test_outcomes_come_oldest_first() -> None:
    later = run(id="r-2", ended_at=T0 + 9999, attempts=())
    assert [o.at for o in outcomes([later, run()])] == sorted(o.at for o in outcomes([later, run()]))
