"""What a message must look like, version 1. The JSON Schemas that are shipped are made from these types.

``python -m ischeduler.service.ingest.shapes`` writes them anew; a test keeps them equal. Within a version fields are only
added, and a field that is not known here is kept as it came.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, TypeAdapter
from typing_extensions import TypedDict

SCHEMAS = Path(__file__).parent / "schemas"
_OPEN = ConfigDict(strict=True, extra="allow")
SEQ_MAX = 2**62

Count = Annotated[int, Field(ge=0, le=SEQ_MAX)]
Seconds = Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)]
Measure = float | Literal["nan", "inf", "-inf", "NaN", "Infinity", "-Infinity"]
"""A number, or the word that stands for one that JSON has not."""
RunId = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
TokenText = Annotated[str, Field(max_length=19, pattern=r"^[0-9]{1,9}\.[0-9]{1,9}$")]
Kind = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")]


class Envelope(TypedDict):
    """One event, as it also stands in a spool. ``seq`` counts from 1 for each run and token."""

    __pydantic_config__ = _OPEN  # pyright: ignore[reportGeneralTypeIssues, reportIncompatibleVariableOverride]
    v: Literal[1]
    run: RunId
    token: TokenText
    seq: Annotated[int, Field(ge=1, le=SEQ_MAX)]
    t: Seconds
    kind: Kind
    data: dict[str, Any]


class Progress(TypedDict):
    """How far the training is: finished epochs and steps of the whole run."""

    __pydantic_config__ = _OPEN  # pyright: ignore[reportGeneralTypeIssues, reportIncompatibleVariableOverride]
    epoch: NotRequired[Count]
    epochs: NotRequired[Count]
    step: NotRequired[Count]
    steps: NotRequired[Count]
    loss: NotRequired[Measure]
    step_time_s: NotRequired[Measure]
    epoch_time_s: NotRequired[Measure]


class Performance(TypedDict):
    """How good the model is."""

    __pydantic_config__ = _OPEN  # pyright: ignore[reportGeneralTypeIssues, reportIncompatibleVariableOverride]
    accuracy: NotRequired[Measure]
    fmeasure: NotRequired[Measure]
    precision: NotRequired[Measure]
    recall: NotRequired[Measure]


class Utilisation(TypedDict):
    """What the node is busy with, each a table of figures."""

    __pydantic_config__ = _OPEN  # pyright: ignore[reportGeneralTypeIssues, reportIncompatibleVariableOverride]
    cpu: NotRequired[dict[str, Measure]]
    memory: NotRequired[dict[str, Measure]]
    swap: NotRequired[dict[str, Measure]]
    gpu: NotRequired[list[dict[str, Any]]]


class Heartbeat(TypedDict):
    """The wrapper lives; its job's memory since the last one."""

    __pydantic_config__ = _OPEN  # pyright: ignore[reportGeneralTypeIssues, reportIncompatibleVariableOverride]
    rss_bytes: NotRequired[Count]
    rss_peak_bytes: NotRequired[Count]
    cpu_percent: NotRequired[Measure | None]
    gpu: NotRequired[list[dict[str, Any]] | None]


class Checkpoint(TypedDict):
    """A checkpoint was published."""

    __pydantic_config__ = _OPEN  # pyright: ignore[reportGeneralTypeIssues, reportIncompatibleVariableOverride]
    name: str
    epoch: Count
    step: Count
    bytes: NotRequired[Count]
    save_s: NotRequired[Measure]


class Exit(TypedDict):
    """The wrapper's last word."""

    __pydantic_config__ = _OPEN  # pyright: ignore[reportGeneralTypeIssues, reportIncompatibleVariableOverride]
    code: NotRequired[int | None]
    reason: NotRequired[str]


class ReferencePerformance(TypedDict):
    """``performance-messages``."""

    __pydantic_config__ = _OPEN  # pyright: ignore[reportGeneralTypeIssues, reportIncompatibleVariableOverride]
    jobId: str | int
    accuracy: NotRequired[Measure]
    fmeasure: NotRequired[Measure]
    precision: NotRequired[Measure]
    recall: NotRequired[Measure]


class ReferenceProgress(TypedDict):
    """``progress-messages``."""

    __pydantic_config__ = _OPEN  # pyright: ignore[reportGeneralTypeIssues, reportIncompatibleVariableOverride]
    jobId: str | int
    epochsCompleted: Count
    totalEpochs: NotRequired[Count]
    days: NotRequired[Measure]
    hours: NotRequired[Measure]
    minutes: NotRequired[Measure]


class ReferenceUtilisation(TypedDict):
    """``utilization-messages``."""

    __pydantic_config__ = _OPEN  # pyright: ignore[reportGeneralTypeIssues, reportIncompatibleVariableOverride]
    jobId: str | int
    cpu: NotRequired[dict[str, Measure]]
    memory: NotRequired[dict[str, Measure]]
    swap: NotRequired[dict[str, Measure]]


DATA: dict[str, type] = {
    "progress": Progress, "performance": Performance, "utilisation": Utilisation, "heartbeat": Heartbeat,
    "checkpoint": Checkpoint, "exit": Exit,
}  # fmt: skip
REFERENCE: dict[str, type] = {
    "performance-messages": ReferencePerformance,
    "progress-messages": ReferenceProgress,
    "utilization-messages": ReferenceUtilisation,
}


def schemas() -> dict[str, dict[str, Any]]:
    """File name to JSON Schema (draft 2020-12) of every message."""
    event = _schema(Envelope, "event-1", "An event from inside a job")
    cases: list[dict[str, Any]] = []
    for kind, shape in DATA.items():
        data = TypeAdapter(shape).json_schema()
        cases.append({"if": {"properties": {"kind": {"const": kind}}}, "then": {"properties": {"data": data}}})
    event["allOf"] = cases
    found = {"event-1.json": event}
    for topic, shape in REFERENCE.items():
        found[f"{topic}-1.json"] = _schema(shape, f"{topic}-1", f"A message of the topic {topic}")
    return found


def _schema(shape: type, name: str, title: str) -> dict[str, Any]:
    body = TypeAdapter(shape).json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"urn:ischeduler:{name}", **body, "title": title,
    }  # fmt: skip


def main() -> None:
    """Write the files."""
    for name, schema in schemas().items():
        (SCHEMAS / name).write_text(json.dumps(schema, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
