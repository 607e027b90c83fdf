"""Every object of the vocabulary survives JSON, whatever it holds."""

from __future__ import annotations

import dataclasses
import json
import math
import typing
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ischeduler.core import (
    blocker,
    charging,
    cluster,
    estimate,
    event,
    history,
    jobs,
    memory_model,
    plan,
    run,
    snapshot,
    workload,
)
from ischeduler.core.codec import from_plain, to_plain
from ischeduler.core.elastic import RATE_RULES, Elastic
from ischeduler.core.estimate import Estimate
from ischeduler.core.service import Service
from ischeduler.core.workload import PRECISIONS, Workload

MODULES = (blocker, charging, cluster, estimate, event, history, jobs, memory_model, plan, run, snapshot, workload)
KINDS = sorted(
    {
        kind for module in MODULES for kind in vars(module).values()
        if isinstance(kind, type) and dataclasses.is_dataclass(kind) and kind.__module__ == module.__name__
    },
    key=lambda kind: kind.__name__,
)

numbers = st.floats(allow_nan=False)
names = st.text(max_size=8)
plain = st.recursive(st.none() | st.booleans() | st.integers() | names, lambda inner: st.lists(inner, max_size=2), max_leaves=3)


@st.composite
def _estimates(draw: st.DrawFn) -> Estimate:
    return Estimate(*sorted(draw(st.lists(numbers, min_size=3, max_size=3))), draw(names), draw(names), as_of=draw(st.none() | numbers))


_SIZES = st.integers(1, 512) | st.lists(st.integers(1, 512), min_size=2, max_size=3, unique=True).map(tuple)
_positive = st.floats(0.001, 1e9)
_services = st.builds(
    Service, ready_file=names, ready_port=st.integers(0, 65535), ready_url=st.sampled_from(("", "/ready", "https://a.example.org/x")),
    for_s=st.none() | _positive, restarts=st.integers(0, 9), linger_s=_positive, drain_s=_positive,
)  # fmt: skip
_elastic = st.builds(Elastic, st.lists(st.integers(1, 64), max_size=2).map(tuple), st.just("scale"), st.sampled_from(RATE_RULES), st.none() | st.just((2, 8, 1)))
_SPECIAL: dict[type, st.SearchStrategy[Any]] = {Estimate: _estimates(), float: numbers, str: names, int: st.integers(), Service: _services, Elastic: _elastic}


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Any value of a type hint, as the codec must be able to carry it."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return plain
    if hint in _SPECIAL:
        return _SPECIAL[hint]
    if dataclasses.is_dataclass(hint):
        return instances(hint)
    if origin is frozenset:
        return st.frozensets(values(args[0]), max_size=2)
    if origin is tuple:
        variable = len(args) == 2 and args[1] is Ellipsis
        return st.lists(values(args[0]), max_size=2).map(tuple) if variable else st.tuples(*(values(a) for a in args))
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return st.dictionaries(names, values(args[1]), max_size=2)
    if args:
        return st.one_of(*(st.none() if a is type(None) else values(a) for a in args))
    return st.from_type(hint)


def instances(kind: Any) -> st.SearchStrategy[Any]:
    """Instances of a dataclass with every field drawn; a Workload's own rules are kept."""
    hints = typing.get_type_hints(kind)
    fields = {f.name: st.deferred(lambda h=hints[f.name]: values(h)) for f in dataclasses.fields(kind) if f.init}
    if kind is Workload:
        counts = dict.fromkeys(("samples", "epochs", "grad_accum", "eval_samples", "workers", "nodes"), st.integers(1, 10**6))
        chosen = {k: st.none() | st.integers(1, 10**6) for k in ("gpus", "cpus", "memory_bytes")}
        fields |= {"batch_size": _SIZES, "precision": st.sampled_from(PRECISIONS), **counts, **chosen}
    return st.builds(kind, **fields)


def test_the_vocabulary_is_all_here() -> None:
    assert {"Workload", "Cluster", "Plan", "PlanSet", "Run", "Attempt", "Event", "QueueSnapshot", "Observation"} <= {k.__name__ for k in KINDS}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_there_and_back_again(kind: type, data: st.DataObject) -> None:
    value = data.draw(values(kind))
    text = json.dumps(to_plain(value), allow_nan=False)
    assert from_plain(kind, json.loads(text)) == value


def test_infinity_is_a_word_because_json_has_none() -> None:
    assert json.dumps(to_plain(Estimate(0, 1, math.inf, "s", "x@1")), allow_nan=False).count('"inf"') == 1
    assert from_plain(Estimate, {"p10": "-inf", "p50": 0, "p90": "inf", "unit": "s", "source": "x"}).p90 == math.inf


def test_a_newer_writer_is_understood_and_defaults_fill_what_an_older_one_left_out() -> None:
    plain_workload = {"model": "timm:resnet50", "batch_size": [32, 64], "invented_later": {"x": 1}}
    assert from_plain(Workload, plain_workload) == Workload(model="timm:resnet50", batch_size=(32, 64))
