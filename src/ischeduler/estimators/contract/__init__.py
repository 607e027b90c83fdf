"""The estimator contract: which quantities there are, in what unit and range, and requests and answers as JSON.

Version 1's JSON schema is shipped beside this file (``v1.json``). It is the same for every kind of plug-in.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from ischeduler.core.cluster import Cluster, NodeType, Partition
from ischeduler.core.codec import from_plain, to_plain
from ischeduler.core.errors import BadInput, EstimatorFailed
from ischeduler.core.estimate import BASES, Estimate
from ischeduler.core.history import HistoryRecord
from ischeduler.core.snapshot import QueueSnapshot
from ischeduler.core.workload import Workload
from ischeduler.ports import EstimateRequest

VERSION = "1"
_YEAR_S = 366 * 86400.0


@dataclass(frozen=True, slots=True)
class Quantity:
    """What an answer must look like: unit ('' where it varies), plausible largest value, and what a request must name."""

    name: str
    unit: str
    largest: float
    needs: tuple[str, ...] = ()
    per_data: bool = False


QUANTITIES: dict[str, Quantity] = {
    q.name: q
    for q in (
        Quantity("gpu_memory", "bytes", 1e14, ("node_type",)),
        Quantity("host_memory", "bytes", 1e14, ("node_type",)),
        Quantity("step_time", "s", 86400.0, ("node_type",)),
        Quantity("startup", "s", 86400.0),
        Quantity("checkpoint", "s", 86400.0),
        Quantity("run_time", "s", 10 * _YEAR_S, ("node_type",), per_data=True),
        Quantity("queue_wait", "s", _YEAR_S, ("cluster", "partition")),
        Quantity("cost", "", 1e12, ("cluster", "partition", "node_type"), per_data=True),
    )
}


def schema() -> dict[str, Any]:
    """The JSON schema of requests and answers."""
    return json.loads(resources.files(__name__).joinpath("v1.json").read_text("utf-8"))


def check_request(request: EstimateRequest) -> None:
    """BadInput with a sentence when a request cannot be answered by anyone."""
    quantity = QUANTITIES.get(request.quantity)
    if quantity is None:
        raise BadInput(f"Quantity '{request.quantity}' is unknown; expected one of {', '.join(QUANTITIES)}.")
    for name in quantity.needs:
        if getattr(request, name) is None:
            raise BadInput(f"Quantity '{request.quantity}' needs a {name}; the request has none.")
    if isinstance(request.workload.batch_size, tuple):
        raise BadInput("An estimate is of one batch size; ask once for each of the workload's variants.")
    if quantity.per_data and request.workload.samples < 1:
        raise BadInput(f"Quantity '{request.quantity}' needs the number of samples; set samples (e.g. --samples 20000).")
    if math.isnan(request.now) or math.isinf(request.now):
        raise BadInput("A request's time must be a finite number of seconds since the epoch.")


def check_answer(quantity: str, estimate: Estimate) -> Estimate:
    """The estimate itself; EstimatorFailed with a sentence when it breaks the contract (unit, sign, range, basis)."""
    rule = QUANTITIES[quantity]
    who = estimate.source or "an unnamed estimator"
    if rule.unit and estimate.unit != rule.unit:
        raise EstimatorFailed(f"{who} answered {quantity} in '{estimate.unit}'; expected '{rule.unit}'.")
    if estimate.p10 < 0:
        raise EstimatorFailed(f"{who} answered a negative {quantity} ({estimate.p10:g}); expected zero or more.")
    if math.isinf(estimate.p90) or estimate.p90 > rule.largest:
        raise EstimatorFailed(f"{who} answered {quantity} of {estimate.p90:g}; nothing beyond {rule.largest:g} is plausible.")
    if estimate.basis not in BASES:
        raise EstimatorFailed(f"{who} says its basis is '{estimate.basis}'; expected one of {', '.join(BASES)}.")
    return estimate


def request_to_json(request: EstimateRequest) -> dict[str, Any]:
    """A request as plain JSON, version included."""
    return {"contract": VERSION, **to_plain(request)}


def request_from_json(data: Mapping[str, Any]) -> EstimateRequest:
    """The request of :func:`request_to_json`; BadInput on another version or a malformed one."""
    _check_version(data)
    optional = {"cluster": Cluster, "partition": Partition, "node_type": NodeType, "snapshot": QueueSnapshot}
    try:
        parts = {k: from_plain(t, data[k]) for k, t in optional.items() if data.get(k) is not None}
        history = tuple(from_plain(HistoryRecord, r) for r in data.get("history", ()))
        workload = from_plain(Workload, data["workload"])
        return EstimateRequest(
            str(data["quantity"]), workload, float(data["now"]), history=history, options=dict(data.get("options", {})), **parts
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadInput(f"The request is malformed ({type(error).__name__}: {error}); see contract {VERSION}'s schema.") from None


def answer_to_json(quantity: str, estimate: Estimate) -> dict[str, Any]:
    """An answer as plain JSON."""
    return {"contract": VERSION, "quantity": quantity, "estimate": to_plain(estimate)}


def failure_to_json(quantity: str, sentence: str) -> dict[str, Any]:
    """A refusal as plain JSON."""
    return {"contract": VERSION, "quantity": quantity, "error": sentence}


def answer_from_json(data: Mapping[str, Any]) -> Estimate:
    """The checked estimate of an answer; EstimatorFailed on a refusal or a malformed answer."""
    _check_version(data)
    if "error" in data:
        raise EstimatorFailed(str(data["error"]))
    quantity = str(data.get("quantity", ""))
    if quantity not in QUANTITIES:
        raise EstimatorFailed(f"The answer's quantity '{quantity}' is unknown; expected one of {', '.join(QUANTITIES)}.")
    try:
        estimate = from_plain(Estimate, data["estimate"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise EstimatorFailed(f"The answer is malformed ({type(error).__name__}: {error}).") from None
    return check_answer(quantity, estimate)


def _check_version(data: Mapping[str, Any]) -> None:
    version = data.get("contract")
    if str(version) != VERSION:
        raise BadInput(f"Contract version {version!r} is not spoken here; expected '{VERSION}'.")
