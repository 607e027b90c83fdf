"""The contract: JSON both ways, the shipped schema, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import jsonschema
import pytest
from estimator_worlds import NOW, WORK, finished, request
from hypothesis import given
from hypothesis import strategies as st

from ischeduler.core.errors import BadInput, EstimatorFailed
from ischeduler.core.estimate import Estimate
from ischeduler.core.jobs import Resources
from ischeduler.core.snapshot import NodeCounts, QueueSnapshot
from ischeduler.estimators.contract import (
    QUANTITIES,
    answer_from_json,
    answer_to_json,
    check_answer,
    check_request,
    failure_to_json,
    request_from_json,
    request_to_json,
    schema,
)
from ischeduler.estimators.evidence import resources_of


def test_the_schema_is_a_schema_and_names_every_quantity() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    assert schema()["$defs"]["quantity"]["enum"] == list(QUANTITIES)


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_requests_survive_json_and_fit_the_schema(quantity: str) -> None:
    snapshot = QueueSnapshot("pitzer", NOW, (NodeCounts("gpu", "gpu", idle=2),))
    asked = request(quantity, snapshot=snapshot, history=(finished(),), options={"probe_start_s": NOW + 60})
    plain = json.loads(json.dumps(request_to_json(asked)))
    jsonschema.validate(plain, schema())
    assert request_from_json(plain) == asked


def test_resources_survive_json() -> None:
    asked = request(options={"resources": Resources(nodes=2, cpus_per_node=12, gpus_per_node=2)})
    assert resources_of(request_from_json(json.loads(json.dumps(request_to_json(asked))))) == resources_of(asked)


@given(st.lists(st.floats(0, 1e9), min_size=3, max_size=3), st.sampled_from(["history", "trace"]))
def test_answers_survive_json_and_fit_the_schema(quantiles: list[float], basis: str) -> None:
    low, middle, high = sorted(quantiles)
    answer = Estimate(low, middle, high, "bytes", "x@1", basis=basis, as_of=NOW, reason="measured")
    plain = json.loads(json.dumps(answer_to_json("gpu_memory", answer)))
    jsonschema.validate(plain, schema())
    assert answer_from_json(plain) == answer


def test_refusals_fit_the_schema_and_are_raised() -> None:
    plain = failure_to_json("step_time", "The node's FLOP/s are unknown.")
    jsonschema.validate(plain, schema())
    with pytest.raises(EstimatorFailed, match="unknown"):
        answer_from_json(plain)


@pytest.mark.parametrize(("bad", "words"), [
    (request("flavour"), "'flavour' is unknown"),
    (request("step_time", node_type=None), "needs a node_type"),
    (request("queue_wait", partition=None), "needs a partition"),
    (request("run_time", workload=replace(WORK, samples=0)), "number of samples"),
    (request("startup", workload=replace(WORK, batch_size=(32, 64))), "one batch size"),
    (request("startup", now=float("nan")), "finite"),
])
def test_impossible_requests_are_refused_in_a_sentence(bad: object, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        check_request(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(("quantity", "answer", "words"), [
    ("step_time", Estimate(1, 2, 3, "bytes", "x@1"), "expected 's'"),
    ("step_time", Estimate(-1, 2, 3, "s", "x@1"), "negative"),
    ("step_time", Estimate(1, 2, 1e9, "s", "x@1"), "plausible"),
    ("step_time", Estimate(1, 2, float("inf"), "s", "x@1"), "plausible"),
    ("step_time", Estimate(1, 2, 3, "s", "x@1", basis="guess"), "basis"),
])
def test_answers_out_of_range_are_refused(quantity: str, answer: Estimate, words: str) -> None:
    with pytest.raises(EstimatorFailed, match=words):
        check_answer(quantity, answer)


@pytest.mark.parametrize("data", [{}, {"contract": "2"}, {"contract": "1", "quantity": "cost"},
                                  {"contract": "1", "quantity": "cost", "workload": 3, "now": 0}])
def test_malformed_requests_are_refused(data: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        request_from_json(data)


@pytest.mark.parametrize("estimate", [None, {}, {"p10": 3, "p50": 2, "p90": 1, "unit": "s", "source": "x@1"}, 7])
def test_malformed_answers_are_refused(estimate: object) -> None:
    with pytest.raises(EstimatorFailed):
        answer_from_json({"contract": "1", "quantity": "step_time", "estimate": estimate})
