"""Side by side on finished runs: what is scored, on which runs, and that nobody sees the future."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from ischeduler.core.errors import EstimatorFailed
from ischeduler.core.estimate import Estimate
from ischeduler.core.history import HistoryRecord
from ischeduler.estimators.plugins.compare import compare, workload_of
from ischeduler.estimators.walltime.history import HistoryEstimator
from ischeduler.ports import EstimateRequest, EstimatorInfo

Rule = Callable[[EstimateRequest], float]


class ByRule:
    """Says what its rule says, within a fifth either way."""

    def __init__(self, name: str, rule: Rule, quantities: tuple[str, ...] = ("run_time",)) -> None:
        self.info = EstimatorInfo(name, "1", quantities, "history")
        self.rule = rule
        self.seen: list[EstimateRequest] = []

    def estimate(self, request: EstimateRequest) -> Estimate:
        self.seen.append(request)
        value = self.rule(request)
        return Estimate(0.8 * value, value, 1.2 * value, "s", f"{self.info.name}@1")


def run(number: int, run_s: float = 100.0, **changed: object) -> HistoryRecord:
    made = HistoryRecord(
        f"r{number}", "run", "me", "timm:resnet18", "lab", "gpu", "v100", 1000.0 * number, batch_size=32, samples=1000, epochs=number,
        gpus=1, run_s=run_s * number,
    )
    return replace(made, **changed)  # pyright: ignore[reportArgumentType]


def same(request: EstimateRequest, record: HistoryRecord) -> EstimateRequest:
    return request


def right(request: EstimateRequest) -> float:
    return 100.0 * request.workload.epochs


RUNS = [run(n) for n in range(1, 9)]


def test_error_bias_and_coverage_are_what_they_are() -> None:
    found = compare(ByRule("right", right), ByRule("low", lambda r: 0.5 * right(r)), RUNS, same)
    exact, low = found.scores
    assert (exact.error, exact.bias, exact.coverage, exact.under_p90) == (0.0, 0.0, 1.0, 1.0)
    assert (low.error, low.bias, low.coverage, low.under_p90) == (0.5, -0.5, 0.0, 0.0)
    assert found.common == {"run_time": 8}
    assert "right@1 errs less (0.0% against 50.0%) on 8 run(s)" in found.verdict


def test_nobody_sees_the_future_or_the_run_itself() -> None:
    spy = ByRule("spy", right)
    compare(spy, ByRule("other", right), RUNS, same)
    assert len(spy.seen) == 8
    for request in spy.seen:
        assert all(r.finished_at <= request.now for r in request.history)
        assert request.workload.epochs not in [r.epochs for r in request.history]


def test_both_are_scored_on_the_runs_that_both_answered() -> None:
    def picky(request: EstimateRequest) -> float:
        if request.workload.epochs > 3:
            raise EstimatorFailed("too long for me")
        return right(request)

    def good_then_bad(request: EstimateRequest) -> float:
        return right(request) * (1 if request.workload.epochs <= 3 else 10)

    first, second = compare(ByRule("picky", picky), ByRule("bold", good_then_bad), RUNS, same).scores
    assert (first.answered, second.answered) == (3, 8)
    assert second.error == 0.0
    assert first.example_refusal == "too long for me"


def test_a_crash_is_a_refusal() -> None:
    def crash(request: EstimateRequest) -> float:
        raise KeyError("x")

    found = compare(ByRule("crash", crash), ByRule("right", right), RUNS, same)
    assert found.scores[0].example_refusal == "KeyError: 'x'"
    assert "no run was answered by both" in found.verdict


def test_only_quantities_that_both_answer_and_runs_tell() -> None:
    both = compare(ByRule("a", right, ("run_time", "cost")), ByRule("b", right, ("run_time", "queue_wait")), RUNS, same)
    assert {s.quantity for s in both.scores} == {"run_time"}
    assert compare(ByRule("a", right, ("cost",)), ByRule("b", right, ("cost",)), RUNS, same).scores == ()


def test_waits_are_those_of_attempts() -> None:
    records = [run(1, wait_s=60.0), run(2, kind="attempt", wait_s=60.0), run(3, kind="attempt", wait_s=0.0)]
    waits = ByRule("w", lambda r: 60.0, ("queue_wait",))
    first, _ = compare(waits, waits, records, same).scores
    assert (first.runs, first.error) == (1, 0.0)


def test_the_newest_runs_are_taken() -> None:
    spy = ByRule("spy", right)
    compare(spy, spy, RUNS, same, limit=2)
    assert {r.workload.epochs for r in spy.seen} == {7, 8}


@pytest.mark.parametrize("family", ["timm:resnet18", "train.py", "name-of-a-command"])
def test_a_workload_of_a_record_is_of_its_family(family: str) -> None:
    assert workload_of(run(1, family=family)).family == family


def test_the_built_in_history_estimator_is_compared_on_real_rules() -> None:
    found = compare(HistoryEstimator(), ByRule("right", right), RUNS, same)
    history = found.scores[0]
    assert history.answered == 7  # the first run has no history before it
    assert history.error is not None
    assert history.error < 0.01
