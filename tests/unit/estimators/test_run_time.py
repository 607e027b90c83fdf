"""Walltime as a sum, cost by the centre's rule, and the facade over both."""

from __future__ import annotations

from dataclasses import replace

import pytest
from estimator_worlds import CLUSTER, CPU, GPU, NOW, PARTITION, WORK, Fixed, finished, request

from ischeduler.core.errors import BadInput, EstimatorFailed
from ischeduler.core.estimate import Estimate
from ischeduler.core.history import HistoryRecord
from ischeduler.core.jobs import Probe, Resources
from ischeduler.core.workload import Workload
from ischeduler.estimators.builtins import built_ins
from ischeduler.estimators.cost import cost_of
from ischeduler.estimators.facade import Estimators
from ischeduler.estimators.walltime.formula import run_time

STEP = Estimate(0.08, 0.1, 0.12, "s", "roofline@1", basis="trace", reason="roofline")
START = Estimate(10, 30, 60, "s", "startup-prior@1")
SAVE = Estimate(1, 2, 4, "s", "trace@1")
ONE_GPU = Resources(cpus_per_node=8, gpus_per_node=1)


def test_run_time_is_the_sum_of_its_parts() -> None:
    answer = run_time(request(), STEP, START, None)
    assert answer.p50 == pytest.approx(WORK.steps * 0.1 + 30)
    assert (answer.basis, answer.source) == ("trace", "walltime@1(roofline@1)")
    evaluated = run_time(request(workload=replace(WORK, eval_samples=3200)), STEP, START, None)
    assert evaluated.p50 - answer.p50 == pytest.approx(10 * 100 * 0.1 / 3)
    saved = run_time(request(workload=replace(WORK, checkpoint_every_s=62.5)), STEP, START, SAVE)
    assert saved.p50 - answer.p50 == pytest.approx(WORK.steps * 0.1 / 62.5 * 2)
    for part in ("6250 steps of 0.1 s", "start-up 30 s"):
        assert part in answer.reason


def test_the_papers_prices_follow_from_run_times() -> None:
    nine, two = Estimate.exact(9 * 3600, "s", "given@1"), Estimate(3600, 7200, 9000, "s", "given@1")
    cpu = cost_of(nine, CLUSTER.charge, CLUSTER.partition("cpu"), CPU, Resources(cpus_per_node=28))
    assert (cpu.p50, cpu.unit) == (pytest.approx(0.756), "usd")
    gpu = cost_of(two, CLUSTER.charge, PARTITION, GPU, Resources(cpus_per_node=28, gpus_per_node=1))
    assert (gpu.p10, gpu.p50) == (pytest.approx(0.174), pytest.approx(0.348))
    unpriced = cost_of(two, replace(CLUSTER.charge, usd_per_unit=None), PARTITION, GPU, ONE_GPU)
    assert (unpriced.unit, unpriced.p50) == ("RU", pytest.approx(76))


def test_needs_from_declared_numbers_alone() -> None:
    given = [{"run": "2h", "wait": "26h", "gpu_memory": "24G", "step_time": 0.2, "host_memory": "21G", "checkpoint": "2s"}]
    estimators = Estimators(given=given, plug_ins=False)
    needs = estimators.needs(replace(WORK, model="", command=("python", "train.py")), CLUSTER, PARTITION, GPU, ONE_GPU, None, NOW)
    assert needs.run is not None
    assert needs.wait is not None
    assert (needs.run.p50, needs.wait.p50, needs.run.basis) == (7200, 26 * 3600, "given")
    assert needs.startup is not None
    assert needs.startup.basis == "analytic"
    assert estimators.cost(needs.run, CLUSTER, PARTITION, GPU, ONE_GPU).unit == "usd"


def test_history_is_read_once_for_many_partitions_and_again_later() -> None:
    calls: list[dict[str, object]] = []

    def history(**by: object) -> list[HistoryRecord]:
        calls.append(by)
        return [finished(step_time_s=0.05)]

    estimators = Estimators(history=history, plug_ins=False)
    work = replace(WORK, model="", command=("python", "train.py"), name="x")
    for _ in range(5):
        estimators.needs(work, CLUSTER, PARTITION, GPU, ONE_GPU, None, NOW)
    assert calls == [{"family": "train.py"}, {"cluster": "pitzer"}]
    estimators.needs(work, CLUSTER, PARTITION, GPU, ONE_GPU, None, NOW + 100)
    assert len(calls) == 4


def test_what_nobody_knows_is_none_with_a_note() -> None:
    estimators = Estimators(plug_ins=False)
    work = Workload(command=("python", "train.py"), samples=100, gpus=1)
    needs = estimators.needs(work, CLUSTER, PARTITION, GPU, ONE_GPU, None, NOW, Probe(True, "", NOW, NOW + 60))
    assert needs.step_time is None
    assert needs.run is None
    assert needs.gpu_memory is None
    assert any("no model to trace" in n for n in needs.notes)
    assert needs.host_memory is not None
    assert needs.wait is not None


def test_a_plug_ins_answer_is_used_and_its_failure_noted() -> None:
    parts = built_ins(plug_ins=False)
    parts.registry.add(Fixed("mine", Estimate(1, 2, 3, "s", "mine@2", basis="trace", reason="x"), "trace", "step_time"))
    parts.registry.add(Fixed("bad", EstimatorFailed("out of luck"), "history", "step_time"))
    work = replace(WORK, model="", command=("python", "t.py"))
    needs = Estimators(parts).needs(work, CLUSTER, PARTITION, GPU, ONE_GPU, None, NOW)
    assert needs.step_time is not None
    assert needs.step_time.source == "mine@2"
    assert any("out of luck" in n for n in needs.notes)


def test_impossible_words() -> None:
    with pytest.raises(BadInput, match="not both"):
        Estimators(built_ins(plug_ins=False), given=[{"run": "1h"}])
    with pytest.raises(BadInput, match="unknown"):
        Estimators(plug_ins=False).answer("beauty", WORK, CLUSTER, PARTITION, GPU, ONE_GPU, None, NOW)
