"""What finished runs say, how sure a handful of them makes, and when extrapolation is flagged."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from estimator_worlds import CPU, NOW, WORK, finished, request
from hypothesis import given
from hypothesis import strategies as st

from ischeduler.core.workload import Workload
from ischeduler.estimators.evidence import NoEvidence, summary
from ischeduler.estimators.walltime.history import HistoryEstimator, ProfileEstimator

HISTORY = HistoryEstimator()


@given(st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=30), st.floats(1.01, 100))
def test_summaries_are_ordered_and_scale(values: list[float], factor: float) -> None:
    plain, scaled = summary(values), summary(v * factor for v in values)
    assert 0 < plain.p10 <= plain.p50 <= plain.p90
    for one, other in zip((plain.p10, plain.p50, plain.p90), (scaled.p10, scaled.p50, scaled.p90), strict=True):
        assert other == pytest.approx(one * factor, rel=1e-6)


def test_more_runs_narrow_and_wild_ones_widen() -> None:
    few, many = summary([100.0]), summary([100.0] * 20)
    assert few.p90 / few.p10 > many.p90 / many.p10 > 1
    wild = summary([50.0, 100.0, 200.0, 70.0, 140.0])
    assert wild.p90 / wild.p10 > few.p90 / few.p10


@pytest.mark.parametrize("n", [1, 2, 3, 5, 10, 30])
def test_a_predictive_interval_covers_the_next_run_about_four_times_in_five(n: int) -> None:
    rng = random.Random(n)
    hits = 0
    for _ in range(1500):
        logs = [rng.gauss(5, 0.12) for _ in range(n + 1)]
        interval = summary(math.exp(x) for x in logs[:-1])
        hits += interval.p10 <= math.exp(logs[-1]) <= interval.p90
    assert 0.76 <= hits / 1500 <= 0.93


def test_run_time_is_rate_times_data() -> None:
    runs = tuple(finished(run_id=f"r{i}", run_s=20 + 200 * f) for i, f in enumerate((0.95, 1.0, 1.05)))
    same = HISTORY.estimate(request(history=runs))
    assert same.p50 == pytest.approx(220)
    assert same.basis == "history"
    assert "3 similar finished runs on pitzer" in same.reason
    twice = HISTORY.estimate(request(history=runs, workload=replace(WORK, epochs=20)))
    assert twice.p50 == pytest.approx(420)
    assert twice.p90 / twice.p10 > same.p90 / same.p10


def test_far_extrapolation_is_said_and_widens() -> None:
    far = HISTORY.estimate(request(history=(finished(),), workload=replace(WORK, epochs=200)))
    near = HISTORY.estimate(request(history=(finished(),)))
    assert "extrapolated 20 times beyond" in far.reason
    assert far.p90 / far.p50 > 1.1 * near.p90 / near.p50


@pytest.mark.parametrize("other", [
    {"family": "timm:vgg16"}, {"batch_size": 64}, {"precision": "bf16"}, {"node_type": "cpu"}, {"nodes": 2}, {"gpus": 2},
    {"cause": "user_error", "kind": "attempt"}, {"run_s": None},
])
def test_dissimilar_or_unfinished_runs_are_no_evidence(other: dict[str, object]) -> None:
    with pytest.raises(NoEvidence):
        HISTORY.estimate(request(history=(finished(**other),)))


def test_own_cluster_is_preferred_and_another_widens() -> None:
    here, there = finished(run_s=120.0), finished(cluster="ascend", run_s=1020.0)
    assert HISTORY.estimate(request(history=(here, there))).p50 == pytest.approx(120)
    lone = HISTORY.estimate(request(history=(there,)))
    alone = HISTORY.estimate(request(history=(replace(there, cluster="pitzer"),)))
    assert lone.p90 / lone.p50 > alone.p90 / alone.p50
    assert "ascend" in lone.reason


def test_cpu_runs_count_only_with_about_as_many_cores() -> None:
    work = replace(WORK, gpus=None, cpus=28)
    run = finished(node_type="cpu", gpus=0, cpus=28)
    assert HISTORY.estimate(request(node_type=CPU, workload=work, history=(run,))).p50 == pytest.approx(220)
    with pytest.raises(NoEvidence, match="cores"):
        HISTORY.estimate(request(node_type=CPU, workload=work, history=(replace(run, cpus=4),)))


def test_a_bare_command_may_use_another_batch_but_says_so() -> None:
    work = Workload(command=("python", "train.py"), samples=20_000, epochs=10, batch_size=64, gpus=1)
    run = finished(family="train.py", batch_size=32)
    answer = HISTORY.estimate(request(workload=work, history=(run,)))
    assert "at batch 32" in answer.reason


def test_profiles_are_their_own_basis_and_never_a_run_time() -> None:
    profile = finished(kind="profile", run_s=None)
    answer = ProfileEstimator().estimate(request("step_time", history=(profile,)))
    assert (answer.p50, answer.basis, answer.as_of) == (pytest.approx(0.032), "profile", NOW - 3600)
    with pytest.raises(NoEvidence):
        HISTORY.estimate(request("step_time", history=(profile,)))
    assert "run_time" not in ProfileEstimator().info.quantities
