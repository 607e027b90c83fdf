"""Does an estimator keep the contract? One check for every kind of plug-in; ``isched estimator check NAME`` prints it."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from ischeduler.core.cluster import Accelerator, ChargePolicy, Cluster, NodeType, Partition
from ischeduler.core.errors import BadInput, EstimatorFailed
from ischeduler.core.estimate import BASES, Estimate
from ischeduler.core.history import HistoryRecord
from ischeduler.core.snapshot import NodeCounts, QueueSnapshot
from ischeduler.core.workload import Workload
from ischeduler.estimators.contract import (
    QUANTITIES,
    answer_from_json,
    answer_to_json,
    check_answer,
    request_from_json,
    request_to_json,
)
from ischeduler.estimators.runtimes.limits import AnswerBroken, RuntimeFailed
from ischeduler.estimators.runtimes.messages import parsed
from ischeduler.estimators.runtimes.plugin import PluginEstimator
from ischeduler.estimators.runtimes.words import clean
from ischeduler.ports import EstimateRequest, Estimator, EstimatorInfo

NOW = 1_800_000_000.0
TIME_LIMIT_S = 180.0
SECOND_LIMIT_S = 5.0
_SCALES = ("run_time", "cost")


BAD_MESSAGES: dict[str, bytes] = {
    "no JSON": b"{", "no object": b"[]", "another version": b'{"contract": "99", "quantity": "run_time"}',
    "an unknown quantity": b'{"contract": "1", "quantity": "colour", "now": 0, "workload": {}}',
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing checked. ``level`` is 'ok', 'note' (allowed, worth knowing) or 'broken'; ``text`` is a sentence."""

    check: str
    level: str
    text: str


def check(estimator: Estimator, *, workload: Workload | None = None, time_limit_s: float = TIME_LIMIT_S) -> list[Finding]:
    """Every finding, in order. No 'broken' among them means the estimator conforms."""
    findings = list(_info(estimator.info))
    if any(f.level == "broken" for f in findings):
        return findings
    for quantity in estimator.info.quantities:
        findings += _quantity(estimator, example(quantity, workload), time_limit_s)
    return findings


def check_plugin(estimator: Estimator, *, workload: Workload | None = None, time_limit_s: float = TIME_LIMIT_S) -> list[Finding]:
    """:func:`check`, and for a plug-in in a runtime of its own also what it makes of messages that nobody should send."""
    findings = check(estimator, workload=workload, time_limit_s=time_limit_s)
    if isinstance(estimator, PluginEstimator):
        findings += [_message(estimator, what, message) for what, message in BAD_MESSAGES.items()]
    return findings


def broken(findings: Iterable[Finding]) -> list[Finding]:
    """Only what breaks the contract."""
    return [f for f in findings if f.level == "broken"]


def example(quantity: str, workload: Workload | None = None) -> EstimateRequest:
    """A request with everything an estimator could want: a small model, one GPU node type, a live queue, eight finished runs."""
    card = Accelerator("v100-32g", 32 * 2**30, gres="v100", fp32_flops=15.7e12, bf16_flops=125e12, bandwidth_bytes_s=9e11)
    node = NodeType("gpu-v100", 48, 384 * 2**30, card, 2, 40)
    partition = Partition("gpu", ("gpu-v100",), max_walltime_s=7 * 86400.0)
    charge = ChargePolicy("core-gpu-hours", "RU", 0.003, {"gpu_weight": 30.0})
    cluster = Cluster("example", partitions=(partition,), node_types=(node,), charge=charge)
    counts = NodeCounts("gpu", "gpu-v100", idle=2, allocated=38, idle_gpus=4, total_gpus=80)
    snapshot = QueueSnapshot("example", NOW - 60, (counts,))
    work = workload or Workload(model="timm:resnet18", samples=20_000, epochs=10, batch_size=32, gpus=1, cpus=8)
    return EstimateRequest(quantity, work, NOW, cluster, partition, node, snapshot, tuple(_runs(work)))


def _runs(workload: Workload) -> Iterable[HistoryRecord]:
    for number in range(8):
        noise = 1 + 0.05 * math.sin(number)
        yield HistoryRecord(
            f"r-{number}", "run", "someone", workload.family, "example", "gpu", "gpu-v100", NOW - 86400.0 * (number + 1),
            accelerator="v100-32g", batch_size=workload.batch, grad_accum=workload.grad_accum, samples=workload.samples,
            epochs=workload.epochs, precision=workload.precision, optimizer=workload.optimizer, gpus=1, cpus=8,
            wait_s=600.0 * (number + 1), run_s=30 + 0.001 * noise * workload.samples * workload.epochs, startup_s=30.0,
            step_time_s=0.03 * noise, checkpoint_s=1.5, gpu_memory_bytes=4 * 2**30, host_memory_bytes=5 * 2**30, cause="finished",
        )


def _info(info: EstimatorInfo) -> Iterable[Finding]:
    for name, value in (("name", info.name), ("version", info.version)):
        if not value or any(c.isspace() or c == "@" for c in value):
            yield Finding("info", "broken", f"Its {name} is '{value}'; expected a word without spaces or @.")
    unknown = [q for q in info.quantities if q not in QUANTITIES]
    if unknown or not info.quantities:
        yield Finding("info", "broken", f"It answers {unknown or 'nothing'}; expected some of {', '.join(QUANTITIES)}.")
    if info.basis not in BASES:
        yield Finding("info", "broken", f"Its basis is '{info.basis}'; expected one of {', '.join(BASES)}.")
    yield Finding("info", "ok", f"{info.name}@{info.version} answers {', '.join(info.quantities)} by {info.basis}.")


def _quantity(estimator: Estimator, request: EstimateRequest, time_limit_s: float) -> list[Finding]:
    name = request.quantity
    started = time.monotonic()
    try:
        answer = estimator.estimate(request_from_json(json.loads(json.dumps(request_to_json(request)))))
    except (AnswerBroken, RuntimeFailed) as error:
        return [Finding(f"{name}: answers", "broken", f"Of the example: {error}")]
    except EstimatorFailed as error:
        return [_sentence(name, str(error))]
    except Exception as error:
        return [Finding(f"{name}: answers", "broken", f"It raised {type(error).__name__} ({error}) instead of EstimatorFailed.")]
    seconds = time.monotonic() - started
    findings = [_schema(name, answer)]
    if findings[0].level == "broken":
        return findings
    slow = seconds > time_limit_s
    findings.append(Finding(f"{name}: time", "broken" if slow else "ok", f"{seconds:.2f} s of {time_limit_s:.0f} s allowed."))
    findings.append(_spread(name, answer))
    findings.append(_again(estimator, request, answer))
    if name in _SCALES:
        findings += _scaling(estimator, request, answer)
    findings.append(_refusal(estimator, request))
    return findings


def _sentence(name: str, text: str) -> Finding:
    fine = len(text) >= 10 and " " in text and "\n" not in text
    if fine:
        return Finding(f"{name}: answers", "note", f"It has no answer to the example: {text}")
    return Finding(f"{name}: answers", "broken", f"It refused with {text!r}; expected one sentence of what was wrong.")


def _schema(name: str, answer: object) -> Finding:
    if not isinstance(answer, Estimate):
        return Finding(f"{name}: schema", "broken", f"It returned {type(answer).__name__}; expected an Estimate.")
    try:
        check_answer(name, answer)
        same = answer_from_json(json.loads(json.dumps(answer_to_json(name, answer))))
    except (EstimatorFailed, TypeError, ValueError) as error:
        return Finding(f"{name}: schema", "broken", str(error))
    if same != answer:
        return Finding(f"{name}: schema", "broken", "Its answer does not survive JSON; use plain numbers and text.")
    if "@" not in answer.source:
        return Finding(f"{name}: schema", "broken", f"Its source is '{answer.source}'; expected NAME@VERSION.")
    return Finding(f"{name}: schema", "ok", f"p10 {answer.p10:.4g}, p50 {answer.p50:.4g}, p90 {answer.p90:.4g} {answer.unit}.")


def _spread(name: str, answer: Estimate) -> Finding:
    if not answer.reason:
        return Finding(f"{name}: reason", "broken", "It gives no reason; say in words where the number comes from.")
    if answer.p10 == answer.p90 and answer.basis != "given":
        return Finding(f"{name}: interval", "note", "It claims certainty: p10 equals p90.")
    return Finding(f"{name}: interval", "ok", "Quantiles are in order and a reason is given.")


def _again(estimator: Estimator, request: EstimateRequest, answer: Estimate) -> Finding:
    started = time.monotonic()
    second = estimator.estimate(request)
    seconds = time.monotonic() - started
    if (second.p10, second.p50, second.p90) != (answer.p10, answer.p50, answer.p90):
        return Finding(f"{request.quantity}: determinism", "broken", f"Asked twice it said {answer.p50:g} and {second.p50:g}.")
    if seconds > SECOND_LIMIT_S:
        return Finding(f"{request.quantity}: determinism", "note", f"The second call took {seconds:.1f} s; keep what you know.")
    return Finding(f"{request.quantity}: determinism", "ok", "The same request has the same answer.")


def _scaling(estimator: Estimator, request: EstimateRequest, answer: Estimate) -> list[Finding]:
    changes: dict[str, Callable[[Workload], Workload]] = {
        "epochs": lambda w: replace(w, epochs=w.epochs * 3), "samples": lambda w: replace(w, samples=w.samples * 3),
    }
    findings: list[Finding] = []
    for what, change in changes.items():
        check_name = f"{request.quantity}: scaling in {what}"
        try:
            larger = estimator.estimate(replace(request, workload=change(request.workload)))
        except EstimatorFailed as error:
            findings.append(Finding(check_name, "note", f"It has no answer to three times the {what}: {error}"))
            continue
        ratio = larger.p50 / answer.p50 if answer.p50 else math.inf
        good = 1.2 <= ratio <= 4.5 or answer.basis == "given"
        text = f"Three times the {what} give {ratio:.2f} times the answer" + ("." if good else "; expected between 1.2 and 4.5.")
        findings.append(Finding(check_name, "ok" if good else "broken", text))
    return findings


def _refusal(estimator: Estimator, request: EstimateRequest) -> Finding:
    """A model that does not exist must be refused in a sentence, or the answer must not depend on the model."""
    name = f"{request.quantity}: bad input"
    work = replace(request.workload, model="no_such_module_anywhere:build_model", command=())
    bad = replace(request, workload=work, history=())
    try:
        estimator.estimate(bad)
    except (AnswerBroken, RuntimeFailed) as error:
        return Finding(name, "broken", f"On an unknown model: {error}")
    except (EstimatorFailed, BadInput) as error:
        return Finding(name, "ok" if " " in str(error) else "broken", f"It refuses an unknown model: {error}")
    except Exception as error:
        return Finding(name, "broken", f"On an unknown model it raised {type(error).__name__} instead of EstimatorFailed.")
    return Finding(name, "ok", "Its answer does not depend on the model.")


def _message(estimator: PluginEstimator, what: str, message: bytes) -> Finding:
    """A bad message must get a refusal in the contract's words and an orderly end."""
    name = f"message: {what}"
    try:
        answer = parsed(estimator.runtime.exchange(message))
    except EstimatorFailed as error:
        return Finding(name, "broken", f"Expected a refusal in JSON; {error}")
    words = answer.get("error")
    if isinstance(words, str) and " " in words:
        return Finding(name, "ok", f"It refuses: {clean(words, 120)}")
    return Finding(name, "broken", "Expected an error of one sentence in its answer.")
