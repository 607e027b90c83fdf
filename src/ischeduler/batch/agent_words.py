"""How requests to an agent and its answers are worded: plain JSON both ways, errors as words that keep their kind. Pure but for zlib."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from typing import Any

from ischeduler.core.errors import BadInput, BatchUnavailable, IschedError, SubmitRefused, SubmitUncertain

KINDS = ("submit", "observe", "cancel", "snapshot", "probe", "prepare", "fence", "control", "log", "discover")
PACK_ABOVE_BYTES = 32 * 1024
LARGEST_BYTES = 64 * 2**20
"""An answer's largest size once unpacked."""


def told(value: Any) -> dict[str, Any]:
    """An answer that is a value, packed when it is long (the queue of a large cluster)."""
    text = json.dumps(value, separators=(",", ":")).encode()
    if len(text) <= PACK_ABOVE_BYTES:
        return {"ok": value}
    return {"packed": base64.b64encode(zlib.compress(text, 6)).decode()}


def failed(error: Exception) -> dict[str, Any]:
    """An answer that is an error."""
    kind = (
        "refused" if isinstance(error, SubmitRefused)
        else "uncertain" if isinstance(error, SubmitUncertain)
        else "bad" if isinstance(error, BadInput)
        else "os" if isinstance(error, OSError)
        else "unavailable"
    )  # fmt: skip
    limit = error.kind if isinstance(error, SubmitRefused) else ""
    return {"error": {"kind": kind, "message": str(error)[:2000], "refusal": limit}}


def value_of(answer: Mapping[str, Any]) -> Any:
    """The value of an answer; raises its error. BatchUnavailable for an answer that makes no sense."""
    error = answer.get("error")
    if isinstance(error, Mapping):
        raise _error(
            str(error.get("kind")),
            str(error.get("message") or "the agent failed without a word"),
            str(error.get("refusal") or ""),
        )
    if "packed" in answer:
        return _unpacked(str(answer["packed"]))
    if "ok" not in answer:
        raise BatchUnavailable("the agent's answer makes no sense; is it of another version?")
    return answer["ok"]


def _error(kind: str, message: str, refusal: str) -> IschedError | OSError:
    if kind == "refused":
        return SubmitRefused(message, kind=refusal or "invalid")
    if kind == "uncertain":
        return SubmitUncertain(message)
    if kind == "os":
        return OSError(message)
    return BadInput(message) if kind == "bad" else BatchUnavailable(message)


def _unpacked(text: str) -> Any:
    try:
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(base64.b64decode(text, validate=True), LARGEST_BYTES)
        if unpacker.unconsumed_tail:
            raise BatchUnavailable(f"the agent's answer is longer than {LARGEST_BYTES >> 20} MiB.")
        return json.loads(data)
    except (ValueError, zlib.error):
        raise BatchUnavailable("the agent's answer cannot be unpacked.") from None
