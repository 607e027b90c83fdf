"""Requests to a plug-in's bytes and its bytes to an Estimate. Everything that comes back is checked: it may be wrong or lie."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NoReturn, cast

from ischeduler.core.errors import EstimatorFailed
from ischeduler.core.estimate import Estimate
from ischeduler.core.workload import EnvironmentSpec, Workload
from ischeduler.estimators.contract import VERSION, check_answer, request_to_json
from ischeduler.estimators.contract.description import DESCRIBE, info_from_json
from ischeduler.estimators.evidence import NoEvidence
from ischeduler.estimators.runtimes.limits import TRUSTED, AnswerBroken
from ischeduler.estimators.runtimes.words import clean
from ischeduler.ports import EstimateRequest, EstimatorInfo

DESCRIBE_MESSAGE = json.dumps(DESCRIBE).encode()
_DATE_SLACK_S = 86400.0


def request_message(request: EstimateRequest, trust: str) -> bytes:
    """What is sent. Code outside this process sees no variables of the environment; untrusted code less still."""
    return json.dumps(request_to_json(shown(request, trust)), separators=(",", ":"), allow_nan=False).encode()


def shown(request: EstimateRequest, trust: str) -> EstimateRequest:
    """The request without what an estimate does not need and others should not see.

    Never: the job's environment. Untrusted code: no folder, of the command the script's name alone, nobody's name in history.
    """
    work = replace(request.workload, environment=EnvironmentSpec())
    if trust == TRUSTED:
        return replace(request, workload=work)
    history = tuple(replace(r, owner="", run_id=f"r{number}") for number, r in enumerate(request.history))
    return replace(request, workload=_private(work), history=history)


def _private(work: Workload) -> Workload:
    scripts = tuple(a.rpartition("/")[2] for a in work.command if a.endswith(".py"))[:1]
    return replace(work, directory="", command=scripts)


def read_info(answer: bytes) -> EstimatorInfo:
    """Who answered a describe message; EstimatorFailed with a sentence."""
    return info_from_json(parsed(answer))


def read_answer(answer: bytes, request: EstimateRequest, info: EstimatorInfo) -> Estimate:
    """The checked estimate. NoEvidence for a quiet refusal, EstimatorFailed for one in words, AnswerBroken for anything else."""
    data = parsed(answer)
    if str(data.get("contract")) != VERSION:
        raise AnswerBroken(f"it answered in contract version {clean(data.get('contract'), 20)!r}; expected '{VERSION}'.")
    if "error" in data:
        words = clean(data["error"]) or "it gave no reason."
        raise NoEvidence(words) if data.get("quiet") is True else EstimatorFailed(words)
    if data.get("quantity") != request.quantity:
        raise AnswerBroken(f"it answered {clean(data.get('quantity'), 40)!r} where {request.quantity} was asked.")
    body = data.get("estimate")
    if not isinstance(body, Mapping):
        raise AnswerBroken("its answer has neither an estimate nor an error.")
    estimate = _estimate(cast("Mapping[str, Any]", body), info)
    if estimate.as_of is not None and estimate.as_of > request.now + _DATE_SLACK_S:
        raise AnswerBroken("its evidence is dated in the future.")
    try:
        return check_answer(request.quantity, estimate)
    except EstimatorFailed as error:
        raise AnswerBroken(str(error)) from None


def parsed(answer: bytes) -> Mapping[str, Any]:
    """The JSON object; AnswerBroken when it is none."""
    try:
        data = json.loads(answer, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        seen = clean(answer[:60].decode(errors="replace"))
        raise AnswerBroken(f"its answer is not JSON ({clean(error, 80)}): {seen!r}.") from None
    if not isinstance(data, Mapping):
        raise AnswerBroken(f"its answer is a JSON {type(data).__name__}; expected an object.")
    return cast("Mapping[str, Any]", data)


def _estimate(body: Mapping[str, Any], info: EstimatorInfo) -> Estimate:
    own = f"{info.name}@{info.version}"
    source = body.get("source")
    if source != own and not (isinstance(source, str) and source.startswith(f"{own}(") and source.endswith(")")):
        raise AnswerBroken(f"it says its source is '{clean(source, 80)}'; it was added as {own}: add the new version.")
    p10, p50, p90 = (_number(body, key) for key in ("p10", "p50", "p90"))
    if not p10 <= p50 <= p90:
        raise AnswerBroken(f"its quantiles are out of order: {p10:g}, {p50:g}, {p90:g}.")
    as_of = None if body.get("as_of") is None else _number(body, "as_of")
    basis = body.get("basis", info.basis)
    return Estimate(
        p10, p50, p90, clean(body.get("unit", ""), 40), clean(source), basis=clean(basis, 40), as_of=as_of,
        reason=clean(body.get("reason", "")),
    )


def _number(body: Mapping[str, Any], key: str) -> float:
    value = body.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise AnswerBroken(f"its {key} is {clean(value, 40)!r}; expected a number.")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise AnswerBroken(f"its {key} is not finite.")
    return number


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
