"""Reads one message: checked once, quickly, on the way in. What is no event gets a reason that its sender can act on."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from ischeduler.core.incoming import Incoming
from ischeduler.service.ingest.shapes import DATA, REFERENCE, SEQ_MAX, Envelope

EVENT_BYTES_MAX = 64 * 1024
STREAMS: Mapping[str, frozenset[str] | None] = {
    "performance": frozenset({"performance"}),
    "progress": frozenset({"progress"}),
    "utilisation": frozenset({"utilisation", "heartbeat"}),
    "state": None,
}
"""Which kinds a topic carries; None: every kind."""
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


class Malformed(NamedTuple):
    """Why a message is no event; ``run`` is '' where it does not say."""

    reason: str
    run: str = ""


@cache
def _envelope() -> Callable[[bytes], Any]:
    return TypeAdapter(Envelope).validator.validate_json


@cache
def _data() -> dict[str, Callable[[Any], Any]]:
    return {kind: TypeAdapter(shape).validator.validate_python for kind, shape in DATA.items()}


def read_event(payload: bytes, kinds: frozenset[str] | None = None) -> Incoming | Malformed:
    """The event of one JSON text. ``kinds`` are those allowed here; None allows all."""
    if len(payload) > EVENT_BYTES_MAX:
        return Malformed(f"it has {len(payload)} bytes; an event has at most {EVENT_BYTES_MAX}")
    try:
        event = _envelope()(payload)
    except ValidationError as error:
        return Malformed(_why(error))
    return _checked(event, kinds)


def read_value(value: Any) -> Incoming | Malformed:
    """The event of a value that was JSON before, one of a batch."""
    try:
        event = _envelope_value()(value)
    except ValidationError as error:
        run = value.get("run", "") if isinstance(value, dict) else ""
        return Malformed(_why(error), run if isinstance(run, str) else "")
    return _checked(event, None, limit=EVENT_BYTES_MAX)


@cache
def _envelope_value() -> Callable[[Any], Any]:
    return TypeAdapter(Envelope).validator.validate_python


def _checked(event: Mapping[str, Any], kinds: frozenset[str] | None, *, limit: int = 0) -> Incoming | Malformed:
    kind, run, data = event["kind"], event["run"], event["data"]
    if kinds is not None and kind not in kinds:
        return Malformed(f"kind '{kind}' does not belong here; expected {' or '.join(sorted(kinds))}", run)
    check = _data().get(kind)
    if check is not None:
        try:
            check(data)
        except ValidationError as error:
            return Malformed(f"data: {_why(error)}", run)
    text = _text(data)
    if text is None or (limit and len(text) > limit):
        return Malformed("its text holds a NUL character" if text is None else f"its data has more than {limit} bytes", run)
    return Incoming(run, "job", event["token"], event["seq"], kind, event["t"], text)


def _text(data: Any) -> str | None:
    """JSON text for the database; None where it holds a NUL, which PostgreSQL's text cannot."""
    text = to_json(data, inf_nan_mode="strings").decode()
    return None if "\\u0000" in text and _NUL.search(text) else text


def _why(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}" if where else first["msg"]


class ReferenceMessage(NamedTuple):
    """A message of the reference implementation: whose job, which kind, and its figures as ours."""

    job: str
    kind: str
    data: str


@cache
def _reference(topic: str) -> Callable[[bytes], Any]:
    return TypeAdapter(REFERENCE[topic]).validator.validate_json


def read_reference(topic: str, payload: bytes) -> ReferenceMessage | Malformed:
    """One of ``performance-messages``, ``progress-messages``, ``utilization-messages``."""
    if len(payload) > EVENT_BYTES_MAX:
        return Malformed(f"it has {len(payload)} bytes; a message has at most {EVENT_BYTES_MAX}")
    try:
        message = dict(_reference(topic)(payload))
    except ValidationError as error:
        return Malformed(_why(error))
    job = str(message.pop("jobId"))
    kind = {"performance-messages": "performance", "progress-messages": "progress"}.get(topic, "utilisation")
    if kind == "progress":
        message["epoch"] = message.pop("epochsCompleted")
        if "totalEpochs" in message:
            message["epochs"] = message.pop("totalEpochs")
    text = _text(message)
    if text is None or "\0" in job or len(job) > 200:
        return Malformed("its text holds a NUL character, or its jobId more than 200 characters")
    return ReferenceMessage(job, kind, text)


def numbered(message: ReferenceMessage, run: str, token: str, source: str, seq: int, at: float) -> Incoming:
    """The event of a reference message. It has no number of its own, so its place in its partition is it."""
    return Incoming(run, source, token, min(seq, SEQ_MAX), message.kind, at, message.data)
