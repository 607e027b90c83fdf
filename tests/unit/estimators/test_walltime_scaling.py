"""The 'scaling' estimator over a user's own history, and the plan of scaled-down runs that feeds it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from estimator_worlds import CLUSTER, CPU, GPU, NOW, PARTITION, WORK, finished, request

from ischeduler.core.errors import BadInput
from ischeduler.core.history import HistoryRecord
from ischeduler.core.jobs import Resources
from ischeduler.estimators.builtins import built_ins
from ischeduler.estimators.evidence import NoEvidence
from ischeduler.estimators.facade import Estimators
from ischeduler.estimators.walltime.scaled_down import MIN_STEPS, scaled_down
from ischeduler.estimators.walltime.scaling import ScalingEstimator

SCALING = ScalingEstimator()


def law(samples: int, epochs: int) -> float:
    return 5.0 + epochs * (2.0 + 0.001 * samples)


def short_runs(batch: int = 32, slower: float = 1.0, first: float = 0.0) -> list[HistoryRecord]:
    """Runs of four sizes and one or two epochs, 20 s of start-up each; ``first`` hours ago the oldest."""
    shapes = [(s, e) for s in (160, 320, 640, 1280) for e in (1, 2)]
    return [
        finished(
            run_id=f"s{batch}-{slower}-{i}", samples=s, epochs=e, batch_size=batch, run_s=20 + slower * law(s, e),
            finished_at=NOW - 90_000 - 3600 * (first - i),
        )
        for i, (s, e) in enumerate(shapes)
    ]  # fmt: skip


def test_short_runs_foretell_the_long_one_and_the_reason_names_the_method() -> None:
    answer = SCALING.estimate(request(history=tuple(short_runs())))
    assert answer.p50 == pytest.approx(20 + law(20_000, 10), rel=0.05)
    assert answer.p10 < answer.p50 < answer.p90
    assert (answer.source, answer.basis) == ("scaling@1", "history")
    assert "8 own runs of 4 sizes on pitzer, method " in answer.reason
    assert "extrapolated" in answer.reason


def test_margins_are_measured_once_enough_runs_were_examined() -> None:
    many = [r for b in (8, 16, 24, 32, 64) for r in short_runs(b)]
    many += [replace(r, run_id=r.run_id + "x", samples=2560, run_s=20 + law(2560, r.epochs)) for r in many if r.samples == 1280]
    near = replace(WORK, samples=5120, epochs=2)
    answer = SCALING.estimate(request(history=tuple(many), workload=near))
    assert "method law (error 0" in answer.reason
    assert answer.p50 == pytest.approx(20 + law(5120, 2), rel=0.02)
    alone = SCALING.estimate(request(history=tuple(short_runs()), workload=near))
    assert 1 < answer.p90 / answer.p10 < 1.03 < alone.p90 / alone.p10


@pytest.mark.parametrize("history", [
    (), (finished(),), tuple(short_runs(batch=64)), tuple(r for r in short_runs() if r.samples < 640),
    tuple(replace(r, cause="walltime", kind="attempt") for r in short_runs()), tuple(replace(r, cluster="ascend") for r in short_runs()),
])  # fmt: skip
def test_it_passes_silently_where_no_law_can_be_fitted(history: tuple[HistoryRecord, ...]) -> None:
    with pytest.raises(NoEvidence):
        SCALING.estimate(request(history=history))


def test_without_a_sample_count_there_is_nothing_to_scale() -> None:
    with pytest.raises(NoEvidence, match="samples"):
        SCALING.estimate(request(history=tuple(short_runs()), workload=replace(WORK, samples=0)))


def test_after_a_drift_the_newer_runs_speak() -> None:
    old = [r for k in range(3) for r in (replace(x, run_id=f"{x.run_id}-{k}") for x in short_runs(first=100 + 10 * k))]
    new = [replace(r, run_id=f"n{r.run_id}") for r in short_runs(slower=2.0)]
    answer = SCALING.estimate(request(history=tuple(old + new)))
    assert answer.p50 == pytest.approx(20 + 2 * law(20_000, 10), rel=0.1)
    steady = SCALING.estimate(request(history=tuple(old)))
    assert steady.p50 == pytest.approx(20 + law(20_000, 10), rel=0.1)


def test_a_run_and_its_only_job_count_once() -> None:
    runs = short_runs()
    jobs = [replace(r, kind="attempt", cause="finished") for r in runs]
    assert "8 own runs" in SCALING.estimate(request(history=tuple(runs + jobs))).reason


def test_cpu_runs_count_only_with_about_as_many_cores() -> None:
    work = replace(WORK, gpus=None, cpus=28)
    cores = [replace(r, node_type="cpu", gpus=0, cpus=28) for r in short_runs()]
    assert SCALING.estimate(request(node_type=CPU, workload=work, history=tuple(cores))).p50 > 0
    with pytest.raises(NoEvidence):
        SCALING.estimate(request(node_type=CPU, workload=work, history=tuple(replace(r, cpus=4) for r in cores)))


def test_the_planner_asks_it_before_the_plain_history() -> None:
    names = [e.info.name for e in built_ins(plug_ins=False).registry.for_quantity("run_time")]
    assert names.index("scaling") < names.index("history")
    mine = [replace(r, family="train.py") for r in short_runs()]
    estimators = Estimators(history=lambda **_: mine, plug_ins=False)
    work = replace(WORK, model="", command=("python", "train.py"), name=WORK.family)
    needs = estimators.needs(work, CLUSTER, PARTITION, GPU, Resources(cpus_per_node=8, gpus_per_node=1), None, NOW)
    assert needs.run is not None
    assert needs.run.source == "scaling@1"


def test_scaled_down_runs_are_few_short_and_of_several_sizes() -> None:
    plan = scaled_down(replace(WORK, samples=1_000_000, epochs=90, eval_samples=5000))
    assert len({w.samples for w in plan.runs}) == 4
    assert {w.epochs for w in plan.runs} == {1, 2}
    assert all(w.steps_per_epoch >= MIN_STEPS and not w.checkpoints and not w.eval_samples for w in plan.runs)
    assert plan.share < 0.01
    assert plan.seconds(0.1, 30) == pytest.approx(sum(w.steps for w in plan.runs) * 0.1 + 240)


@pytest.mark.parametrize(("changes", "words"), [
    ({"samples": 0}, "how many samples"), ({"samples": 64, "epochs": 1}, "too short"),
])  # fmt: skip
def test_what_cannot_be_scaled_down_says_why(changes: dict[str, int], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        scaled_down(replace(WORK, **changes))
    with pytest.raises(BadInput, match="share"):
        scaled_down(WORK, largest_share=0.0)
