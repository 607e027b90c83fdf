"""The check on the way in: quick, strict where the plane relies on it, and never surprised."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from ischeduler.core.incoming import Incoming
from ischeduler.service.ingest.admission import JobTokens
from ischeduler.service.ingest.messages import (
    EVENT_BYTES_MAX,
    STREAMS,
    Malformed,
    ReferenceMessage,
    read_event,
    read_reference,
    read_value,
)
from ischeduler.service.ingest.sender import as_text
from ischeduler.service.ingest.shapes import DATA, REFERENCE, SCHEMAS, schemas
from ischeduler.training.push import as_json
from ischeduler.training.spool import SpoolEvent
from ischeduler.training.token import Token

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
FIELDS = sorted({name for shape in DATA.values() for name in shape.__annotations__ if not name.startswith("__")})


def event(**changed: Any) -> dict[str, Any]:
    whole = {"v": 1, "run": "r-1", "token": "3.0", "seq": 7, "t": 1.7e9, "kind": "progress", "data": {"step": 3, "loss": 0.5}}
    return {k: v for k, v in (whole | changed).items() if v is not ...}


def read(value: Any) -> Incoming | Malformed:
    return read_event(json.dumps(value).encode())


def test_a_spools_event_is_read_as_it_is():
    spool = SpoolEvent("r-1", Token(3, 1), 7, 1.7e9, "heartbeat", {"rss_bytes": 5, "gpu": None, "cpu_percent": 12.5})
    found = read(as_json(spool))
    assert found == Incoming("r-1", "job", "3.1", 7, "heartbeat", 1.7e9, '{"rss_bytes":5,"gpu":null,"cpu_percent":12.5}')
    assert isinstance(found, Incoming)
    assert read_event(as_text(found).encode()) == found


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"v": 2}, "v: "), ({"v": ...}, "v: "), ({"seq": 0}, "seq: "), ({"seq": True}, "seq: "), ({"seq": 1.5}, "seq: "),
        ({"seq": 2**63}, "seq: "), ({"token": "3"}, "token: "), ({"token": "3.0\n"}, "token: "), ({"run": ""}, "run: "),
        ({"run": "../etc"}, "run: "), ({"run": "a" * 65}, "run: "), ({"t": -1.0}, "t: "), ({"t": "now"}, "t: "), ({"kind": "Exit"}, "kind: "),
        ({"kind": "x" * 33}, "kind: "), ({"data": []}, "data: "), ({"data": {"step": -1}}, "data: step"), ({"data": {"step": "3"}}, "data: step"),
        ({"data": {"loss": "big"}}, "data: loss"), ({"data": {"a": "x\0y"}}, "NUL"), ({"data": {"a\0": 1}}, "NUL"),
        ({"kind": "checkpoint", "data": {"name": "e1"}}, "data: epoch"), ({"kind": "exit", "data": {"code": "0"}}, "data: code"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(changed: dict[str, Any], word: str):
    found = read(event(**changed))
    assert isinstance(found, Malformed)
    assert word in found.reason


def test_numbers_that_json_has_not_are_kept_as_words():
    assert isinstance(read(event(data={"loss": "nan"})), Incoming)
    found = read_event(b'{"v":1,"run":"r-1","token":"1.0","seq":1,"t":1,"kind":"progress","data":{"loss":NaN,"step":1}}')
    assert isinstance(found, Incoming)
    assert json.loads(found.data) == {"loss": "NaN", "step": 1}


def test_unknown_fields_and_kinds_are_kept():
    found = read(event(kind="moved_in", data={"x": [1, {"y": None}], "backslash": "\\u0000"}, more=1))
    assert isinstance(found, Incoming)
    assert json.loads(found.data) == {"x": [1, {"y": None}], "backslash": "\\u0000"}


def test_topics_carry_their_kinds():
    text = json.dumps(event()).encode()
    assert isinstance(read_event(text, STREAMS["progress"]), Incoming)
    assert isinstance(read_event(text, STREAMS["state"]), Incoming)
    refused = read_event(text, STREAMS["utilisation"])
    assert refused == Malformed("kind 'progress' does not belong here; expected heartbeat or utilisation", "r-1")


def test_size_has_a_limit_by_every_way():
    large = event(data={"text": "x" * EVENT_BYTES_MAX})
    assert "at most" in read_event(json.dumps(large).encode()).reason  # pyright: ignore[reportAttributeAccessIssue]
    assert "more than" in read_value(large).reason  # pyright: ignore[reportAttributeAccessIssue]


@given(st.binary(max_size=200))
def test_no_bytes_surprise_it(payload: bytes):
    assert isinstance(read_event(payload), (Incoming, Malformed))
    for topic in REFERENCE:
        assert isinstance(read_reference(topic, payload), (ReferenceMessage, Malformed))


@given(JSON, st.sampled_from([*event(), "more"]))
def test_no_value_surprises_it(value: Any, place: str):
    for found in (read_value(value), read_value(event(**{place: value})), read(event(**{place: value}))):
        if isinstance(found, Incoming):
            assert 0 <= found.at <= 1e11
            assert "\0" not in found.run + found.kind + found.token
            assert isinstance(json.loads(found.data), dict)


def _plain(value: Any) -> bool:
    """Values that JSON Schema and the reader must judge alike: no NaN, and no 1.0, which JSON Schema takes for an integer."""
    if isinstance(value, float):
        return math.isfinite(value) and value != int(value)
    if isinstance(value, str):
        return "\0" not in value and value.isprintable()
    if isinstance(value, dict):
        return all(_plain(k) and _plain(v) for k, v in value.items())
    return all(map(_plain, value)) if isinstance(value, list) else True


@given(st.sampled_from(sorted(DATA)), st.dictionaries(st.sampled_from(FIELDS), JSON.filter(_plain), max_size=4))
def test_the_shipped_schema_and_the_reader_judge_alike(kind: str, data: dict[str, Any]):
    value = event(kind=kind, data=data)
    assert isinstance(read(value), Incoming) == Draft202012Validator(schemas()["event-1.json"]).is_valid(value)


def test_the_shipped_schemas_are_those_of_the_types():
    written = {path.name: json.loads(path.read_text()) for path in SCHEMAS.glob("*.json")}
    assert written == schemas(), "run: python -m ischeduler.service.ingest.shapes"
    for schema in written.values():
        Draft202012Validator.check_schema(schema)


def test_reference_messages_become_ours():
    body = {"epochsCompleted": 3, "totalEpochs": 10, "days": 0, "hours": 1, "minutes": 5, "jobId": 42}
    found = read_reference("progress-messages", json.dumps(body).encode())
    assert isinstance(found, ReferenceMessage)
    assert (found.job, found.kind, json.loads(found.data)) == ("42", "progress", {"epoch": 3, "epochs": 10, "days": 0, "hours": 1, "minutes": 5})
    assert isinstance(read_reference("progress-messages", b'{"jobId": "1"}'), Malformed)
    assert isinstance(read_reference("utilization-messages", b'{"cpu": {}}'), Malformed)


class Row:
    def __init__(self, run_id: str, *scopes: str) -> None:
        self.run_id, self.scopes = run_id, scopes


class Tokens:
    def __init__(self) -> None:
        self.rows = {"isj_a": Row("r-1", "events"), "isj_b": Row("r-1", "read")}
        self.asked: list[set[str]] = []

    def recognise_all(self, texts: set[str]) -> dict[str, Row]:
        self.asked.append(set(texts))
        return {t: self.rows[t] for t in texts if t in self.rows}


def test_a_jobs_token_speaks_for_its_run_and_is_asked_for_now_and_then():
    tokens, now = Tokens(), [0.0]
    admit = JobTokens(tokens, trust_s=60.0, clock=lambda: now[0])  # pyright: ignore[reportArgumentType]
    shown = {("r-1", b"isj_a"), ("r-2", b"isj_a"), ("r-1", b"isj_b"), ("r-1", None), ("r-1", b"\xff"), ("r-1", b"x" * 201)}
    assert set(admit(shown)) == {("r-1", b"isj_a")}
    assert set(admit(shown)) == {("r-1", b"isj_a")}
    assert len(tokens.asked) == 1
    now[0] = 61.0
    del tokens.rows["isj_a"]
    assert set(admit(shown)) == set()
